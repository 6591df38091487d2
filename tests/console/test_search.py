"""Search is complete, ordered, bounded, and says what it did."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.console.running import RunningConsole
from tests.kit.subject import Subject
from tests.kit.wait import until

COUNT = 5_000


@pytest.fixture
def many(subject: Subject, topic: str) -> str:
    """Record n has the time n; every 50th is a needle. Timestamps of partition 2 fall now and then."""
    producer = Producer({"bootstrap.servers": subject.bootstrap_servers, "linger.ms": 5, "batch.num.messages": 100})
    for n in range(COUNT):
        at = n - 40 if n % 3 == 2 and n % 7 == 0 and n > 40 else n
        value = json.dumps({"n": n, "what": "needle" if n % 50 == 0 else "hay"})
        producer.produce(topic, value, partition=n % 3, timestamp=1_700_000_000_000 + at)
    assert producer.flush(60) == 0
    return topic


def numbers(records: list[dict[str, Any]]) -> list[int]:
    return [json.loads(record["value"]["text"])["n"] for record in records]


@pytest.mark.parametrize("order", ["newest", "oldest"])
@pytest.mark.parametrize("asked", ["search=needle&limit=13", "limit=700", "search=needle&budget_bytes=40000"])
def test_parts_make_the_whole(console: RunningConsole, many: str, order: str, asked: str) -> None:
    """A search that stops at a limit or a budget goes on where it was: each record once."""
    path = f"/api/topics/{many}/records?order={order}&{asked}"
    found: list[int] = []
    word = ""
    parts = 0
    while True:
        records, end = console.records(path + word)
        found += numbers(records)
        parts += 1
        if end["reason"] == "done":
            break
        assert end["reason"] in ("limit", "budget")
        word = f"&continue={end['continue']}"
    expected = [n for n in range(COUNT) if "search" not in asked or n % 50 == 0]
    assert sorted(found) == expected
    assert parts > 1
    if "budget" not in asked:
        places = found if order == "oldest" else found[::-1]
        # Within the 40 that timestamps fall by.
        assert all(after > before - 45 for before, after in pairwise(places))


def test_it_says_what_it_scanned(console: RunningConsole, many: str) -> None:
    events = console.all_events(f"/api/topics/{many}/records?search=needle")
    assert events[0][0] == "begin"
    assert sum(each["end"] - each["start"] for each in events[0][1]["partitions"]) == COUNT
    end = events[-1][1]
    assert (end["records"], end["offsets_done"], end["offsets_all"], end["partitions_done"], end["complete"]) == (
        COUNT, COUNT, COUNT, 3, True
    )  # fmt: skip
    assert end["bytes"] > COUNT * 20
    assert end["continue"] is None


def test_it_ends_when_the_client_goes_away(console: RunningConsole, many: str) -> None:
    """More streams than may run at once are opened one after the other, each left in the middle."""
    for _ in range(40):
        with console.events(f"/api/topics/{many}/records?live=1") as events:
            assert next(events)[0] == "begin"
    until(lambda: console.request("GET", "/api/overview").status_code == 200, "it goes on")
    assert len(console.records(f"/api/topics/{many}/records?search=needle&limit=5")[0]) == 5


def test_what_comes_is_shown(console: RunningConsole, topic: str) -> None:
    with console.events(f"/api/topics/{topic}/records?live=1&search=this") as events:
        assert next(events)[0] == "begin"
        console.post(f"/api/topics/{topic}/records", {"records": [{"value": "not that"}, {"value": "but this"}]})
        found = next(document["records"] for name, document in events if name == "records")
        assert [record["value"]["text"] for record in found] == ["but this"]


def test_a_live_view_goes_on_where_it_was(console: RunningConsole, topic: str) -> None:
    """The token of `begin` and `progress` is an offset: whatever came since is shown, and nothing twice."""
    path = f"/api/topics/{topic}/records?live=1"
    with console.events(path) as events:
        name, begin = next(events)
        assert name == "begin", begin
    console.post(f"/api/topics/{topic}/records", {"records": [{"value": "old", "timestamp": 1}]})
    with console.events(f"{path}&continue={begin['continue']}") as events:
        found = next(document["records"] for name, document in events if name == "records")
        assert [record["value"]["text"] for record in found] == ["old"]
        word = next(document["continue"] for name, document in events if name == "progress")
    console.post(f"/api/topics/{topic}/records", {"records": [{"value": "older", "timestamp": 0}]})
    with console.events(f"{path}&continue={word}") as events:
        found = next(document["records"] for name, document in events if name == "records")
        assert [record["value"]["text"] for record in found] == ["older"]


def test_a_flood_is_shown_in_part(console: RunningConsole, subject: Subject, topic: str) -> None:
    """The newest of them; how many were left out is said, and nothing is lost in between."""
    with console.events(f"/api/topics/{topic}/records?live=1&partitions=0") as events:
        assert next(events)[0] == "begin"
        producer = Producer({"bootstrap.servers": subject.bootstrap_servers, "linger.ms": 20})
        for n in range(20_000):
            producer.produce(topic, str(n), partition=0)
        assert producer.flush(60) == 0
        shown = skipped = 0
        for name, document in events:
            if name == "records":
                assert len(document["records"]) <= 100
                shown += len(document["records"])
            elif name == "skipped":
                skipped = document["total"]
            if shown + skipped == 20_000:
                break
        assert skipped > 0


@pytest.mark.slow
def test_a_long_flood_takes_no_memory(console: RunningConsole, subject: Subject, topic: str) -> None:
    """Half a million records as fast as they come, for a page that reads and for one that does not."""
    count, warm, grown_kb_max = 500_000, 100_000, 32 << 10
    path = f"/api/topics/{topic}/records?live=1&partitions=0"
    with console.events(path) as stuck, console.events(path) as events, ThreadPoolExecutor(1) as pool:
        assert [next(each)[0] for each in (stuck, events)] == ["begin", "begin"]
        writing = pool.submit(flood, subject.bootstrap_servers, topic, count)
        shown = skipped = warm_kb = most_kb = 0
        for name, document in events:
            if name == "records":
                shown += len(document["records"])
                if shown + skipped > warm:
                    most_kb = max(most_kb, resident_kb(console))
                    warm_kb = warm_kb or most_kb
            elif name == "skipped":
                skipped = document["total"]
            if shown + skipped == count:
                break
        writing.result()
    assert warm_kb > 0
    assert most_kb - warm_kb < grown_kb_max


def flood(servers: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20})
    for n in range(count):
        while True:
            try:
                producer.produce(topic, f"{n:0100}", partition=0)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0


def resident_kb(console: RunningConsole) -> int:
    status = Path(f"/proc/{console.process.pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0])


def test_internal_topics_are_decoded(console: RunningConsole, subject: Subject, topic: str) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": subject.bootstrap_servers, "group.id": f"g-{topic}"})
    consumer.commit(offsets=[TopicPartition(topic, 0, 7)], asynchronous=False)
    consumer.close()
    records, _ = console.records(f"/api/topics/__consumer_offsets/records?search={topic}&limit=10")
    key = json.loads(records[0]["key"]["text"])
    assert records[0]["key"]["format"] == "internal"
    assert (key["type"], key["group"], key["topic"]) == ("OffsetCommit", f"g-{topic}", topic)
    assert json.loads(records[0]["value"]["text"])["offset"] == 7
