"""The broker settings that Ottla uses: data, nothing else.

Names, types, defaults and limits are those of Apache Kafka 4.3, or of 3.9 for what 4 dropped; where Ottla differs, the line of
documentation says so. The settings Kafka has and Ottla does nothing with are in `unused_table`.
"""

from __future__ import annotations

from typing import Final

from ottla.cluster.settings.setting import (
    BOOLEAN,
    DOUBLE,
    INT,
    INT_MAX,
    LIST,
    LONG,
    LONG_MAX,
    STRING,
    Allowed,
    Between,
    Setting,
    SettingType,
    UpdateMode,
    Value,
    at_least,
    between,
    one_of,
    table_of,
)

CLUSTER_WIDE: Final = "cluster-wide"


def _used(
    name: str,
    type: SettingType,
    default: Value,
    *,
    valid: Allowed | None = None,
    mode: UpdateMode = "read-only",
    internal: bool = False,
    doc: str,
) -> Setting:
    return Setting(name, type, default, valid, "broker", mode, True, doc, internal=internal)


# fmt: off
USED_BROKER_SETTINGS: Final = table_of((
    _used("advertised.listeners", LIST, None,
        doc="The addresses clients are told to connect to, as NAME://host:port, one for each listener that is to "
            "be reachable. Without it the addresses of `listeners` are told."),
    _used("auto.create.topics.enable", BOOLEAN, True,
        doc="Whether asking for the metadata of a topic that does not exist creates it. The client must allow it "
            "as well."),
    _used("broker.id", INT, -1, valid=at_least(-1),
        doc="The number of this broker, unique in the cluster. -1 lets the broker choose a number above "
            "`reserved.broker.max.id` at its first start; it is kept in meta.properties."),
    _used("broker.id.generation.enable", BOOLEAN, True,
        doc="Whether a broker without `broker.id` may choose a number for itself."),
    _used("broker.rack", STRING, None,
        doc="The rack this broker stands in. Replicas of a partition are spread over racks."),
    _used("compression.gzip.level", INT, -1, valid=Between(1, 9, also=-1), mode=CLUSTER_WIDE,
        doc="The effort of gzip where the broker compresses: 1 fast to 9 small, -1 for gzip's own choice."),
    _used("compression.lz4.level", INT, 9, valid=between(1, 17), mode=CLUSTER_WIDE,
        doc="The effort of lz4 where the broker compresses: 1 fast to 17 small."),
    _used("compression.type", STRING, "producer",
        valid=one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"), mode=CLUSTER_WIDE,
        doc="The codec in which batches are stored. `producer` keeps what the producer chose; anything else is "
            "re-encoded where it differs."),
    _used("compression.zstd.level", INT, 3, valid=between(-131072, 22), mode=CLUSTER_WIDE,
        doc="The effort of zstd where the broker compresses: negative is faster, 22 is smallest."),
    _used("connections.max.idle.ms", LONG, 600000,
        doc="A connection on which nothing happened for so long is closed."),
    _used("controller.listener.names", LIST, None,
        doc="Listeners that belong to a KRaft controller. Ottla has none: a listener named here is not opened."),
    _used("default.replication.factor", INT, 1,
        doc="The number of replicas of a topic that is created without saying how many."),
    _used("delete.topic.enable", BOOLEAN, True,
        doc="Whether topics may be deleted. If not, the request is refused."),
    _used("fetch.max.bytes", INT, 57671680, valid=at_least(1024),
        doc="The most bytes one fetch reply holds, whatever the client asks for; a single larger batch is still "
            "returned whole."),
    _used("inter.broker.listener.name", STRING, None,
        doc="The listener that brokers use among themselves. Without it, the listener of "
            "`security.inter.broker.protocol`."),
    _used("listener.security.protocol.map", STRING, "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
        doc="Which security protocol each listener name speaks, as NAME:PROTOCOL, separated by commas."),
    _used("listeners", LIST, ("PLAINTEXT://:9092",),
        doc="The addresses this broker listens on, as NAME://host:port, separated by commas. An empty host means "
            "all interfaces, port 0 a free port. IPv6 addresses stand in brackets. They do not change while the "
            "broker runs."),
    _used("log.cleaner.delete.retention.ms", LONG, 86400000, valid=at_least(0), mode=CLUSTER_WIDE,
        doc="How long a deletion mark stays readable in a compacted topic, for readers that start from the "
            "beginning."),
    _used("log.cleaner.max.compaction.lag.ms", LONG, LONG_MAX, valid=at_least(1), mode=CLUSTER_WIDE,
        doc="The longest time a record of a compacted topic may stay uncompacted."),
    _used("log.cleaner.min.cleanable.ratio", DOUBLE, 0.5, valid=between(0, 1), mode=CLUSTER_WIDE,
        doc="The share of a compacted log that must be uncompacted before it is compacted again."),
    _used("log.cleaner.min.compaction.lag.ms", LONG, 0, valid=at_least(0), mode=CLUSTER_WIDE,
        doc="The shortest time a record of a compacted topic stays uncompacted."),
    _used("log.cleanup.policy", LIST, ("delete",), valid=one_of("compact", "delete"), mode=CLUSTER_WIDE,
        doc="What happens to old records: `delete` removes segments by age and size, `compact` keeps the newest "
            "record of each key, both may be given."),
    _used("log.dir", LIST, ("/tmp/kafka-logs",),
        doc="The data directory, used if `log.dirs` is not set."),
    _used("log.dirs", LIST, None,
        doc="The data directories, separated by commas. Partitions are spread over them; the loss of one takes "
            "only its own partitions."),
    _used("log.flush.interval.messages", LONG, LONG_MAX, valid=at_least(1), mode=CLUSTER_WIDE,
        doc="How many records a partition takes before they are forced to disk."),
    _used("log.flush.interval.ms", LONG, None, mode=CLUSTER_WIDE,
        doc="How long a record may wait in memory before it is forced to disk. Without it "
            "`log.flush.scheduler.interval.ms` applies."),
    _used("log.flush.offset.checkpoint.interval.ms", INT, 60000, valid=at_least(0),
        doc="How often the recovery points are written down; recovery after a crash begins there."),
    _used("log.flush.scheduler.interval.ms", LONG, LONG_MAX,
        doc="How often the broker looks for logs that are due to be forced to disk."),
    _used("log.flush.start.offset.checkpoint.interval.ms", INT, 60000, valid=at_least(0),
        doc="How often the start offsets of the logs are written down, so that deleted records stay deleted after "
            "a restart."),
    _used("log.index.interval.bytes", INT, 4096, valid=at_least(0), mode=CLUSTER_WIDE,
        doc="About how many bytes of records lie between two entries of the offset index."),
    _used("log.index.size.max.bytes", INT, 10485760, valid=at_least(4), mode=CLUSTER_WIDE,
        doc="The largest size of an offset or time index. A full index makes the segment roll."),
    _used("log.initial.task.delay.ms", LONG, 30000, valid=at_least(0), internal=True,
        doc="How long after the start the background work on logs begins."),
    _used("log.message.timestamp.after.max.ms", LONG, 3600000, valid=at_least(0), mode=CLUSTER_WIDE,
        doc="How far the timestamp of a record may lie ahead of the broker's clock, where the producer sets it."),
    _used("log.message.timestamp.before.max.ms", LONG, LONG_MAX, valid=at_least(0), mode=CLUSTER_WIDE,
        doc="How far the timestamp of a record may lie behind the broker's clock, where the producer sets it."),
    _used("log.message.timestamp.type", STRING, "CreateTime", valid=one_of("CreateTime", "LogAppendTime"), mode=CLUSTER_WIDE,
        doc="Whose time a record carries: `CreateTime` is the producer's, `LogAppendTime` the broker's."),
    _used("log.preallocate", BOOLEAN, False, mode=CLUSTER_WIDE,
        doc="Whether the file of a new segment takes its full size on disk at once."),
    _used("log.retention.bytes", LONG, -1, mode=CLUSTER_WIDE,
        doc="How large a partition may grow before its oldest segments are removed; -1 is without limit."),
    _used("log.retention.check.interval.ms", LONG, 300000, valid=at_least(1),
        doc="How often the broker looks for segments that are due to be removed."),
    _used("log.retention.hours", INT, 168,
        doc="How many hours a segment is kept. `log.retention.minutes` and `log.retention.ms` go before it."),
    _used("log.retention.minutes", INT, None,
        doc="How many minutes a segment is kept. `log.retention.ms` goes before it."),
    _used("log.retention.ms", LONG, None, mode=CLUSTER_WIDE,
        doc="How many milliseconds a segment is kept; -1 is for ever. Without it `log.retention.minutes` applies, "
            "then `log.retention.hours`."),
    _used("log.roll.hours", INT, 168, valid=at_least(1),
        doc="After how many hours a segment is closed even if it is not full. `log.roll.ms` goes before it."),
    _used("log.roll.jitter.hours", INT, 0, valid=at_least(0),
        doc="The most hours by which a roll is brought forward at random, so that not all logs roll at once. "
            "`log.roll.jitter.ms` goes before it."),
    _used("log.roll.jitter.ms", LONG, None, mode=CLUSTER_WIDE,
        doc="The most milliseconds by which a roll is brought forward at random. Without it "
            "`log.roll.jitter.hours` applies."),
    _used("log.roll.ms", LONG, None, mode=CLUSTER_WIDE,
        doc="After how many milliseconds a segment is closed even if it is not full. Without it `log.roll.hours` "
            "applies."),
    _used("log.segment.bytes", INT, 1073741824, valid=at_least(14), mode=CLUSTER_WIDE,
        doc="The largest size of a segment file. Kafka 4 asks for a megabyte at least; Ottla takes 14 bytes and "
            "more, as Kafka 3 does."),
    _used("log.segment.delete.delay.ms", LONG, 60000, valid=at_least(0), mode=CLUSTER_WIDE,
        doc="How long the files of a removed segment stay on disk under another name."),
    _used("max.connections", INT, INT_MAX, valid=at_least(0), mode=CLUSTER_WIDE,
        doc="The most connections the broker holds at a time."),
    _used("max.connections.per.ip", INT, INT_MAX, valid=at_least(0), mode=CLUSTER_WIDE,
        doc="The most connections from one address."),
    _used("max.connections.per.ip.overrides", STRING, "", mode=CLUSTER_WIDE,
        doc="Other limits for single addresses, as host:count, separated by commas."),
    _used("max.incremental.fetch.session.cache.slots", INT, 1000, valid=at_least(0),
        doc="How many fetch sessions are remembered."),
    _used("max.request.partition.size.limit", INT, 2000, valid=at_least(1),
        doc="The most partitions one reply about topic partitions holds; the rest comes with the next request."),
    _used("message.max.bytes", INT, 1048588, valid=at_least(0), mode=CLUSTER_WIDE,
        doc="The largest batch of records that is accepted, as it stands on the wire."),
    _used("min.insync.replicas", INT, 1, valid=at_least(1), mode=CLUSTER_WIDE,
        doc="How many replicas must hold a record before a producer with acks=all is told that it is safe."),
    _used("node.id", INT, -1,
        doc="The same as `broker.id`, by the name Kafka 4 uses."),
    _used("num.partitions", INT, 1, valid=at_least(1),
        doc="The number of partitions of a topic that is created without saying how many."),
    _used("queued.max.request.bytes", LONG, -1,
        doc="The most bytes of requests that wait to be handled; -1 leaves the limit to the broker."),
    _used("replica.high.watermark.checkpoint.interval.ms", LONG, 5000,
        doc="How often the high watermarks are written down."),
    _used("reserved.broker.max.id", INT, 1000, valid=at_least(0),
        doc="The largest number that may be given as `broker.id`; numbers the broker chooses begin above it."),
    _used("security.inter.broker.protocol", STRING, "PLAINTEXT", valid=one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        doc="The security protocol between brokers, where `inter.broker.listener.name` is not set."),
    _used("socket.listen.backlog.size", INT, 50, valid=at_least(1),
        doc="How many connections may wait to be accepted."),
    _used("socket.receive.buffer.bytes", INT, 102400,
        doc="The receive buffer of a socket; -1 is the system's own choice."),
    _used("socket.request.max.bytes", INT, 104857600, valid=at_least(1),
        doc="The largest request that is read. A larger one closes its connection."),
    _used("socket.send.buffer.bytes", INT, 102400,
        doc="The send buffer of a socket; -1 is the system's own choice."),
))
