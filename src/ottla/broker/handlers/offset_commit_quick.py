"""What members of groups send most, beside heartbeats, answered without building messages: offsets without metadata.

Owns a short cut through OffsetCommit from version 6 on. It takes a request only if all of it can be committed at once: the group
and every partition are known, the member may commit, and nobody but this broker has to have the records. Of everything else, and
of every error, it says None before anything was kept, and `offset_commit` does the whole of it. So what it answers and what it
writes is, byte for byte, what `offset_commit` would have (tests/broker/test_offset_commit_quick.py holds the two against each
other), and it decides nothing of its own. Compiled.

Without metadata a partition takes the same 18 bytes in all these versions: number, offset, leader epoch, two bytes that say that
no more comes. What stands in the request is what stands in the record: offset and epoch are copied, not read and written.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.network.context import RequestContext
from ottla.coordinator.group.committed_offset import Commits, CommittedOffset
from ottla.errors import KafkaError
from ottla.storage.config import INT64_MAX
from ottla.types import NO_TIMESTAMP, ZERO_UUID
from ottla.wire.big_endian import int32, int64

if TYPE_CHECKING:
    from mypy_extensions import i64

    from ottla.broker.replicas.partition import Partition

_FIRST_VERSION: Final = 6
_INSTANCES_FROM: Final = 7
_FLEXIBLE_FROM: Final = 8
_TOPIC_IDS_FROM: Final = 10

_BYTES_MAX: Final = 65_536
"""Larger ones are rare, and reading them costs little beside keeping them."""
_PARTITION_BYTES: Final = 18

_KEY_TYPE: Final = b"\0\1"
_VALUE_VERSION: Final = b"\0\4"
_TOPIC_ID_TAG: Final = b"\1\0\20"
"""What begins an offset's key, its value, and the id of the topic at the value's end (`protocol.internal.group_records`)."""

_head: Final = Struct(">ii").pack
_long: Final = Struct(">q").pack


class _Topic:
    __slots__ = ("at", "count", "name", "raw")

    def __init__(self, name: str, raw: bytes, count: int, at: int) -> None:
        self.name = name
        """Empty: there is an id instead, in `raw`."""
        self.raw = raw
        """Name or id, and the number of partitions: as it came, and as it is to stand in the reply."""
        self.count = count
        self.at = at
        """Where the partitions begin."""


class _Asked:
    __slots__ = ("generation", "group_id", "instance_id", "member_id", "topics")

    def __init__(self) -> None:
        self.group_id = ""
        self.generation = -1
        self.member_id = ""
        self.instance_id: str | None = None
        self.topics: list[_Topic] = []


def quick(frame: memoryview, position: i64, correlation_id: int, context: RequestContext) -> bytes | None:
    """The reply to a request whose body begins at `position`, or None: somebody else shall answer it."""
    version: i64 = context.version
    if version < _FIRST_VERSION or len(frame) - position > _BYTES_MAX:
        return None
    body = bytes(frame[position:])
    try:
        asked = _flexible(body, version) if version >= _FLEXIBLE_FROM else _plain(body, version)
    except (IndexError, UnicodeDecodeError):
        return None  # shorter than what it should hold, or no text
    if asked is None:
        return None
    try:
        kept = _commit(asked, body, version, context.broker)
    except KafkaError:
        return None  # nothing was kept; it will be refused once more, and told
    return _reply(asked, body, version, correlation_id) if kept else None


# Reading


def _plain(body: bytes, version: i64) -> _Asked | None:
    asked = _Asked()
    at: i64 = body[0] << 8 | body[1]
    at += 2
    asked.group_id = body[2:at].decode()
    asked.generation = int32(body, at)
    at += 4
    end: i64 = at + 2 + (body[at] << 8 | body[at + 1])
    asked.member_id = body[at + 2 : end].decode()
    at = end
    if version >= _INSTANCES_FROM:
        length: i64 = body[at] << 8 | body[at + 1]
        at += 2
        if length < 0x8000:
            asked.instance_id = body[at : at + length].decode()
            at += length
        elif length != 0xFFFF:
            return None
    topics = int32(body, at)
    at += 4
    for _ in range(topics):
        end = at + 2 + (body[at] << 8 | body[at + 1])
        name = body[at + 2 : end].decode()
        count = int32(body, end)
        first = end + 4
        if not name or count <= 0 or first + count * _PARTITION_BYTES > len(body):
            return None
        asked.topics.append(_Topic(name, body[at:first], count, first))
        at = first
        for _ in range(count):
            at += _PARTITION_BYTES
            last: i64 = body[at - 2] << 8 | body[at - 1]
            if last != 0 and last != 0xFFFF:
                return None  # metadata
    return asked if at == len(body) and topics > 0 else None


def _flexible(body: bytes, version: i64) -> _Asked | None:
    asked = _Asked()
    at: i64 = body[0]
    if at > 127 or at < 1:
        return None
    asked.group_id = body[1:at].decode()
    asked.generation = int32(body, at)
    at += 4
    end: i64 = body[at]
    if end > 127 or end < 1:
        return None
    end += at
    asked.member_id = body[at + 1 : end].decode()
    at = end
    length: i64 = body[at]
    if length > 127:
        return None
    if length > 0:
        asked.instance_id = body[at + 1 : at + length].decode()
        at += length
    else:
        at += 1
    topics: i64 = body[at] - 1
    if topics > 126 or topics < 1:
        return None
    at += 1
    for _ in range(topics):
        name = ""
        if version >= _TOPIC_IDS_FROM:
            end = at + 16
        else:
            end = body[at]
            begin: i64 = at + 1
            if end > 127:
                if body[begin] > 127 or body[begin] == 0:
                    return None
                end += (body[begin] << 7) - 128
                begin += 1
            end += begin - 1
            name = body[begin:end].decode()
            if not name:
                return None
        count: i64 = body[end]
        first: i64 = end + 1
        if count > 127:
            if body[first] > 127 or body[first] == 0:
                return None
            count += (body[first] << 7) - 128
            first += 1
        count -= 1
        if count <= 0 or first + count * _PARTITION_BYTES >= len(body):
            return None
        asked.topics.append(_Topic(name, body[at:first], count, first))
        at = first
        for _ in range(count):
            at += _PARTITION_BYTES
            if body[at - 2] > 1 or body[at - 1] != 0:
                return None  # metadata, or a tag
        if body[at] != 0:
            return None
        at += 1
    return asked if at == len(body) - 1 and body[at] == 0 else None


# Keeping


def _commit(asked: _Asked, body: bytes, version: i64, broker: Any) -> bool:
    groups: Any = broker.groups
    group_id = asked.group_id
    hosted, shard = groups.shards.find(group_id)
    partition: Partition | None = broker.partitions.by_key.get(hosted.topic_partition)
    if partition is None or partition.leadership is not None or len(partition.isr) > 1:
        return False  # others must have it first
    if partition.log.flush_messages != INT64_MAX or partition.held_offset is not None:
        return False  # may have to wait for the disk
    group: Any = shard.groups.by_id.get(group_id)
    if group is None:
        return False
    if group.check_commit(asked.member_id, asked.instance_id, asked.generation, version) is not None:
        return False
    clock: Any = broker.world.clock
    now_ms: int = clock.now_ms()
    image: Any = broker.image
    groups_topics: Any = shard.groups.topics.topics
    group_bytes = group_id.encode()
    key_head = _KEY_TYPE + len(group_bytes).to_bytes(2, "big") + group_bytes
    stamp: bytes = b"\1" + _long(now_ms)
    records: list[tuple[bytes, bytes | None]] = []
    commits: list[tuple[str, int, CommittedOffset]] = []
    for topic in asked.topics:
        name = topic.name
        if version >= _TOPIC_IDS_FROM:
            name = image.topic_names.get(topic.raw[:16], "")
        known: Any = image.topics.get(name)
        if known is None:
            return False
        partition_count: i64 = len(known.partitions)
        of_groups: Any = groups_topics.get(name)
        topic_id: bytes = of_groups.topic_id if of_groups is not None else ZERO_UUID
        value_tail = stamp + (_TOPIC_ID_TAG + topic_id if topic_id != ZERO_UUID else b"\0")
        name_bytes = name.encode()
        key_start = key_head + len(name_bytes).to_bytes(2, "big") + name_bytes
        at: i64 = topic.at
        for _ in range(topic.count):
            index: i64 = int32(body, at)
            if index < 0 or index >= partition_count:
                return False
            records.append((key_start + body[at : at + 4], _VALUE_VERSION + body[at + 4 : at + 16] + value_tail))
            committed = CommittedOffset(int64(body, at + 4), int32(body, at + 12), "", now_ms, NO_TIMESTAMP, topic_id)
            commits.append((name, index, committed))
            at += _PARTITION_BYTES
    partition.append_own(records, now_ms, codec=groups.codec)
    group.touch(asked.member_id, int(clock.monotonic() * 1000))
    shard.replay_message(Commits(group_id, commits))
    return True


# Answering


def _reply(asked: _Asked, body: bytes, version: i64, correlation_id: int) -> bytes:
    flexible = version >= _FLEXIBLE_FROM
    well = b"\0\0\0" if flexible else b"\0\0"  # no error, and no tags
    topics = len(asked.topics)
    # No tags in the header, no throttling.
    parts: list[bytes] = [b"\0\0\0\0\0" + bytes([topics + 1]) if flexible else b"\0\0\0\0" + topics.to_bytes(4, "big")]
    for topic in asked.topics:
        parts.append(topic.raw)
        at: i64 = topic.at
        for _ in range(topic.count):
            parts.append(body[at : at + 4])
            parts.append(well)
            at += _PARTITION_BYTES
        if flexible:
            parts.append(b"\0")
    if flexible:
        parts.append(b"\0")
    answer = b"".join(parts)
    head: bytes = _head(len(answer) + 4, correlation_id)
    return head + answer
