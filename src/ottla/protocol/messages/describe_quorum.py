"""DescribeQuorum: the controllers of a KRaft cluster, and how far each replica of `__cluster_metadata` is (KIP-595). Only sent to
brokers of Apache Kafka: Ottla has no such log.

Versions
    0       flexible from the start
    1       when replicas last fetched, and were last caught up (KIP-836)
    2       directories of replicas, addresses of controllers, error messages (KIP-853)
"""

from __future__ import annotations

from ottla.types import ZERO_UUID
from ottla.wire.schema import list_of, message, wire


@message()
class RequestPartition:
    partition_index: int = wire("int32")


@message()
class RequestTopic:
    topic_name: str = wire("string")
    partitions: list[RequestPartition] = wire(list_of(RequestPartition))


@message(versions="0-2", flexible="0+")
class DescribeQuorumRequest:
    topics: list[RequestTopic] = wire(list_of(RequestTopic))


@message()
class ReplicaState:
    replica_id: int = wire("int32")
    replica_directory_id: bytes = wire("uuid", "2+", default=ZERO_UUID)
    log_end_offset: int = wire("int64")
    last_fetch_timestamp: int = wire("int64", "1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = wire("int64", "1+", default=-1, ignorable=True)


@message()
class PartitionData:
    partition_index: int = wire("int32")
    error_code: int = wire("int16")
    error_message: str | None = wire("string", "2+", nullable="2+", ignorable=True)
    leader_id: int = wire("int32")
    leader_epoch: int = wire("int32")
    high_watermark: int = wire("int64")
    current_voters: list[ReplicaState] = wire(list_of(ReplicaState))
    observers: list[ReplicaState] = wire(list_of(ReplicaState))


@message()
class TopicData:
    topic_name: str = wire("string")
    partitions: list[PartitionData] = wire(list_of(PartitionData))


@message()
class Listener:
    name: str = wire("string", "2+")
    host: str = wire("string", "2+")
    port: int = wire("uint16", "2+")


@message()
class Node:
    node_id: int = wire("int32", "2+")
    listeners: list[Listener] = wire(list_of(Listener), "2+")


@message(versions="0-2", flexible="0+")
class DescribeQuorumResponse:
    error_code: int = wire("int16")
    error_message: str | None = wire("string", "2+", nullable="2+", ignorable=True)
    topics: list[TopicData] = wire(list_of(TopicData))
    nodes: list[Node] = wire(list_of(Node), "2+")
