"""Apache Kafka's own dump tool reads the files we write (F8)."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from ottla.cli.log.salvage import salvage
from ottla.records.record import build_batch
from ottla.records.validate import Rules, check
from ottla.runtime.files import OsDisk
from ottla.sim.kernel.machine import SeededRandom
from ottla.storage.config import LogConfig
from ottla.storage.data_dir import DataDir
from ottla.types import TopicPartition
from tests.kit import peers

pytestmark = pytest.mark.java

NOW_MS = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def partition(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[int, int, int]]]:
    """A log of several segments after a clean stop, and (base offset, codec, records) of each batch in it."""
    path = tmp_path_factory.mktemp("dump")
    config = LogConfig(segment_bytes=8192, index_interval_bytes=512)
    data_dir = DataDir.open(OsDisk(), str(path), 1, "cluster", SeededRandom(random.Random(7)))
    data_dir.load(lambda topic: config, NOW_MS)
    log = data_dir.create_log(TopicPartition("orders", 3), SeededRandom(random.Random(7)).bytes(16), config, NOW_MS)
    dice, batches = SeededRandom(random.Random(7)), []
    for number in range(120):
        count, codec = 1 + dice.below(5), number % 5
        fields = [
            (b"key-%d" % n, dice.bytes(50).hex().encode(), [("h", b"v"), ("n", None)], NOW_MS + number * 10 + n)
            for n in range(count)
        ]
        checked = check(bytearray(build_batch(fields, codec=codec)), Rules(), NOW_MS)
        batches.append((log.append(checked, number // 40, NOW_MS).first_offset, codec, count))
    assert len(log.segments) > 3
    data_dir.close()
    return path / "orders-3", batches


def files(partition: Path, suffix: str) -> str:
    return ",".join(str(path) for path in sorted(partition.glob(f"*{suffix}")))


@pytest.mark.parametrize("version", [peers.KAFKA_4, peers.KAFKA_3])
def test_dump_reads_every_record_of_every_codec(partition: tuple[Path, list[tuple[int, int, int]]], version: str) -> None:
    path, batches = partition
    done = peers.run_tool(
        version, "DumpLogSegments", "--deep-iteration", "--print-data-log", "--files", files(path, ".log"), check=True
    )
    headers = re.findall(
        r"^baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .*partitionLeaderEpoch: (\d+) .*$", done.stdout, re.M
    )
    assert [(int(base), int(count)) for base, _, count, _ in headers] == [(base, count) for base, _, count in batches]
    assert [int(epoch) for *_, epoch in headers] == [number // 40 for number in range(len(batches))]
    assert done.stdout.count("isvalid: true") == len(batches)
    assert "isvalid: false" not in done.stdout
    named = re.findall(r"^baseOffset: .*compresscodec: (\w+)", done.stdout, re.M)
    assert [name.lower() for name in named] == [CODECS[codec] for _, codec, _ in batches]
    offsets = [int(offset) for offset in re.findall(r"^\| offset: (\d+) ", done.stdout, re.M)]
    assert offsets == list(range(sum(count for _, _, count in batches)))
    assert done.stdout.count("headerKeys: [h,n]") == len(offsets)
    bases = [int(log.stem) for log in sorted(path.glob("*.log"))]
    assert [int(base) for base in re.findall(r"^Log starting offset: (\d+)$", done.stdout, re.M)] == bases


@pytest.mark.parametrize("version", [peers.KAFKA_4, peers.KAFKA_3])
def test_dump_finds_the_indexes_sane_and_true(partition: tuple[Path, list[tuple[int, int, int]]], version: str) -> None:
    path, _ = partition
    both = ",".join((files(path, ".index"), files(path, ".timeindex")))
    done = peers.run_tool(version, "DumpLogSegments", "--index-sanity-check", "--files", both, check=True)
    assert done.stdout.count("passed sanity check") == len(both.split(","))
    done = peers.run_tool(version, "DumpLogSegments", "--verify-index-only", "--files", both, check=True)
    assert not re.search("mismatch|out of order|non-", done.stdout + done.stderr, re.I)
    done = peers.run_tool(version, "DumpLogSegments", "--files", both, check=True)
    assert not re.search("mismatch|not found|out of order", done.stdout + done.stderr, re.I)
    assert len(re.findall(r"^offset: \d+ position: \d+$", done.stdout, re.M)) > 10
    assert len(re.findall(r"^timestamp: \d+ offset: \d+$", done.stdout, re.M)) > 10


def test_dump_reads_a_salvaged_segment(partition: tuple[Path, list[tuple[int, int, int]]], tmp_path: Path) -> None:
    path, batches = partition
    source = sorted(path.glob("*.log"))[1]
    damaged = tmp_path / source.name
    damaged.write_bytes(source.read_bytes()[:61] + b"rubbish" + source.read_bytes()[68:])
    (tmp_path / "saved").mkdir()
    saved = salvage([damaged], tmp_path / "saved")
    assert saved is not None
    done = peers.run_tool(peers.KAFKA_4, "DumpLogSegments", "--deep-iteration", "--files", saved.path, check=True)
    bases = [int(base) for base in re.findall(r"^baseOffset: (\d+) ", done.stdout, re.M)]
    assert bases == [base for base, _, _ in batches if saved.first_offset <= base <= saved.last_offset]
    assert len(bases) == saved.batches > 3
    assert done.stdout.count("isvalid: true") == len(bases)
