"""A data directory goes from us to Apache Kafka 3.9 and back (F5, F8): each reads what the other wrote."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.records.batch import scan_batches
from ottla.records.record import Record, build_batch, read_records
from ottla.records.validate import Rules, check
from ottla.runtime.files import OsDisk
from ottla.sim.kernel.machine import SeededRandom
from ottla.storage.config import LogConfig
from ottla.storage.data_dir import DataDir
from ottla.storage.log import Log
from ottla.storage.names import uuid_text
from ottla.types import ZERO_UUID
from ottla.types import TopicPartition as Partition
from tests.kit import peers

pytestmark = pytest.mark.java

NOW_MS = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CONFIG = LogConfig(segment_bytes=16_384, index_interval_bytes=1024, retention_ms=-1)


@dataclass(frozen=True)
class Sent:
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int


@dataclass(frozen=True)
class Stopped:
    """What Apache Kafka left, and what went in and out of it."""

    data: Path
    topic_id: str
    produced: list[Sent]
    ours_written: list[Sent]
    ours_consumed: list[Sent]


def sent(number: int, dice: SeededRandom) -> Sent:
    return Sent(
        key=None if number % 7 == 0 else b"key-%d" % number,
        value=None if number % 11 == 0 else dice.bytes(1 + dice.below(200)),
        headers=(("number", b"%d" % number), ("empty", b""), ("null", None)) if number % 3 == 0 else (),
        timestamp=NOW_MS + number * 10,
    )


def write_ours(path: Path) -> list[Sent]:
    """A log as our broker leaves it after a clean stop. Without topic id and identity: those are the next broker's to give."""
    dice, written = SeededRandom(random.Random(3)), []
    data_dir = DataDir.open(OsDisk(), str(path), None, None, dice)
    data_dir.load(lambda topic: CONFIG, NOW_MS)
    log = data_dir.create_log(Partition("ours", 0), ZERO_UUID, CONFIG, NOW_MS)
    for number in range(150):
        items = [sent(3 * number + n, dice) for n in range(3)]
        fields = [(item.key, item.value, item.headers, item.timestamp) for item in items]
        log.append(check(bytearray(build_batch(fields, codec=number % 5)), Rules(), NOW_MS), 0, NOW_MS)
        written += items
    log.high_watermark = log.log_end_offset
    assert len(log.segments) > 3
    data_dir.close()
    return written


def consume(bootstrap_servers: str, topic: str, count: int) -> list[Sent]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "x", "enable.auto.commit": False, "check.crcs": True}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Sent] = []
    while len(found) < count:
        messages = consumer.consume(count - len(found), timeout=60)
        assert messages, f"only {len(found)} of {count} records came"
        for message in messages:
            assert message.error() is None
            assert message.offset() == len(found)
            headers = tuple((name, value) for name, value in message.headers() or [])  # type: ignore[str-unpack]
            found.append(Sent(message.key(), message.value(), headers, message.timestamp()[1]))  # type: ignore[arg-type]
    consumer.close()
    return found


def produce(bootstrap_servers: str, topic: str) -> list[Sent]:
    dice, produced = SeededRandom(random.Random(3)), []  # type: ignore[var-annotated]
    for codec in CODECS:
        producer = Producer(
            {"bootstrap.servers": bootstrap_servers, "compression.type": codec, "linger.ms": 5, "batch.num.messages": 10}
        )
        for number in range(200):
            item = sent(len(produced), dice)
            producer.produce(topic, item.value, item.key, headers=list(item.headers), timestamp=item.timestamp)
            produced.append(item)
            if number % 50 == 49:
                producer.flush()
        assert producer.flush(60) == 0
    return produced


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stopped]:
    data = tmp_path_factory.mktemp("kafka-data")
    written = write_ours(data)
    settings: dict[str, Any] = {
        "log.segment.bytes": 16384,
        "log.index.interval.bytes": 1024,
        "log.retention.ms": -1,
        "offsets.topic.num.partitions": 1,
    }
    with peers.ApacheKafka(peers.KAFKA_3, data_dir=data, **settings) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        for created in admin.create_topics([NewTopic("ours", 1, 1), NewTopic("theirs", 1, 1)]).values():
            created.result(60)
        del admin
        consumed = consume(kafka.bootstrap_servers, "ours", len(written))
        produced = produce(kafka.bootstrap_servers, "theirs")
        assert consume(kafka.bootstrap_servers, "theirs", len(produced)) == produced
        assert kafka.stop() in (0, 143)
        complaints = [line for line in kafka.output.splitlines() if "ours-0" in line and ("WARN" in line or "ERROR" in line)]
        assert complaints == [], "Kafka found fault with our files"
        text = (data / "theirs-0" / "partition.metadata").read_text()
        yield Stopped(data, text.split("topic_id:")[1].strip(), produced, written, consumed)


def load(stopped: Stopped) -> DataDir:
    data_dir = DataDir.open(OsDisk(), str(stopped.data), None, None, SeededRandom(random.Random(3)))
    data_dir.load(lambda topic: CONFIG, NOW_MS)
    return data_dir


def all_records(log: Log) -> list[Record]:
    records: list[Record] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        info = log.read(offset, 5_000, log.log_end_offset, True)
        (part,) = info.ranges
        data = part.file.read(part.position, part.size)
        batches, end = scan_batches(data)
        assert end == part.size
        records += [record for batch in batches for record in read_records(data, batch)]
        offset = info.records_end_offset
    return records


def as_sent(records: list[Record]) -> list[Sent]:
    return [Sent(record.key, record.value, tuple(record.headers), record.timestamp) for record in records]


def test_kafka_serves_the_log_we_wrote(stopped: Stopped) -> None:
    assert stopped.ours_consumed == stopped.ours_written


def test_we_read_every_record_kafka_wrote_and_their_indexes_lead_to_them(stopped: Stopped) -> None:
    marker = stopped.data / ".kafka_cleanshutdown"
    content = marker.read_text()
    assert json.loads(content).keys() == {"version", "brokerEpoch"}
    data_dir = load(stopped)
    try:
        assert data_dir.was_clean
        assert data_dir.broker_id == 1
        assert data_dir.cluster_id
        log = data_dir.logs[Partition("theirs", 0)]
        assert len(log.segments) > 3
        assert uuid_text(log.topic_id) == stopped.topic_id
        assert (log.log_end_offset, log.recovery_point, log.high_watermark) == (1000, 1000, 1000)
        assert log.latest_epoch == 0
        records = all_records(log)
        assert [record.offset for record in records] == list(range(1000))
        assert as_sent(records) == stopped.produced
        for record in records[::7]:
            found = log.offset_for_timestamp(record.timestamp)
            assert found is not None
            assert (found.offset, found.timestamp_ms) == (record.offset, record.timestamp)
            info = log.read(record.offset, 1, log.log_end_offset, True)
            (part,) = info.ranges
            (batch,), _ = scan_batches(part.file.read(part.position, part.size))
            assert batch.base_offset <= record.offset <= batch.last_offset
        assert as_sent(all_records(data_dir.logs[Partition("ours", 0)])) == stopped.ours_written
    finally:
        data_dir.close()
    assert re.sub(r":\d+}", ":-1}", content) == marker.read_text() == '{"version":0,"brokerEpoch":-1}'


def test_we_recover_their_directory_after_a_crash_without_losing_or_changing_a_byte(stopped: Stopped) -> None:
    before = {path.name: path.read_bytes() for path in (stopped.data / "theirs-0").glob("*.log")}
    (stopped.data / ".kafka_cleanshutdown").unlink(missing_ok=True)
    (stopped.data / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    data_dir = load(stopped)
    try:
        assert not data_dir.was_clean
        log = data_dir.logs[Partition("theirs", 0)]
        assert as_sent(all_records(log)) == stopped.produced
        assert {path.name: path.read_bytes() for path in (stopped.data / "theirs-0").glob("*.log")} == before
        append = check(bytearray(build_batch([(b"k", b"v", [], NOW_MS)])), Rules(), NOW_MS)
        assert log.append(append, 1, NOW_MS).first_offset == 1000
    finally:
        data_dir.close()
