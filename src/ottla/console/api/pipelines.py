"""Pipelines as they published themselves: plan, graph, progress of each flow; to stop, run and reset them."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ottla.cli.console.settings import Role
from ottla.cli.positions import parse_time_ms
from ottla.console.console import Console
from ottla.console.endpoint import Answer, Call, Endpoint, bad, executes
from ottla.console.graph import Link, graph_document, key_of
from ottla.console.live import View, follow
from ottla.console.runs import Runs
from ottla.console.schema import BOOLEAN, INTEGER, NUMBER, OBJECT, STRING, by_name, document, listed, maybe, request
from ottla.console.sse import event_stream
from ottla.console.watch import Watch

_EVERY_S = 1.0
_PLACE = re.compile(r"(?P<file>.+):(?P<line>\d+)")

_FLOW_FIELDS = {
    "flow": STRING,
    "state": STRING,
    "place": maybe(STRING),
    "group": maybe(STRING),
    "batch": maybe(INTEGER),
    "batch_ms": maybe(NUMBER),
    "rows_per_s": maybe(NUMBER),
    "rows_in": maybe(INTEGER),
    "rows_out": maybe(INTEGER),
    "lag": maybe(INTEGER),
    "phases": listed(document(name=STRING, ms=NUMBER)),
    "watermark_ms": maybe(INTEGER),
    "watermark_lag_s": maybe(NUMBER),
    "state_rows": maybe(INTEGER),
    "state_bytes": maybe(INTEGER),
    "late_rows": maybe(INTEGER),
    "dead_letters": maybe(INTEGER),
    "quality": listed(document(name=STRING, unmet=INTEGER)),
    "run_again": maybe(INTEGER),
    "checkpoint_age_s": maybe(NUMBER),
    "heard_ms": INTEGER,
    "error": maybe(document(message=STRING, file=maybe(STRING), line=maybe(INTEGER), hint=maybe(STRING))),
}
_SUMMARY_FIELDS = {
    "pipeline": STRING,
    "state": STRING,
    "heard_ms": maybe(INTEGER),
    "host": maybe(STRING),
    "flows": INTEGER,
    "failed": INTEGER,
    "lag": maybe(INTEGER),
    "rows_per_s": maybe(NUMBER),
    "dead_letters": maybe(INTEGER),
    "last_error": maybe(STRING),
}
_NODE = document(kind=STRING, name=STRING, cluster=maybe(STRING), layer=INTEGER, row=INTEGER, href=maybe(STRING))
_EDGE = {"from": STRING, "to": STRING, "rows_per_s": maybe(NUMBER), "lag": maybe(INTEGER)}
PIPELINE = document(
    pipeline=STRING,
    state=STRING,
    heard_ms=maybe(INTEGER),
    published=OBJECT,
    flows=listed(document(**_FLOW_FIELDS)),
    graph=document(layers=listed(listed(STRING)), nodes=by_name(_NODE), edges=listed(document(**_EDGE))),
    dead_letters=listed(STRING),
    topics=listed(STRING),
    commands=by_name(STRING),
    file_here=BOOLEAN,
)
DRIVER = document(pid=INTEGER, began_ms=INTEGER, exit_code=maybe(INTEGER), log=STRING, output=STRING)


def flow_row(flow: Mapping[str, Any], plan: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
    progress: Mapping[str, Any] = flow["progress"] or {}
    watermark_ms = _time_ms(progress.get("watermark"))
    planned: Mapping[str, Any] = next((each for each in plan["flows"] if each["name"] == flow["flow"]), {})
    return {
        "flow": flow["flow"],
        "state": flow["state"],
        "place": flow.get("place"),
        "group": planned.get("group"),
        "batch": progress.get("batch"),
        "batch_ms": progress.get("batch_ms"),
        "rows_per_s": progress.get("rows_per_s"),
        "rows_in": progress.get("rows_in"),
        "rows_out": progress.get("records_out"),
        "lag": progress.get("lag"),
        "phases": [{"name": name, "ms": ms} for name, ms in (progress.get("phases_ms") or {}).items()],
        "watermark_ms": watermark_ms,
        "watermark_lag_s": None if watermark_ms is None else round(max(now_ms - watermark_ms, 0) / 1000, 1),
        "state_rows": progress.get("state_rows"),
        "state_bytes": progress.get("state_bytes"),
        "late_rows": progress.get("late_rows"),
        "dead_letters": progress.get("dead_letters"),
        "quality": [{"name": name, "unmet": count} for name, count in sorted((progress.get("expectations") or {}).items())],
        "run_again": progress.get("run_again"),
        "checkpoint_age_s": flow.get("checkpoint_age_s"),
        "heard_ms": flow["heartbeat_ms"],
        "error": _error(flow, progress),
    }


def _error(flow: Mapping[str, Any], progress: Mapping[str, Any]) -> dict[str, Any] | None:
    """Why the flow failed, else why its last batch runs again."""
    error = flow.get("error")
    if error is not None:
        return {"message": str(error["message"]), **_place(error.get("place")), "hint": error.get("hint")}
    last = progress.get("last_error")
    return None if not last else {"message": str(last), **_place(flow.get("place")), "hint": None}


def _place(text: str | None) -> dict[str, Any]:
    found = _PLACE.fullmatch(text or "")
    return {"file": found["file"], "line": int(found["line"])} if found else {"file": text, "line": None}


def _time_ms(text: str | None) -> int | None:
    if not text:
        return None
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        return None


def _sum(values: list[Any]) -> Any:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def summary(document: Mapping[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    errors = [row["error"]["message"] for row in rows if row["error"] is not None]
    return {
        "pipeline": document["pipeline"],
        "state": document["state"],
        "heard_ms": document["heartbeat_ms"],
        "host": document["plan"].get("host"),
        "flows": len(rows),
        "failed": sum(row["state"] == "failed" for row in rows),
        "lag": _sum([row["lag"] for row in rows]),
        "rows_per_s": _sum([row["rows_per_s"] for row in rows]),
        "dead_letters": _sum([row["dead_letters"] for row in rows]),
        "last_error": errors[0] if errors else None,
    }


def _rows(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    from ottla.pipelines.published.documents import now_ms

    return [flow_row(flow, document["plan"], now_ms()) for flow in document["flows"]]


def topics_of(plan: Mapping[str, Any]) -> list[str]:
    """The topics of this cluster that the pipeline reads and writes, in the order of the graph."""
    ends = [end for edge in plan["edges"] if not edge.get("dead_letter") for end in (edge["from"], edge["to"])]
    return list(dict.fromkeys(str(end["name"]) for end in ends if end["kind"] == "topic" and not end.get("cluster")))


def letters_of(plan: Mapping[str, Any]) -> list[str]:
    """The dead-letter topics of a pipeline in this cluster."""
    ends = [edge["to"] for edge in plan["edges"] if edge.get("dead_letter")]
    return sorted({str(end["name"]) for end in ends if not end.get("cluster")})


def pipeline_page(watch: Watch, runs: Runs, document: Mapping[str, Any]) -> dict[str, Any]:
    plan, rows = document["plan"], _rows(document)
    rates, lags = _measures(watch, document, rows)
    file = shlex.quote(str(plan.get("file") or "pipeline.py"))
    servers = shlex.quote(str(plan.get("bootstrap_servers") or ""))
    at = f" -b {servers}" if servers else ""
    return {
        "pipeline": document["pipeline"],
        "state": document["state"],
        "heard_ms": document["heartbeat_ms"],
        "published": dict(plan),
        "flows": rows,
        "graph": graph_document(plan["edges"], rates, lags),
        "dead_letters": letters_of(plan),
        "topics": topics_of(plan),
        "commands": {
            "stop": f"ottla pipeline stop {shlex.quote(document['pipeline'])}{at}",
            "run": f"ottla pipeline run {file}{at}",
            "status": f"ottla pipeline status {file}{at}",
            "reset": f"ottla pipeline reset {file}{at}",
        },
        "file_here": runs.file_of(document["pipeline"]) is not None,
    }


def _measures(
    watch: Watch, document: Mapping[str, Any], rows: list[dict[str, Any]]
) -> tuple[dict[Link, float | None], dict[Link, int | None]]:
    """Rows a second and lag of the edges. What a flow reads it tells itself; what comes into a topic the cluster tells."""
    snapshot = watch.snapshot
    rates: dict[Link, float | None] = {}
    lags: dict[Link, int | None] = {}
    by_flow = {row["flow"]: row for row in rows}
    progress = {flow["flow"]: flow["progress"] or {} for flow in document["flows"]}
    for edge in document["plan"]["edges"]:
        source, target = edge["from"], edge["to"]
        if target["kind"] == "flow" and target["name"] in by_flow:
            link = (key_of(source), key_of(target))
            # Files beside a stream are read anew: the rate is not theirs.
            rates[link] = None if source["kind"] == "table" else by_flow[target["name"]]["rows_per_s"]
            lags[link] = (progress[target["name"]].get("lag_by_topic") or {}).get(source["name"])
        elif source["kind"] == "flow" and target["kind"] == "topic" and snapshot is not None and not target.get("cluster"):
            rates[key_of(source), key_of(target, dead_letter=bool(edge.get("dead_letter")))] = snapshot.rates.get(target["name"])
    return rates, lags


async def list_pipelines(console: Console, call: Call) -> Answer:
    found = await call.blocking(call.published.documents)
    return {"pipelines": [summary(each, _rows(each)) for each in found]}


async def get_pipeline(console: Console, call: Call) -> Answer:
    return pipeline_page(call.watch, console.runs, await call.blocking(call.published.document, call.path("pipeline")))


async def live_pipelines(console: Console, call: Call) -> Answer:
    async def view() -> View:
        found = await call.blocking(call.published.documents)
        return View({"pipelines": len(found)}, {each["pipeline"]: summary(each, _rows(each)) for each in found})

    return event_stream(follow(call.watch, view, _EVERY_S))


async def live_pipeline(console: Console, call: Call) -> Answer:
    name = call.path("pipeline")
    await call.blocking(call.published.document, name)

    async def view() -> View:
        found = pipeline_page(call.watch, console.runs, await call.blocking(call.published.document, name))
        rows = found.pop("flows")
        return View(found, {row["flow"]: row for row in rows})

    return event_stream(follow(call.watch, view, _EVERY_S))


# Changes


async def stop_pipeline(console: Console, call: Call) -> Answer:
    from ottla.cli.pipeline.published import ask_to_stop

    name = call.path("pipeline")
    user = call.session.user
    by = "the console" if user is None else f"{user} of the console"
    return {"pipeline": name, "run": await call.blocking(ask_to_stop, call.connection, name, by)}


async def run_pipeline(console: Console, call: Call) -> Answer:
    published = await call.blocking(call.published.document, call.path("pipeline"))
    return (await call.blocking(console.runs.run, published)).document()


async def reset_pipeline(console: Console, call: Call) -> Answer:
    published = await call.blocking(call.published.document, call.path("pipeline"))
    flows, known = call.field("flows", list) or [], [flow["flow"] for flow in published["flows"]]
    for flow in flows:
        if flow not in known:
            raise bad(f"flow {flow!r} does not exist", f"the flows are {', '.join(known)}")
    to = call.field("to", str)
    if to is not None and to not in ("earliest", "latest") and parse_time_ms(to, int(time.time() * 1000)) is None:
        raise bad(f"to={to!r} is no place", "it is earliest, latest, 2h or 2026-11-19T10:00")
    steps = await call.blocking(console.runs.reset, published, flows, to, execute=executes(call))
    return {"executed": executes(call), "steps": steps}


async def get_pipeline_driver(console: Console, call: Call) -> Answer:
    driver = console.runs.driver(call.path("pipeline"))
    return {"driver": None if driver is None else driver.document()}


_STREAM = "text/event-stream"
ENDPOINTS = (
    Endpoint(
        "GET",
        "/api/pipelines",
        "The pipelines that have published to this cluster",
        list_pipelines,
        document(pipelines=listed(document(**_SUMMARY_FIELDS))),
    ),
    Endpoint("GET", "/api/live/pipelines", "The pipelines as they change", live_pipelines, OBJECT, media_type=_STREAM),
    Endpoint("GET", "/api/pipelines/{pipeline}", "A pipeline: graph and flows", get_pipeline, PIPELINE),
    Endpoint("GET", "/api/live/pipelines/{pipeline}", "A pipeline as it runs", live_pipeline, OBJECT, media_type=_STREAM),
    Endpoint(
        "POST",
        "/api/pipelines/{pipeline}/stop",
        "Ask the driver of a pipeline to stop between two batches, wherever it is",
        stop_pipeline,
        document(pipeline=STRING, run=STRING),
        role=Role.ADMIN,
        changes=True,
    ),
    Endpoint(
        "POST",
        "/api/pipelines/{pipeline}/run",
        "Run a pipeline again, on the machine of the console, if that was given its file",
        run_pipeline,
        DRIVER,
        role=Role.ADMIN,
        changes=True,
    ),
    Endpoint(
        "GET",
        "/api/pipelines/{pipeline}/driver",
        "The driver that this console has started last, and the end of its output",
        get_pipeline_driver,
        document(driver=maybe(DRIVER)),
        role=Role.ADMIN,
    ),
    Endpoint(
        "POST",
        "/api/pipelines/{pipeline}/reset",
        "Remove the checkpoints of its flows, if the console was given its file; a preview unless `execute`",
        reset_pipeline,
        document(executed=BOOLEAN, steps=listed(STRING)),
        role=Role.ADMIN,
        changes=True,
        body=request(flows_=listed(STRING), to_=maybe(STRING), execute_=BOOLEAN),
        audit=executes,
    ),
)
