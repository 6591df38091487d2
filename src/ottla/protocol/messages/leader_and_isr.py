"""LeaderAndIsr: the controller tells a broker which partitions it leads, which it follows, and with which replicas.

Sent between brokers of a ZooKeeper cluster. An order with an older controller epoch than one already seen is refused; so is one
for an earlier life of the broker, recognised by its epoch.

Versions
    1       whether the replicas are new
    2       broker epoch; partitions grouped by topic (versions 0 and 1 name the topic in each partition)
    3       replicas being added and removed by a reassignment
    4       flexible
    5       topic ids, and whether the order is full or incremental (KIP-516); the response groups by topic id
    6       whether the leader recovers from an unclean election (KIP-704)
    7       whether the controller is one of KRaft (KIP-866)
"""

from __future__ import annotations

from ottla.wire.schema import list_of, message, wire


@message()
class LeaderAndIsrPartitionState:
    topic_name: str = wire("string", "0-1", ignorable=True)
    partition_index: int = wire("int32")
    controller_epoch: int = wire("int32")
    leader: int = wire("int32")
    leader_epoch: int = wire("int32")
    isr: list[int] = wire("[]int32")
    partition_epoch: int = wire("int32")
    replicas: list[int] = wire("[]int32")
    adding_replicas: list[int] = wire("[]int32", "3+", ignorable=True)
    removing_replicas: list[int] = wire("[]int32", "3+", ignorable=True)
    is_new: bool = wire("bool", "1+", ignorable=True)
    leader_recovery_state: int = wire("int8", "6+")


@message()
class LeaderAndIsrTopicState:
    topic_name: str = wire("string", "2+")
    topic_id: bytes = wire("uuid", "5+", ignorable=True)
    partition_states: list[LeaderAndIsrPartitionState] = wire(list_of(LeaderAndIsrPartitionState), "2+")


@message()
class LeaderAndIsrLiveLeader:
    broker_id: int = wire("int32")
    host_name: str = wire("string")
    port: int = wire("int32")


@message(versions="0-7", flexible="4+")
class LeaderAndIsrRequest:
    controller_id: int = wire("int32")
    is_kraft_controller: bool = wire("bool", "7+")
    controller_epoch: int = wire("int32")
    broker_epoch: int = wire("int64", "2+", default=-1, ignorable=True)
    type: int = wire("int8", "5+")
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = wire(list_of(LeaderAndIsrPartitionState), "0-1")
    topic_states: list[LeaderAndIsrTopicState] = wire(list_of(LeaderAndIsrTopicState), "2+")
    live_leaders: list[LeaderAndIsrLiveLeader] = wire(list_of(LeaderAndIsrLiveLeader))


@message()
class LeaderAndIsrPartitionError:
    topic_name: str = wire("string", "0-4", ignorable=True)
    partition_index: int = wire("int32")
    error_code: int = wire("int16")


@message()
class LeaderAndIsrTopicError:
    topic_id: bytes = wire("uuid", "5+")
    partition_errors: list[LeaderAndIsrPartitionError] = wire(list_of(LeaderAndIsrPartitionError), "5+")


@message(versions="0-7", flexible="4+")
class LeaderAndIsrResponse:
    error_code: int = wire("int16")
    partition_errors: list[LeaderAndIsrPartitionError] = wire(list_of(LeaderAndIsrPartitionError), "0-4")
    topics: list[LeaderAndIsrTopicError] = wire(list_of(LeaderAndIsrTopicError), "5+")
