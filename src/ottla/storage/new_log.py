"""Creates a new log with as few disk operations as possible: a topic may have thousands of partitions."""

from __future__ import annotations

from ottla.ports import Disk, Random
from ottla.storage.config import LogConfig
from ottla.storage.epoch_cache import EpochCache
from ottla.storage.log import Log
from ottla.storage.names import EPOCH_CHECKPOINT
from ottla.storage.producer_state import ProducerStates
from ottla.storage.segment import Segment
from ottla.storage.segment_cache import SegmentCache
from ottla.storage.snapshot import Snapshots
from ottla.types import ZERO_UUID, TopicPartition


def new_log(
    disk: Disk,
    random: Random,
    dir: str,
    topic_partition: TopicPartition,
    config: LogConfig,
    cache: SegmentCache,
    now_ms: int,
) -> Log:
    """Create a log in a directory that does not exist. Nothing is flushed: see `Log.flush_plan`."""
    disk.make_dirs(dir)
    segment = Segment.create(disk, dir, 0, config, random, now_ms, cache, in_new_dir=True)
    return Log(
        disk,
        random,
        dir,
        topic_partition,
        ZERO_UUID,
        config,
        EpochCache(disk, f"{dir}/{EPOCH_CHECKPOINT}"),
        [segment],
        log_start_offset=0,
        recovery_point=0,
        cache=cache,
        now_ms=now_ms,
        producers=ProducerStates(topic_partition),
        snapshots=Snapshots(disk, dir, []),
    )
