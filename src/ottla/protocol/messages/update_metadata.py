"""UpdateMetadata: the controller tells a broker about the cluster, which then answers clients from its own picture.

Versions
    1       several endpoints per broker instead of one host and port
    2       rack
    3       names of listeners
    4       offline replicas
    5       broker epoch; partitions grouped by topic
    6       flexible
    7       topic ids (KIP-516)
    8       whether the controller is one of KRaft, and whether the picture is full or incremental (KIP-866)
"""

from __future__ import annotations

from ottla.wire.schema import list_of, message, wire


@message()
class UpdateMetadataPartitionState:
    topic_name: str = wire("string", "0-4", ignorable=True)
    partition_index: int = wire("int32")
    controller_epoch: int = wire("int32")
    leader: int = wire("int32")
    leader_epoch: int = wire("int32")
    isr: list[int] = wire("[]int32")
    zk_version: int = wire("int32")
    replicas: list[int] = wire("[]int32")
    offline_replicas: list[int] = wire("[]int32", "4+", ignorable=True)


@message()
class UpdateMetadataTopicState:
    topic_name: str = wire("string", "5+")
    topic_id: bytes = wire("uuid", "7+", ignorable=True)
    partition_states: list[UpdateMetadataPartitionState] = wire(list_of(UpdateMetadataPartitionState), "5+")


@message()
class UpdateMetadataEndpoint:
    port: int = wire("int32", "1+")
    host: str = wire("string", "1+")
    listener: str = wire("string", "3+", ignorable=True)
    security_protocol: int = wire("int16", "1+")


@message()
class UpdateMetadataBroker:
    id: int = wire("int32")
    v0_host: str = wire("string", "0", ignorable=True)
    v0_port: int = wire("int32", "0", ignorable=True)
    endpoints: list[UpdateMetadataEndpoint] = wire(list_of(UpdateMetadataEndpoint), "1+", ignorable=True)
    rack: str | None = wire("string", "2+", nullable="2+", ignorable=True)


@message(versions="0-8", flexible="6+")
class UpdateMetadataRequest:
    controller_id: int = wire("int32")
    is_kraft_controller: bool = wire("bool", "8+")
    type: int = wire("int8", "8+", tag=0)
    controller_epoch: int = wire("int32")
    broker_epoch: int = wire("int64", "5+", default=-1, ignorable=True)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = wire(list_of(UpdateMetadataPartitionState), "0-4")
    topic_states: list[UpdateMetadataTopicState] = wire(list_of(UpdateMetadataTopicState), "5+")
    live_brokers: list[UpdateMetadataBroker] = wire(list_of(UpdateMetadataBroker))


@message(versions="0-8", flexible="6+")
class UpdateMetadataResponse:
    error_code: int = wire("int16")
