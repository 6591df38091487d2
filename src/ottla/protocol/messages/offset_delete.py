"""OffsetDelete: forget a group's offsets of partitions it is not subscribed to (KIP-496).

The only one of the newer APIs that is not flexible.
"""

from __future__ import annotations

from ottla.wire.schema import list_of, message, wire


@message()
class OffsetDeleteRequestPartition:
    partition_index: int = wire("int32")


@message()
class OffsetDeleteRequestTopic:
    name: str = wire("string")
    partitions: list[OffsetDeleteRequestPartition] = wire(list_of(OffsetDeleteRequestPartition))


@message(versions="0")
class OffsetDeleteRequest:
    group_id: str = wire("string")
    topics: list[OffsetDeleteRequestTopic] = wire(list_of(OffsetDeleteRequestTopic))


@message()
class OffsetDeleteResponsePartition:
    partition_index: int = wire("int32")
    error_code: int = wire("int16")


@message()
class OffsetDeleteResponseTopic:
    name: str = wire("string")
    partitions: list[OffsetDeleteResponsePartition] = wire(list_of(OffsetDeleteResponsePartition))


@message(versions="0")
class OffsetDeleteResponse:
    error_code: int = wire("int16")
    throttle_time_ms: int = wire("int32", ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = wire(list_of(OffsetDeleteResponseTopic))
