"""The most frequent request of all, answered without building messages: one batch for one partition, outside transactions.

Owns a short cut through Produce from version 7 on. It takes a request only if it is exactly of that shape and its answer can
follow at once; of everything else, and of every error, it says None before anything was kept, and `produce` does the whole of it.
So what it answers is, byte for byte, what `produce` would have answered (tests/broker/test_produce_quick.py holds the two against
each other), and it decides nothing of its own.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.network.context import RequestContext
from ottla.errors import KafkaError
from ottla.storage.config import INT64_MAX
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from mypy_extensions import i64

    from ottla.broker.replicas.partition import Partition
    from ottla.broker.replicas.partitions import Partitions
    from ottla.storage.results import AppendInfo

_ALL: Final = 0xFFFF
_HEAD_BYTES: Final = 600
"""All before the records, with the longest name a topic may have; of a small request all."""


class _Reply:
    """The replies of a version: what the request says of the partition, and around it what is the same in all of them."""

    __slots__ = ("_count", "_format", "_packs", "_size", "_tail")

    def __init__(self, format: str, count: int, tail: bytes) -> None:
        """`format`, `count`: how the number of topics is written (after a byte for tags, where there may be any). `tail`: no
        errors of records, no message, no throttling, with which a reply ends if all is well."""
        self._format = f">ii{format}%dshqqq{len(tail)}s"
        self._count = count
        self._tail = tail
        self._size: i64 = Struct(self._format % 0).size - 4
        self._packs: list[Any] = [None] * _HEAD_BYTES
        """By the size of what names a partition. One for all partitions: it stays in the processor's cache."""

    def to(self, named: bytes, correlation_id: int, info: AppendInfo) -> bytes:
        size: i64 = len(named)
        pack = self._packs[size]
        if pack is None:
            pack = self._packs[size] = Struct(self._format % size).pack
        reply: bytes = pack(
            self._size + size,
            correlation_id,
            self._count,
            named,
            0,
            info.first_offset,
            info.log_append_time_ms,
            info.log_start_offset,
            self._tail,
        )
        return reply


_COMPACT: Final = _Reply("h", 2, b"\1\0\0\0\0\0\0\0\0")
_PLAIN_7: Final = _Reply("i", 1, b"\0\0\0\0")
_PLAIN_8: Final = _Reply("i", 1, b"\0\0\0\0\xff\xff\0\0\0\0")


def _append(partition: Partition, records: memoryview, acks: i64, broker: Any) -> AppendInfo | None:
    if acks != 1 and acks != _ALL:
        return None
    try:
        if partition.log.flush_messages != INT64_MAX:
            return None  # may have to wait for the disk
        if acks == 1:
            required = 1
        elif partition.leadership is None and len(partition.isr) <= 1:
            required = -1  # nobody is waited for: once appended it is committed
        else:
            return None
        return partition.append(records, required, broker.world.clock.now_ms())
    except KafkaError:
        return None  # nothing was kept; it will be refused once more, and told


def quick(frame: memoryview, position: i64, correlation_id: int, context: RequestContext) -> bytes | None:
    """The reply to a request whose body begins at `position`, or None: somebody else shall answer it."""
    head = bytes(frame[position : position + _HEAD_BYTES])
    version: i64 = context.version
    size: i64 = len(frame)
    try:
        if version >= 9:
            return _compact(head, frame, position, size, version, correlation_id, context)
        if version >= 7:
            return _plain(head, frame, position, size, version, correlation_id, context)
    except IndexError:
        pass  # shorter than what it should hold
    return None


def _compact(
    head: bytes, frame: memoryview, position: i64, size: i64, version: i64, correlation_id: int, context: RequestContext
) -> bytes | None:
    if head[0] != 0 or head[7] != 2:  # a transactional id, or not one topic
        return None
    acks: i64 = head[1] << 8 | head[2]
    at: i64 = 24
    if version < 13:
        at = head[8]
        if at > 127 or at < 2:
            return None
        at += 8
    named = head[8 : at + 5]
    broker: Any = context.broker
    partition: Partition | None = (broker.partitions.by_id_bytes if version >= 13 else broker.partitions.by_name_bytes).get(named)
    if partition is None:
        partition = _find_compact(broker.partitions, named, by_id=version >= 13)
        if partition is None:
            return None
    at += 5
    length: i64 = 0
    shift: i64 = 0
    while True:
        byte: i64 = head[at]
        at += 1
        length |= (byte & 0x7F) << shift
        if byte < 128:
            break
        shift += 7
        if shift > 21:
            return None
    begin = position + at
    end = begin + length - 1
    tail = head[-3:] if size - position <= _HEAD_BYTES else bytes(frame[end:])
    if length == 0 or size - end != 3 or tail != b"\0\0\0":
        return None
    info = _append(partition, frame[begin:end], acks, broker)
    return _COMPACT.to(named, correlation_id, info) if info is not None else None


def _find_compact(partitions: Partitions, named: bytes, by_id: bool) -> Partition | None:
    """By a length and a name, or by an id, and one partition behind it."""
    name, number = named[:-5], named[-5:]
    if len(name) != (16 if by_id else name[0]) or number[0] != 2:  # cut off, or not one partition
        return None
    if by_id:
        return _remember(partitions, partitions.by_id_bytes, named, partitions.topic_name(name), number[1:])
    return _remember(partitions, partitions.by_name_bytes, named, _decoded(name[1:]), number[1:])


def _plain(
    head: bytes, frame: memoryview, position: i64, size: i64, version: i64, correlation_id: int, context: RequestContext
) -> bytes | None:
    # no transactional id, one topic
    if head[0] != 255 or head[1] != 255 or head[8] != 0 or head[9] != 0 or head[10] != 0 or head[11] != 1:
        return None
    acks: i64 = head[2] << 8 | head[3]
    at: i64 = 14 + (head[12] << 8 | head[13])
    if at + 12 > len(head):
        return None
    named = head[12 : at + 8]
    broker: Any = context.broker
    partition: Partition | None = broker.partitions.by_name_bytes.get(named)
    if partition is None:
        partition = _find_plain(broker.partitions, named)
        if partition is None:
            return None
    length: i64 = head[at + 8] << 24 | head[at + 9] << 16 | head[at + 10] << 8 | head[at + 11]
    begin = position + at + 12
    if size - begin != length:
        return None
    info = _append(partition, frame[begin:], acks, broker)
    if info is None:
        return None
    return (_PLAIN_7 if version == 7 else _PLAIN_8).to(named, correlation_id, info)


def _find_plain(partitions: Partitions, named: bytes) -> Partition | None:
    """By a name behind its length, and one partition behind it."""
    name, number = named[:-8], named[-8:]
    if number[:4] != b"\0\0\0\1":
        return None
    return _remember(partitions, partitions.by_name_bytes, named, _decoded(name[2:]), number[4:])


def _decoded(name: bytes) -> str | None:
    try:
        return name.decode()
    except UnicodeDecodeError:
        return None


def _remember(
    partitions: Partitions, remembered: dict[bytes, Partition], named: bytes, topic: str | None, number: bytes
) -> Partition | None:
    if topic is None:
        return None
    partition = partitions.find(TopicPartition(topic, int.from_bytes(number, "big", signed=True)))
    if partition is not None:
        remembered[named] = partition
    return partition
