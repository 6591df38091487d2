"""One committed offset of a group, and the value of its record. Compiled: shards hold and write many of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from librt.strings import BytesWriter, write_i16_be, write_i32_be, write_i64_be

from ottla.protocol.internal.group_records import OFFSET_COMMIT_VERSION, OFFSET_TYPE
from ottla.types import NO_LEADER_EPOCH, NO_TIMESTAMP, ZERO_UUID
from ottla.wire.native import write_varint

_TOPIC_ID_TAG: Final = b"\1\0\x10"
"""One tagged field, number 0, of 16 bytes."""


@dataclass(init=False)
class CommittedOffset:
    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    commit_timestamp_ms: int = NO_TIMESTAMP
    expire_timestamp_ms: int = NO_TIMESTAMP
    """Set by old clients with a retention time of their own; otherwise offsets.retention.minutes applies."""
    topic_id: bytes = ZERO_UUID
    order: int = field(default=0, compare=False)
    """The order in the log, set when the record is replayed."""

    # Written by hand: the one of `dataclass` would not be compiled.
    def __init__(
        self,
        offset: int,
        leader_epoch: int = NO_LEADER_EPOCH,
        metadata: str = "",
        commit_timestamp_ms: int = NO_TIMESTAMP,
        expire_timestamp_ms: int = NO_TIMESTAMP,
        topic_id: bytes = ZERO_UUID,
    ) -> None:
        self.offset = offset
        self.leader_epoch = leader_epoch
        self.metadata = metadata
        self.commit_timestamp_ms = commit_timestamp_ms
        self.expire_timestamp_ms = expire_timestamp_ms
        self.topic_id = topic_id
        self.order = 0


class Commits:
    """The offsets of one commit of a group, in the order of their records."""

    def __init__(self, group: str, offsets: list[tuple[str, int, CommittedOffset]]) -> None:
        self.group = group
        self.offsets = offsets
        """Topic, partition and offset."""


def offset_key_prefix(group: str, topic: str) -> bytes:
    """What the record keys of all partitions of a topic begin with."""
    out = BytesWriter()
    write_i16_be(out, OFFSET_TYPE)
    name = group.encode()
    write_i16_be(out, len(name))
    out.write(name)
    name = topic.encode()
    write_i16_be(out, len(name))
    out.write(name)
    return out.getvalue()


def offset_key(prefix: bytes, partition: int) -> bytes:
    """The record key of a partition's offset. The same bytes as from the codec, faster."""
    out = BytesWriter()
    out.write(prefix)
    write_i32_be(out, partition)
    return out.getvalue()


def offset_commit_value(offset: int, leader_epoch: int, metadata: str, commit_timestamp: int, topic_id: bytes) -> bytes:
    """The record value of a committed offset. The same bytes as from the codec, faster."""
    out = BytesWriter()
    write_i16_be(out, OFFSET_COMMIT_VERSION)
    write_i64_be(out, offset)
    write_i32_be(out, leader_epoch)
    text = metadata.encode()
    write_varint(out, len(text) + 1)
    out.write(text)
    write_i64_be(out, commit_timestamp)
    if topic_id == ZERO_UUID:
        out.append(0)
    else:
        out.write(_TOPIC_ID_TAG)
        out.write(topic_id)
    return out.getvalue()
