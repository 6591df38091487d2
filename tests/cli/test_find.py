"""`ottla find`: complete, in order of time, and exact about what it scanned."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from ottla.cli.find import scan as scanning
from tests.kit.ottla_command import TIMEOUT_S, Ottla

RECORDS = 900
START_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def orders(ottla: Ottla) -> Iterator[str]:
    """Record n has the time n, and is in partition n % 3; partition 2 has a transaction marker after each hundred."""
    name = f"find-{uuid.uuid4().hex[:8]}"
    ottla.ok("topic", "create", name, "-p", "3")
    plain = Producer({"bootstrap.servers": ottla.bootstrap_servers})
    transactional = Producer({"bootstrap.servers": ottla.bootstrap_servers, "transactional.id": name})
    transactional.init_transactions(30)
    for first in range(0, RECORDS, 300):
        transactional.begin_transaction()
        for n in range(first, first + 300):
            value = json.dumps({"n": n, "name": f"Ada {n}"})
            producer = transactional if n % 3 == 2 else plain
            producer.produce(name, value, key=f"k{n % 10}", partition=n % 3, timestamp=START_MS + n, headers={"mod": str(n % 7)})
        transactional.commit_transaction(30)
    # An aborted one: nobody finds it, and the end of the partition has no record.
    transactional.begin_transaction()
    transactional.produce(name, b"Ada aborted", partition=2)
    transactional.flush(30)
    transactional.abort_transaction(30)
    assert plain.flush(30) == 0
    yield name
    ottla.run("topic", "delete", name)


@pytest.fixture(params=[7, 100, 2_000], ids="chunks-of-{}".format)
def chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "CHUNK_RECORDS_FIRST", request.param)
    monkeypatch.setattr(scanning.Scan, "_chunk_records", lambda self, reach: request.param)


def found(ottla: Ottla, *words: str) -> tuple[list[int], dict[str, Any]]:
    """The numbers of the records that are found, and what was scanned."""
    done = ottla.run("find", *words, "--json")
    assert done.returncode in (0, 1), done.stderr
    numbers = [json.loads(json.loads(line)["value"])["n"] for line in done.stdout.splitlines()]
    assert done.returncode == (0 if numbers else 1)
    return numbers, json.loads(done.stderr.splitlines()[-1])["scanned"]


@pytest.mark.usefixtures("chunks")
@pytest.mark.parametrize("order", ["--newest-first", "--oldest-first"])
def test_everything_is_found_in_order_of_time(ottla: Ottla, orders: str, order: str) -> None:
    numbers, scanned = found(ottla, "Ada", "-t", orders, order)
    assert numbers == sorted(range(RECORDS), reverse=order == "--newest-first")
    assert (scanned["found"], scanned["records"], scanned["complete"]) == (RECORDS, RECORDS, True)
    for partition in scanned["partitions"]:
        assert (partition["scanned_from"], partition["scanned_to"]) == (partition["start"], partition["end"])


@pytest.mark.usefixtures("chunks")
def test_a_limit_stops_at_the_newest_or_oldest(ottla: Ottla, orders: str) -> None:
    assert found(ottla, "Ada", "-t", orders, "-n", "4")[0] == [899, 898, 897, 896]
    assert found(ottla, "--where", "value.n % 100 == 50", "-t", orders, "-n", "2", "--oldest-first")[0] == [50, 150]


def test_a_limit_reads_no_more_than_it_needs(ottla: Ottla, orders: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "CHUNK_RECORDS_FIRST", 10)
    numbers, scanned = found(ottla, "Ada", "-t", orders, "-n", "3")
    assert numbers == [899, 898, 897]
    assert scanned["records"] <= 30
    assert not scanned["complete"]


def test_where_text_and_key_together(ottla: Ottla, orders: str) -> None:
    expected = [n for n in range(RECORDS) if n % 10 == 3 and "11" in str(n) and n < 700]
    numbers, _ = found(ottla, "11", "--where", "value.n < 700", "--key", "k3", "--all-partitions", "-t", orders, "--oldest-first")
    assert numbers == expected
    numbers, _ = found(ottla, "--where", 'headers.mod == "6" and value.name.endswith("5")', "-t", orders, "--oldest-first")
    assert numbers == [n for n in range(RECORDS) if n % 7 == 6 and n % 10 == 5]


def test_positions_bound_it(ottla: Ottla, orders: str) -> None:
    words = ("Ada", "-t", orders, "--from", f"@{START_MS + 400}", "--until", f"@{START_MS + 450}", "--oldest-first")
    numbers, scanned = found(ottla, *words)
    # The first marker of partition 2 has the present time, so that the search by time ends there.
    assert numbers == [n for n in range(400, 450) if n % 3 != 2]
    assert scanned["records"] == len(numbers)


def test_nothing_is_found(ottla: Ottla, orders: str) -> None:
    assert found(ottla, "nowhere", "-t", orders)[1]["records"] == RECORDS
    assert found(ottla, "Ada aborted", "-t", orders)[0] == []


def test_what_was_scanned_is_told(ottla: Ottla, orders: str) -> None:
    done = ottla.run("find", "Ada 7 ", "-t", f"{orders[:-2]}*")
    assert (done.returncode, done.stdout) == (1, "")
    first, *more = done.stderr.splitlines()
    assert first.startswith("0 found in 900 records (")
    assert "of 3 partitions, all scanned, in" in first
    assert more == [f"  {orders}-0: offsets 0 to 299", f"  {orders}-1: offsets 0 to 299", f"  {orders}-2: offsets 0 to 304"]


def test_a_line_says_where_it_is(ottla: Ottla, orders: str) -> None:
    line = ottla.ok("find", '"Ada 10"', "-t", orders)
    assert line == f'{orders}-1:3 2023-11-14T22:13:20.010Z k0 {{"n": 10, "name": "Ada 10"}}\n'
    assert ottla.ok("find", "Ada 89.", "--regex", "-t", orders, "-n", "1", "--template", "{offset}") == "301\n"


def test_a_key_is_looked_for_where_producers_put_it(ottla: Ottla, topic: str) -> None:
    """By murmur2 as in Java's producer, and by crc32 as librdkafka's does by default."""
    key = "customer-7"
    ottla.ok("produce", topic, "-k", key, "by murmur2")
    other = Producer({"bootstrap.servers": ottla.bootstrap_servers})
    other.produce(topic, b"by crc32", key=key)
    assert other.flush(30) == 0
    ottla.ok("produce", topic, "another")
    done = ottla.run("find", "--key", key, "-t", topic, "--template", "{value}", "--oldest-first")
    assert done.stdout == "by murmur2\nby crc32\n"
    assert done.stderr.startswith(f"the key belongs to {topic}-")
    assert "(murmur2)" in done.stderr or "(murmur2, crc32)" in done.stderr


def test_a_key_in_another_partition_needs_all_partitions(ottla: Ottla, topic: str) -> None:
    places = {0, 1, 2}
    for index in range(3):
        ottla.ok("produce", topic, "-k", "customer-7", "-p", str(index), str(index))
    own = ottla.ok("find", "--key", "customer-7", "-t", topic, "--template", "{value}").split()
    assert 1 <= len(own) <= 2
    every = ottla.ok("find", "--key", "customer-7", "-t", topic, "--template", "{value}", "--all-partitions").split()
    assert set(map(int, every)) == places


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ([], 2, "nothing to look for"),
        (["a", "--topics", "no-such-topic"], 1, "topic no-such-topic does not exist"),
        (["a", "--topics", "no-such-*"], 1, "no topic matches no-such-*"),
        (["--where", "foo"], 2, "foo is not the name"),
        (["a", "--template", "{nix}"], 2, "the template '{nix}' is invalid"),
        (["a", "--from", "never"], 2, "'never' is not a position"),
    ],
)
def test_wrong_usage(ottla: Ottla, words: list[str], code: int, says: str) -> None:
    assert says in ottla.fails("find", *words, code=code)


def test_ctrl_c_tells_how_far_it_came(ottla: Ottla, orders: str) -> None:
    """Nobody reads its stdout, which is full: it is stopped while it prints. What it had found by then is printed."""
    words = ottla.command("find", "--where", "len(str(value)) > 0", "-t", orders, "--json")
    environment, pipe = ottla.environment, subprocess.PIPE
    with subprocess.Popen(words, env=environment, stdout=pipe, stderr=pipe, bufsize=0) as process:
        assert process.stdout is not None
        first = process.stdout.read(1)
        os.kill(process.pid, signal.SIGINT)
        rest, said = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130, said
    scanned = json.loads(said.splitlines()[-1])["scanned"]
    # The signal may come between a record and its line.
    assert scanned["found"] - len((first + rest).splitlines()) in (0, 1)
    assert scanned["found"] > 0
    assert sum(each["scanned_to"] - each["scanned_from"] for each in scanned["partitions"]) >= scanned["found"]
