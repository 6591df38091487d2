"""Produce: append record batches to partitions this broker leads.

With `acks` 0 there is no response, with 1 it comes after the leader's append, with -1 once all in-sync replicas have the records.

Versions
    1, 2    the response has the throttle time, then the append time of topics with LogAppendTime
    3       record batches of format 2 only, the transactional id
    5       the response has the log start offset
    7       zstd may be used
    8       the response names the invalid records of a refused batch (KIP-467)
    9       flexible
    10      the response may name the new leader and where it listens (KIP-951)
    11, 12  TRANSACTION_ABORTABLE; partitions join a transaction by being written to (KIP-890)
    13      topics by id instead of name (KIP-516)
"""

from __future__ import annotations

from ottla.types import Buffer
from ottla.wire.schema import list_of, message, wire


@message()
class PartitionProduceData:
    index: int = wire("int32")
    records: Buffer | None = wire("records", nullable="0+")


@message()
class TopicProduceData:
    name: str = wire("string", "0-12", ignorable=True)
    topic_id: bytes = wire("uuid", "13+", ignorable=True)
    partition_data: list[PartitionProduceData] = wire(list_of(PartitionProduceData))


@message(versions="0-13", flexible="9+")
class ProduceRequest:
    transactional_id: str | None = wire("string", "3+", nullable="3+", default=None)
    acks: int = wire("int16")
    timeout_ms: int = wire("int32")
    topic_data: list[TopicProduceData] = wire(list_of(TopicProduceData))


@message()
class BatchIndexAndErrorMessage:
    batch_index: int = wire("int32", "8+")
    batch_index_error_message: str | None = wire("string", "8+", nullable="8+", default=None)


@message()
class LeaderIdAndEpoch:
    leader_id: int = wire("int32", "10+", default=-1)
    leader_epoch: int = wire("int32", "10+", default=-1)


@message()
class PartitionProduceResponse:
    index: int = wire("int32")
    error_code: int = wire("int16")
    base_offset: int = wire("int64")
    log_append_time_ms: int = wire("int64", "2+", default=-1, ignorable=True)
    log_start_offset: int = wire("int64", "5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = wire(list_of(BatchIndexAndErrorMessage), "8+", ignorable=True)
    error_message: str | None = wire("string", "8+", nullable="8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch | None = wire(LeaderIdAndEpoch, "10+", tag=0)


@message()
class TopicProduceResponse:
    name: str = wire("string", "0-12", ignorable=True)
    topic_id: bytes = wire("uuid", "13+", ignorable=True)
    partition_responses: list[PartitionProduceResponse] = wire(list_of(PartitionProduceResponse))


@message()
class NodeEndpoint:
    node_id: int = wire("int32", "10+")
    host: str = wire("string", "10+")
    port: int = wire("int32", "10+")
    rack: str | None = wire("string", "10+", nullable="10+", default=None)


@message(versions="0-13", flexible="9+")
class ProduceResponse:
    responses: list[TopicProduceResponse] = wire(list_of(TopicProduceResponse))
    throttle_time_ms: int = wire("int32", "1+", ignorable=True)
    node_endpoints: list[NodeEndpoint] = wire(list_of(NodeEndpoint), "10+", tag=0)
