"""What a pipeline has published, as its page shows it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.console.running import RunningConsole, running_console
from tests.kit.subject import Subject
from tests.kit.wait import until
from tests.pipelines.conftest import read_topic


def test_a_published_pipeline(console: RunningConsole, topic: str) -> None:
    name, out = f"p-{topic}", f"{topic}-out"
    head = {"version": 1, "pipeline": name, "run": "r"}

    def end(kind: str, named: str) -> dict[str, str]:
        return {"kind": kind, "name": named}

    plan = {
        **head, "started_ms": 1, "host": "h", "pid": 7, "file": "/p.py",
        "sources": [{"name": "s", "topics": [topic], "dead_letter": f"{topic}.dlq"}],
        "flows": [{"name": "clean", "place": "/p.py:3", "group": "g", "to": end("topic", out), "inputs": []}],
        "edges": [
            {"from": end("topic", topic), "to": end("flow", "clean"), "dead_letter": False},
            {"from": end("flow", "clean"), "to": end("topic", out), "dead_letter": False},
            {"from": end("flow", "clean"), "to": end("topic", f"{topic}.dlq"), "dead_letter": True},
        ],
    }  # fmt: skip
    progress = {
        "batch": 4, "rows_per_s": 2.5, "lag": 7, "lag_by_topic": {topic: 7}, "records_out": 12, "dead_letters": 1,
        "phases_ms": {"work": 20}, "watermark": "2026-01-01T00:00:00.000Z", "expectations": {"positive": 2}, "last_error": None,
    }  # fmt: skip
    flow = {
        **head, "flow": "clean", "place": "/p.py:3", "state": "failed", "progress": progress,
        "error": {"message": "no number", "place": "/p.py:12", "hint": None},
        "heartbeat_ms": int(time.time() * 1000), "heartbeat_interval_ms": 10_000,
    }  # fmt: skip
    answer = console.request("POST", "/api/topics", {"topic": "__ottla_pipelines", "partitions": 1})
    assert answer.status_code in (201, 409)
    records = [{"key": name, "value": json.dumps(plan)}, {"key": f"{name}/clean", "value": json.dumps(flow)}]
    console.post("/api/topics/__ottla_pipelines/records", {"records": records})
    row = next(each for each in console.get("/api/pipelines")["pipelines"] if each["pipeline"] == name)
    assert (row["state"], row["failed"], row["lag"], row["last_error"]) == ("failed", 1, 7, "no number")
    found = console.get(f"/api/pipelines/{name}")
    assert (found["topics"], found["dead_letters"]) == ([topic, out], [f"{topic}.dlq"])
    assert found["flows"][0]["error"] == {"message": "no number", "file": "/p.py", "line": 12, "hint": None}
    assert found["flows"][0]["quality"] == [{"name": "positive", "unmet": 2}]
    assert found["graph"]["edges"][0] == {"from": f"topic:{topic}", "to": "flow:clean", "rows_per_s": 2.5, "lag": 7}
    for path, key in (("/api/live/pipelines", name), (f"/api/live/pipelines/{name}", "clean")):
        with console.events(path) as events:
            kind, document = next(events)
            assert (kind, key in document["rows"]) == ("snapshot", True)
    assert console.refused("GET", "/api/pipelines/nobody", 404)["code"] == "NOT_FOUND"
    # It failed, and this console has not its file.
    assert not found["file_here"]
    for what, code in (("stop", "NOT_RUNNING"), ("run", "NOT_HERE"), ("reset", "NOT_HERE")):
        assert console.refused("POST", f"/api/pipelines/{name}/{what}", 409)["code"] == code
    assert console.get(f"/api/pipelines/{name}/driver") == {"driver": None}


PIPELINE = """
from ottla import pipelines as p

orders = p.source("{topic}", p.json("id long"), name="orders", starting="earliest")
p.sql(orders, to=p.sink("{topic}-out"), name="copy", query="SELECT * FROM orders")
"""


@pytest.mark.slow
def test_a_pipeline_is_stopped_killed_run_again_and_reset(subject: Subject, topic: str, tmp_path: Path) -> None:
    """Records come all the time: none is lost, none is twice, until the reset, which writes all of them again."""
    file = tmp_path / f"{topic}.py"
    file.write_text(PIPELINE.format(topic=topic))
    file.with_suffix(".toml").write_text(
        '[spark]\nmaster = "local[1]"\n[spark.conf]\n"spark.sql.shuffle.partitions" = "1"\n"spark.ui.enabled" = "false"\n'
    )
    written = threading.Event()
    count = 0

    def write() -> None:
        nonlocal count
        producer = Producer({"bootstrap.servers": subject.bootstrap_servers, "enable.idempotence": True, "log_level": 0})
        while not written.is_set():
            for _ in range(20):
                producer.produce(topic, json.dumps({"id": count}))
                count += 1
            assert producer.flush(60) == 0
            written.wait(0.2)

    with running_console(subject.bootstrap_servers, "--pipeline", str(file)) as console:
        pipeline = f"/api/pipelines/{topic}"

        def state() -> tuple[str, int]:
            answer = console.request("GET", pipeline)
            if answer.status_code != 200:
                return "", 0
            found = answer.json()
            return found["state"], sum(flow["rows_out"] or 0 for flow in found["flows"])

        def runs(rows: int) -> None:
            until(lambda: state()[0] == "running" and state()[1] >= rows, "it runs and writes", 300)

        def started() -> int:
            pid = console.post(f"{pipeline}/run")["pid"]
            assert isinstance(pid, int)
            return pid

        def out() -> list[int]:
            return sorted(json.loads(each.value())["id"] for each in read_topic(subject.bootstrap_servers, f"{topic}-out"))

        # A console runs again what has run before.
        assert console.refused("POST", f"{pipeline}/run", 404)["code"] == "NOT_FOUND"
        command = [sys.executable, "-m", "ottla", "pipeline", "run", str(file), "-b", subject.bootstrap_servers]
        writer = threading.Thread(target=write)
        writer.start()
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True) as first:
            runs(20)
            assert console.refused("POST", f"{pipeline}/run", 409)["code"] == "ALREADY_RUNS"
            assert console.refused("POST", f"{pipeline}/reset", 409)["code"] == "ALREADY_RUNS"
            console.post(f"{pipeline}/stop")
            assert first.wait(120) == 0
        until(lambda: state()[0] == "stopped", "it is stopped")
        pid = started()
        runs(20)
        os.killpg(pid, signal.SIGKILL)
        until(lambda: console.get(f"{pipeline}/driver")["driver"]["exit_code"] == -signal.SIGKILL, "it is dead")
        until(lambda: state()[0] == "lost", "it is not heard any more", 60)
        started()
        runs(20)
        written.set()
        writer.join()
        until(lambda: len(out()) >= count, "all is written", 60)
        console.post(f"{pipeline}/stop")
        until(lambda: console.get(f"{pipeline}/driver")["driver"]["exit_code"] == 0, "it has stopped", 120)
        assert out() == list(range(count))
        until(lambda: state()[0] == "stopped", "it says so")
        # Anew
        preview = console.post(f"{pipeline}/reset")
        assert (preview["executed"], len(preview["steps"])) == (False, 1)
        checkpoint = file.parent / ".ottla" / topic / "copy"
        assert preview["steps"] == [f"copy: would remove checkpoint {checkpoint}"]
        assert checkpoint.is_dir()
        console.post(f"{pipeline}/reset", {"execute": True})
        assert not checkpoint.exists()
        started()
        runs(count)
        console.post(f"{pipeline}/stop")
        until(lambda: console.get(f"{pipeline}/driver")["driver"]["exit_code"] == 0, "it has stopped", 120)
        assert out() == sorted([*range(count)] * 2)
        actions = [entry["action"] for entry in console.get("/api/audit")["entries"]]
        assert {"stop_pipeline", "run_pipeline", "reset_pipeline"} <= set(actions)
