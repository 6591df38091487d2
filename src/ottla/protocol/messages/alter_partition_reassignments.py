"""AlterPartitionReassignments: give partitions other replicas, or (replicas None) stop doing so (KIP-455).

Versions
    0       flexible from the start
    1       whether the number of replicas may change (KIP-860)
"""

from __future__ import annotations

from ottla.wire.schema import list_of, message, wire


@message()
class ReassignablePartition:
    partition_index: int = wire("int32")
    replicas: list[int] | None = wire("[]int32", nullable="0+", default=None)


@message()
class ReassignableTopic:
    name: str = wire("string")
    partitions: list[ReassignablePartition] = wire(list_of(ReassignablePartition))


@message(versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest:
    timeout_ms: int = wire("int32", default=60_000)
    allow_replication_factor_change: bool = wire("bool", "1+", default=True)
    topics: list[ReassignableTopic] = wire(list_of(ReassignableTopic))


@message()
class ReassignablePartitionResponse:
    partition_index: int = wire("int32")
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable="0+", default=None)


@message()
class ReassignableTopicResponse:
    name: str = wire("string")
    partitions: list[ReassignablePartitionResponse] = wire(list_of(ReassignablePartitionResponse))


@message(versions="0-1", flexible="0+")
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: int = wire("int32")
    allow_replication_factor_change: bool = wire("bool", "1+", default=True, ignorable=True)
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable="0+", default=None)
    responses: list[ReassignableTopicResponse] = wire(list_of(ReassignableTopicResponse))
