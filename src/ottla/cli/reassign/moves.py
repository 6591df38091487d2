"""Requests of reassignments: start, list, cancel, and their throttle. Never prints.

The throttle (KIP-73) is a rate on each broker, and on each topic the replicas that it applies to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ottla.cli.cluster.view import ClusterView, PartitionState
from ottla.cli.config import alter_settings, describe_settings
from ottla.cli.connection import Connection, unknown_topic
from ottla.cli.failure import Failure
from ottla.cli.plain_request import raise_if_error
from ottla.cli.positions import TopicIndex
from ottla.cli.reassign.plan import Assignment
from ottla.errors import error_name
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

LEADER_RATE, FOLLOWER_RATE = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
LEADER_REPLICAS, FOLLOWER_REPLICAS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"


@dataclass(frozen=True, slots=True)
class Move:
    """A running reassignment of a partition."""

    topic: str
    partition: int
    replicas: list[int]
    adding: list[int]
    removing: list[int]
    behind: dict[int, int | None]
    """The number of offsets that each added replica lacks. None if unknown."""

    def document(self) -> dict[str, Any]:
        return {**asdict(self), "behind": {str(broker): count for broker, count in self.behind.items()}}


class Reassignments:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.view = ClusterView(connection)

    def check(self, assignment: Mapping[TopicIndex, list[int]]) -> None:
        """Failure if the assignment names a topic, partition or broker that does not exist."""
        for (topic, index), replicas in assignment.items():
            if topic not in self.view.topics:
                raise unknown_topic(topic, self.view.topics, creatable=False)
            if (topic, index) not in self.view.partitions:
                raise Failure(f"topic {topic} has no partition {index}", code="UNKNOWN_TOPIC_OR_PARTITION")
            for broker in replicas:
                if broker not in self.view.brokers:
                    known = ", ".join(map(str, sorted(self.view.brokers)))
                    raise Failure(f"{topic}-{index}: broker {broker} does not exist", f"the brokers are {known}")

    def current(self, keys: Iterable[TopicIndex]) -> Assignment:
        """The present replicas, in order, without those that a running reassignment adds."""
        moving = {(move.topic, move.partition): move for move in self.moves(behind=False)}
        found: Assignment = {}
        for key in keys:
            adding = moving[key].adding if key in moving else []
            replicas = [broker for broker in self.view.partitions[key].replicas if broker not in adding]
            found[key] = replicas or self.view.partitions[key].replicas
        return found

    def start(self, assignment: Mapping[TopicIndex, list[int]]) -> None:
        self._alter({key: list(replicas) for key, replicas in assignment.items()})

    def cancel(self, keys: Collection[TopicIndex]) -> None:
        self._alter(dict.fromkeys(keys))

    def _alter(self, wanted: Mapping[TopicIndex, list[int] | None]) -> None:
        topics: dict[str, ReassignableTopic] = {}
        for (topic, index), replicas in wanted.items():
            partition = ReassignablePartition(partition_index=index, replicas=replicas)
            topics.setdefault(topic, ReassignableTopic(name=topic)).partitions.append(partition)
        request = AlterPartitionReassignmentsRequest(topics=list(topics.values()))
        answer = self.view.ask_controller("alter_partition_reassignments", 0, request, AlterPartitionReassignmentsResponse)
        raise_if_error(answer.error_code, "the reassignment", answer.error_message)
        refused = [
            f"{topic.name}-{partition.partition_index}: {partition.error_message or error_name(partition.error_code)}"
            for topic in answer.responses
            for partition in topic.partitions
            if partition.error_code
        ]
        if refused:
            more = f", and {len(refused) - 3} more" if len(refused) > 3 else ""
            raise Failure("; ".join(refused[:3]) + more, code="INVALID_REPLICA_ASSIGNMENT")

    def moves(self, *, behind: bool = True) -> list[Move]:
        """The running reassignments. `behind` also asks how far the added replicas are."""
        request = ListPartitionReassignmentsRequest(topics=None)
        answer = self.view.ask_controller("list_partition_reassignments", 0, request, ListPartitionReassignmentsResponse)
        raise_if_error(answer.error_code, "reassignments", answer.error_message)
        listed = [(topic.name, partition) for topic in answer.topics for partition in topic.partitions]
        states: dict[TopicIndex, PartitionState] = {}
        if behind and listed:
            self.view.refresh()
            keys = [(topic, partition.partition_index) for topic, partition in listed]
            states = {key: self.view.partitions[key] for key in keys if key in self.view.partitions}
            self.view.read_offsets(states.values())
        return [
            Move(
                topic,
                partition.partition_index,
                list(partition.replicas),
                list(partition.adding_replicas),
                list(partition.removing_replicas),
                _behind(states.get((topic, partition.partition_index)), partition.adding_replicas),
            )
            for topic, partition in sorted(listed, key=lambda pair: (pair[0], pair[1].partition_index))
        ]

    # Throttle

    def throttle(self, assignment: Mapping[TopicIndex, list[int]], bytes_per_s: int) -> None:
        """Throttle the replicas that this assignment adds, and those of running reassignments, which share the settings. Replicas
        in sync are not throttled."""
        current = self.current(assignment)
        leaders: dict[str, list[str]] = {}
        followers: dict[str, list[str]] = {}
        brokers: set[int] = set()
        for key, replicas in assignment.items():
            topic, index = key
            adding = [broker for broker in replicas if broker not in current[key]]
            if not adding:
                continue
            brokers |= {*current[key], *replicas}
            leaders.setdefault(topic, []).extend(f"{index}:{broker}" for broker in current[key])
            followers.setdefault(topic, []).extend(f"{index}:{broker}" for broker in adding)
        for move in self.moves(behind=False):
            if move.adding and (move.topic, move.partition) not in assignment:
                brokers |= {*move.replicas}
                sources = [broker for broker in move.replicas if broker not in move.adding]
                leaders.setdefault(move.topic, []).extend(f"{move.partition}:{broker}" for broker in sources)
                followers.setdefault(move.topic, []).extend(f"{move.partition}:{broker}" for broker in move.adding)
        for topic in leaders:
            changes = {LEADER_REPLICAS: ",".join(leaders[topic]), FOLLOWER_REPLICAS: ",".join(followers[topic])}
            alter_settings(self._connection, "topic", topic, changes, [])
        rate = str(bytes_per_s)
        for broker in sorted(brokers):
            alter_settings(self._connection, "broker", str(broker), {LEADER_RATE: rate, FOLLOWER_RATE: rate}, [])

    def unthrottle(self, topics: Collection[str]) -> list[str]:
        """Remove the throttle of these topics and all brokers, unless running reassignments need it. Returns their titles."""
        moving = {move.topic for move in self.moves(behind=False)}
        freed: list[str] = []
        for topic in sorted(set(topics) - moving):
            if topic in self.view.topics and self._unset("topic", topic, [LEADER_REPLICAS, FOLLOWER_REPLICAS]):
                freed.append(f"topic {topic}")
        for broker in sorted(self.view.brokers) if not moving else ():
            if self._unset("broker", str(broker), [LEADER_RATE, FOLLOWER_RATE]):
                freed.append(f"broker {broker}")
        return freed

    def _unset(self, kind: str, name: str, keys: list[str]) -> bool:
        from confluent_kafka.admin import ConfigSource

        own = ConfigSource.DYNAMIC_TOPIC_CONFIG if kind == "topic" else ConfigSource.DYNAMIC_BROKER_CONFIG
        entries = describe_settings(self._connection, kind, name)
        present = [key for key in keys if key in entries and ConfigSource(entries[key].source) is own]
        if present:
            alter_settings(self._connection, kind, name, {}, present)
        return bool(present)


def _behind(state: PartitionState | None, adding: list[int]) -> dict[int, int | None]:
    ends = state.log_end_offsets if state is not None else {}
    leader_end = ends.get(state.leader) if state is not None else None
    return {broker: max(0, leader_end - ends[broker]) if leader_end is not None and broker in ends else None for broker in adding}
