"""What one round reads from a cluster. Plain values; nothing here asks anybody."""

from __future__ import annotations

from dataclasses import dataclass, field

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class BrokerNode:
    broker_id: int
    host: str
    port: int
    rack: str
    log_bytes: int | None = None
    """Bytes of all replicas on it; None if it did not tell."""


@dataclass(slots=True)
class Partition:
    leader_id: int
    replicas: list[int]
    isr: list[int]
    log_start: int | None = None
    log_end: int | None = None
    """The high watermark, which is the end for consumers."""
    last_stable: int | None = None
    leader_epoch: int = -1
    offline: list[int] = field(default_factory=list)
    """Replicas whose broker or log directory is away."""
    log_bytes: int | None = None
    """Bytes of the leader's replica."""
    older: dict[float, int] = field(default_factory=dict)
    """By an age in seconds: the offset below which records are older. Of few ages, and only where a group has lag."""


@dataclass(slots=True)
class Topic:
    name: str
    is_internal: bool
    partitions: dict[int, Partition]
    cleanup_policy: str | None = None
    retention_ms: int | None = None
    """None if unknown, -1 without a limit; so is `retention_bytes`."""
    retention_bytes: int | None = None
    replica_bytes: int | None = None
    """Bytes of all replicas of all partitions."""
    topic_id: bytes = b""


@dataclass(frozen=True, slots=True)
class Member:
    member_id: str
    client_id: str
    host: str
    assignment: dict[str, list[int]]


@dataclass(slots=True)
class Group:
    name: str
    kind: str
    """classic, consumer, share, streams; empty if the broker is too old to tell."""
    protocol_type: str
    state: str
    coordinator_id: int
    assignor: str = ""
    epoch: int | None = None
    """The group epoch of the consumer protocol, which each rebalance raises."""
    members: list[Member] | None = None
    """None if they could not be read."""
    committed: dict[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Transaction:
    transactional_id: str
    state: str
    open_s: float | None
    """Since its first record; None if no transaction is open."""
    timeout_s: float | None = None
    producer_id: int | None = None
    coordinator_id: int | None = None


@dataclass(slots=True)
class Transactions:
    by_id: list[Transaction] = field(default_factory=list)
    hanging: dict[TopicPartition, int] = field(default_factory=dict)
    """Open transactions that no coordinator knows, by partition. Nothing ends them, and read_committed consumers wait."""


@dataclass(slots=True)
class ClusterReading:
    time_s: float
    """Unix time at which the log ends were read."""
    cluster_id: str
    controller_id: int
    brokers: list[BrokerNode]
    topics: dict[str, Topic]
    groups: list[Group] = field(default_factory=list)
    transactions: Transactions | None = None
    """None if the cluster has no API for them, or refuses."""
    problems: list[str] = field(default_factory=list)
    """What is missing from brokers, topics or groups, and why."""
    notes: list[str] = field(default_factory=list)
    """What else could not be read: sizes, settings, transactions. Often a right that the exporter's user lacks."""

    def partition(self, topic: str, partition: int) -> Partition | None:
        found = self.topics.get(topic)
        return None if found is None else found.partitions.get(partition)
