"""Topic settings as what a partition needs: the log's configuration (`LogConfig`), the validation rules of records (`Rules`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from ottla.cluster.image import TopicImage
from ottla.cluster.settings import BrokerSettings, TopicSettings
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


def stored_log_configs(settings: BrokerSettings, topics: Mapping[str, Mapping[str, str]]) -> Callable[[str], LogConfig]:
    """The log configuration by topic, from the stored topic settings.

    A log of an unknown topic may have been compacted: its gaps are accepted.
    """
    unknown = replace(log_config_of(TopicSettings.resolve(settings, {})), cleanup_policy=frozenset({"compact", "delete"}))

    @cache
    def config_of(topic: str) -> LogConfig:
        overrides = topics.get(topic)
        return unknown if overrides is None else log_config_of(TopicSettings.resolve(settings, overrides))

    return config_of


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
        # Level -1 of gzip is the default of the codec.
        compression_level=None if codec == "gzip" and level == -1 else level,
        decompressed_bytes_max=unpacked_bytes_max(settings.int("max.message.bytes")),
    )


class TopicConfig(NamedTuple):
    """The settings of a topic, parsed."""

    log: LogConfig
    rules: Rules
    min_insync_replicas: int
    leader_throttled: tuple[str, ...]
    follower_throttled: tuple[str, ...]


class TopicConfigs:
    """The settings of topics, parsed once for all partitions of a topic, on top of those of the broker."""

    def __init__(self, settings: BrokerSettings, on_settings: Callable[[BrokerSettings], None]) -> None:
        """`on_settings` is called when dynamic settings of the broker changed."""
        self._static_settings = settings
        self._settings = settings
        self._on_settings = on_settings
        self._parsed: dict[str, TopicConfig] = {}
        """Cache by topic name."""

    def forget(self) -> None:
        """Topics may have other settings from now on."""
        self._parsed.clear()

    def set_dynamic(self, own: Mapping[str, str], default: Mapping[str, str]) -> None:
        """Apply the dynamic settings of this broker and of all brokers."""
        self._settings = self._static_settings.with_dynamic(own, default)
        self._on_settings(self._settings)

    def of(self, topic: TopicImage) -> TopicConfig:
        found = self._parsed.get(topic.name)
        if found is None:
            settings = TopicSettings.resolve(self._settings, topic.config)
            found = TopicConfig(
                log_config_of(settings),
                rules_of(settings),
                settings.int("min.insync.replicas"),
                tuple(settings.list("leader.replication.throttled.replicas")),
                tuple(settings.list("follower.replication.throttled.replicas")),
            )
            self._parsed[topic.name] = found
        return found
