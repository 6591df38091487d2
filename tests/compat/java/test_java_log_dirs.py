"""Replicas move between data directories (F6) at the word of Java's Admin, and Apache Kafka 4.3 answers the same.

Kafka's DumpLogSegments walks over what a move has written.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.kit.peers import KAFKA_4, java_command, run_tool
from tests.kit.subject import EITHER, Subject, running
from tests.kit.wait import until

pytestmark = pytest.mark.java

RECORDS = 2000


@pytest.fixture(params=EITHER)
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Subject, Path]]:
    """One with two directories, and a topic of four partitions with records in the first."""
    dirs = ",".join(str(tmp_path / name) for name in ("one", "two"))
    with running(request.param, log_dirs=dirs, log_segment_bytes=1 << 20) as subject:
        admin = AdminClient({"bootstrap.servers": subject.bootstrap_servers})
        admin.create_topics([NewTopic("t", 4, 1)])["t"].result(60)
        producer = Producer({"bootstrap.servers": subject.bootstrap_servers, "linger.ms": 5})
        for number in range(RECORDS):
            producer.produce("t", value=b"%d" % number + bytes(1500), partition=0)
            if number % 100 == 0:
                producer.flush(60)
        assert producer.flush(60) == 0
        yield subject, tmp_path


def values(bootstrap: str) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition("t", 0, 0)])
    found: list[bytes] = []
    while len(found) < RECORDS:
        messages = consumer.consume(500, timeout=60)
        assert messages, f"only {len(found)} records"
        for message in messages:
            assert message.error() is None
            assert message.offset() == len(found)
            found.append(message.value() or b"")
    consumer.close()
    return found


def place_of(path: Path, partition: int) -> str:
    [place] = [each.parent.name for each in path.glob(f"*/t-{partition}")]
    return place


def move(bootstrap: str, *wishes: tuple[str, int, Path]) -> list[str]:
    words = [str(word) for wish in wishes for word in wish]
    source = Path(__file__).parent / "MoveReplica.java"
    done = subprocess.run(java_command(KAFKA_4, str(source), bootstrap, *words), capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n(a JDK is needed, not only a runtime)"
    return done.stdout.splitlines()


def test_java_admin_moves_replicas(broker: tuple[Subject, Path]) -> None:
    subject, path = broker
    here = place_of(path, 0)
    there = "two" if here == "one" else "one"
    said = move(
        subject.bootstrap_servers,
        ("t", 1, path / "nowhere"),
        ("absent", 0, path / "two"),
        ("t", 9, path / "two"),
        ("later", 0, path / there),
        ("later", 1, path / there),
        ("t", 0, path / here),
        ("t", 0, path / there),
    )
    assert said[:7] == [
        "t 1 LogDirNotFoundException",
        "absent 0 UnknownTopicOrPartitionException",
        "t 9 UnknownTopicOrPartitionException",
        "later 0 UnknownTopicOrPartitionException",
        "later 1 UnknownTopicOrPartitionException",
        "t 0 OK",
        "t 0 OK",
    ]
    lies = dict(line.split(" lies in ") for line in said[7:])
    place, size, lag = lies["t-0"].split()
    assert (place, lag) == (str(path / there), "0")
    assert int(size) > RECORDS * 1500
    assert values(subject.bootstrap_servers) == [b"%d" % number + bytes(1500) for number in range(RECORDS)]
    admin = AdminClient({"bootstrap.servers": subject.bootstrap_servers})
    admin.create_topics([NewTopic("later", 2, 1)])["later"].result(60)
    until(lambda: len(list(path.glob("*/later-*"))) == 2, "both directories are made")
    assert {each.parent.name for each in path.glob("*/later-*")} == {there}, "as wished before it was there"
    moved = sorted(str(each) for each in (path / there / "t-0").glob("*.log"))
    assert len(moved) > 2
    dump = run_tool(KAFKA_4, "DumpLogSegments", "--deep-iteration", "--files", ",".join(moved), timeout=180)
    assert dump.returncode == 0, dump.stderr
    assert dump.stdout.count("| offset: ") == RECORDS
    assert "isvalid: false" not in dump.stdout
