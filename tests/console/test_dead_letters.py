"""Dead letters go back exactly once, whoever is killed in between."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from tests.console.running import RunningConsole, running_console
from tests.kit.subject import Subject
from tests.kit.wait import until


def letters_of(topic: str, count: int, reason: str = "no number") -> list[dict[str, Any]]:
    return [
        {
            "key": f"k{n}",
            "value": {"n": n},
            "headers": {
                "own": "1",
                "ottla.topic": topic,
                "ottla.partition": str(n % 3),
                "ottla.offset": str(n),
                "ottla.flow": "clean",
                "ottla.reason": f"{reason} {n % 2}",
            },
        }
        for n in range(count)
    ]


@pytest.fixture
def box(console: RunningConsole, topic: str) -> str:
    """Ten letters from the topic."""
    name = f"{topic}.dlq"
    console.post("/api/topics", {"topic": name, "partitions": 1})
    console.post(f"/api/topics/{name}/records", {"records": letters_of(topic, 10)})
    return name


def numbers(console: RunningConsole, topic: str) -> list[int]:
    records, _ = console.records(f"/api/topics/{topic}/records?limit=10000")
    return sorted(json.loads(record["value"]["text"])["n"] for record in records)


def finished(console: RunningConsole, job: str) -> dict[str, Any]:
    found: dict[str, Any] = until(
        lambda: (document := console.get(f"/api/jobs/{job}"))["state"] != "running" and document, "the job ends"
    )
    return found


def test_letters_by_reason(console: RunningConsole, topic: str, box: str) -> None:
    rows = {row["topic"]: row for row in console.get("/api/dead-letters")["topics"]}
    assert (rows[box]["offsets"], rows[box]["not_replayed"]) == (10, 10)
    found = console.get(f"/api/dead-letters/{box}")
    assert [(each["reason"], each["flow"], each["source"], each["count"]) for each in found["reasons"]] == [
        ("no number 0", "clean", topic, 5),
        ("no number 1", "clean", topic, 5),
    ]
    letter = console.get(f"/api/dead-letters/{box}?reason=number%201&limit=1")["letters"][0]
    assert letter["source"] == {"cluster": None, "topic": topic, "partition": 0, "offset": 9}
    assert [each["name"] for each in letter["headers"]] == ["own"]


def test_a_preview_then_some_then_the_rest(console: RunningConsole, topic: str, box: str) -> None:
    path = f"/api/dead-letters/{box}/replay"
    assert console.post(path, {"reason": "number 1"}) == {"executed": False, "to": {topic: 5}, "left": 5, "stuck": {}}
    assert numbers(console, topic) == []
    job = console.post(path, {"letters": [{"partition": 0, "offset": 4}], "execute": True})["job"]
    assert finished(console, job)["detail"]["to"] == {topic: 1}
    assert numbers(console, topic) == [4]
    assert finished(console, console.post(path, {"reason": "number 1", "execute": True})["job"])["state"] == "done"
    assert numbers(console, topic) == [1, 3, 4, 5, 7, 9]
    events = console.all_events(f"/api/live/jobs/{console.post(path, {'execute': True})['job']}")
    assert (events[0][0], events[-1][0], events[-1][1]["state"]) == ("snapshot", "end", "done")
    assert numbers(console, topic) == list(range(10))
    assert console.get("/api/jobs")["jobs"][0]["done"] == 4
    assert console.get(f"/api/dead-letters/{box}")["letters"] == []
    # The record is as it was: without what made it a letter.
    record = console.records(f"/api/topics/{topic}/records?key=k4&all_partitions=1")[0][0]
    assert ([each["name"] for each in record["headers"]], record["partition"]) == (["own"], 1)


def test_one_letter_with_other_contents(console: RunningConsole, topic: str, box: str) -> None:
    path = f"/api/dead-letters/{box}/edit"
    body = {"partition": 0, "offset": 3, "value": {"n": 333}}
    assert console.post(path, body)["to"] == topic
    assert console.refused("POST", path, 409, body)["code"] == "ALREADY_REPLAYED"
    finished(console, console.post(f"/api/dead-letters/{box}/replay", {"execute": True})["job"])
    assert numbers(console, topic) == [0, 1, 2, 4, 5, 6, 7, 8, 9, 333]
    record = console.records(f"/api/topics/{topic}/records?search=333")[0][0]
    assert (record["key"]["text"], [each["name"] for each in record["headers"]]) == ("k3", ["own"])


def test_a_job_is_cancelled(console: RunningConsole, topic: str, box: str) -> None:
    job = console.post(f"/api/dead-letters/{box}/replay", {"execute": True})["job"]
    console.call("DELETE", f"/api/jobs/{job}")
    assert finished(console, job)["state"] in ("cancelled", "done")
    finished(console, console.post(f"/api/dead-letters/{box}/replay", {"execute": True})["job"])
    assert numbers(console, topic) == list(range(10))


def test_a_job_counts_what_the_preview_said(console: RunningConsole, topic: str, box: str) -> None:
    """Not the letters that were replayed before, nor those that are not chosen, nor the markers between them."""
    path = f"/api/dead-letters/{box}/replay"
    finished(console, console.post(path, {"letters": [{"partition": 0, "offset": n} for n in (0, 4, 5)], "execute": True})["job"])
    for choice in ({"reason": "number 1", "limit": 3}, {"reason": "number 1"}, {}, {}):
        said = sum(console.post(path, choice)["to"].values())
        job = finished(console, console.post(path, {**choice, "execute": True})["job"])
        assert (job["all"], job["done"]) == (said, said)
    assert numbers(console, topic) == list(range(10))


def begun(console: RunningConsole, job: str) -> None:
    until(lambda: (found := console.get(f"/api/jobs/{job}"))["done"] > 0 or found["state"] != "running", "the job has begun")


@pytest.mark.slow
def test_killed_in_between_each_goes_once(console: RunningConsole, subject: Subject, topic: str) -> None:
    name, count = f"{topic}.dlq", 3_000
    console.post("/api/topics", {"topic": name, "partitions": 1})
    for first in range(0, count, 1000):
        console.post(f"/api/topics/{name}/records", {"records": letters_of(topic, count)[first : first + 1000]})
    for _ in range(3):
        with running_console(subject.bootstrap_servers) as other:
            job = other.post(f"/api/dead-letters/{name}/replay", {"execute": True})["job"]
            begun(other, job)
            other.process.send_signal(signal.SIGKILL)
            other.process.wait()
            other.process.returncode = 0
    finished(console, console.post(f"/api/dead-letters/{name}/replay", {"execute": True})["job"])
    assert numbers(console, topic) == list(range(count))
