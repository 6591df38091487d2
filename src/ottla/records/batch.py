"""The header of a record batch of format v2: 61 bytes.

Reads and writes it, checks its CRC, and stamps the two fields that the CRC does not cover: base offset and leader epoch.

1. Nothing here copies a batch: positions refer to the buffer that was given.
2. A `BatchInfo` describes a complete batch: position + size <= len(buffer).
3. An invalid or incomplete batch is `MalformedInput`, except that `scan_batches` ignores an incomplete one at the end.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from librt.strings import read_i16_be, read_i32_be, read_i64_be

from ottla.errors import MalformedInput
from ottla.records.crc import crc32c
from ottla.types import NO_SEQUENCE, Buffer
from ottla.wire.buffer import as_bytes

if TYPE_CHECKING:
    from mypy_extensions import i64

MAGIC_V2: Final = 2

LENGTH_AT: Final = 8
MAGIC_AT: Final = 16
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21
PRODUCER_ID_AT: Final = 43
RECORDS_AT: Final = 61
"""Also the size of the header."""

LOG_OVERHEAD: Final = 12
"""Base offset and length field: the bytes that the length does not count."""
LENGTH_MIN: Final = RECORDS_AT - LOG_OVERHEAD
LEGACY_SIZE_MIN: Final = LOG_OVERHEAD + 14
"""The smallest message of format v0: a smaller length is invalid in every format."""

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40
KNOWN_ATTRIBUTES: Final = 0x7F

SMALL_BYTES: Final = 8 << 10
"""Batches up to this size are copied to be read: that costs less than slicing memoryviews."""

SEQUENCE_MAX: Final = 0x7FFFFFFF
BATCHES_KEPT: Final = 5
"""Batches remembered for each producer: as many as it may have in flight."""

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_pack_stamp: Final[Any] = struct.Struct(">qii").pack_into
"""Base offset, length, leader epoch."""
_CRC: Final = struct.Struct(">I")
_LENGTH: Final = struct.Struct(">i")
_crc32c: Final[Any] = crc32c


def is_transactional(records: Buffer) -> bool:
    """Whether the first batch of records is complete and transactional."""
    return (
        len(records) >= RECORDS_AT
        and records[ATTRIBUTES_AT + 1] & TRANSACTIONAL_BIT != 0
        and len(records) >= LOG_OVERHEAD + int(_LENGTH.unpack_from(records, LENGTH_AT)[0])  # else it is no batch
    )


class BatchInfo:
    """The header of a batch, and its position in the buffer."""

    def __init__(
        self,
        position: int,
        size: int,
        base_offset: int,
        leader_epoch: int,
        magic: int,
        crc: int,
        attributes: int,
        last_offset_delta: int,
        base_timestamp: int,
        max_timestamp: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        record_count: int,
    ) -> None:
        self.position = position
        self.size = size
        """The size of the whole batch, including base offset and length."""
        self.base_offset = base_offset
        self.leader_epoch = leader_epoch
        self.magic = magic
        self.crc = crc
        self.attributes = attributes
        self.last_offset_delta = last_offset_delta
        self.base_timestamp = base_timestamp
        self.max_timestamp = max_timestamp
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.record_count = record_count

    @property
    def end(self) -> int:
        """The position behind the batch."""
        return self.position + self.size

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd; 5 to 7 are undefined."""
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME_BIT != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON_BIT != 0

    @property
    def last_sequence(self) -> int:
        """Sequences wrap from the largest int32 to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MAX

    def __repr__(self) -> str:
        return (
            f"BatchInfo(position={self.position}, size={self.size}, offsets={self.base_offset}..{self.last_offset}, "
            f"leader_epoch={self.leader_epoch}, magic={self.magic}, crc={self.crc:#010x}, attributes={self.attributes:#06x}, "
            f"timestamps={self.base_timestamp}..{self.max_timestamp}, producer={self.producer_id}/{self.producer_epoch}, "
            f"base_sequence={self.base_sequence}, record_count={self.record_count})"
        )


def read_batch_header(buf: Buffer, position: int) -> BatchInfo:
    """The batch at `position`. MalformedInput if it is incomplete or of another format."""
    remaining = len(buf) - position
    if remaining < RECORDS_AT or position < 0:
        raise MalformedInput(f"{remaining} bytes at position {position} are too few for a record batch")
    info = header_at(buf, position)
    if info.magic != MAGIC_V2:
        raise MalformedInput(f"record batch of magic {info.magic} at position {position}")
    if info.size < RECORDS_AT:
        raise MalformedInput(f"record batch of {info.size} bytes at position {position} is smaller than its header")
    if info.size > remaining:
        raise MalformedInput(f"record batch of {info.size} bytes at position {position}, only {remaining} are available")
    return info


def scan_batches(buf: Buffer, start: int = 0) -> tuple[list[BatchInfo], int]:
    """All complete batches from `start` on, and the position behind the last one. An incomplete batch may follow it.

    MalformedInput for a wrong magic or an impossible length.
    """
    batches: list[BatchInfo] = []
    position = start
    end = len(buf)
    while end - position > MAGIC_AT:
        length: int = _LENGTH.unpack_from(buf, position + LENGTH_AT)[0]
        magic = buf[position + MAGIC_AT]
        if magic != MAGIC_V2:
            raise MalformedInput(f"record batch of magic {magic} at position {position}")
        if length < LENGTH_MIN:
            raise MalformedInput(f"record batch length {length} at position {position} is less than its header")
        if length + LOG_OVERHEAD > end - position:
            break
        batches.append(header_at(buf, position))
        position += length + LOG_OVERHEAD
    return batches, position


def header_at(buf: Buffer, position: int) -> BatchInfo:
    """The 61 bytes at `position` as a header, without checks."""
    if isinstance(buf, bytes):
        return _header(buf, position, position)
    return _header(as_bytes(buf[position : position + RECORDS_AT]), 0, position)


def _header(data: bytes, at: i64, position: int) -> BatchInfo:
    """The 61 bytes of `data` at `at`, which stand at `position` in their buffer."""
    magic: int = data[at + MAGIC_AT]
    crc: int = read_i32_be(data, at + CRC_AT)
    return BatchInfo(
        position,
        int(read_i32_be(data, at + LENGTH_AT)) + LOG_OVERHEAD,
        read_i64_be(data, at),
        read_i32_be(data, at + 12),
        magic if magic < 128 else magic - 256,
        crc if crc >= 0 else crc + (1 << 32),
        read_i16_be(data, at + ATTRIBUTES_AT),
        read_i32_be(data, at + 23),
        read_i64_be(data, at + 27),
        read_i64_be(data, at + 35),
        read_i64_be(data, at + PRODUCER_ID_AT),
        read_i16_be(data, at + 51),
        read_i32_be(data, at + 53),
        read_i32_be(data, at + 57),
    )


def batch_crc_ok(buf: Buffer, info: BatchInfo) -> bool:
    """Whether the CRC is right. It covers the batch from the attributes on."""
    return _crc_of(buf, info.position, info.end) == info.crc


def stamp(buf: bytearray | memoryview, info: BatchInfo, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch into the batch, in place. The CRC does not cover them."""
    _pack_stamp(buf, info.position, base_offset, info.size - LOG_OVERHEAD, leader_epoch)
    info.base_offset = base_offset
    info.leader_epoch = leader_epoch


def write_header(buf: bytearray | memoryview, info: BatchInfo) -> None:
    """Write the header of a batch whose records are in the buffer. Computes the CRC, also into `info`."""
    info.crc = 0
    _HEADER.pack_into(
        buf,
        info.position,
        info.base_offset,
        info.size - LOG_OVERHEAD,
        info.leader_epoch,
        info.magic,
        info.crc,
        info.attributes,
        info.last_offset_delta,
        info.base_timestamp,
        info.max_timestamp,
        info.producer_id,
        info.producer_epoch,
        info.base_sequence,
        info.record_count,
    )
    info.crc = _crc_of(buf, info.position, info.end)
    _CRC.pack_into(buf, info.position + CRC_AT, info.crc)


def _crc_of(buf: Buffer, position: int, end: int) -> int:
    begin = position + ATTRIBUTES_AT
    crc: int
    if isinstance(buf, bytes) and end - begin <= SMALL_BYTES:
        crc = _crc32c(buf[begin:end])
    else:
        view = memoryview(buf) if isinstance(buf, (bytes, bytearray)) else buf
        crc = _crc32c(view[begin:end])
    return crc
