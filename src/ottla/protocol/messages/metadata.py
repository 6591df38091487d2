"""Metadata: brokers, controller, topics with their partitions, leaders and replicas.

Topics absent (None, or an empty list in version 0) means all; an empty list from version 1 on means none. A topic that does not
exist is created if both the broker and the request allow it.

Versions
    1       rack, controller, internal topics
    2       cluster id
    3       throttle time
    4       whether a missing topic may be created
    5       offline replicas
    7       leader epochs
    8       authorized operations, for the cluster (until 10) and for topics
    9       flexible
    10      topic ids (KIP-516); by id may be asked from 12 on
    11      authorized operations of the cluster have moved to DescribeCluster
    13      the whole response may carry an error: a client that must bootstrap anew (KIP-1102)
"""

from __future__ import annotations

from ottla.wire.schema import list_of, message, wire


@message()
class MetadataRequestTopic:
    topic_id: bytes = wire("uuid", "10+", ignorable=True)
    name: str | None = wire("string", nullable="10+")


@message(versions="0-13", flexible="9+")
class MetadataRequest:
    topics: list[MetadataRequestTopic] | None = wire(list_of(MetadataRequestTopic), nullable="1+")
    allow_auto_topic_creation: bool = wire("bool", "4+", default=True)
    include_cluster_authorized_operations: bool = wire("bool", "8-10")
    include_topic_authorized_operations: bool = wire("bool", "8+")


@message()
class MetadataResponseBroker:
    node_id: int = wire("int32")
    host: str = wire("string")
    port: int = wire("int32")
    rack: str | None = wire("string", "1+", nullable="1+", default=None, ignorable=True)


@message()
class MetadataResponsePartition:
    error_code: int = wire("int16")
    partition_index: int = wire("int32")
    leader_id: int = wire("int32")
    leader_epoch: int = wire("int32", "7+", default=-1, ignorable=True)
    replica_nodes: list[int] = wire("[]int32")
    isr_nodes: list[int] = wire("[]int32")
    offline_replicas: list[int] = wire("[]int32", "5+", ignorable=True)


@message()
class MetadataResponseTopic:
    error_code: int = wire("int16")
    name: str | None = wire("string", nullable="12+")
    topic_id: bytes = wire("uuid", "10+", ignorable=True)
    is_internal: bool = wire("bool", "1+", ignorable=True)
    partitions: list[MetadataResponsePartition] = wire(list_of(MetadataResponsePartition))
    topic_authorized_operations: int = wire("int32", "8+", default=-2147483648)


@message(versions="0-13", flexible="9+")
class MetadataResponse:
    throttle_time_ms: int = wire("int32", "3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = wire(list_of(MetadataResponseBroker))
    cluster_id: str | None = wire("string", "2+", nullable="2+", default=None, ignorable=True)
    controller_id: int = wire("int32", "1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = wire(list_of(MetadataResponseTopic))
    cluster_authorized_operations: int = wire("int32", "8-10", default=-2147483648)
    error_code: int = wire("int16", "13+", ignorable=True)
