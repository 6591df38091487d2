"""DescribeProducers: the producers a partition remembers, with their last sequence and open transaction (KIP-664).

Flexible from the start.
"""

from __future__ import annotations

from ottla.wire.schema import list_of, message, wire


@message()
class TopicRequest:
    name: str = wire("string")
    partition_indexes: list[int] = wire("[]int32")


@message(versions="0", flexible="0+")
class DescribeProducersRequest:
    topics: list[TopicRequest] = wire(list_of(TopicRequest))


@message()
class ProducerState:
    producer_id: int = wire("int64")
    producer_epoch: int = wire("int32")
    last_sequence: int = wire("int32", default=-1)
    last_timestamp: int = wire("int64", default=-1)
    coordinator_epoch: int = wire("int32")
    current_txn_start_offset: int = wire("int64", default=-1)


@message()
class PartitionResponse:
    partition_index: int = wire("int32")
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable="0+", default=None)
    active_producers: list[ProducerState] = wire(list_of(ProducerState))


@message()
class TopicResponse:
    name: str = wire("string")
    partitions: list[PartitionResponse] = wire(list_of(PartitionResponse))


@message(versions="0", flexible="0+")
class DescribeProducersResponse:
    throttle_time_ms: int = wire("int32")
    topics: list[TopicResponse] = wire(list_of(TopicResponse))
