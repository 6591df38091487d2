"""OffsetFetch: read how far a group has read.

Versions
    0       from ZooKeeper; from the offsets topic since version 1
    2       topics may be None, which means all; an error for the whole group
    3       throttle time
    5       leader epoch of the committed offset
    6       flexible
    7       `require_stable`: offsets of an open transaction are an error instead of being passed over (KIP-447)
    8       several groups in one request; `group_id` and `topics` at the top are replaced by `groups`
    9       member id and epoch, checked with the new group protocol (KIP-848)
    10      topics by id (KIP-848)
"""

from __future__ import annotations

from ottla.wire.schema import list_of, message, wire


@message()
class OffsetFetchRequestTopic:
    name: str = wire("string", "0-7")
    partition_indexes: list[int] = wire("[]int32", "0-7")


@message()
class OffsetFetchRequestTopics:
    name: str = wire("string", "8-9", ignorable=True)
    topic_id: bytes = wire("uuid", "10+", ignorable=True)
    partition_indexes: list[int] = wire("[]int32", "8+")


@message()
class OffsetFetchRequestGroup:
    group_id: str = wire("string", "8+")
    member_id: str | None = wire("string", "9+", nullable="9+", default=None, ignorable=True)
    member_epoch: int = wire("int32", "9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = wire(list_of(OffsetFetchRequestTopics), "8+", nullable="8+")


@message(versions="0-10", flexible="6+")
class OffsetFetchRequest:
    group_id: str = wire("string", "0-7")
    topics: list[OffsetFetchRequestTopic] | None = wire(list_of(OffsetFetchRequestTopic), "0-7", nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = wire(list_of(OffsetFetchRequestGroup), "8+")
    require_stable: bool = wire("bool", "7+")


@message()
class OffsetFetchResponsePartition:
    partition_index: int = wire("int32", "0-7")
    committed_offset: int = wire("int64", "0-7")
    committed_leader_epoch: int = wire("int32", "5-7", default=-1, ignorable=True)
    metadata: str | None = wire("string", "0-7", nullable="0-7")
    error_code: int = wire("int16", "0-7")


@message()
class OffsetFetchResponseTopic:
    name: str = wire("string", "0-7")
    partitions: list[OffsetFetchResponsePartition] = wire(list_of(OffsetFetchResponsePartition), "0-7")


@message()
class OffsetFetchResponsePartitions:
    partition_index: int = wire("int32", "8+")
    committed_offset: int = wire("int64", "8+")
    committed_leader_epoch: int = wire("int32", "8+", default=-1, ignorable=True)
    metadata: str | None = wire("string", "8+", nullable="8+")
    error_code: int = wire("int16", "8+")


@message()
class OffsetFetchResponseTopics:
    name: str = wire("string", "8-9", ignorable=True)
    topic_id: bytes = wire("uuid", "10+", ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = wire(list_of(OffsetFetchResponsePartitions), "8+")


@message()
class OffsetFetchResponseGroup:
    group_id: str = wire("string", "8+")
    topics: list[OffsetFetchResponseTopics] = wire(list_of(OffsetFetchResponseTopics), "8+")
    error_code: int = wire("int16", "8+")


@message(versions="0-10", flexible="6+")
class OffsetFetchResponse:
    throttle_time_ms: int = wire("int32", "3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = wire(list_of(OffsetFetchResponseTopic), "0-7")
    error_code: int = wire("int16", "2-7", ignorable=True)
    groups: list[OffsetFetchResponseGroup] = wire(list_of(OffsetFetchResponseGroup), "8+")
