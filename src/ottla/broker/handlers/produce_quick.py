"""The most frequent request of all, answered without building messages: one batch for one partition, outside transactions.

Owns a short cut through Produce from version 7 on. It takes a request only if it is exactly of that shape and its answer can
follow at once; of everything else, and of every error, it says None before anything was kept, and `produce` does the whole of it.
So what it answers is, byte for byte, what `produce` would have answered (tests/broker/test_produce_quick.py holds the two against
each other), and it decides nothing of its own.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.context import RequestContext
from ottla.errors import KafkaError
from ottla.storage.config import INT64_MAX
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from mypy_extensions import i64

    from ottla.broker.partition import Partition
    from ottla.storage.results import AppendInfo

_ALL: Final = 0xFFFF
_HEAD_BYTES: Final = 600
"""All before the records, with the longest name a topic may have; of a small request all."""
_NAMES_MAX: Final = 10_000

_COMPACT_TAIL: Final = b"\1\0\0\0\0\0\0\0\0"
_TAIL_7: Final = b"\0\0\0\0"
_TAIL_8: Final = b"\0\0\0\0\xff\xff\0\0\0\0"
"""No errors of records, no message, no throttling: what ends a reply in which all is well."""


class _Shape:
    """Requests for one partition, as far as they are equal, and the reply to them, as far as it is."""

    __slots__ = ("index", "key", "middle", "pack", "size", "tail")

    def __init__(self, key: TopicPartition | None, index: int, middle: bytes, tail: bytes) -> None:
        self.key = key
        """None: the topic is named by its id, and has to be looked up."""
        self.index = index
        self.middle = middle
        self.tail = tail
        layout = Struct(f">ii{len(middle)}sqqq{len(tail)}s")
        self.pack: Any = layout.pack
        self.size = layout.size - 4


_compact_shapes: dict[bytes, _Shape] = {}
_shapes_7: dict[bytes, _Shape] = {}
_shapes_8: dict[bytes, _Shape] = {}
"""By what stands in a request from the name of the topic to the number of the partition."""


def _remember(shapes: dict[bytes, _Shape], raw: bytes, shape: _Shape) -> _Shape:
    if len(shapes) >= _NAMES_MAX:
        shapes.clear()
    shapes[raw] = shape
    return shape


def _reply(shape: _Shape, correlation_id: int, info: AppendInfo) -> bytes:
    reply: bytes = shape.pack(
        shape.size, correlation_id, shape.middle, info.first_offset, info.log_append_time_ms, info.log_start_offset, shape.tail
    )
    return reply


def _append(key: TopicPartition | None, records: memoryview, acks: i64, broker: Any) -> AppendInfo | None:
    if key is None or (acks != 1 and acks != _ALL):
        return None
    try:
        partition: Partition | None = broker.partitions.by_key.get(key)
        if partition is None:
            return None
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
    raw = head[8 : at + 5]
    shape = _compact_shapes.get(raw)
    if shape is None:
        shape = _compact_shape(raw, by_id=version >= 13)
        if shape is None:
            return None
    broker: Any = context.broker
    key = shape.key
    if version >= 13:
        topic: str | None = broker.partitions.topic_name(raw[:16])
        key = TopicPartition(topic, shape.index) if topic is not None else None
    elif key is None:
        return None  # an id of a later version that could be a name of this one
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
    info = _append(key, frame[begin:end], acks, broker)
    return _reply(shape, correlation_id, info) if info is not None else None


def _compact_shape(raw: bytes, by_id: bool) -> _Shape | None:
    """Of a length and a name, or of an id, and of one partition behind it."""
    name, partition = raw[:-5], raw[-5:]
    if len(name) != (16 if by_id else name[0]) or partition[0] != 2:  # cut off, or not one partition
        return None
    index = int.from_bytes(partition[1:], "big", signed=True)
    if index < 0:
        return None
    key: TopicPartition | None = None
    if not by_id:
        try:
            key = TopicPartition(name[1:].decode(), index)
        except UnicodeDecodeError:
            return None
    return _remember(_compact_shapes, raw, _Shape(key, index, b"\0\2" + name + partition + b"\0\0", _COMPACT_TAIL))


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
    raw = head[12 : at + 8]
    shapes = _shapes_7 if version == 7 else _shapes_8
    shape = shapes.get(raw)
    if shape is None:
        shape = _plain_shape(shapes, raw, _TAIL_7 if version == 7 else _TAIL_8)
        if shape is None:
            return None
    length: i64 = head[at + 8] << 24 | head[at + 9] << 16 | head[at + 10] << 8 | head[at + 11]
    begin = position + at + 12
    if size - begin != length:
        return None
    info = _append(shape.key, frame[begin:], acks, context.broker)
    return _reply(shape, correlation_id, info) if info is not None else None


def _plain_shape(shapes: dict[bytes, _Shape], raw: bytes, tail: bytes) -> _Shape | None:
    name, partition = raw[:-8], raw[-8:]
    index = int.from_bytes(partition[4:], "big", signed=True)
    if partition[:4] != b"\0\0\0\1" or index < 0:
        return None
    try:
        key = TopicPartition(name[2:].decode(), index)
    except UnicodeDecodeError:
        return None
    return _remember(shapes, raw, _Shape(key, index, b"\0\0\0\1" + raw + b"\0\0", tail))
