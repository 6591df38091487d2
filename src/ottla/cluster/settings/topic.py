"""The settings of one topic: its own values, else the broker's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from ottla.cluster.settings.broker import BrokerSettings
from ottla.cluster.settings.setting import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    LONG_MAX,
    STRING,
    Allowed,
    Between,
    Setting,
    SettingType,
    SettingValues,
    ThrottledReplicas,
    Value,
    at_least,
    between,
    one_of,
    table_of,
    unknown_name,
)


@dataclass(frozen=True, slots=True, eq=False)
class TopicSettings(SettingValues):
    """Typed values by name. Build one with `resolve`."""

    _values: Mapping[str, Value]
    overrides: Mapping[str, str]

    @classmethod
    def resolve(cls, broker: BrokerSettings, overrides: Mapping[str, str]) -> TopicSettings:
        """The topic's own values, else the broker's, else the defaults.

        An override that cannot be parsed any more is ignored: the topic can still be opened.
        """
        values: dict[str, Value] = {}
        for name, setting in TOPIC_SETTINGS.items():
            text = overrides.get(name)
            if text is not None:
                try:
                    values[name] = setting.parse(text)
                    continue
                except ValueError:
                    pass
            value = broker.value(setting.server_default) if setting.server_default is not None else None
            values[name] = setting.default if value is None else value
        return cls(values, overrides)

    def value(self, name: str) -> Value:
        return self._values[name]


def topic_config_problems(overrides: Mapping[str, str | None], broker: BrokerSettings | None = None) -> list[str]:
    """Why these values of a topic are invalid, one sentence for each problem."""
    problems: list[str] = []
    values: dict[str, Value] = {}
    for name, text in overrides.items():
        setting = TOPIC_SETTINGS.get(name)
        if setting is None:
            problems.append(unknown_name(name, TOPIC_SETTINGS, "topic setting"))
        elif text is None:
            problems.append(f"{name} has no value; a topic setting cannot be null")
        else:
            try:
                values[name] = setting.parse(text)
            except ValueError as error:
                problems.append(str(error))
    if values.get("remote.storage.enable"):
        problems.append("remote.storage.enable=true is not allowed: this broker has no remote storage; allowed: false")
    problems += _check_lags(values, broker)
    return problems


def _check_lags(values: Mapping[str, Value], broker: BrokerSettings | None) -> list[str]:
    if "min.compaction.lag.ms" not in values and "max.compaction.lag.ms" not in values:
        return []
    lags: list[int] = []
    for name in ("min.compaction.lag.ms", "max.compaction.lag.ms"):
        value = values.get(name)
        setting = TOPIC_SETTINGS[name]
        if value is None and broker is not None and setting.server_default is not None:
            value = broker.value(setting.server_default)
        if value is None:
            value = setting.default
        assert isinstance(value, int)
        lags.append(value)
    if lags[0] > lags[1]:
        return [f"min.compaction.lag.ms={lags[0]} must not be above max.compaction.lag.ms={lags[1]}"]
    return []


def _row(
    name: str,
    type: SettingType,
    default: Value,
    *,
    used: bool,
    valid: Allowed | None = None,
    server_default: str | None = None,
    internal: bool = False,
    doc: str,
) -> Setting:
    return Setting(name, type, default, valid, "topic", "cluster-wide", used, doc, server_default, internal)


_used = partial(_row, used=True)
_known = partial(_row, used=False)
# fmt: off
TOPIC_SETTINGS: Final = table_of((
    _used("cleanup.policy", LIST, ("delete",), valid=one_of("compact", "delete"), server_default="log.cleanup.policy",
        doc="`delete` deletes old segments by age and size, `compact` keeps the last record of each key. Both can be "
            "set."),
    _used("compression.gzip.level", INT, -1, valid=Between(1, 9, also=-1), server_default="compression.gzip.level",
        doc="The compression level of gzip where the broker compresses: 1 fastest to 9 smallest, -1 for gzip's "
            "default."),
    _used("compression.lz4.level", INT, 9, valid=between(1, 17), server_default="compression.lz4.level",
        doc="The compression level of lz4 where the broker compresses: 1 fastest to 17 smallest."),
    _used("compression.type", STRING, "producer",
        valid=one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"), server_default="compression.type",
        doc="The compression type of the topic's stored batches. `producer` keeps the producer's."),
    _used("compression.zstd.level", INT, 3, valid=between(-131072, 22), server_default="compression.zstd.level",
        doc="The compression level of zstd where the broker compresses: negative is faster, 22 is smallest."),
    _used("delete.retention.ms", LONG, 86400000, valid=at_least(0), server_default="log.cleaner.delete.retention.ms",
        doc="How long tombstones of a compacted topic are kept."),
    _used("file.delete.delay.ms", LONG, 60000, valid=at_least(0), server_default="log.segment.delete.delay.ms",
        doc="How long the renamed files of a deleted segment stay on disk."),
    _used("flush.messages", LONG, LONG_MAX, valid=at_least(1), server_default="log.flush.interval.messages",
        doc="The number of records of a partition after which they are flushed to disk."),
    _used("flush.ms", LONG, LONG_MAX, valid=at_least(0), server_default="log.flush.interval.ms",
        doc="The maximum time a record stays unflushed."),
    _used("follower.replication.throttled.replicas", LIST, (), valid=ThrottledReplicas(),
        doc="Replicas that are throttled as followers, as partition:broker, or * for all."),
    _used("index.interval.bytes", INT, 4096, valid=at_least(0), server_default="log.index.interval.bytes",
        doc="The bytes of records between two entries of the offset index."),
    _known("internal.segment.bytes", INT, None, internal=True, doc="Segment size for Kafka's own tests."),
    _used("leader.replication.throttled.replicas", LIST, (), valid=ThrottledReplicas(),
        doc="Replicas that are throttled as leaders, as partition:broker, or * for all."),
    _known("local.retention.bytes", LONG, -2, valid=at_least(-2), server_default="log.local.retention.bytes",
        doc="The size of the local log of a topic with remote storage."),
    _known("local.retention.ms", LONG, -2, valid=at_least(-2), server_default="log.local.retention.ms",
        doc="The age of the local log of a topic with remote storage."),
    _used("max.compaction.lag.ms", LONG, LONG_MAX, valid=at_least(1), server_default="log.cleaner.max.compaction.lag.ms",
        doc="The maximum time a record of a compacted topic stays uncompacted."),
    _used("max.message.bytes", INT, 1048588, valid=at_least(0), server_default="message.max.bytes",
        doc="The maximum size of a record batch of the topic, after compression."),
    _known("message.downconversion.enable", BOOLEAN, True, server_default="log.message.downconversion.enable", internal=True,
        doc="Whether records are converted to older formats for old clients."),
    _known("message.format.version", STRING, "3.0-IV1", server_default="log.message.format.version", internal=True,
        doc="Record format of Kafka before 3.0."),
    _used("message.timestamp.after.max.ms", LONG, 3600000, valid=at_least(0), server_default="log.message.timestamp.after.max.ms",
        doc="How far a CreateTime timestamp may be ahead of the broker's clock."),
    _used("message.timestamp.before.max.ms", LONG, LONG_MAX,
        valid=at_least(0), server_default="log.message.timestamp.before.max.ms",
        doc="How far a CreateTime timestamp may be behind the broker's clock."),
    _known("message.timestamp.difference.max.ms", LONG, LONG_MAX,
        valid=at_least(0), server_default="log.message.timestamp.difference.max.ms", internal=True,
        doc="Old name for both timestamp limits together."),
    _used("message.timestamp.type", STRING, "CreateTime",
        valid=one_of("CreateTime", "LogAppendTime"), server_default="log.message.timestamp.type",
        doc="The timestamp of a record: `CreateTime` is the producer's, `LogAppendTime` the broker's."),
    _used("min.cleanable.dirty.ratio", DOUBLE, 0.5, valid=between(0, 1), server_default="log.cleaner.min.cleanable.ratio",
        doc="The ratio of uncompacted bytes above which a log is compacted."),
    _used("min.compaction.lag.ms", LONG, 0, valid=at_least(0), server_default="log.cleaner.min.compaction.lag.ms",
        doc="The minimum time a record of a compacted topic stays uncompacted."),
    _used("min.insync.replicas", INT, 1, valid=at_least(1), server_default="min.insync.replicas",
        doc="The minimum number of in-sync replicas for a write with acks=all."),
    _known("preallocate", BOOLEAN, False, server_default="log.preallocate",
        doc="Whether the file of a new segment is preallocated."),
    _known("remote.log.copy.disable", BOOLEAN, False, doc="Whether copying to remote storage is disabled."),
    _known("remote.log.delete.on.disable", BOOLEAN, False,
        doc="Whether remote records are deleted when remote storage is disabled."),
    _known("remote.storage.enable", BOOLEAN, False, doc="Whether older segments are kept in remote storage; Ottla has none."),
    _used("retention.bytes", LONG, -1, server_default="log.retention.bytes",
        doc="The size of a partition above which its oldest segments are deleted; -1 is no limit."),
    _used("retention.ms", LONG, 604800000, valid=at_least(-1), server_default="log.retention.ms",
        doc="How long a segment is kept after its newest record; -1 is no limit."),
    _used("segment.bytes", INT, 1073741824, valid=at_least(14), server_default="log.segment.bytes",
        doc="The maximum size of a segment."),
    _used("segment.index.bytes", INT, 10485760, valid=at_least(4), server_default="log.index.size.max.bytes",
        doc="The maximum size of an offset or time index. A full index rolls the segment."),
    _used("segment.jitter.ms", LONG, 0, valid=at_least(0), server_default="log.roll.jitter.ms",
        doc="The maximum random time by which a roll is brought forward, so that partitions do not roll at the same "
            "time."),
    _used("segment.ms", LONG, 604800000, valid=at_least(1), server_default="log.roll.ms",
        doc="The time after which a segment is rolled even if it is not full."),
    _used("unclean.leader.election.enable", BOOLEAN, False, server_default="unclean.leader.election.enable",
        doc="Whether a replica that is not in the ISR can become leader if no other is available; records can be "
            "lost."),
))
