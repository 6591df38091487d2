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

_COMPACT_START: Final = ">iiBB"
_COMPACT_END: Final = "BihqqqBBBBiB"
_START: Final = ">iiih"
_END: Final = "iihqqqi"
_END_WITH_ERRORS: Final = "iihqqqihi"

_keys: dict[bytes, TopicPartition] = {}
"""By a topic's name and what stands between it and the records in a request: the index, and before it the constant count."""
_layouts: dict[tuple[str, int, str], Any] = {}


def _key(name: bytes, partition: bytes, index: int) -> TopicPartition | None:
    raw = name + partition
    key = _keys.get(raw)
    if key is None:
        try:
            key = TopicPartition(name.decode(), index)
        except UnicodeDecodeError:
            return None
        if len(_keys) >= _NAMES_MAX:
            _keys.clear()
        _keys[raw] = key
    return key


def _layout(start: str, size: int, end: str) -> Any:
    """The `pack` of a reply with a name of that size."""
    wanted = (start, size, end)
    pack = _layouts.get(wanted)
    if pack is None:
        pack = _layouts[wanted] = Struct(f"{start}{size}s{end}")
    return pack


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
    broker: Any = context.broker
    if version < 13:
        at = head[8]
        if at > 127 or at < 2:
            return None
        at += 8
        name = head[9:at]
        raw = head[8:at]
    else:
        name = raw = head[8:24]
    if head[at] != 2:  # not one partition
        return None
    index: i64 = head[at + 1] << 24 | head[at + 2] << 16 | head[at + 3] << 8 | head[at + 4]
    if index > 0x7FFFFFFF:
        return None
    key: TopicPartition | None
    if version < 13:
        key = _key(name, head[at : at + 5], index)
    else:
        topic: str | None = broker.partitions.topic_name(name)
        key = TopicPartition(topic, index) if topic is not None else None
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
    if info is None:
        return None
    layout = _layout(_COMPACT_START, len(raw), _COMPACT_END)
    reply: bytes = layout.pack(
        layout.size - 4, correlation_id, 0, 2, raw,
        2, index, 0, info.first_offset, info.log_append_time_ms, info.log_start_offset, 1, 0, 0, 0, 0, 0,
    )  # fmt: skip
    return reply


def _plain(
    head: bytes, frame: memoryview, position: i64, size: i64, version: i64, correlation_id: int, context: RequestContext
) -> bytes | None:
    # no transactional id, one topic
    if head[0] != 255 or head[1] != 255 or head[8] != 0 or head[9] != 0 or head[10] != 0 or head[11] != 1:
        return None
    acks: i64 = head[2] << 8 | head[3]
    name_size: i64 = head[12] << 8 | head[13]
    at: i64 = 14 + name_size
    if at + 12 > len(head):
        return None
    name = head[14:at]
    if head[at] != 0 or head[at + 1] != 0 or head[at + 2] != 0 or head[at + 3] != 1:
        return None
    index: i64 = head[at + 4] << 24 | head[at + 5] << 16 | head[at + 6] << 8 | head[at + 7]
    length: i64 = head[at + 8] << 24 | head[at + 9] << 16 | head[at + 10] << 8 | head[at + 11]
    begin = position + at + 12
    if index > 0x7FFFFFFF or size - begin != length:
        return None
    info = _append(_key(name, head[at : at + 8], index), frame[begin:], acks, context.broker)
    if info is None:
        return None
    reply: bytes
    if version == 7:
        layout = _layout(_START, name_size, _END)
        reply = layout.pack(
            layout.size - 4, correlation_id, 1, name_size, name,
            1, index, 0, info.first_offset, info.log_append_time_ms, info.log_start_offset, 0,
        )  # fmt: skip
    else:
        layout = _layout(_START, name_size, _END_WITH_ERRORS)
        reply = layout.pack(
            layout.size - 4, correlation_id, 1, name_size, name,
            1, index, 0, info.first_offset, info.log_append_time_ms, info.log_start_offset, 0, -1, 0,
        )  # fmt: skip
    return reply
