"""The settings of a topic: data, nothing else.

Each falls back to a broker setting, named here; the default in this table holds where there is none.
"""

from __future__ import annotations

from typing import Final

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
    ThrottledReplicas,
    Value,
    at_least,
    between,
    one_of,
    table_of,
)


def _used(
    name: str,
    type: SettingType,
    default: Value,
    *,
    valid: Allowed | None = None,
    server_default: str | None = None,
    internal: bool = False,
    doc: str,
) -> Setting:
    return Setting(name, type, default, valid, "topic", "cluster-wide", True, doc, server_default, internal)


def _known(
    name: str,
    type: SettingType,
    default: Value,
    *,
    valid: Allowed | None = None,
    server_default: str | None = None,
    internal: bool = False,
    doc: str,
) -> Setting:
    return Setting(name, type, default, valid, "topic", "cluster-wide", False, doc, server_default, internal)


# fmt: off
TOPIC_SETTINGS: Final = table_of((
    _used("cleanup.policy", LIST, ("delete",), valid=one_of("compact", "delete"), server_default="log.cleanup.policy",
        doc="What happens to old records of the topic: `delete` removes segments by age and size, `compact` keeps "
            "the newest record of each key, both may be given."),
    _used("compression.gzip.level", INT, -1, valid=Between(1, 9, also=-1), server_default="compression.gzip.level",
        doc="The effort of gzip where the broker compresses: 1 fast to 9 small, -1 for gzip's own choice."),
    _used("compression.lz4.level", INT, 9, valid=between(1, 17), server_default="compression.lz4.level",
        doc="The effort of lz4 where the broker compresses: 1 fast to 17 small."),
    _used("compression.type", STRING, "producer",
        valid=one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"), server_default="compression.type",
        doc="The codec in which the topic's batches are stored. `producer` keeps what the producer chose."),
    _used("compression.zstd.level", INT, 3, valid=between(-131072, 22), server_default="compression.zstd.level",
        doc="The effort of zstd where the broker compresses: negative is faster, 22 is smallest."),
    _used("delete.retention.ms", LONG, 86400000, valid=at_least(0), server_default="log.cleaner.delete.retention.ms",
        doc="How long a deletion mark of a compacted topic stays readable."),
    _used("file.delete.delay.ms", LONG, 60000, valid=at_least(0), server_default="log.segment.delete.delay.ms",
        doc="How long the files of a removed segment stay on disk under another name."),
    _used("flush.messages", LONG, LONG_MAX, valid=at_least(1), server_default="log.flush.interval.messages",
        doc="How many records a partition takes before they are forced to disk."),
    _used("flush.ms", LONG, LONG_MAX, valid=at_least(0), server_default="log.flush.interval.ms",
        doc="How long a record may wait in memory before it is forced to disk."),
    _used("follower.replication.throttled.replicas", LIST, (), valid=ThrottledReplicas(),
        doc="Replicas whose fetching is slowed, as partition:broker, or * for all."),
    _used("index.interval.bytes", INT, 4096, valid=at_least(0), server_default="log.index.interval.bytes",
        doc="About how many bytes of records lie between two entries of the offset index."),
    _known("internal.segment.bytes", INT, None, internal=True,
        doc="Segment size for Kafka's own tests."),
    _used("leader.replication.throttled.replicas", LIST, (), valid=ThrottledReplicas(),
        doc="Replicas whose serving of followers is slowed, as partition:broker, or * for all."),
    _known("local.retention.bytes", LONG, -2, valid=at_least(-2), server_default="log.local.retention.bytes",
        doc="Local size of a log whose older part is held remotely."),
    _known("local.retention.ms", LONG, -2, valid=at_least(-2), server_default="log.local.retention.ms",
        doc="Local age of a log whose older part is held remotely."),
    _used("max.compaction.lag.ms", LONG, LONG_MAX, valid=at_least(1), server_default="log.cleaner.max.compaction.lag.ms",
        doc="The longest time a record of a compacted topic may stay uncompacted."),
    _used("max.message.bytes", INT, 1048588, valid=at_least(0), server_default="message.max.bytes",
        doc="The largest batch of records the topic accepts, as it stands on the wire."),
    _known("message.downconversion.enable", BOOLEAN, True, server_default="log.message.downconversion.enable", internal=True,
        doc="Whether old clients get records in old formats."),
    _known("message.format.version", STRING, "3.0-IV1", server_default="log.message.format.version", internal=True,
        doc="Record format of Kafka before 3.0."),
    _used("message.timestamp.after.max.ms", LONG, 3600000, valid=at_least(0), server_default="log.message.timestamp.after.max.ms",
        doc="How far a record's timestamp may lie ahead of the broker's clock, where the producer sets it."),
    _used("message.timestamp.before.max.ms", LONG, LONG_MAX,
        valid=at_least(0), server_default="log.message.timestamp.before.max.ms",
        doc="How far a record's timestamp may lie behind the broker's clock, where the producer sets it."),
    _known("message.timestamp.difference.max.ms", LONG, LONG_MAX,
        valid=at_least(0), server_default="log.message.timestamp.difference.max.ms", internal=True,
        doc="Old name for both timestamp limits together."),
    _used("message.timestamp.type", STRING, "CreateTime",
        valid=one_of("CreateTime", "LogAppendTime"), server_default="log.message.timestamp.type",
        doc="Whose time a record carries: `CreateTime` is the producer's, `LogAppendTime` the broker's."),
    _used("min.cleanable.dirty.ratio", DOUBLE, 0.5, valid=between(0, 1), server_default="log.cleaner.min.cleanable.ratio",
        doc="The share of a compacted log that must be uncompacted before it is compacted again."),
    _used("min.compaction.lag.ms", LONG, 0, valid=at_least(0), server_default="log.cleaner.min.compaction.lag.ms",
        doc="The shortest time a record of a compacted topic stays uncompacted."),
    _used("min.insync.replicas", INT, 1, valid=at_least(1), server_default="min.insync.replicas",
        doc="How many replicas must hold a record before a producer with acks=all is told that it is safe."),
    _known("preallocate", BOOLEAN, False, server_default="log.preallocate",
        doc="Whether the file of a new segment takes its full size on disk at once."),
    _known("remote.log.copy.disable", BOOLEAN, False,
        doc="Whether copying to remote storage is halted."),
    _known("remote.log.delete.on.disable", BOOLEAN, False,
        doc="Whether remotely held records go when remote storage is switched off."),
    _known("remote.storage.enable", BOOLEAN, False,
        doc="Whether older segments are held in remote storage; Ottla has none."),
    _used("retention.bytes", LONG, -1, server_default="log.retention.bytes",
        doc="How large a partition may grow before its oldest segments are removed; -1 is without limit."),
    _used("retention.ms", LONG, 604800000, valid=at_least(-1), server_default="log.retention.ms",
        doc="How long a segment is kept after its newest record; -1 is for ever."),
    _used("segment.bytes", INT, 1073741824, valid=at_least(14), server_default="log.segment.bytes",
        doc="The largest size of a segment file."),
    _used("segment.index.bytes", INT, 10485760, valid=at_least(4), server_default="log.index.size.max.bytes",
        doc="The largest size of an offset or time index. A full index makes the segment roll."),
    _used("segment.jitter.ms", LONG, 0, valid=at_least(0), server_default="log.roll.jitter.ms",
        doc="The most time by which a roll is brought forward at random, so that not all partitions roll at once."),
    _used("segment.ms", LONG, 604800000, valid=at_least(1), server_default="log.roll.ms",
        doc="The time after which a segment is closed even if it is not full."),
    _used("unclean.leader.election.enable", BOOLEAN, False, server_default="unclean.leader.election.enable",
        doc="Whether a replica that is not in sync may become leader when no other is left, at the price of lost "
            "records."),
))
