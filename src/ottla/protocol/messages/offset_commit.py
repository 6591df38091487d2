"""OffsetCommit: a group stores the offsets up to which it has consumed.

Versions
    0       into ZooKeeper; no member, no generation
    1       into the offsets topic, by a member of a generation, with a commit timestamp for each partition
    2       retention time for the whole request; the timestamp of version 1 is gone
    3       throttle time
    5       the retention time is gone too: it is the broker's setting
    6       leader epoch of the committed offset
    7       static members
    8       flexible
    9       may be used with the new group protocol, the generation being the member's epoch (KIP-848)
    10      topics by id (KIP-848)
"""

from __future__ import annotations

from ottla.wire.schema import list_of, message, wire


@message()
class OffsetCommitRequestPartition:
    partition_index: int = wire("int32")
    committed_offset: int = wire("int64")
    committed_leader_epoch: int = wire("int32", "6+", default=-1, ignorable=True)
    commit_timestamp: int = wire("int64", "1", default=-1)
    committed_metadata: str | None = wire("string", nullable="0+")


@message()
class OffsetCommitRequestTopic:
    name: str = wire("string", "0-9", ignorable=True)
    topic_id: bytes = wire("uuid", "10+", ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = wire(list_of(OffsetCommitRequestPartition))


@message(versions="0-10", flexible="8+")
class OffsetCommitRequest:
    group_id: str = wire("string")
    generation_id_or_member_epoch: int = wire("int32", "1+", default=-1, ignorable=True)
    member_id: str = wire("string", "1+", ignorable=True)
    group_instance_id: str | None = wire("string", "7+", nullable="7+", default=None)
    retention_time_ms: int = wire("int64", "2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = wire(list_of(OffsetCommitRequestTopic))


@message()
class OffsetCommitResponsePartition:
    partition_index: int = wire("int32")
    error_code: int = wire("int16")


@message()
class OffsetCommitResponseTopic:
    name: str = wire("string", "0-9", ignorable=True)
    topic_id: bytes = wire("uuid", "10+", ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = wire(list_of(OffsetCommitResponsePartition))


@message(versions="0-10", flexible="8+")
class OffsetCommitResponse:
    throttle_time_ms: int = wire("int32", "3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = wire(list_of(OffsetCommitResponseTopic))
