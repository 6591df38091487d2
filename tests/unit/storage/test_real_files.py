"""The same log on the operating system's files: descriptors, removal under a reader, two brokers at one directory."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.runtime.files import OsDisk
from ottla.storage.config import LogConfig
from ottla.storage.data_dir import DataDir
from ottla.storage.segment_cache import SegmentCache
from ottla.types import TopicPartition
from tests.kit.storage import NOW_MS, TOPIC_ID, append, batch, read_batches, records_of, seeded_random

CONFIG = LogConfig(segment_bytes=4 * len(batch(1)), index_interval_bytes=100, file_delete_delay_ms=0)


def opened(path: Path, cache: SegmentCache | None = None) -> DataDir:
    data_dir = DataDir.open(OsDisk(), str(path), 1, "cluster", seeded_random(), cache)
    data_dir.load(lambda topic: CONFIG, NOW_MS)
    return data_dir


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors as Linux shows them")
def test_a_partition_holds_one_descriptor_and_sealed_segments_share_a_few(tmp_path: Path) -> None:
    before = descriptors()
    data_dir = opened(tmp_path, SegmentCache(segments_max=5))
    for partition in range(20):
        log = data_dir.create_log(TopicPartition("t", partition), TOPIC_ID, CONFIG, NOW_MS)
        for number in range(20):
            append(log, number)
        assert len(log.segments) == 5
        assert [record.timestamp for record in records_of(read_batches(log))] == list(range(20))
    assert descriptors() - before <= 20 + 5 + 1
    data_dir.close()
    data_dir.logs.clear()
    assert descriptors() <= before + 5


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors as Linux shows them")
def test_removed_segments_that_nobody_reads_are_closed(tmp_path: Path) -> None:
    """Also those that were sealed and removed before any flush: a log with few records is emptied again and again by its age."""
    data_dir = opened(tmp_path)
    config = replace(CONFIG, retention_ms=1000)
    log = data_dir.create_log(TopicPartition("t", 0), TOPIC_ID, config, NOW_MS)
    before = descriptors()
    for _ in range(10):
        append(log, NOW_MS - 5000)
        log.high_watermark = log.log_end_offset
        assert len(log.apply_retention(NOW_MS)) == 1
        for path in log.take_deleted(NOW_MS):
            os.unlink(path)
    assert descriptors() == before


def test_what_is_read_stays_readable_after_the_segment_is_gone(tmp_path: Path) -> None:
    data_dir = opened(tmp_path)
    log = data_dir.create_log(TopicPartition("t", 0), TOPIC_ID, CONFIG, NOW_MS)
    for number in range(20):
        append(log, number)
    log.high_watermark = 20
    (part,) = log.read(0, 1 << 20, 20, True).ranges
    expected = part.file.read(part.position, part.size)
    log.advance_log_start(8)
    for path in log.take_deleted(NOW_MS):
        os.unlink(path)
    assert not list((tmp_path / "t-0").glob("*.deleted"))
    assert os.pread(part.file.fileno(), part.size, part.position) == expected
    data_dir.delete_log(TopicPartition("t", 0))
    assert os.pread(part.file.fileno(), part.size, part.position) == expected
    data_dir.close()


def test_a_second_broker_cannot_open_the_directory(tmp_path: Path) -> None:
    data_dir = opened(tmp_path)
    with pytest.raises(BlockingIOError):
        opened(tmp_path)
    data_dir.close()
    opened(tmp_path).close()
