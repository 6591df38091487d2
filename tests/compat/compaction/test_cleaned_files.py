"""Files that our compaction wrote, before the eyes of Apache Kafka: its dump tool, its broker, its own compaction (F8, F13)."""

from __future__ import annotations

import random
import re
import time
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
from ottla.storage.compaction import Compaction, Limits
from ottla.storage.compaction_plan import find_log_to_clean
from ottla.storage.config import LogConfig
from ottla.storage.data_dir import DataDir
from ottla.storage.log import Log
from ottla.types import TopicPartition as Partition
from tests.kit import peers
from tests.kit.wait import until

pytestmark = pytest.mark.java

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
CONFIG = LogConfig(
    segment_bytes=16_384,
    index_interval_bytes=512,
    retention_ms=-1,
    cleanup_policy=frozenset({"compact"}),
    delete_retention_ms=DAY_MS,
)
TOPIC = Partition("compacted", 0)
Pair = tuple[int, bytes | None, bytes | None]


def compact(log: Log, now_ms: int) -> None:
    compaction = Compaction(OsDisk(), find_log_to_clean(log, log.high_watermark, now_ms), Limits(), now_ms)
    progress = compaction.advance(1 << 20)
    while not progress.done:
        if progress.replacement is not None:
            compaction.swap(progress.replacement)
        progress = compaction.advance(1 << 20)
    log.cleaned_offset = compaction.cleaned_offset


def records_of(log: Log) -> list[Record]:
    records: list[Record] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        info = log.read(offset, 1 << 20, log.log_end_offset, True)
        (part,) = info.ranges
        data = part.file.read(part.position, part.size)
        batches, _ = scan_batches(data)
        records += [record for batch in batches for record in read_records(data, batch)]
        offset = info.records_end_offset
    return records


def pairs_of(log: Log) -> list[Pair]:
    return [(record.offset, record.key, record.value) for record in records_of(log)]


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Record], int]:
    """A log we compacted, after a clean stop: its directory, its records, and how many batches are without any."""
    path = tmp_path_factory.mktemp("ours")
    dice = SeededRandom(random.Random(5))
    data_dir = DataDir.open(OsDisk(), str(path), 1, "cluster", dice)
    data_dir.load(lambda topic: CONFIG, NOW_MS)
    log = data_dir.create_log(TOPIC, dice.bytes(16), CONFIG, NOW_MS)
    sequence = 0
    for number in range(500):
        fields = [
            (
                b"key-%d" % dice.below(120),
                None if dice.below(9) == 0 else dice.bytes(60).hex().encode(),
                [("h", b"v")],
                NOW_MS + n,
            )
            for n in range(1 + dice.below(6))
        ]
        options = {}
        if number == 250:
            options = {"producer_id": 9, "producer_epoch": 1, "base_sequence": sequence}
        log.append(check(bytearray(build_batch(fields, codec=number % 5, **options)), Rules(), NOW_MS), 0, NOW_MS)  # type: ignore[arg-type]
    log.roll(NOW_MS)
    log.high_watermark = log.log_end_offset
    log.flush(NOW_MS)
    compact(log, NOW_MS)
    records = records_of(log)
    assert len({record.key for record in records}) == len(records) <= 120
    data_dir.close()
    return path / "compacted-0", records, log.log_end_offset


def files(path: Path, suffix: str) -> str:
    return ",".join(str(file) for file in sorted(path.glob(f"*{suffix}")))


@pytest.mark.parametrize("version", [peers.KAFKA_4, peers.KAFKA_3])
def test_the_dump_tool_reads_cleaned_files_whole(ours: tuple[Path, list[Record], int], version: str) -> None:
    path, records, end_offset = ours
    done = peers.run_tool(
        version, "DumpLogSegments", "--deep-iteration", "--print-data-log", "--files", files(path, ".log"), check=True
    )
    assert "isvalid: false" not in done.stdout
    offsets = [int(offset) for offset in re.findall(r"^\| offset: (\d+) ", done.stdout, re.M)]
    assert offsets == [record.offset for record in records]
    keys = re.findall(r"^\| offset: .* key: (\S+)", done.stdout, re.M)
    assert keys == [(record.key or b"").decode() for record in records]
    stamps = re.findall(r"^\| offset: \d+ .*?(?:CreateTime|timestamp): (\d+)", done.stdout, re.M)
    assert [int(stamp) for stamp in stamps] == [record.timestamp for record in records]
    headers = re.findall(r"^baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .*$", done.stdout, re.M)
    assert int(headers[-1][1]) == end_offset - 1
    assert sum(int(count) for _, _, count in headers) == len(records)
    horizons = {int(horizon) for horizon in re.findall(r"deleteHorizonMs: OptionalLong\[(\d+)\]", done.stdout)}
    assert horizons == {NOW_MS + DAY_MS}


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_the_dump_tool_finds_the_indexes_of_cleaned_files_right(ours: tuple[Path, list[Record], int], suffix: str) -> None:
    path, _, _ = ours
    done = peers.run_tool(peers.KAFKA_4, "DumpLogSegments", "--verify-index-only", "--files", files(path, suffix), check=True)
    assert "mismatch" not in (done.stdout + done.stderr).lower(), done.stdout + done.stderr


@dataclass(frozen=True)
class Theirs:
    """What Apache Kafka 3.9 wrote and compacted in part, what we made of it, and what it then served of that."""

    found: list[Pair]
    cleaned_by_kafka: int
    compacted: list[Pair]
    end_offset: int
    newest: dict[bytes, bytes | None]
    served: list[Pair]
    complaints: list[str]
    cleaned_again: bool


def produce(bootstrap_servers: str, newest: dict[bytes, bytes | None], rounds: range) -> None:
    dice = SeededRandom(random.Random(rounds.start))
    for number in rounds:
        codec = ("none", "gzip", "snappy", "lz4", "zstd")[number % 5]
        producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "compression.type": codec,
                "enable.idempotence": number % 2 == 0,
                "batch.num.messages": 20,
            }
        )
        failed: list[object] = []

        def note(error: object, _: object, failed: list[object] = failed) -> None:
            if error is not None:
                failed.append(error)

        for _ in range(300):
            key = b"key-%d" % dice.below(80)
            value = None if dice.below(10) == 0 else dice.bytes(1 + dice.below(100))
            newest[key] = value
            producer.produce("compacted", value, key, on_delivery=note)
        assert producer.flush(60) == 0
        assert failed == []


def consume(bootstrap_servers: str, end_offset: int) -> list[Pair]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "x",
            "enable.auto.commit": False,
            "check.crcs": True,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition("compacted", 0, 0)])
    found: list[Pair] = []
    while True:
        (message,) = consumer.consume(1, timeout=60) or [None]  # type: ignore[list-item]
        assert message is not None, "nothing came"
        error = message.error()
        if error is not None:
            assert error.code() == -191, error
            assert consumer.position([TopicPartition("compacted", 0)])[0].offset == end_offset
            consumer.close()
            return found
        found.append((message.offset(), message.key(), message.value()))  # type: ignore[arg-type]


def kafka_s_checkpoint(data: Path) -> int:
    path = data / "cleaner-offset-checkpoint"
    found = re.search(r"^compacted 0 (\d+)$", path.read_text() if path.exists() else "", re.M)
    return int(found[1]) if found else 0


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Theirs]:
    data = tmp_path_factory.mktemp("theirs")
    newest: dict[bytes, bytes | None] = {}
    settings: dict[str, Any] = {
        "log.segment.bytes": 16384,
        "log.cleaner.backoff.ms": 100,
        "log.cleaner.min.cleanable.ratio": 0.01,
        "log.cleanup.policy": "compact",
    }
    with peers.ApacheKafka(peers.KAFKA_3, data_dir=data, **settings) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        for created in admin.create_topics([NewTopic("compacted", 1, 1)]).values():
            created.result(60)
        del admin
        produce(kafka.bootstrap_servers, newest, range(6))
        until(lambda: kafka_s_checkpoint(data), "Kafka compacts", every_s=0.2)
        produce(kafka.bootstrap_servers, newest, range(6, 12))
        assert kafka.stop() in (0, 143)
        cleaned_by_kafka = kafka_s_checkpoint(data)

        data_dir = DataDir.open(OsDisk(), str(data), None, None, SeededRandom(random.Random(5)))
        now_ms = time.time_ns() // 1_000_000
        data_dir.load(lambda topic: CONFIG, now_ms)
        log = data_dir.logs[TOPIC]
        assert log.cleaned_offset == cleaned_by_kafka
        found, end_offset = pairs_of(log), log.log_end_offset
        log.roll(now_ms)
        log.flush(now_ms)
        log.cleaned_offset = 0  # all of it once more, with what Kafka cleaned
        compact(log, now_ms)
        compacted = pairs_of(log)
        data_dir.close()

        lines = len(kafka.output.splitlines())
        kafka.start()
        served = consume(kafka.bootstrap_servers, end_offset)
        # and its own cleaner goes over our segments
        before = kafka_s_checkpoint(data)
        produce(kafka.bootstrap_servers, newest, range(12, 18))
        cleaned_again = until(lambda: kafka_s_checkpoint(data) > before, "Kafka compacts Ottla's segments", every_s=0.2)
        assert kafka.stop() in (0, 143)
        output = kafka.output.splitlines()[lines:]
        complaints = [line for line in output if "compacted-0" in line and ("WARN" in line or "ERROR" in line)]
        yield Theirs(found, cleaned_by_kafka, compacted, end_offset, {}, served, complaints, cleaned_again)


def test_we_compact_what_kafka_wrote_and_partly_compacted(theirs: Theirs) -> None:
    assert theirs.cleaned_by_kafka > 0
    last = {key: (offset, value) for offset, key, value in theirs.found}
    assert len(last) < len(theirs.found)
    assert theirs.compacted == sorted((offset, key, value) for key, (offset, value) in last.items())


def test_kafka_serves_what_we_compacted_and_compacts_it_again(theirs: Theirs) -> None:
    assert theirs.served == theirs.compacted
    assert theirs.complaints == [], "Kafka found fault with our files"
    assert theirs.cleaned_again
