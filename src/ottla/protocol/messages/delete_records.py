"""DeleteRecords: move the start of partitions forward, so that what is before it can be removed.

An offset of -1 means the high watermark. The response tells the new low watermark.

Versions
    2       flexible
"""

from __future__ import annotations

from ottla.wire.schema import list_of, message, wire


@message()
class DeleteRecordsPartition:
    partition_index: int = wire("int32")
    offset: int = wire("int64")


@message()
class DeleteRecordsTopic:
    name: str = wire("string")
    partitions: list[DeleteRecordsPartition] = wire(list_of(DeleteRecordsPartition))


@message(versions="0-2", flexible="2+")
class DeleteRecordsRequest:
    topics: list[DeleteRecordsTopic] = wire(list_of(DeleteRecordsTopic))
    timeout_ms: int = wire("int32")


@message()
class DeleteRecordsPartitionResult:
    partition_index: int = wire("int32")
    low_watermark: int = wire("int64")
    error_code: int = wire("int16")


@message()
class DeleteRecordsTopicResult:
    name: str = wire("string")
    partitions: list[DeleteRecordsPartitionResult] = wire(list_of(DeleteRecordsPartitionResult))


@message(versions="0-2", flexible="2+")
class DeleteRecordsResponse:
    throttle_time_ms: int = wire("int32")
    topics: list[DeleteRecordsTopicResult] = wire(list_of(DeleteRecordsTopicResult))
