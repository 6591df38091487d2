"""The records of `__consumer_offsets`: offsets and groups, as Kafka writes them.

A key is two bytes with the record type, followed by the key message in version 0. A value is two bytes with the version of the
value message, followed by the message; no value is a tombstone. Unknown types (share and streams groups, later versions) decode
to None.

The versions written are those of Kafka 4.3, which 3.9 can read: `GroupMetadataValue` 3, `OffsetCommitValue` 4 (1 for a commit
with a retention time of its own), 0 for the others.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Any, Final

from ottla.errors import MalformedInput
from ottla.types import Buffer
from ottla.wire.codec import decode, encode
from ottla.wire.schema import definition_of, list_of, message, wire

# Offsets


@message(versions="0")
class OffsetCommitKey:
    group: str = wire("string")
    topic: str = wire("string")
    partition: int = wire("int32")


@message(versions="0-4", flexible="4+")
class OffsetCommitValue:
    offset: int = wire("int64")
    leader_epoch: int = wire("int32", "3+", default=-1, ignorable=True)
    metadata: str = wire("string")
    commit_timestamp: int = wire("int64")
    expire_timestamp: int = wire("int64", "1", default=-1, ignorable=True)
    topic_id: bytes = wire("uuid", "4+", tag=0, ignorable=True)


# Classic groups


@message(versions="0")
class GroupMetadataKey:
    group: str = wire("string")


@message()
class MemberMetadata:
    member_id: str = wire("string")
    group_instance_id: str | None = wire("string", "3+", nullable="3+", default=None, ignorable=True)
    client_id: str = wire("string")
    client_host: str = wire("string")
    rebalance_timeout: int = wire("int32", "1+", default=-1, ignorable=True)
    session_timeout: int = wire("int32")
    subscription: Buffer = wire("bytes")
    assignment: Buffer = wire("bytes")


@message(versions="0-4", flexible="4+")
class GroupMetadataValue:
    protocol_type: str = wire("string")
    generation: int = wire("int32")
    protocol: str | None = wire("string", nullable="0+")
    leader: str | None = wire("string", nullable="0+")
    current_state_timestamp: int = wire("int64", "2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = wire(list_of(MemberMetadata))


# Consumer groups (KIP-848)


@message(versions="0")
class ConsumerGroupMetadataKey:
    group_id: str = wire("string")


@message(versions="0", flexible="0+")
class ConsumerGroupMetadataValue:
    epoch: int = wire("int32")
    metadata_hash: int = wire("int64", tag=0)
    """The hash of the subscribed topics, since 4.1 (KIP-1101); replaces ConsumerGroupPartitionMetadata."""


@message(versions="0")
class ConsumerGroupPartitionMetadataKey:
    group_id: str = wire("string")


@message()
class PartitionMetadata:
    partition: int = wire("int32")
    racks: list[str] = wire("[]string")


@message()
class TopicMetadata:
    topic_id: bytes = wire("uuid")
    topic_name: str = wire("string")
    num_partitions: int = wire("int32")
    partition_metadata: list[PartitionMetadata] = wire(list_of(PartitionMetadata))


@message(versions="0", flexible="0+")
class ConsumerGroupPartitionMetadataValue:
    topics: list[TopicMetadata] = wire(list_of(TopicMetadata))


@message(versions="0")
class ConsumerGroupMemberMetadataKey:
    group_id: str = wire("string")
    member_id: str = wire("string")


@message()
class ClassicProtocol:
    name: str = wire("string")
    metadata: Buffer = wire("bytes")


@message()
class ClassicMemberMetadata:
    session_timeout_ms: int = wire("int32")
    supported_protocols: list[ClassicProtocol] = wire(list_of(ClassicProtocol))


@message(versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue:
    instance_id: str | None = wire("string", nullable="0+", default=None)
    rack_id: str | None = wire("string", nullable="0+", default=None)
    client_id: str = wire("string")
    client_host: str = wire("string")
    subscribed_topic_names: list[str] = wire("[]string")
    subscribed_topic_regex: str | None = wire("string", nullable="0+", default=None)
    rebalance_timeout_ms: int = wire("int32", default=-1)
    server_assignor: str | None = wire("string", nullable="0+", default=None)
    classic_member_metadata: ClassicMemberMetadata | None = wire(ClassicMemberMetadata, nullable="0+", tag=0, default=None)
    """Set for classic members of a consumer group."""


@message(versions="0")
class ConsumerGroupTargetAssignmentMetadataKey:
    group_id: str = wire("string")


@message(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue:
    assignment_epoch: int = wire("int32")
    assignment_timestamp: int = wire("int64", tag=0, ignorable=True)


@message(versions="0")
class ConsumerGroupTargetAssignmentMemberKey:
    group_id: str = wire("string")
    member_id: str = wire("string")


@message()
class TargetTopicPartitions:
    """Kafka names it TopicPartition."""

    topic_id: bytes = wire("uuid")
    partitions: list[int] = wire("[]int32")


@message(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue:
    topic_partitions: list[TargetTopicPartitions] = wire(list_of(TargetTopicPartitions))


@message(versions="0")
class ConsumerGroupCurrentMemberAssignmentKey:
    group_id: str = wire("string")
    member_id: str = wire("string")


@message()
class CurrentTopicPartitions:
    """Kafka names it TopicPartitions."""

    topic_id: bytes = wire("uuid")
    partitions: list[int] = wire("[]int32")
    assignment_epochs: list[int] | None = wire("[]int32", nullable="0+", tag=0, default=None)


@message(versions="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue:
    member_epoch: int = wire("int32")
    previous_member_epoch: int = wire("int32")
    state: int = wire("int8")
    assigned_partitions: list[CurrentTopicPartitions] = wire(list_of(CurrentTopicPartitions))
    partitions_pending_revocation: list[CurrentTopicPartitions] = wire(list_of(CurrentTopicPartitions))


@message(versions="0")
class ConsumerGroupRegularExpressionKey:
    group_id: str = wire("string")
    regular_expression: str = wire("string")


@message(versions="0", flexible="0+")
class ConsumerGroupRegularExpressionValue:
    topics: list[str] = wire("[]string")
    version: int = wire("int64")
    timestamp: int = wire("int64")


# How they stand in a record

TYPES: Final[dict[int, tuple[type, type]]] = {
    0: (OffsetCommitKey, OffsetCommitValue),  # written by brokers before 0.9
    1: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    4: (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
}
"""Record type -> classes of key and value."""

GROUP_METADATA_VERSION: Final = 3
OFFSET_COMMIT_VERSION: Final = 4
OFFSET_COMMIT_WITH_EXPIRY_VERSION: Final = 1

OFFSET_TYPE: Final = 1
_TYPE_OF: Final = {key: number for number, (key, _) in TYPES.items()}
_prefix = Struct(">h")


def record_type_of(key: object) -> int:
    return _TYPE_OF[type(key)]


def encode_key(key: object) -> bytes:
    """The record key of a key message."""
    return _prefix.pack(_TYPE_OF[type(key)]) + encode(key, 0)


def encode_value(value: object, version: int) -> bytes:
    """The record value of a value message."""
    return _prefix.pack(version) + encode(value, version)


def decode_record(key: Buffer, value: Buffer | None) -> tuple[int, Any, Any] | None:
    """(type, key, value or None for a tombstone), or None for an unknown type. MalformedInput if it cannot be decoded."""
    record_type = _number(key)
    known = TYPES.get(record_type)
    if known is None:
        return None
    return (
        record_type,
        _offset_key(key) if record_type == OFFSET_TYPE and isinstance(key, bytes) else decode(known[0], 0, memoryview(key)[2:]),
        None if value is None else _decode_value(known[1], value),
    )


@lru_cache(maxsize=65_536)
def _offset_key(key: bytes) -> OffsetCommitKey:
    """Cached and shared: keys are never changed."""
    return decode(OffsetCommitKey, 0, memoryview(key)[2:])


def _decode_value(cls: type, value: Buffer) -> Any:
    version = _number(value)
    versions = definition_of(cls).versions
    assert versions is not None
    if version not in versions:
        raise MalformedInput(f"a {cls.__name__} of version {version}, known are {versions.first} to {versions.last}")
    return decode(cls, version, memoryview(value)[2:])


def _number(data: Buffer) -> int:
    if len(data) < 2:
        raise MalformedInput(f"a record of a group with {len(data)} bytes where its type or version belongs")
    number: int = _prefix.unpack_from(data)[0]
    return number
