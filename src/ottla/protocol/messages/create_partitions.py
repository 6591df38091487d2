"""CreatePartitions: give topics more partitions, up to the count named.

Versions
    2       flexible
    3       THROTTLING_QUOTA_EXCEEDED (KIP-599)
"""

from __future__ import annotations

from ottla.wire.schema import list_of, message, wire


@message()
class CreatePartitionsAssignment:
    broker_ids: list[int] = wire("[]int32")


@message()
class CreatePartitionsTopic:
    name: str = wire("string")
    count: int = wire("int32")
    assignments: list[CreatePartitionsAssignment] | None = wire(list_of(CreatePartitionsAssignment), nullable="0+")


@message(versions="0-3", flexible="2+")
class CreatePartitionsRequest:
    topics: list[CreatePartitionsTopic] = wire(list_of(CreatePartitionsTopic))
    timeout_ms: int = wire("int32")
    validate_only: bool = wire("bool")


@message()
class CreatePartitionsTopicResult:
    name: str = wire("string")
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable="0+", default=None)


@message(versions="0-3", flexible="2+")
class CreatePartitionsResponse:
    throttle_time_ms: int = wire("int32")
    results: list[CreatePartitionsTopicResult] = wire(list_of(CreatePartitionsTopicResult))
