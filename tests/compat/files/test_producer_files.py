"""The files of producers and transactions, `.snapshot` and `.txnindex`, beside Apache Kafka (F8, F63, T02, L05).

Kafka's dump tool reads ours, Kafka's broker starts with them and goes on where the producers were; we read what it left.
"""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.records.record import build_batch
from ottla.records.validate import Rules, check
from ottla.runtime.files import OsDisk
from ottla.sim.kernel.machine import SeededRandom
from ottla.storage.compaction import Compaction, Limits
from ottla.storage.compaction_plan import find_log_to_clean
from ottla.storage.config import LogConfig
from ottla.storage.data_dir import DataDir
from ottla.storage.log import Log
from ottla.types import ZERO_UUID, TopicPartition
from tests.kit import peers

pytestmark = pytest.mark.java

NOW_MS = 1_900_000_000_000
"""Not so old that Kafka would forget the producers when it starts."""
CONFIG = LogConfig(segment_bytes=8192, index_interval_bytes=1024, retention_ms=-1)
COMPACTED_CONFIG = LogConfig(segment_bytes=8192, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0)
COMMITTED = "read_committed"
RULES = Rules(timestamp_before_max_ms=1 << 62, timestamp_after_max_ms=1 << 62)


def open_log(path: Path, topic: str) -> tuple[DataDir, Log]:
    data_dir = DataDir.open(OsDisk(), str(path), None, None, SeededRandom(random.Random(5)))
    data_dir.load(lambda topic: CONFIG, NOW_MS)
    log = data_dir.logs.get(TopicPartition(topic, 0))
    if log is None:
        log = data_dir.create_log(TopicPartition(topic, 0), ZERO_UUID, CONFIG, NOW_MS)
    log.high_watermark = log.log_end_offset
    return data_dir, log


def write(log: Log, producer_id: int, epoch: int, sequence: int, *values: bytes, transactional: bool = False) -> int:
    batch = build_batch(
        [(b"key", value, (), NOW_MS + producer_id) for value in values],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    info = log.append(check(bytearray(batch), RULES, NOW_MS), 0, NOW_MS, verified=True)
    log.high_watermark = log.log_end_offset
    return info.first_offset


def mark(log: Log, producer_id: int, epoch: int, *, commit: bool) -> int:
    info = log.append_marker(producer_id, epoch, commit=commit, coordinator_epoch=3, leader_epoch=0, now_ms=NOW_MS)
    log.high_watermark = log.log_end_offset
    return info.first_offset


@pytest.fixture
def ours(tmp_path: Path) -> tuple[Path, list[bytes]]:
    """A log with idempotent producers, transactions of each outcome and one that is open; and what of it is committed."""
    data_dir, log = open_log(tmp_path, "ours")
    committed: list[bytes] = []
    for number in range(120):
        plain = b"plain-%d" % number
        write(log, 1, 4, number, plain)
        inside = [b"txn-%d-%d" % (number, index) for index in range(2)]
        write(log, 3, 0, 2 * number, *inside, transactional=True)
        mark(log, 3, 0, commit=number % 3 == 0)
        committed += [plain, *(inside if number % 3 == 0 else [])]
    write(log, 9, 7, 0, b"open", transactional=True)
    assert len(log.segments) > 2
    data_dir.close()
    return tmp_path, committed


@pytest.mark.parametrize("version", [peers.KAFKA_4, peers.KAFKA_3])
def test_the_dump_tool_reads_our_snapshots_and_transaction_indexes(ours: tuple[Path, list[bytes]], version: str) -> None:
    path = ours[0] / "ours-0"
    snapshots = sorted(path.glob("*.snapshot"))
    bases = [int(log.stem) for log in sorted(path.glob("*.log"))]
    data_dir, log = open_log(ours[0], "ours")
    aborted = log.aborted(0, log.log_end_offset)
    data_dir.close()
    assert [int(snapshot.stem) for snapshot in snapshots] == [*bases[1:], log.log_end_offset]
    done = peers.run_tool(version, "DumpLogSegments", "--files", str(snapshots[-1]), check=True)
    lines = [line for line in done.stdout.splitlines() if "producerId:" in line]
    entries = [dict(re.findall(r"(\w+): (?:\w+[(\[])?(-?\d+)", line)) for line in lines]
    found = {
        int(entry["producerId"]): (
            int(entry["producerEpoch"]),
            int(entry["coordinatorEpoch"]),
            int(entry.get("currentTxnFirstOffset", -1)),
            int(entry["lastTimestamp"]),
            int(entry["firstSequence"]),
            int(entry["lastSequence"]),
            int(entry["lastOffset"]),
        )
        for entry in entries
    }
    end = log.log_end_offset
    assert found == {
        1: (4, -1, -1, NOW_MS + 1, 119, 119, end - 5),
        3: (0, 3, -1, NOW_MS, 238, 239, end - 3),
        9: (7, -1, end - 1, NOW_MS + 9, 0, 0, end - 1),
    }
    indexes = ",".join(str(index) for index in sorted(path.glob("*.txnindex")))
    done = peers.run_tool(version, "DumpLogSegments", "--files", indexes, check=True)
    rows = re.findall(r"producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)", done.stdout)
    assert [tuple(map(int, row)) for row in rows] == [tuple(entry) for entry in aborted]
    assert len(rows) == 80
    every = ",".join(str(file) for file in [*snapshots, *sorted(path.glob("*.log"))])
    done = peers.run_tool(version, "DumpLogSegments", "--deep-iteration", "--files", every, check=True)
    assert "isvalid: false" not in done.stdout
    assert done.stdout.count("endTxnMarker: ABORT") == 80
    assert done.stdout.count("endTxnMarker: COMMIT") == 40


def committed_values(bootstrap_servers: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "x",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([Place(topic, 0, 0)])
    found: list[bytes] = []
    while len(found) < count:
        message = consumer.poll(60)
        assert message is not None, f"only {len(found)} of {count} came"
        assert message.error() is None
        found.append(message.value())  # type: ignore[arg-type]
    assert consumer.poll(0.5) is None
    consumer.close()
    return found


def transact(bootstrap_servers: str, topic: str) -> list[bytes]:
    """Transactions of both outcomes through Kafka; returns what is committed."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": "a", "batch.num.messages": 3})
    plain = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "batch.num.messages": 5})
    producer.init_transactions(60)
    committed: list[bytes] = []
    for number in range(40):
        producer.begin_transaction()
        values = [b"%d-%d" % (number, index) + bytes(300) for index in range(7)]
        for value in values:
            producer.produce(topic, value)
        producer.flush(60)
        if number % 2:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
            committed += values
        value = b"plain-%d" % number
        plain.produce(topic, value)
        plain.flush(60)
        committed.append(value)
    return committed


def test_kafka_takes_our_files_and_we_take_its(ours: tuple[Path, list[bytes]], tmp_path: Path) -> None:
    path, committed = ours
    settings: dict[str, Any] = {
        "log.segment.bytes": 16384,
        "log.retention.ms": -1,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
    }
    with peers.ApacheKafka(peers.KAFKA_3, data_dir=path, **settings) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        for created in admin.create_topics([NewTopic("ours", 1, 1), NewTopic("theirs", 1, 1)]).values():
            created.result(60)
        del admin
        assert committed_values(kafka.bootstrap_servers, "ours", len(committed)) == committed
        theirs = transact(kafka.bootstrap_servers, "theirs")
        assert committed_values(kafka.bootstrap_servers, "theirs", len(theirs)) == theirs
        assert kafka.stop() in (0, 143)
        complaints = [line for line in kafka.output.splitlines() if "ours-0" in line and ("WARN" in line or "ERROR" in line)]
        assert complaints == [], "Kafka found fault with our files"
    copy = tmp_path / "copy"
    shutil.copytree(path, copy)
    data_dir, log = open_log(path, "theirs")
    try:
        assert data_dir.was_clean
        assert len(log.segments) > 2
        assert len(log.producers) == 2
        live = log.producers.facts()
        aborted = log.aborted(0, log.log_end_offset)
        assert len(aborted) == 20
        assert log.last_stable_offset == log.log_end_offset
    finally:
        data_dir.close()
    for file in [*copy.glob("theirs-0/*.snapshot"), *copy.glob("theirs-0/*.txnindex"), copy / ".kafka_cleanshutdown"]:
        file.unlink()
    (copy / "recovery-point-offset-checkpoint").unlink()
    data_dir, log = open_log(copy, "theirs")
    try:
        assert log.producers.facts() == live, "their snapshots say what the records say"
        assert log.aborted(0, log.log_end_offset) == aborted
    finally:
        data_dir.close()


@pytest.mark.parametrize("version", [peers.KAFKA_4, peers.KAFKA_3])
def test_the_dump_tool_reads_a_compacted_log_with_transactions(tmp_path: Path, version: str) -> None:
    """L09: emptied batches, markers with a horizon, and the index that was written anew."""
    data_dir, log = open_log(tmp_path, "ours")
    log.config = COMPACTED_CONFIG
    sequences = [0, 0]
    for number in range(60):
        for producer in (0, 1):
            write(log, producer, 0, sequences[producer], b"%d" % number, b"again", transactional=True)
            sequences[producer] += 2
            mark(log, producer, 0, commit=(number + producer) % 2 == 0)
        if number % 20 == 19:
            log.roll(NOW_MS)
            log.flush(NOW_MS)
            compaction = Compaction(OsDisk(), find_log_to_clean(log, log.last_stable_offset, NOW_MS), Limits(), NOW_MS)
            while not (progress := compaction.advance(1 << 20)).done:
                if progress.replacement is not None:
                    compaction.swap(progress.replacement)
            log.cleaned_offset = compaction.cleaned_offset
    aborted = log.aborted(0, log.log_end_offset)
    data_dir.close()
    path = tmp_path / "ours-0"
    logs = ",".join(str(file) for file in sorted(path.glob("*.log")))
    done = peers.run_tool(version, "DumpLogSegments", "--deep-iteration", "--files", logs, check=True)
    assert "isvalid: false" not in done.stdout
    assert "deleteHorizonMs: OptionalLong[" in done.stdout
    assert re.search(r"count: 0 ", done.stdout), "the last batch of a producer stays, empty"
    indexes = ",".join(str(file) for file in sorted(path.glob("*.txnindex")))
    done = peers.run_tool(version, "DumpLogSegments", "--files", indexes, check=True)
    rows = re.findall(r"producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)", done.stdout)
    assert [tuple(map(int, row)) for row in rows] == [tuple(entry) for entry in aborted]
