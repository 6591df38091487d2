"""SR17: Karapace and Ottla's registry on one topic show the same subjects, versions, ids and configs, whoever wrote them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from ottla.runtime.free_ports import free_port
from ottla.testing import Broker, Registry
from tests.compat.karapace.run import HERE, REPOSITORY, VERSION, python, requirements
from tests.kit.suites import environment, sources
from tests.kit.wait import until

RECORD = {"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}]}
WIDER = {**RECORD, "fields": [*RECORD["fields"], {"name": "y", "type": "int", "default": 1}]}


@contextmanager
def karapace(broker: Broker, folder: Path) -> Iterator[str]:
    """A Karapace on the topic of the broker, in a group of its own; its URL."""
    suite, port = sources("karapace", VERSION, REPOSITORY), free_port()
    program = environment(f"karapace-suite-{VERSION}", requirements(suite), python())
    settings = {
        "BOOTSTRAP_URI": broker.bootstrap_servers,
        "HOST": "127.0.0.1",
        "ADVERTISED_HOSTNAME": "127.0.0.1",
        "PORT": str(port),
        "KARAPACE_REGISTRY": "true",
        "KARAPACE_REST": "false",
        "GROUP_ID": "karapace",
        "TOPIC_NAME": "_schemas",
    }
    variables = {f"KARAPACE_{name}": value for name, value in settings.items()}
    paths = os.pathsep.join([str(suite / "src"), str(HERE)])
    start = "import own_registry, runpy; runpy.run_module('karapace', run_name='__main__')"
    with (folder / "karapace.log").open("wb") as log:
        process = subprocess.Popen(
            [str(program), "-c", start], env={**os.environ, **variables, "PYTHONPATH": paths}, cwd=folder, stdout=log, stderr=log
        )
    url = f"http://127.0.0.1:{port}"
    try:
        until(
            lambda: httpx.get(f"{url}/master_available").json()["master_available"],
            "Karapace",
            ignoring=(httpx.TransportError, ValueError, KeyError),
        )
        yield url
    finally:
        process.kill()
        process.wait()


def register(url: str, subject: str, schema: object, **fields: Any) -> int:
    answer = httpx.post(f"{url}/subjects/{subject}/versions", json={"schema": json.dumps(schema), **fields}, timeout=60)
    assert answer.status_code == 200, answer.text
    return int(answer.json()["id"])


def shown(url: str) -> object:
    def get(path: str) -> Any:
        return httpx.get(f"{url}{path}", timeout=60).json()

    subjects = get("/subjects")
    versions = {
        (subject, number): (found["id"], json.loads(found["schema"]))
        for subject in subjects
        for number in get(f"/subjects/{subject}/versions")
        for found in [get(f"/subjects/{subject}/versions/{number}")]
    }
    return sorted(get("/subjects?deleted=true")), versions, get("/config"), get("/config/a")


@pytest.mark.slow
def test_sr17_karapace_on_the_same_topic(tmp_path: Path) -> None:
    with Broker({"group.initial.rebalance.delay.ms": 0}) as broker, Registry(broker) as registry:
        ours = registry.url
        register(ours, "a", RECORD)
        register(ours, "a", WIDER)
        register(ours, "j", {"type": "object"}, schemaType="JSON")
        for subject in ("deleted", "gone"):
            register(ours, subject, (subject == "gone" and "long") or "string")
            httpx.delete(f"{ours}/subjects/{subject}").raise_for_status()
        httpx.delete(f"{ours}/subjects/gone?permanent=true").raise_for_status()
        httpx.put(f"{ours}/config/a", json={"compatibility": "FULL"}).raise_for_status()
        httpx.put(f"{ours}/config", json={"compatibility": "NONE"}).raise_for_status()
        with karapace(broker, tmp_path) as theirs:
            assert shown(theirs) == shown(ours)
            registry.stop()
            first = register(theirs, "k", RECORD | {"name": "K"})
            register(theirs, "k2", {"type": "array", "items": "int"})
            httpx.delete(f"{theirs}/subjects/k2").raise_for_status()
            httpx.put(f"{theirs}/config/a", json={"compatibility": "BACKWARD"}).raise_for_status()
            registry.start()
            assert shown(ours) == shown(theirs)
            # Karapace prints schemas in another order: it is the same schema nevertheless.
            assert register(ours, "k", RECORD | {"name": "K"}) == first
            assert register(ours, "new", "bytes") > first
