"""Subscriptions and assignments of the protocol type `consumer` (Kafka's ConsumerProtocol), versions 0 to 3.

For classic groups they are opaque bytes. The coordinator parses and writes them for classic members of consumer groups.

Each begins with its version. A later version is parsed as version 3: later ones only append fields.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final, TypeVar

from ottla.coordinator.group.assignors import Assignment
from ottla.coordinator.group.group import Topics
from ottla.errors import MalformedInput
from ottla.types import Buffer
from ottla.wire.codec import decoder, encode
from ottla.wire.schema import list_of, message, wire

T = TypeVar("T")

LAST_VERSION: Final = 3
_version: Final = Struct(">h")


@message()
class EmbeddedTopicPartitions:
    topic: str = wire("string")
    partitions: list[int] = wire("[]int32")


@message(versions="0-3")
class ConsumerProtocolSubscription:
    topics: list[str] = wire("[]string")
    user_data: Buffer | None = wire("bytes", nullable="0+", default=None)
    owned_partitions: list[EmbeddedTopicPartitions] = wire(list_of(EmbeddedTopicPartitions), "1+", ignorable=True)
    generation_id: int = wire("int32", "2+", default=-1, ignorable=True)
    rack_id: str | None = wire("string", "3+", nullable="3+", default=None, ignorable=True)


@message(versions="0-3")
class ConsumerProtocolAssignment:
    assigned_partitions: list[EmbeddedTopicPartitions] = wire(list_of(EmbeddedTopicPartitions))
    user_data: Buffer | None = wire("bytes", nullable="0+", default=None)


def version_of(data: Buffer) -> int:
    """MalformedInput if there is none."""
    if len(data) < _version.size:
        raise MalformedInput("a consumer's metadata without a version")
    version: int = _version.unpack_from(data)[0]
    if version < 0:
        raise MalformedInput(f"a consumer's metadata of version {version}")
    return min(version, LAST_VERSION)


def _read(cls: type[T], data: Buffer) -> T:
    version = version_of(data)
    return decoder(cls, version)(data, _version.size)[0]


def read_subscription(data: Buffer) -> ConsumerProtocolSubscription:
    """MalformedInput if it is not one."""
    return _read(ConsumerProtocolSubscription, data)


def read_assignment(data: Buffer) -> ConsumerProtocolAssignment:
    """MalformedInput if it is not one. No bytes at all are no assignment."""
    return _read(ConsumerProtocolAssignment, data) if data else ConsumerProtocolAssignment()


def write_assignment(assignment: Assignment, topics: Topics, version: int) -> bytes:
    """Partitions by topic ids as an assignment in names; of topics that are gone nothing is said."""
    named = [
        EmbeddedTopicPartitions(topic=topics.topic_names[topic_id], partitions=sorted(partitions))
        for topic_id, partitions in assignment.items()
        if topic_id in topics.topic_names
    ]
    named.sort(key=lambda topic: topic.topic)
    message = ConsumerProtocolAssignment(assigned_partitions=named)
    return _version.pack(version) + encode(message, version)


def by_topic_id(named: Iterable[EmbeddedTopicPartitions], topics: Topics) -> dict[bytes, frozenset[int]]:
    """The same with ids instead of names. What does not exist is left out: the name may be another topic's by now."""
    found: dict[bytes, frozenset[int]] = {}
    for entry in named:
        topic = topics.topics.get(entry.topic)
        if topic is not None:
            exist = frozenset(range(len(topic.partitions))).intersection(entry.partitions)
            found[topic.topic_id] = found.get(topic.topic_id, frozenset()) | exist
    return {topic_id: partitions for topic_id, partitions in found.items() if partitions}


_read_int16 = Struct(">h").unpack_from
_read_int32 = Struct(">i").unpack_from


def subscribed_topics(subscription: bytes) -> list[str] | None:
    """The topics of a subscription; None if it cannot be parsed. All versions begin like version 0."""
    position, end = 6, len(subscription)
    if end < position:
        return None
    version: int = _read_int16(subscription, 0)[0]
    count: int = _read_int32(subscription, 2)[0]
    if version < 0 or not 0 <= count <= end // 2:
        return None
    topics: list[str] = []
    for _ in range(count):
        if end - position < 2:
            return None
        size: int = _read_int16(subscription, position)[0]
        position += 2
        if not 0 <= size <= end - position:
            return None
        try:
            topics.append(subscription[position : position + size].decode())
        except UnicodeDecodeError:
            return None
        position += size
    return topics
