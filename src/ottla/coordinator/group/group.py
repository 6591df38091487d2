"""What the kinds of groups share.

Owns the configuration of groups, the table of the groups of one shard, and the questions every kind of group must answer.
Never changes a group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from ottla.coordinator.shard import CoordinatorRecord, Decision, Now, TimerKey
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.coordinator.group.committed_offset import CommittedOffset
    from ottla.coordinator.group.offset_store import OffsetStore

NO_MEMBER: Final = ""
NO_GENERATION: Final = -1

GroupType = Literal["classic", "consumer"]

CommitCheck = Callable[[bytes, str, int], None]
"""(topic id, topic, partition): KafkaError if the member may not commit this one."""


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The broker's settings of groups. Defaults are Kafka's."""

    initial_rebalance_delay_ms: int = 3000
    session_timeout_min_ms: int = 6000
    session_timeout_max_ms: int = 1_800_000
    size_max: int = 0x7FFFFFFF
    new_member_join_timeout_ms: int = 300_000
    """How long a new member's JoinGroup may wait before its sender is taken for gone."""
    record_bytes_max: int = 1_048_588
    """What the topic of offsets takes as one batch."""
    offset_metadata_bytes_max: int = 4096
    offsets_retention_ms: int = 7 * 24 * 3600 * 1000
    rebalance_protocols: frozenset[str] = frozenset({"classic", "consumer"})
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_size_max: int = 0x7FFFFFFF
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    consumer_migration_policy: str = "bidirectional"
    consumer_regex_refresh_interval_ms: int = 600_000
    consumer_assignment_interval_ms: int = 1_000

    def require_consumer_protocol(self) -> None:
        """KafkaError where groups of the new protocol are not offered."""
        if "consumer" not in self.rebalance_protocols:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, "group.coordinator.rebalance.protocols does not have the protocol `consumer`"
            )


@dataclass(slots=True)
class Caller:
    """Who sent a request, and the chance it may need."""

    version: int
    client_id: str
    client_host: str
    new_id: str
    """A fresh uuid in text, for a member that has no id yet; empty where the request names one."""


class Topic(Protocol):
    @property
    def topic_id(self) -> bytes: ...

    @property
    def partitions(self) -> Sequence[Any]:
        """One entry per partition; each has `replicas`, the ids of brokers."""
        ...


class Broker(Protocol):
    @property
    def rack(self) -> str | None: ...


class Topics(Protocol):
    """What groups know of the cluster: `cluster.image.ClusterImage` has this shape. Immutable; a change is another object."""

    @property
    def topics(self) -> Mapping[str, Topic]: ...

    @property
    def topic_names(self) -> Mapping[bytes, str]: ...

    @property
    def brokers(self) -> Mapping[int, Broker]: ...


@dataclass(frozen=True, slots=True)
class NoTopics:
    """Before the first image."""

    topics: Mapping[str, Topic] = field(default_factory=dict)
    topic_names: Mapping[bytes, str] = field(default_factory=dict)
    brokers: Mapping[int, Broker] = field(default_factory=dict)


class Group(Protocol):
    """One group of whatever kind."""

    group_id: str

    @property
    def type(self) -> GroupType: ...

    @property
    def state_name(self) -> str:
        """As ListGroups and DescribeGroups show it."""
        ...

    @property
    def protocol_type(self) -> str | None:
        """`consumer` for consumers; None for a group that only ever committed offsets."""
        ...

    @property
    def is_empty(self) -> bool:
        """No members, so that it may be deleted."""
        ...

    def is_subscribed_to(self, topic: str) -> bool: ...

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, version: int, *, transactional: bool = False
    ) -> CommitCheck | None:
        """That this member may commit offsets now. KafkaError if not. `generation` is the member's epoch in the new protocol.

        What is returned is to be asked for each partition besides.
        """
        ...

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """That this member may read offsets. KafkaError if not."""
        ...

    def check_offset_delete(self) -> None: ...

    def check_delete(self) -> None: ...

    def tombstones(self) -> list[CoordinatorRecord]:
        """What makes the group forgotten, its offsets apart."""
        ...

    def offset_base_ms(self, offset: CommittedOffset) -> int | None:
        """From when the retention of an offset counts; None: it does not expire now (G09)."""
        ...

    def touch(self, member_id: str, now_ms: int) -> None:
        """A member committed, so it lives: its session begins anew where the protocol has it so."""
        ...


class Groups:
    """The groups of one shard, by id, and what their kinds need besides."""

    __slots__ = ("by_id", "config", "offsets", "own_configs", "topics")

    def __init__(self, config: GroupConfig, offsets: OffsetStore) -> None:
        self.config = config
        self.own_configs: Mapping[str, GroupConfig] = {}
        """Of groups with settings of their own."""
        self.by_id: dict[str, Group] = {}
        self.offsets = offsets
        self.topics: Topics = NoTopics()

    def config_of(self, group_id: str) -> GroupConfig:
        return self.own_configs.get(group_id, self.config)

    def get(self, group_id: str) -> Group:
        found = self.by_id.get(group_id)
        if found is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}")
        return found


class Kind(Protocol):
    """A kind of groups: its requests are methods of its own; this is what the shard needs of each."""

    @property
    def name(self) -> GroupType:
        """The first part of all its timer keys."""
        ...

    @property
    def record_types(self) -> frozenset[int]:
        """The records it replays."""
        ...

    def replay(self, record_type: int, key: Any, value: Any) -> None:
        """One record of its types; `value` None is a tombstone. A tombstone concerns a group only if that is of this kind."""
        ...

    def on_loaded(self, now: Now) -> Decision: ...

    def on_timer(self, key: TimerKey, now: Now) -> Decision: ...

    def topics_changed(self, now: Now) -> Decision:
        """`Groups.topics` has just become another."""
        ...
