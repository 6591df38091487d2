"""What classic and consumer groups have in common.

Owns the configuration of groups, and the table of the groups of one shard. Never changes a group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.coordinator.group.classic_group import ClassicGroup
    from ottla.coordinator.group.consumer_group import ConsumerGroup
    from ottla.coordinator.group.offset_store import OffsetStore

NO_MEMBER: Final = ""
NO_GENERATION: Final = -1

GroupType = Literal["classic", "consumer"]

Group: TypeAlias = "ClassicGroup | ConsumerGroup"
CommitCheck = Callable[[bytes, str, int], None]
"""(topic id, topic, partition): KafkaError if the member may not commit this partition."""


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The broker's settings of groups. Defaults are Kafka's."""

    initial_rebalance_delay_ms: int = 3000
    session_timeout_min_ms: int = 6000
    session_timeout_max_ms: int = 1_800_000
    size_max: int = 0x7FFFFFFF
    new_member_join_timeout_ms: int = 300_000
    """How long the JoinGroup of a new member may be pending before the member is removed."""
    record_bytes_max: int = 1_048_588
    """`max.message.bytes` of `__consumer_offsets`."""
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
        """KafkaError if the protocol `consumer` is not enabled."""
        if "consumer" not in self.rebalance_protocols:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "group.coordinator.rebalance.protocols does not enable `consumer`")


@dataclass(slots=True)
class Caller:
    """The sender of a request."""

    version: int
    client_id: str
    client_host: str
    new_id: str
    """A new uuid for a member without an id; empty if the request has one."""
    may_describe: Callable[[str], bool] | None = None
    """Whether it may know of a topic; None: of all."""


class Topic(Protocol):
    @property
    def topic_id(self) -> bytes: ...

    @property
    def partitions(self) -> Sequence[Any]: ...


class Topics(Protocol):
    """The cluster as groups see it; `cluster.image.ClusterImage` conforms. Immutable."""

    @property
    def topics(self) -> Mapping[str, Topic]: ...

    @property
    def topic_names(self) -> Mapping[bytes, str]: ...


@dataclass(frozen=True, slots=True)
class NoTopics:
    """The topics of a shard before its first cluster image."""

    topics: Mapping[str, Topic] = field(default_factory=dict)
    topic_names: Mapping[bytes, str] = field(default_factory=dict)


class Groups:
    """The groups of one shard, with their configuration, offsets and topics."""

    __slots__ = ("by_id", "config", "offsets", "own_configs", "topics")

    def __init__(self, config: GroupConfig, offsets: OffsetStore) -> None:
        self.config = config
        self.own_configs: Mapping[str, GroupConfig] = {}
        """By group id, for groups with overrides."""
        self.by_id: dict[str, Group] = {}
        self.offsets = offsets
        self.topics: Topics = NoTopics()

    def config_of(self, group_id: str) -> GroupConfig:
        return self.own_configs.get(group_id, self.config)

    def get(self, group_id: str) -> Group:
        found = self.by_id.get(group_id)
        if found is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id} does not exist")
        return found
