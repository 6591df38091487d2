"""Consumer groups as their coordinator shows them: members, committed offsets, and how far those are from both ends of the log.

Owns: reading. Changes nothing and never prints.

Lag is what the group has still to read (log end - committed), lead is how far it is from losing records to retention
(committed - log start): a group whose lead goes to zero reads records shortly before they are deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ottla.cli.connection import REQUEST_TIMEOUT_S, Connection, settled
from ottla.cli.failure import Failure, did_you_mean

if TYPE_CHECKING:
    from ottla.cli.client import ConsumerGroupDescription

TopicIndex = tuple[str, int]

# Kafka's names. The library knows no others; groups of the new protocol have Assigning and Reconciling besides.
_STATES = {
    "PREPARING_REBALANCING": "PreparingRebalance",
    "COMPLETING_REBALANCING": "CompletingRebalance",
    "STABLE": "Stable",
    "DEAD": "Dead",
    "EMPTY": "Empty",
}
_REBALANCING, _UNKNOWN = "Rebalancing", "Unknown"
"""States that the library has no name for: of the new protocol (Assigning, Reconciling), and of any other."""
STATES = (*_STATES.values(), _REBALANCING, _UNKNOWN)


@dataclass(frozen=True, slots=True)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: list[TopicIndex]
    target: list[TopicIndex] | None
    """Where the coordinator wants it; known in the new protocol only."""

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
    """One partition of a group. None is what nobody knows: no commit yet, or the topic is gone."""

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
    """How partitions are assigned: the assignor's name; empty while nobody is in the group."""
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
    known = _STATES.get(state.name)
    if known is not None:
        return known
    return _REBALANCING if type_.name == "CONSUMER" else _UNKNOWN


def type_name(type_: Any) -> str:
    return str(type_.name).lower()


def list_groups(connection: Connection) -> list[dict[str, str]]:
    """Name, type and state of all consumer groups."""
    from ottla.cli.client import ConsumerGroupState, ConsumerGroupType

    connection.metadata()
    found = settled(connection.admin.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S), "groups")
    if found.errors:
        raise found.errors[0]
    rows = []
    for listing in found.valid:
        type_ = getattr(listing, "type", ConsumerGroupType.UNKNOWN)
        state = state_name(getattr(listing, "state", ConsumerGroupState.UNKNOWN), type_)
        rows.append({"group": listing.group_id, "type": type_name(type_), "state": state})
    return sorted(rows, key=lambda row: row["group"])


def unknown_group(connection: Connection, name: str) -> Failure:
    known = [row["group"] for row in list_groups(connection)]
    return Failure(
        f"there is no group {name}", did_you_mean(name, known) or "see them with `ottla group list`", code="GROUP_ID_NOT_FOUND"
    )


def find_groups(connection: Connection, names: Sequence[str], *, missing_ok: bool = False) -> list[Group]:
    """The groups without their partitions. A group of that name that does not exist is a Failure, or Dead if `missing_ok`."""
    connection.metadata()
    groups = []
    futures = connection.admin.describe_consumer_groups(list(dict.fromkeys(names)), request_timeout=REQUEST_TIMEOUT_S)
    for name, future in futures.items():
        try:
            group = _group(settled(future, f"group {name}"))
        except Failure as failure:
            # Brokers since 4.0 may say it, older ones describe a dead group.
            if failure.code != "GROUP_ID_NOT_FOUND":
                raise
            group = Group(name, "unknown", "Dead", "", -1, "", [])
        if group.state == "Dead" and not missing_ok:
            raise unknown_group(connection, name)
        groups.append(group)
    return groups


def _group(described: ConsumerGroupDescription) -> Group:
    node = described.coordinator
    return Group(
        described.group_id,
        type_name(described.type),
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
        # Kafka writes an address without a name as Java does, behind a slash.
        described.host.removeprefix("/"),
        _indexes(described.assignment),
        None if target is None else _indexes(target),
    )


def _indexes(assignment: Any) -> list[TopicIndex]:
    return sorted((each.topic, each.partition) for each in assignment.topic_partitions)


def committed_offsets(connection: Connection, group: str) -> dict[TopicIndex, int]:
    from ottla.cli.client import ConsumerGroupTopicPartitions

    request = ConsumerGroupTopicPartitions(group)
    future = connection.admin.list_consumer_group_offsets([request], request_timeout=REQUEST_TIMEOUT_S)[group]
    found = settled(future, f"offsets of group {group}").topic_partitions
    return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}


def log_bounds(connection: Connection, partitions: Iterable[TopicIndex]) -> dict[TopicIndex, tuple[int, int]]:
    """Start and end offset (exclusive) of those partitions that exist and have a leader to ask."""
    from ottla.cli.client import OffsetSpec

    topics = connection.metadata().topics
    led = {(name, index) for name, topic in topics.items() for index, part in topic.partitions.items() if part.leader >= 0}
    present = [key for key in partitions if key in led]
    starts = listed_offsets(connection, present, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
    ends = listed_offsets(connection, present, OffsetSpec.latest())  # type: ignore[no-untyped-call]
    return {key: (starts[key], ends[key]) for key in present}


def listed_offsets(connection: Connection, partitions: Sequence[TopicIndex], spec: Any) -> dict[TopicIndex, int]:
    from ottla.cli.client import TopicPartition

    if not partitions:
        return {}
    futures = connection.admin.list_offsets(
        {TopicPartition(topic, index): spec for topic, index in partitions}, request_timeout=REQUEST_TIMEOUT_S
    )
    return {
        (each.topic, each.partition): settled(future, f"{each.topic}-{each.partition}").offset for each, future in futures.items()
    }


def with_partitions(connection: Connection, group: Group) -> Group:
    """The group with every partition it has committed or is assigned."""
    committed = committed_offsets(connection, group.name)
    owners = {key: member for member in group.members for key in member.assignment}
    keys = sorted({*committed, *owners})
    bounds = log_bounds(connection, keys)
    nowhere = (None, None)
    group.partitions = []
    for topic, partition in keys:
        start, end = bounds.get((topic, partition), nowhere)
        owner = owners.get((topic, partition))
        group.partitions.append(PartitionView(topic, partition, committed.get((topic, partition)), start, end, owner))
    return group
