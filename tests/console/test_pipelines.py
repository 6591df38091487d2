"""What a pipeline has published, as its page shows it."""

from __future__ import annotations

import json
import time

from tests.console.running import RunningConsole


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
