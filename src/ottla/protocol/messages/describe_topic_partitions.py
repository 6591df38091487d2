"""DescribeTopicPartitions: partitions of topics, page by page (KIP-966).

Topics in order of name; no topic named means all. The response carries a cursor where it was cut, to be sent back for the next
page. Flexible from the start.
"""

from __future__ import annotations

from ottla.wire.schema import list_of, message, wire


@message()
class TopicRequest:
    name: str = wire("string")


@message()
class RequestCursor:
    topic_name: str = wire("string")
    partition_index: int = wire("int32")


@message(versions="0", flexible="0+")
class DescribeTopicPartitionsRequest:
    topics: list[TopicRequest] = wire(list_of(TopicRequest))
    response_partition_limit: int = wire("int32", default=2000)
    cursor: RequestCursor | None = wire(RequestCursor, nullable="0+", default=None)


@message()
class DescribeTopicPartitionsResponsePartition:
    error_code: int = wire("int16")
    partition_index: int = wire("int32")
    leader_id: int = wire("int32")
    leader_epoch: int = wire("int32", default=-1, ignorable=True)
    replica_nodes: list[int] = wire("[]int32")
    isr_nodes: list[int] = wire("[]int32")
    eligible_leader_replicas: list[int] | None = wire("[]int32", nullable="0+", default=None)
    last_known_elr: list[int] | None = wire("[]int32", nullable="0+", default=None)
    offline_replicas: list[int] = wire("[]int32", ignorable=True)


@message()
class DescribeTopicPartitionsResponseTopic:
    error_code: int = wire("int16")
    name: str | None = wire("string", nullable="0+")
    topic_id: bytes = wire("uuid", ignorable=True)
    is_internal: bool = wire("bool", ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = wire(list_of(DescribeTopicPartitionsResponsePartition))
    topic_authorized_operations: int = wire("int32", default=-2147483648)


@message()
class ResponseCursor:
    topic_name: str = wire("string")
    partition_index: int = wire("int32")


@message(versions="0", flexible="0+")
class DescribeTopicPartitionsResponse:
    throttle_time_ms: int = wire("int32", ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = wire(list_of(DescribeTopicPartitionsResponseTopic))
    next_cursor: ResponseCursor | None = wire(ResponseCursor, nullable="0+", default=None)
