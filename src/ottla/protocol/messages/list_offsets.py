"""ListOffsets: find the offset that belongs to a timestamp, or the ends of a partition.

Timestamps below zero have meanings: -1 the end, -2 the start, -3 the record with the largest timestamp, -4 the start of what is
on local disk, -5 the end of what is in tiered storage.

Versions
    0       several offsets per partition, by segment; replaced by the single offset and timestamp of version 1
    2       isolation level, throttle time
    4       leader epochs (KIP-320)
    5       no change in layout
    6       flexible
    7, 8, 9 the special timestamps -3, -4, -5
    10      how long a look-up in tiered storage may take (KIP-1075)
    11      the earliest offset not yet in tiered storage, timestamp -6
"""

from __future__ import annotations

from ottla.wire.schema import list_of, message, wire


@message()
class ListOffsetsPartition:
    partition_index: int = wire("int32")
    current_leader_epoch: int = wire("int32", "4+", default=-1, ignorable=True)
    timestamp: int = wire("int64")
    max_num_offsets: int = wire("int32", "0", default=1)


@message()
class ListOffsetsTopic:
    name: str = wire("string")
    partitions: list[ListOffsetsPartition] = wire(list_of(ListOffsetsPartition))


@message(versions="0-11", flexible="6+")
class ListOffsetsRequest:
    replica_id: int = wire("int32")
    isolation_level: int = wire("int8", "2+")
    topics: list[ListOffsetsTopic] = wire(list_of(ListOffsetsTopic))
    timeout_ms: int = wire("int32", "10+", ignorable=True)


@message()
class ListOffsetsPartitionResponse:
    partition_index: int = wire("int32")
    error_code: int = wire("int16")
    old_style_offsets: list[int] = wire("[]int64", "0")
    timestamp: int = wire("int64", "1+", default=-1)
    offset: int = wire("int64", "1+", default=-1)
    leader_epoch: int = wire("int32", "4+", default=-1)


@message()
class ListOffsetsTopicResponse:
    name: str = wire("string")
    partitions: list[ListOffsetsPartitionResponse] = wire(list_of(ListOffsetsPartitionResponse))


@message(versions="0-11", flexible="6+")
class ListOffsetsResponse:
    throttle_time_ms: int = wire("int32", "2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = wire(list_of(ListOffsetsTopicResponse))
