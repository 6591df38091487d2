"""ListPartitionReassignments: which partitions are on their way to other replicas (KIP-455).

Topics absent (None) means all. Flexible from the start.
"""

from __future__ import annotations

from ottla.wire.schema import list_of, message, wire


@message()
class ListPartitionReassignmentsTopics:
    name: str = wire("string")
    partition_indexes: list[int] = wire("[]int32")


@message(versions="0", flexible="0+")
class ListPartitionReassignmentsRequest:
    timeout_ms: int = wire("int32", default=60_000)
    topics: list[ListPartitionReassignmentsTopics] | None = wire(
        list_of(ListPartitionReassignmentsTopics), nullable="0+", default=None
    )


@message()
class OngoingPartitionReassignment:
    partition_index: int = wire("int32")
    replicas: list[int] = wire("[]int32")
    adding_replicas: list[int] = wire("[]int32")
    removing_replicas: list[int] = wire("[]int32")


@message()
class OngoingTopicReassignment:
    name: str = wire("string")
    partitions: list[OngoingPartitionReassignment] = wire(list_of(OngoingPartitionReassignment))


@message(versions="0", flexible="0+")
class ListPartitionReassignmentsResponse:
    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable="0+", default=None)
    topics: list[OngoingTopicReassignment] = wire(list_of(OngoingTopicReassignment))
