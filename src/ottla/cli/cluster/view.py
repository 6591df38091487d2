"""The brokers, controller, partitions and replicas of a cluster, and requests to its controller. Never prints.

Requests go over plain sockets: librdkafka cannot ask the followers of a partition. The log end offset of a replica comes from
ListOffsets with replica id -2 (Kafka's debugging consumer), which followers answer too; the high watermark comes from the leader.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ottla.cli.connection import Connection, unknown_topic
from ottla.cli.failure import Failure
from ottla.cli.plain_request import call
from ottla.cli.positions import TopicIndex
from ottla.errors import ErrorCode
from ottla.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse

R = TypeVar("R")

_CONSUMER, _DEBUGGING_CONSUMER = -1, -2
_LATEST, _EARLIEST = -1, -2
_BROKER = 4
"""The resource type."""
_ASK_TIMEOUT_S = 5.0
_CONTROLLER_TRIES = 20


@dataclass(frozen=True, slots=True)
class BrokerState:
    broker_id: int
    address: tuple[str, int] | None
    """None: the broker has replicas, but is not in the cluster now."""
    rack: str | None = None


@dataclass(slots=True)
class PartitionState:
    topic: str
    index: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    is_internal: bool = False
    high_watermark: int | None = None
    log_end_offsets: dict[int, int] = field(default_factory=dict)
    log_start_offsets: dict[int, int] = field(default_factory=dict)

    @property
    def is_offline(self) -> bool:
        return self.leader < 0

    @property
    def is_under_replicated(self) -> bool:
        return len(self.isr) < len(self.replicas)

    def document(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.index,
            "leader": self.leader,
            "leader_epoch": self.leader_epoch,
            "replicas": self.replicas,
            "isr": self.isr,
            "high_watermark": self.high_watermark,
            "log_end_offsets": {str(broker): self.log_end_offsets.get(broker) for broker in self.replicas},
            "under_replicated": self.is_under_replicated,
            "offline": self.is_offline,
        }


class ClusterView:
    """The cluster as of the last Metadata response. `refresh` asks again."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.refresh()

    def refresh(self) -> None:
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        answer = call(self._connection, "metadata", 9, request, MetadataResponse)
        self.cluster_id = answer.cluster_id
        self.controller_id = answer.controller_id
        self.brokers = {
            broker.node_id: BrokerState(broker.node_id, (broker.host, broker.port), broker.rack) for broker in answer.brokers
        }
        self.partitions: dict[TopicIndex, PartitionState] = {}
        self.topics: set[str] = set()
        for topic in sorted(answer.topics, key=lambda topic: topic.name or ""):
            name = topic.name or ""
            self.topics.add(name)
            for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index):
                self.partitions[name, partition.partition_index] = PartitionState(
                    name,
                    partition.partition_index,
                    partition.leader_id,
                    partition.leader_epoch,
                    list(partition.replica_nodes),
                    list(partition.isr_nodes),
                    topic.is_internal or name.startswith("__"),
                )

    @property
    def all_brokers(self) -> list[BrokerState]:
        """The live brokers, and those that have replicas but are not in the cluster."""
        named = {broker for partition in self.partitions.values() for broker in partition.replicas}
        away = [BrokerState(broker, None) for broker in named - self.brokers.keys()]
        return sorted([*self.brokers.values(), *away], key=lambda broker: broker.broker_id)

    def of(self, topics: Collection[str]) -> list[PartitionState]:
        """The partitions of these topics; a Failure for one that does not exist."""
        for topic in topics:
            if topic not in self.topics:
                raise unknown_topic(topic, self.topics, creatable=False)
        return [partition for partition in self.partitions.values() if partition.topic in topics]

    # Offsets

    def read_offsets(self, partitions: Collection[PartitionState]) -> None:
        """Read the high watermarks and log end offsets of these partitions. What no broker answers stays unknown."""
        by_leader: dict[int, list[PartitionState]] = {}
        for partition in partitions:
            by_leader.setdefault(partition.leader, []).append(partition)
        by_replica = _by_replica(partitions)
        away: set[int] = set()
        # High watermarks first: a log end offset that was read earlier could be below them.
        for broker, group in by_leader.items():
            told = self._listed(broker, group, _LATEST, _CONSUMER, away)
            for partition in group:
                partition.high_watermark = told.get((partition.topic, partition.index))
        for broker, group in by_replica.items():
            told = self._listed(broker, group, _LATEST, _DEBUGGING_CONSUMER, away)
            for partition in group:
                if (partition.topic, partition.index) in told:
                    partition.log_end_offsets[broker] = told[partition.topic, partition.index]

    def read_starts(self, partitions: Collection[PartitionState]) -> None:
        """Read the log start offset of each replica. What no broker answers stays unknown."""
        away: set[int] = set()
        for broker, group in _by_replica(partitions).items():
            told = self._listed(broker, group, _EARLIEST, _DEBUGGING_CONSUMER, away)
            for partition in group:
                if (partition.topic, partition.index) in told:
                    partition.log_start_offsets[broker] = told[partition.topic, partition.index]

    def _listed(
        self, broker: int, group: list[PartitionState], timestamp: int, replica_id: int, away: set[int]
    ) -> dict[TopicIndex, int]:
        if broker not in self.brokers or broker in away:
            return {}
        topics: dict[str, ListOffsetsTopic] = {}
        for partition in group:
            asked = ListOffsetsPartition(partition_index=partition.index, timestamp=timestamp)
            topics.setdefault(partition.topic, ListOffsetsTopic(name=partition.topic)).partitions.append(asked)
        request = ListOffsetsRequest(replica_id=replica_id, topics=list(topics.values()))
        address = self.brokers[broker].address
        try:
            answer = call(self._connection, "list_offsets", 4, request, ListOffsetsResponse, address, timeout_s=_ASK_TIMEOUT_S)
        except Failure:
            away.add(broker)
            return {}
        return {
            (topic.name, partition.partition_index): partition.offset
            for topic in answer.topics
            for partition in topic.partitions
            if partition.error_code == ErrorCode.NONE
        }

    # The metadata store

    def why_changes_fail(self) -> str | None:
        """Why the brokers refuse changes of metadata, such as a ZooKeeper that is away; None if they take them or do not tell."""
        nothing = IncrementalAlterConfigsRequest(
            resources=[AlterConfigsResource(resource_type=_BROKER, resource_name="", configs=[])], validate_only=True
        )
        try:
            answer = call(self._connection, "incremental_alter_configs", 0, nothing, IncrementalAlterConfigsResponse)
        except Failure:
            return None
        refused = [each for each in answer.responses if each.error_code == ErrorCode.REQUEST_TIMED_OUT]
        return refused[0].error_message if refused else None

    # The controller

    def ask_controller(self, api_name: str, version: int, request: object, response: type[R]) -> R:
        """The controller's response. Follows a controller that moves. `response` must have an `error_code`."""
        last: Failure | None = None
        for _ in range(_CONTROLLER_TRIES):
            controller = self.brokers.get(self.controller_id)
            if controller is not None:
                try:
                    answer = call(self._connection, api_name, version, request, response, controller.address)
                except Failure as failure:
                    last = failure
                else:
                    if getattr(answer, "error_code", 0) != ErrorCode.NOT_CONTROLLER:
                        return answer
            time.sleep(0.25)
            self.refresh()
        raise last or Failure("the cluster has no controller now", "see `ottla cluster status`", code="NOT_CONTROLLER")


def _by_replica(partitions: Iterable[PartitionState]) -> dict[int, list[PartitionState]]:
    found: dict[int, list[PartitionState]] = {}
    for partition in partitions:
        for replica in partition.replicas:
            found.setdefault(replica, []).append(partition)
    return found
