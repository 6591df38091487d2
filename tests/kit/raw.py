"""A minimal Kafka client on a blocking socket: prepared Produce and Fetch frames, for fault tests and load.

It uses nothing of Ottla, so it can judge Ottla, and needs little CPU, so the broker is the bottleneck.
It does not negotiate versions, ask for metadata, retry or compress. Produce 7 and Fetch 11 are the newest without tagged fields;
every broker from 2.3 to 4.3 speaks them.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import crc32c

PRODUCE, FETCH, METADATA, API_VERSIONS, CREATE_TOPICS = 0, 1, 3, 18, 19
_BATCH = struct.Struct(">qiibIhiqqqhii")  # base offset .. record count; 61 bytes
_CRC_AT, _AFTER_CRC = 17, 21


def _varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_varint(buf: bytes | memoryview, at: int) -> tuple[int, int]:
    shift = number = 0
    while True:
        byte = buf[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7


def batch(values: Sequence[bytes], timestamp_ms: int | None = None, keys: Sequence[bytes] | None = None) -> bytes:
    """One uncompressed batch of format v2, offsets from 0."""
    if timestamp_ms is None:
        timestamp_ms = int(time.time() * 1000)
    records = bytearray()
    for delta, value in enumerate(values):
        key = b"\x01" if keys is None else _varint(len(keys[delta])) + keys[delta]
        body = b"\0\0" + _varint(delta) + key + _varint(len(value)) + value + b"\0"
        records += _varint(len(body)) + body
    head = _BATCH.pack(
        0, 49 + len(records), -1, 2, 0, 0, len(values) - 1, timestamp_ms, timestamp_ms, -1, -1, -1, len(values)
    )  # fmt: skip
    whole = bytearray(head + records)
    struct.pack_into(">I", whole, _CRC_AT, crc32c.crc32c(bytes(whole[_AFTER_CRC:])))
    return bytes(whole)


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def frame(api: int, version: int, correlation: int, body: bytes) -> bytes:
    head = struct.pack(">hhi", api, version, correlation) + _string("raw")
    return struct.pack(">i", len(head) + len(body)) + head + body


def produce_frame(
    topic: str, partition: int, records: bytes, acks: int = -1, correlation: int = 0, timeout_ms: int = 30_000
) -> bytes:
    body = struct.pack(">hhii", -1, acks, timeout_ms, 1) + _string(topic)
    return frame(PRODUCE, 7, correlation, body + struct.pack(">iii", 1, partition, len(records)) + records)


@dataclass(frozen=True, slots=True)
class Produced:
    correlation: int
    partition: int
    error: int
    base_offset: int


def read_produced(reply: bytes | memoryview) -> Produced:
    (correlation, _, name) = struct.unpack_from(">iih", reply, 0)
    partition, error, base_offset = struct.unpack_from(">ihq", reply, 10 + name + 4)
    return Produced(correlation, partition, error, base_offset)


def fetch_frame(
    topic: str,
    positions: Sequence[tuple[int, int]],
    *,
    correlation: int = 0,
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    max_bytes: int = 50 << 20,
    partition_bytes: int = 1 << 20,
) -> bytes:
    """`positions`: (partition, offset). No fetch session."""
    body = struct.pack(">iiiibii", -1, max_wait_ms, min_bytes, max_bytes, 0, 0, -1) + struct.pack(">i", 1) + _string(topic)
    body += struct.pack(">i", len(positions))
    body += b"".join(struct.pack(">iiqqi", partition, -1, offset, -1, partition_bytes) for partition, offset in positions)
    return frame(FETCH, 11, correlation, body + struct.pack(">i", 0) + _string(""))


@dataclass(frozen=True, slots=True)
class Fetched:
    partition: int
    error: int
    high_watermark: int
    records: memoryview


def read_fetched(reply: bytes | memoryview) -> list[Fetched]:
    view = memoryview(reply)
    topics = struct.unpack_from(">i", view, 14)[0]  # after correlation, throttle, error, session
    at, found = 18, []
    for _ in range(topics):
        at += 2 + struct.unpack_from(">h", view, at)[0]
        partitions = struct.unpack_from(">i", view, at)[0]
        at += 4
        for _ in range(partitions):
            partition, error, high_watermark = struct.unpack_from(">ihq", view, at)
            at += 30  # also the last stable offset and the log start
            aborted = struct.unpack_from(">i", view, at)[0]
            at += 4 + 16 * max(aborted, 0) + 4  # also the preferred replica
            size = max(struct.unpack_from(">i", view, at)[0], 0)
            at += 4
            found.append(Fetched(partition, error, high_watermark, view[at : at + size]))
            at += size
    return found


def read_records(records: memoryview) -> Iterator[tuple[int, bytes]]:
    """(offset, value) of uncompressed batches; a batch cut off at the end is left out. Every CRC is checked."""
    at = 0
    while at + 61 <= len(records):
        base, length = struct.unpack_from(">qi", records, at)
        end = at + 12 + length
        if end > len(records):
            return
        crc, attributes = struct.unpack_from(">Ih", records, at + _CRC_AT)
        assert crc == crc32c.crc32c(bytes(records[at + _AFTER_CRC : end])), f"CRC of the batch at offset {base}"
        assert attributes & 7 == 0, "compressed"
        position = at + 61
        while position < end:
            size, position = _read_varint(records, position)
            after = position + size
            _, position = _read_varint(records, position + 1)
            delta, position = _read_varint(records, position)
            key, position = _read_varint(records, position)
            position += max(key, 0)
            value, position = _read_varint(records, position)
            yield base + delta, bytes(records[position : position + max(value, 0)])
            position = after
        at = end


class RawConnection:
    """A blocking connection. Raises ConnectionError when the broker closes it."""

    def __init__(self, bootstrap: str, timeout_s: float = 90) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self.socket.makefile("rb", 1 << 20)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> bytes:
        head = self._file.read(4)
        if len(head) < 4:
            raise ConnectionResetError("the broker closed the connection")
        size = struct.unpack(">i", head)[0]
        body: bytes = self._file.read(size)
        if len(body) < size:
            raise ConnectionResetError("the broker closed the connection inside a reply")
        return body

    def call(self, data: bytes) -> bytes:
        self.send(data)
        return self.receive()

    def create_topic(self, name: str, partitions: int = 1, **config: Any) -> None:
        """CreateTopics v2; an error raises."""
        settings = b"".join(_string(key.replace("_", ".")) + _string(value) for key, value in config.items())
        body = (
            struct.pack(">i", 1)
            + _string(name)
            + struct.pack(">ihi", partitions, 1, 0)
            + struct.pack(">i", len(config))
            + settings
        )
        reply = self.call(frame(CREATE_TOPICS, 2, 0, body + struct.pack(">i?", 30_000, False)))
        error = struct.unpack_from(">h", reply, 12 + 2 + len(name))[0]
        if error:
            raise RuntimeError(f"CreateTopics {name}: error {error}")

    def read_all(self, topic: str, partition: int = 0, start: int = 0) -> list[tuple[int, bytes]]:
        """Every record from `start` up to the high watermark."""
        found: list[tuple[int, bytes]] = []
        while True:
            (answer,) = read_fetched(self.call(fetch_frame(topic, [(partition, start)], max_wait_ms=0, partition_bytes=8 << 20)))
            if answer.error:
                raise RuntimeError(f"Fetch {topic}-{partition} from {start}: error {answer.error}")
            found += ((offset, value) for offset, value in read_records(answer.records) if offset >= start)
            if found:
                start = found[-1][0] + 1
            if start >= answer.high_watermark:
                return found

    def close(self) -> None:
        self._file.close()
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
