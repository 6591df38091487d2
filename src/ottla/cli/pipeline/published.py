"""`ottla pipeline status --all`, `stop` and `forget`: the pipelines that have published to a cluster, without their files."""

from __future__ import annotations

import getpass
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ottla.cli.connection import Connection, split_servers
from ottla.cli.failure import Failure, did_you_mean
from ottla.cli.output import note, print_document, print_table
from ottla.client.blocking import BrokerAway, Client
from ottla.client.options import ClientOptions
from ottla.errors import KafkaError
from ottla.pipelines.published import requests, topic
from ottla.pipelines.published.documents import now_ms
from ottla.pipelines.published.view import PublishedFlow, PublishedPipeline, pipelines

_TIMEOUT_MS = 10_000
_STOP_TIMEOUT_S = 120.0
_STOP_PAUSE_S = 0.5


def show_all(connection: Connection, *, json_output: bool) -> None:
    with _client(connection) as client:
        found = pipelines(topic.Reader(client).poll())
    now = now_ms()
    if json_output:
        print_document({"pipelines": [pipeline_document(each, now) for each in found]})
    elif not found:
        note("no pipeline has published its progress to this cluster")
    else:
        print_table(
            ["PIPELINE", "FLOW", "STATE", "BATCH", "ROWS/S", "OUT", "LAG", "DEAD", "CHECKPOINT", "HEARD", "DRIVER", "ERROR"],
            [_row(pipeline, flow, now) for pipeline in found for flow in pipeline.flows],
            right=["BATCH", "ROWS/S", "OUT", "LAG", "DEAD", "CHECKPOINT", "HEARD"],
            none="-",
        )


def documents(connection: Connection) -> list[dict[str, Any]]:
    """What all pipelines have published."""
    with _client(connection) as client:
        found = pipelines(topic.Reader(client).poll())
    return [pipeline_document(each, now_ms()) for each in found]


def dead_letter_topics(connection: Connection) -> dict[str, list[str]]:
    """The dead-letter topics of pipelines that have published their plans, each with the names of its pipelines."""
    with _client(connection) as client:
        found = pipelines(topic.Reader(client).poll())
    letters: dict[str, list[str]] = {}
    for pipeline in found:
        for name in sorted(
            {str(source["dead_letter"]) for source in pipeline.plan.get("sources", ()) if source.get("dead_letter")}
        ):
            letters.setdefault(name, []).append(pipeline.name)
    return letters


def forget(connection: Connection, name: str) -> None:
    """Remove what a pipeline has published. Failure if it still publishes."""
    with _client(connection) as client:
        latest = topic.Reader(client).poll()
        keys = [key for key in latest if key.partition("/")[0] == name]
        if not keys:
            raise _not_published(name, latest)
        for pipeline in pipelines(latest):
            if pipeline.name == name and pipeline.runs(now_ms()):
                raise Failure(f"pipeline {name} runs on {_driver(pipeline)}", "stop it first: it would publish again")
        topic.append(client, dict.fromkeys(keys))
    note(f"pipeline {name} removed from {topic.TOPIC}; its topics, groups and checkpoints stay")


def ask_to_stop(connection: Connection, name: str, by: str | None) -> str:
    """Ask the driver of a pipeline to stop between two batches. Returns the id of its run. Failure if it does not run."""
    with _client(connection) as client:
        latest = topic.Reader(client).poll()
        found = {pipeline.name: pipeline for pipeline in pipelines(latest)}
        if name not in found:
            raise _not_published(name, latest)
        if not found[name].runs(now_ms()):
            raise Failure(
                f"pipeline {name} is {found[name].state(now_ms())}",
                "only a pipeline that runs can be stopped",
                code="NOT_RUNNING",
            )
        run = str(found[name].plan["run"])
        topic.append(client, requests.stop_request(name, run, by))
        return run


def stop(connection: Connection, name: str) -> None:
    """Ask, and wait until the driver has stopped."""
    run = ask_to_stop(connection, name, getpass.getuser())
    with _client(connection) as client:
        reader, until_s = topic.Reader(client), time.monotonic() + _STOP_TIMEOUT_S
        while time.monotonic() < until_s:
            (pipeline,) = [each for each in pipelines(reader.poll()) if each.name == name]
            if pipeline.plan["run"] != run or not pipeline.runs(now_ms()):
                note(f"pipeline {name} is {pipeline.state(now_ms())}")
                return
            time.sleep(_STOP_PAUSE_S)
    raise Failure(
        f"pipeline {name} still runs", "its batch takes long, or its driver is older than this command and does not listen"
    )


def client_of(connection: Connection) -> Client:
    """Failure if no broker answers. BrokerAway and KafkaError come from its calls."""
    connection.reach()
    servers = tuple(split_servers(connection.bootstrap_servers))
    return Client(ClientOptions(servers, "ottla-cli", connection.security, api_timeout_ms=_TIMEOUT_MS))


def _not_published(name: str, latest: Mapping[str, str]) -> Failure:
    hint = did_you_mean(name, {key.partition("/")[0] for key in latest})
    return Failure(f"pipeline {name} has published nothing", hint, code="NOT_FOUND")


@contextmanager
def _client(connection: Connection) -> Iterator[Client]:
    try:
        with client_of(connection) as client:
            yield client
    except BrokerAway as error:
        raise Failure(str(error), code="BROKER_AWAY") from None
    except KafkaError as error:
        raise Failure(str(error), code=error.code.name) from None


def pipeline_document(pipeline: PublishedPipeline, now: int) -> dict[str, Any]:
    flows = [
        {**flow.document, "state": flow.state(now), "checkpoint_age_s": flow.checkpoint_age_s(now)} for flow in pipeline.flows
    ]
    head = {"pipeline": pipeline.name, "state": pipeline.state(now), "heartbeat_ms": pipeline.heartbeat_ms}
    return {**head, "plan": pipeline.plan, "flows": flows}


def _row(pipeline: PublishedPipeline, flow: PublishedFlow, now: int) -> list[object]:
    progress, age_s = flow.progress, flow.checkpoint_age_s(now)
    return [
        pipeline.name,
        flow.name,
        flow.state(now),
        progress.get("batch"),
        progress.get("rows_per_s"),
        progress.get("records_out"),
        progress.get("lag"),
        progress.get("dead_letters"),
        None if age_s is None else _duration(age_s),
        f"{_duration((now - flow.heartbeat_ms) / 1000)} ago",
        _driver(pipeline),
        flow.error_text() or "",
    ]


def _driver(pipeline: PublishedPipeline) -> str:
    return f"{pipeline.plan.get('host')}:{pipeline.plan.get('pid')}"


def _duration(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f}{unit}"
    return f"{max(seconds, 0):.0f}s"
