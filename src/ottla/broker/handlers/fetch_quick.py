"""Consumers' fetches, read from their bytes and answered in bytes, without building messages.

Owns a short cut through Fetch from version 7 on. It takes what consumers send: any number of partitions, in a session or without,
answered at once or later. Followers, tagged fields, and whatever is not well formed are left to `fetch` before anything was
changed: it says None. What is read and what is told of it is `fetch_read`'s for both, so the two differ in the way bytes become
values and back, and tests/broker/test_fetch_quick.py holds them against each other.
"""

from __future__ import annotations

from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.handlers.fetch_reply import LEADERS_FROM, names_leaders, response_of
from ottla.broker.network.context import RequestContext
from ottla.broker.replicas.fetch_read import FetchRead, Found
from ottla.protocol.headers import encode_response
from ottla.protocol.registry import API_BY_NAME
from ottla.replication.fetch_session import FetchPartition, PartitionKey
from ottla.types import ZERO_UUID
from ottla.wire.big_endian import int32, int64

if TYPE_CHECKING:
    import asyncio

    from mypy_extensions import i64

    from ottla.ports import Part

_BYTES_MAX: Final = 1 << 20
"""Of a request: a larger one is no usual one."""
_NAME_BYTES_MAX: Final = 249
_PARTITION: Final = Struct(">ihqqq")
_HEAD: Final = Struct(">iiihi")
_COMPACT_HEAD: Final = Struct(">iiBihi")
_INT32: Final = Struct(">i")
_NAME: Final = Struct(">h")
_DIVERGENCE: Final = Struct(">BBBiqB")
_ABORTED: Final = Struct(">qq")
_COMPACT_ABORTED: Final = Struct(">qqB")
_NONE: Final = b"\xff\xff\xff\xff"
_EMPTY: Final = b"\0\0\0\0"


class _Left(Exception):
    """Not for the short cut."""


class _Reader:
    """The bytes of a request, and how far they are read. `_Left` where they are not as usual, IndexError where they end."""

    __slots__ = ("at", "compact", "data", "version")

    def __init__(self, data: bytes, version: int) -> None:
        self.data = data
        self.version: i64 = version
        self.compact = version >= 12
        self.at: i64 = 0

    def count(self) -> i64:
        """Of an array's elements, or of a string's bytes where strings are compact; none may be null."""
        at = self.at
        data = self.data
        if not self.compact:
            self.at = at + 4
            number = int32(data, at)
            if number < 0:
                raise _Left
            return number
        value: i64 = 0
        shift: i64 = 0
        while True:
            byte: i64 = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 128:
                break
            shift += 7
            if shift > 21:
                raise _Left
        self.at = at
        if value == 0:
            raise _Left
        return value - 1

    def string(self) -> str:
        size: i64
        if self.compact:
            size = self.count()
        else:
            size = self.data[self.at] << 8 | self.data[self.at + 1]
            self.at += 2
        at = self.at
        if size > _NAME_BYTES_MAX or at + size > len(self.data):
            raise _Left
        self.at = at + size
        try:
            return self.data[at : at + size].decode()
        except UnicodeDecodeError:
            raise _Left from None

    def topic_id(self) -> bytes:
        at = self.at
        self.at = at + 16
        found = self.data[at : at + 16]
        if found == ZERO_UUID or len(found) < 16:
            raise _Left
        return found

    def no_tags(self) -> None:
        if self.compact:
            if self.data[self.at] != 0:
                raise _Left
            self.at += 1

    def wanted(self) -> list[FetchPartition]:
        found: list[FetchPartition] = []
        version = self.version
        data = self.data
        topic: str | None = None
        topic_id = ZERO_UUID
        topics_left = self.count()
        while topics_left > 0:
            topics_left -= 1
            if version >= 13:
                topic_id = self.topic_id()
            else:
                topic = self.string()
            left = self.count()
            at = self.at
            while left > 0:
                left -= 1
                number = int32(data, at)
                at += 4
                current_leader_epoch: i64 = -1
                if version >= 9:
                    current_leader_epoch = int32(data, at)
                    if current_leader_epoch < -1:
                        current_leader_epoch = -1
                    at += 4
                fetch_offset = int64(data, at)
                at += 8
                last_fetched_epoch: i64 = -1
                if version >= 12:
                    last_fetched_epoch = int32(data, at)
                    at += 4
                log_start_offset = int64(data, at)
                max_bytes = int32(data, at + 8)
                at += 12
                if version >= 12:
                    if data[at] != 0:
                        raise _Left
                    at += 1
                found.append(
                    FetchPartition(
                        topic,
                        topic_id,
                        number,
                        fetch_offset,
                        max_bytes,
                        current_leader_epoch,
                        last_fetched_epoch,
                        log_start_offset,
                    )
                )
            self.at = at
            self.no_tags()
        return found

    def forgotten(self) -> list[PartitionKey]:
        found: list[PartitionKey] = []
        topics_left = self.count()
        while topics_left > 0:
            topics_left -= 1
            topic: bytes | str = self.topic_id() if self.version >= 13 else self.string()
            left = self.count()
            while left > 0:
                left -= 1
                found.append((topic, int(int32(self.data, self.at))))
                self.at += 4
            self.no_tags()
        return found


def quick(
    frame: memoryview, position: i64, correlation_id: int, context: RequestContext
) -> list[Part] | asyncio.Future[list[Part]] | None:
    """The reply to a request whose body begins at `position`, or a future of it, or None: somebody else shall answer it."""
    version: i64 = context.version
    size: i64 = len(frame) - position
    if version < 7 or size > _BYTES_MAX:
        return None
    reader = _Reader(bytes(frame[position:]), version)
    data = reader.data
    at: i64 = 0
    try:
        if version < 15:
            if int32(data, 0) != -1:  # a follower
                return None
            at = 4
        max_wait_ms = int32(data, at)
        min_bytes: int = int32(data, at + 4)
        max_bytes: int = int32(data, at + 8)
        isolation_level: int = data[at + 12]
        session_id: int = int32(data, at + 13)
        session_epoch: int = int32(data, at + 17)
        reader.at = at + 21
        wanted = reader.wanted()
        forgotten = reader.forgotten()
        rack = reader.string() if version >= 11 else ""
        reader.no_tags()
        if reader.at != size:
            return None
    except (_Left, IndexError):
        return None
    broker: Any = context.broker
    session = broker.fetch_sessions.begin(
        session_id,
        session_epoch,
        wanted,
        forgotten,
        uses_topic_ids=version >= 13,
        privileged=False,
        now_ms=int(broker.world.clock.monotonic() * 1000),
    )
    if session.error:
        return _frame(correlation_id, version, int(session.error), 0, [], False)
    bytes_max: int = broker.fetch_bytes_max
    if max_bytes > bytes_max:
        max_bytes = bytes_max
    fetch = FetchRead(
        broker,
        session,
        version=version,
        min_bytes=min_bytes if min_bytes < max_bytes else max_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        replica_id=-1,
        rack=rack if rack and broker.selects_replicas else "",
    )
    fetch.read()
    if fetch.enough() or max_wait_ms <= 0 or not fetch.keys:
        return _reply(fetch, correlation_id, version, context)
    later: asyncio.Future[list[Part]] = broker.purgatory.wait(
        fetch.keys, max_wait_ms, fetch.read_enough, partial(_reply, fetch, correlation_id, version, context)
    )
    return later


def _reply(fetch: FetchRead, correlation_id: int, version: i64, context: RequestContext) -> list[Part]:
    error, session_id, told = fetch.finish()
    if fetch.must_answer and version >= LEADERS_FROM and names_leaders(told):
        # It happens once when a leader changes: no reason to write another way to say it.
        return encode_response(
            API_BY_NAME["fetch"], version, correlation_id, response_of(error, session_id, told, fetch.committed, context)
        )
    return _frame(correlation_id, version, error, session_id, told, fetch.committed)


def _varint(value: i64) -> bytes:
    if value < 128:
        return _BYTES[value]
    if value < 16384:
        return _BYTES[value & 0x7F | 0x80] + _BYTES[value >> 7]
    found = b""
    while value >= 128:
        found += _BYTES[value & 0x7F | 0x80]
        value >>= 7
    return found + _BYTES[value]


_BYTES: Final = [bytes([value]) for value in range(256)]


def _same_topic(one: FetchPartition, other: FetchPartition) -> bool:
    return one.topic_id == other.topic_id and (one.topic_id != ZERO_UUID or one.topic == other.topic)


def _frame(correlation_id: int, version: i64, error: int, session_id: int, told: list[Found], committed: bool) -> list[Part]:
    """A reply, length and header included."""
    compact = version >= 12
    parts: list[Part] = []
    pieces: list[bytes] = [b""]  # in place of the head, which begins with the size of all
    size: i64 = 0  # of the file ranges
    begun: i64 = 0
    count: i64 = len(told)
    topics: i64 = 0
    at: i64 = 0
    while at < count:
        if at == 0 or not _same_topic(told[at - 1].wanted, told[at].wanted):
            topics += 1
        at += 1
    pieces.append(_varint(topics + 1) if compact else _INT32.pack(topics))
    at = 0
    while at < count:
        found = told[at]
        wanted = found.wanted
        if at == begun:
            if version >= 13:
                pieces.append(wanted.topic_id)
            else:
                name = (wanted.topic or "").encode()
                pieces.append(_varint(len(name) + 1) if compact else _NAME.pack(len(name)))
                pieces.append(name)
            begun += 1
            while begun < count and _same_topic(wanted, told[begun].wanted):
                begun += 1
            pieces.append(_varint(begun - at + 1) if compact else _INT32.pack(begun - at))
        pieces.append(
            _PARTITION.pack(
                wanted.partition,
                found.error_code,
                found.high_watermark,
                found.last_stable_offset,
                found.log_start_offset,
            )
        )
        aborted = found.aborted
        if not found.lists_aborted(committed):
            pieces.append(b"\0" if compact else _NONE)
        elif not aborted:
            pieces.append(b"\1" if compact else _EMPTY)
        else:
            pieces.append(_varint(len(aborted) + 1) if compact else _INT32.pack(len(aborted)))
            for txn in aborted:
                if compact:
                    pieces.append(_COMPACT_ABORTED.pack(txn.producer_id, txn.first_offset, 0))
                else:
                    pieces.append(_ABORTED.pack(txn.producer_id, txn.first_offset))
        if version >= 11:
            pieces.append(_INT32.pack(found.preferred) if found.preferred >= 0 else _NONE)
        pieces.append(_varint(found.size + 1) if compact else _INT32.pack(found.size))
        records = found.records
        if records is not None:
            parts.append(b"".join(pieces))
            parts.append(records)
            size += found.size
            pieces = []
        if compact:
            divergence = found.divergence
            if divergence is None:
                pieces.append(b"\0")
            else:
                pieces.append(_DIVERGENCE.pack(1, 0, 13, divergence.leader_epoch, divergence.offset, 0))
        at += 1
        if compact and at == begun:
            pieces.append(b"\0")
    if compact:
        pieces.append(b"\0")
    if pieces:
        parts.append(b"".join(pieces))
    for part in parts:
        if isinstance(part, bytes):
            size += len(part)
    if compact:
        parts[0] = _COMPACT_HEAD.pack(size + 15, correlation_id, 0, 0, error, session_id) + parts[0]  # type: ignore[operator]
    else:
        parts[0] = _HEAD.pack(size + 14, correlation_id, 0, error, session_id) + parts[0]  # type: ignore[operator]
    return parts
