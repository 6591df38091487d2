"""`ottla dlq`: dead letters are listed, shown and replayed, each once, also when killed (F81, T08)."""

from __future__ import annotations

import json
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from ottla.pipelines.published.documents import VERSION
from ottla.pipelines.published.topic import TOPIC
from tests.kit.ottla_command import Ottla
from tests.kit.wait import until


def letters(source: str, numbers: list[int], *, flow: str = "revenue", reason: str = "no json") -> list[dict[str, Any]]:
    """Letters as a pipeline writes them, for records `number` of partition `number % 3`."""
    return [
        {
            "key": f"k{number}",
            "value": f"v{number}",
            "headers": {
                "trace": f"t{number}",
                "ottla.topic": source,
                "ottla.partition": str(number % 3),
                "ottla.offset": str(number),
                "ottla.flow": flow,
                "ottla.reason": reason,
            },
            "partition": 0,
            "timestamp": 1_700_000_000_000 + number,
        }
        for number in numbers
    ]


def write(ottla: Ottla, topic: str, documents: list[dict[str, Any]]) -> None:
    ottla.ok("produce", topic, "--format", "json", stdin="\n".join(map(json.dumps, documents)))


@pytest.fixture
def dead(ottla: Ottla, topic: str) -> Iterator[str]:
    """The dead-letter topic of `topic`, with two reasons in turn."""
    name = f"{topic}.dlq"
    ottla.ok("topic", "create", name, "-p", "2")
    for number in range(6):
        write(ottla, name, letters(topic, [number], reason="no json" if number % 2 else "amount is missing"))
    write(ottla, name, letters(topic, [6], flow="other"))
    yield name
    ottla.run("topic", "delete", name, "--if-exists")


def values(ottla: Ottla, topic: str) -> list[str]:
    return sorted(ottla.ok("consume", topic).split())


def test_letters_are_listed_and_shown_by_reason(ottla: Ottla, topic: str, dead: str) -> None:
    (row,) = [each for each in json.loads(ottla.ok("dlq", "list", "--json")) if each["topic"] == dead]
    assert (row["partitions"], row["offsets"], row["not_replayed"]) == (2, 7, 7)
    assert dead in ottla.ok("dlq", "list")
    shown = json.loads(ottla.ok("dlq", "show", dead, "--json", "-n", "2"))
    assert [(each["count"], each["reason"], each["flow"], each["source"]) for each in shown["reasons"]] == [
        (3, "amount is missing", "revenue", topic),
        (3, "no json", "revenue", topic),
        (1, "no json", "other", topic),
    ]
    last = shown["letters"][-1]
    assert last["source"] == {"cluster": None, "topic": topic, "partition": 0, "offset": 6}
    assert (last["key"], last["value"]) == ("k6", "v6")
    assert last["headers"] == [{"name": "trace", "value": "t6"}]
    text = ottla.ok("dlq", "show", dead, "--flow", "other").splitlines()
    assert text[1].split()[:4] == ["1", "no", "json", "other"]
    assert text[4].split()[:2] == [f"{dead}-0@6", f"{topic}-0@6"]


def test_records_go_back_as_they_were(ottla: Ottla, topic: str, dead: str) -> None:
    assert ottla.ok("dlq", "replay", dead, "--dry-run") == f"7 records would be replayed to {topic}\n"
    assert values(ottla, topic) == []
    assert ottla.ok("dlq", "replay", dead) == f"7 records replayed to {topic}\n"
    records = [json.loads(line) for line in ottla.ok("consume", topic, "--json").splitlines()]
    assert sorted((each["partition"], each["key"], each["timestamp"]) for each in records) == sorted(
        (number % 3, f"k{number}", 1_700_000_000_000 + number) for number in range(7)
    )
    assert {each["headers"][0]["value"] for each in records} == {f"t{number}" for number in range(7)}
    assert {len(each["headers"]) for each in records} == {1}
    assert ottla.ok("dlq", "replay", dead) == f"no dead letters of {dead} replayed\n"
    assert "no dead letters that were not replayed" in ottla.run("dlq", "show", dead).stderr
    assert len(json.loads(ottla.ok("dlq", "show", dead, "--replayed", "--json"))["letters"]) == 7
    (row,) = [each for each in json.loads(ottla.ok("dlq", "list", "--json")) if each["topic"] == dead]
    assert row["not_replayed"] == 0


def test_what_a_filter_leaves_is_replayed_later(ottla: Ottla, topic: str, dead: str) -> None:
    first = json.loads(ottla.ok("dlq", "replay", dead, "--reason", "AMOUNT", "--json"))
    assert first == {"topic": dead, "records": 3, "to": {topic: 3}, "not_chosen": 4, "without_topic": {}}
    assert values(ottla, topic) == ["v0", "v2", "v4"]
    assert json.loads(ottla.ok("dlq", "replay", dead, "--reason", "amount", "--json"))["records"] == 0
    where = 'headers["ottla.flow"] == "other" and key == "k6"'
    assert json.loads(ottla.ok("dlq", "replay", dead, "--where", where, "--json"))["to"] == {topic: 1}
    ottla.ok("dlq", "replay", dead, "-n", "1")
    assert values(ottla, topic) == ["v0", "v1", "v2", "v4", "v6"]
    ottla.ok("dlq", "replay", dead, "--from", "4", "-p", "0")
    assert values(ottla, topic) == ["v0", "v1", "v2", "v4", "v5", "v6"]
    assert json.loads(ottla.ok("dlq", "replay", dead, "--json"))["records"] == 1
    assert values(ottla, topic) == [f"v{number}" for number in range(7)]


def test_letters_without_a_topic_stay(ottla: Ottla, topic: str, dead: str) -> None:
    ottla.ok("produce", dead, "plain", "-p", "1")
    write(ottla, dead, letters("never-made", [9]))
    done = ottla.run("dlq", "replay", dead)
    assert done.stdout == f"7 records replayed to {topic}\n"
    assert "left: 1 record without a source topic; --to TOPIC writes" in done.stderr
    assert "left: 1 record of never-made, which this cluster does not have; --to TOPIC writes" in done.stderr
    assert json.loads(ottla.ok("dlq", "replay", dead, "--to", topic, "--json"))["to"] == {topic: 2}
    assert len(values(ottla, topic)) == 9


def test_topics_with_other_names_are_found_by_their_records(ottla: Ottla, topic: str) -> None:
    write(ottla, topic, letters("orders", [1]))
    assert topic not in [each["topic"] for each in json.loads(ottla.ok("dlq", "list", "--json"))]
    assert topic in [each["topic"] for each in json.loads(ottla.ok("dlq", "list", "--all-topics", "--json"))]


def test_topics_of_pipelines_are_found_by_their_plans(ottla: Ottla, topic: str) -> None:
    plan = {
        "version": VERSION,
        "flows": [],
        "sources": [{"name": "orders", "dead_letter": topic}, {"name": "x", "dead_letter": None}],
    }
    ottla.ok("topic", "create", TOPIC, "-p", "1", "-c", "cleanup.policy=compact")
    ottla.ok("produce", TOPIC, "-k", "shop", json.dumps(plan))
    (row,) = [each for each in json.loads(ottla.ok("dlq", "list", "--json")) if each["topic"] == topic]
    assert row["pipelines"] == ["shop"]
    assert [line.split()[-1] for line in ottla.ok("dlq", "list").splitlines() if line.startswith(topic)] == ["shop"]
    ottla.ok("topic", "delete", TOPIC)


def test_what_cannot_be(ottla: Ottla, topic: str, dead: str) -> None:
    assert f"did you mean {dead}" in ottla.fails("dlq", "replay", dead[:-1])
    assert "topic nowhere does not exist" in ottla.fails("dlq", "replay", dead, "--to", "nowhere")
    assert "'soon' is not a position" in ottla.fails("dlq", "show", dead, "--from", "soon", code=2)
    error = json.loads(ottla.fails("dlq", "show", "nothing-here", "--json"))["error"]
    assert error["code"] == "UNKNOWN_TOPIC_OR_PARTITION"


def test_killed_again_and_again_each_record_once(ottla: Ottla, topic: str, dead: str) -> None:
    """Chosen by their flow, so that the progress is more than one offset."""
    count = 60_000
    producer = Producer({"bootstrap.servers": ottla.bootstrap_servers, "linger.ms": 50})
    for number in range(count):
        headers: dict[str, str | bytes | None] = {
            "ottla.topic": topic,
            "ottla.flow": "chosen" if number < count - 100 else "left",
        }
        while True:
            try:
                producer.produce(dead, f"r{number}", partition=number % 2, headers=headers)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0
    words = ottla.command("dlq", "replay", dead, "--flow", "chosen")

    def written() -> int:
        (document,) = json.loads(ottla.ok("topic", "describe", topic, "--json"))
        return int(document["records"])

    killed = 0
    for _ in range(2):
        before = written()
        process = subprocess.Popen(words, env=ottla.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(lambda before=before, process=process: written() > before + 100 or process.poll() is not None, "it writes or ends")
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            killed += 1
        process.wait()
    assert killed
    ottla.ok("dlq", "replay", dead, "--flow", "chosen")
    found = Counter(value for value in values(ottla, topic) if value.startswith("r"))
    assert len(found) == count - 100
    assert set(found.values()) == {1}
