"""A topic's settings in the words of the rooms that use them: the log's configuration, and the rules of what may be stored."""

from __future__ import annotations

from ottla.cluster.settings import TopicSettings
from ottla.records.validate import CREATE_TIME, LOG_APPEND_TIME, PRODUCER, Rules, unpacked_bytes_max
from ottla.storage.config import LogConfig

_CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4, "producer": PRODUCER}
_LEVELS = {"gzip": "compression.gzip.level", "lz4": "compression.lz4.level", "zstd": "compression.zstd.level"}


def log_config_of(settings: TopicSettings) -> LogConfig:
    return LogConfig(
        segment_bytes=settings.int("segment.bytes"),
        segment_ms=settings.int("segment.ms"),
        segment_jitter_ms=settings.int("segment.jitter.ms"),
        index_bytes_max=settings.int("segment.index.bytes"),
        index_interval_bytes=settings.int("index.interval.bytes"),
        retention_ms=settings.int("retention.ms"),
        retention_bytes=settings.int("retention.bytes"),
        flush_messages=settings.int("flush.messages"),
        flush_ms=settings.int("flush.ms"),
        file_delete_delay_ms=settings.int("file.delete.delay.ms"),
        cleanup_policy=frozenset(settings.list("cleanup.policy")),
        delete_retention_ms=settings.int("delete.retention.ms"),
        min_compaction_lag_ms=settings.int("min.compaction.lag.ms"),
        max_compaction_lag_ms=settings.int("max.compaction.lag.ms"),
        min_cleanable_dirty_ratio=settings.float("min.cleanable.dirty.ratio"),
    )


def rules_of(settings: TopicSettings) -> Rules:
    codec = settings.str("compression.type")
    level = settings.int(_LEVELS[codec]) if codec in _LEVELS else None
    return Rules(
        max_message_bytes=settings.int("max.message.bytes"),
        compacted="compact" in settings.list("cleanup.policy"),
        timestamp_type=LOG_APPEND_TIME if settings.str("message.timestamp.type") == "LogAppendTime" else CREATE_TIME,
        timestamp_before_max_ms=settings.int("message.timestamp.before.max.ms"),
        timestamp_after_max_ms=settings.int("message.timestamp.after.max.ms"),
        compression=_CODECS[codec],
        # gzip's -1 means that the codec chooses.
        compression_level=None if codec == "gzip" and level == -1 else level,
        decompressed_bytes_max=unpacked_bytes_max(settings.int("max.message.bytes")),
    )
