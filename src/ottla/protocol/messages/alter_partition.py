"""AlterPartition: the leader of a partition proposes a new set of in-sync replicas to the controller (KIP-497).

Versions
    0       flexible from the start
    1       whether the leader recovers from an unclean election (KIP-704)
    2       topics by id; INELIGIBLE_REPLICA, NEW_LEADER_ELECTED (KIP-841)
    3       broker epochs of the in-sync replicas, instead of bare ids (KIP-903)
"""

from __future__ import annotations

from ottla.wire.schema import list_of, message, wire


@message()
class BrokerState:
    broker_id: int = wire("int32", "3+")
    broker_epoch: int = wire("int64", "3+", default=-1)


@message()
class RequestPartitionData:
    partition_index: int = wire("int32")
    leader_epoch: int = wire("int32")
    new_isr: list[int] = wire("[]int32", "0-2")
    new_isr_with_epochs: list[BrokerState] = wire(list_of(BrokerState), "3+")
    leader_recovery_state: int = wire("int8", "1+")
    partition_epoch: int = wire("int32")


@message()
class RequestTopicData:
    topic_name: str = wire("string", "0-1", ignorable=True)
    topic_id: bytes = wire("uuid", "2+", ignorable=True)
    partitions: list[RequestPartitionData] = wire(list_of(RequestPartitionData))


@message(versions="0-3", flexible="0+")
class AlterPartitionRequest:
    broker_id: int = wire("int32")
    broker_epoch: int = wire("int64", default=-1)
    topics: list[RequestTopicData] = wire(list_of(RequestTopicData))


@message()
class ResponsePartitionData:
    partition_index: int = wire("int32")
    error_code: int = wire("int16")
    leader_id: int = wire("int32")
    leader_epoch: int = wire("int32")
    isr: list[int] = wire("[]int32")
    leader_recovery_state: int = wire("int8", "1+", ignorable=True)
    partition_epoch: int = wire("int32")


@message()
class ResponseTopicData:
    topic_name: str = wire("string", "0-1", ignorable=True)
    topic_id: bytes = wire("uuid", "2+", ignorable=True)
    partitions: list[ResponsePartitionData] = wire(list_of(ResponsePartitionData))


@message(versions="0-3", flexible="0+")
class AlterPartitionResponse:
    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
    topics: list[ResponseTopicData] = wire(list_of(ResponseTopicData))
