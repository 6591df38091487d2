"""Consumer groups as their coordinators describe them: members, committed offsets, lag and lead. Changes nothing, never prints.

Lag is log end minus committed offset. Lead is committed offset minus log start: a group whose lead goes to 0 is about to lose
records to retention.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ottla.cli.connection import REQUEST_TIMEOUT_S, Connection, result_of, while_coordinators_move
from ottla.cli.failure import Failure, did_you_mean, explain
from ottla.cli.group.coordinator import lacking_coordinator
from ottla.cli.positions import TopicIndex

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka.admin import ConsumerGroupDescription


# Kafka's names of the states that the library knows.
_STATES = {
    "PREPARING_REBALANCING": "PreparingRebalance",
    "COMPLETING_REBALANCING": "CompletingRebalance",
    "STABLE": "Stable",
    "DEAD": "Dead",
    "EMPTY": "Empty",
}
_REBALANCING, _UNKNOWN = "Rebalancing", "Unknown"
"""Shown for states that the library does not know: Assigning and Reconciling of the consumer protocol, and others."""
_COORDINATOR_S, _COORDINATOR_ASKED = 3.0, 4
"""How long a group may be without a coordinator before it is asked why, and after how many times the answer counts."""
STATES = (*_STATES.values(), _REBALANCING, _UNKNOWN)


@dataclass(frozen=True, slots=True)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: list[TopicIndex]
    target: list[TopicIndex] | None
    """The target assignment; only in the consumer protocol."""

    def document(self) -> dict[str, Any]:
        return {
            "member": self.member_id,
            "instance": self.instance_id,
            "client": self.client_id,
            "host": self.host,
            "assignment": [{"topic": topic, "partition": partition} for topic, partition in self.assignment],
            "target": None
            if self.target is None
            else [{"topic": topic, "partition": partition} for topic, partition in self.target],
        }


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition of a group. Fields are None without a commit, or if the topic was deleted."""

    topic: str
    partition: int
    committed: int | None
    log_start: int | None
    log_end: int | None
    member: Member | None

    @property
    def lag(self) -> int | None:
        return None if self.committed is None or self.log_end is None else self.log_end - self.committed

    @property
    def lead(self) -> int | None:
        return None if self.committed is None or self.log_start is None else self.committed - self.log_start

    def document(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "committed": self.committed,
            "log_start": self.log_start,
            "log_end": self.log_end,
            "lag": self.lag,
            "lead": self.lead,
            "member": None if self.member is None else self.member.member_id,
            "host": None if self.member is None else self.member.host,
            "client": None if self.member is None else self.member.client_id,
        }


@dataclass(slots=True)
class Group:
    name: str
    type: str
    state: str
    protocol: str
    """The assignor's name; empty for a group without members."""
    coordinator_id: int
    coordinator: str
    members: list[Member]
    partitions: list[PartitionView] = field(default_factory=list)

    @property
    def lag(self) -> int | None:
        lags = [partition.lag for partition in self.partitions if partition.lag is not None]
        return sum(lags) if lags else None

    def document(self) -> dict[str, Any]:
        return {
            "group": self.name,
            "type": self.type,
            "state": self.state,
            "protocol": self.protocol,
            "coordinator": {"id": self.coordinator_id, "address": self.coordinator},
            "lag": self.lag,
            "members": [member.document() for member in self.members],
            "partitions": [partition.document() for partition in self.partitions],
        }


def state_name(state: Any, type_: Any) -> str:
    return _STATES.get(state.name) or (_REBALANCING if type_.name == "CONSUMER" else _UNKNOWN)


@while_coordinators_move
def list_groups(connection: Connection) -> list[dict[str, str]]:
    """Name, type and state of all consumer groups."""
    from confluent_kafka import ConsumerGroupState, ConsumerGroupType

    connection.metadata()
    found = result_of(connection.admin.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S), "groups")
    if found.errors:
        raise explain(found.errors[0].args[0], "groups")
    rows = []
    for listing in found.valid:
        type_ = getattr(listing, "type", ConsumerGroupType.UNKNOWN)
        state = state_name(getattr(listing, "state", ConsumerGroupState.UNKNOWN), type_)
        rows.append({"group": listing.group_id, "type": type_.name.lower(), "state": state})
    return sorted(rows, key=lambda row: row["group"])


def unknown_group(connection: Connection, name: str) -> Failure:
    known = [row["group"] for row in list_groups(connection)]
    return Failure(
        f"group {name} does not exist",
        did_you_mean(name, known) or "list groups with `ottla group list`",
        code="GROUP_ID_NOT_FOUND",
    )


@while_coordinators_move
def find_groups(connection: Connection, names: Sequence[str], *, missing_ok: bool = False) -> list[Group]:
    """The groups without their partitions. A missing group is a Failure, or Dead with `missing_ok`."""
    connection.metadata()
    groups = []
    futures = connection.admin.describe_consumer_groups(list(dict.fromkeys(names)), request_timeout=REQUEST_TIMEOUT_S)
    for name, future in futures.items():
        try:
            group = _group(_described(connection, name, future))
        except Failure as failure:
            # Brokers since 4.0 may answer with this error; older ones describe a dead group.
            if failure.code != "GROUP_ID_NOT_FOUND":
                raise
            group = Group(name, "unknown", "Dead", "", -1, "", [])
        if group.state == "Dead" and not missing_ok:
            raise unknown_group(connection, name)
        groups.append(group)
    return groups


def _described(connection: Connection, name: str, future: Future[ConsumerGroupDescription]) -> ConsumerGroupDescription:
    """librdkafka asks for a coordinator as long as the request may take, and does not say so."""
    lacking = None
    for _ in range(_COORDINATOR_ASKED):
        if wait([future], _COORDINATOR_S).done:
            break
        lacking = lacking_coordinator(connection, name)
    if lacking is not None and not future.done():
        raise lacking
    return result_of(future, f"group {name}")


def _group(described: ConsumerGroupDescription) -> Group:
    node = described.coordinator
    return Group(
        described.group_id,
        described.type.name.lower(),
        state_name(described.state, described.type),
        described.partition_assignor or "",
        node.id,
        f"{node.host}:{node.port}",
        sorted((_member(member) for member in described.members), key=lambda member: (member.client_id, member.member_id)),
    )


def _member(described: Any) -> Member:
    target = described.target_assignment
    return Member(
        described.member_id,
        described.group_instance_id,
        described.client_id,
        # Java prints an address without a host name behind a slash.
        described.host.removeprefix("/"),
        _indexes(described.assignment),
        None if target is None else _indexes(target),
    )


def _indexes(assignment: Any) -> list[TopicIndex]:
    return sorted((each.topic, each.partition) for each in assignment.topic_partitions)


@while_coordinators_move
def committed_offsets(connection: Connection, group: str) -> dict[TopicIndex, int]:
    from confluent_kafka import ConsumerGroupTopicPartitions

    request = ConsumerGroupTopicPartitions(group)
    future = connection.admin.list_consumer_group_offsets([request], request_timeout=REQUEST_TIMEOUT_S)[group]
    found = result_of(future, f"offsets of group {group}").topic_partitions
    return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}


def led_log_bounds(connection: Connection, keys: Iterable[TopicIndex]) -> dict[TopicIndex, tuple[int, int]]:
    """`log_bounds` of those partitions that exist and have a leader."""
    from ottla.cli.offsets import log_bounds

    topics = connection.metadata().topics
    led = {(name, index) for name, topic in topics.items() for index, part in topic.partitions.items() if part.leader >= 0}
    return log_bounds(connection, [key for key in keys if key in led])


def with_partitions(connection: Connection, group: Group) -> Group:
    """The group with all partitions that are committed or assigned."""
    committed = committed_offsets(connection, group.name)
    owners = {key: member for member in group.members for key in member.assignment}
    keys = sorted({*committed, *owners})
    bounds = led_log_bounds(connection, keys)
    group.partitions = []
    for key in keys:
        start, end = bounds.get(key, (None, None))
        group.partitions.append(PartitionView(*key, committed.get(key), start, end, owners.get(key)))
    return group
