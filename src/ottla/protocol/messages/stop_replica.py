"""StopReplica: the controller tells a broker to stop following partitions, and perhaps to delete them.

Versions
    1       broker epoch; partitions grouped by topic, `delete_partitions` still for all of them
    2       flexible
    3       leader epoch and the order to delete for each partition (KIP-570); an epoch of -2 means the topic is deleted
    4       whether the controller is one of KRaft (KIP-866)
"""

from __future__ import annotations

from ottla.wire.schema import list_of, message, wire


@message()
class StopReplicaPartitionV0:
    topic_name: str = wire("string", "0")
    partition_index: int = wire("int32", "0")


@message()
class StopReplicaTopicV1:
    name: str = wire("string", "1-2")
    partition_indexes: list[int] = wire("[]int32", "1-2")


@message()
class StopReplicaPartitionState:
    partition_index: int = wire("int32", "3+")
    leader_epoch: int = wire("int32", "3+", default=-1)
    delete_partition: bool = wire("bool", "3+")


@message()
class StopReplicaTopicState:
    topic_name: str = wire("string", "3+")
    partition_states: list[StopReplicaPartitionState] = wire(list_of(StopReplicaPartitionState), "3+")


@message(versions="0-4", flexible="2+")
class StopReplicaRequest:
    controller_id: int = wire("int32")
    is_kraft_controller: bool = wire("bool", "4+")
    controller_epoch: int = wire("int32")
    broker_epoch: int = wire("int64", "1+", default=-1, ignorable=True)
    delete_partitions: bool = wire("bool", "0-2")
    ungrouped_partitions: list[StopReplicaPartitionV0] = wire(list_of(StopReplicaPartitionV0), "0")
    topics: list[StopReplicaTopicV1] = wire(list_of(StopReplicaTopicV1), "1-2")
    topic_states: list[StopReplicaTopicState] = wire(list_of(StopReplicaTopicState), "3+")


@message()
class StopReplicaPartitionError:
    topic_name: str = wire("string")
    partition_index: int = wire("int32")
    error_code: int = wire("int16")


@message(versions="0-4", flexible="2+")
class StopReplicaResponse:
    error_code: int = wire("int16")
    partition_errors: list[StopReplicaPartitionError] = wire(list_of(StopReplicaPartitionError))
