"""Record batches for tests: valid ones, and hand-made invalid ones."""

from __future__ import annotations

from typing import Any

from ottla.records.batch import RECORDS_AT, BatchInfo, read_batch_header, write_header
from ottla.records.compression import compress
from ottla.records.record import Fields, build_batch

NOW_MS = 1_800_000_000_000

SAMPLE: list[Fields] = [
    (b"first", b"value", [("trace", b"\x01\x02"), ("empty", b""), ("null", None)], NOW_MS - 5),
    (None, b"x" * 300, [], NOW_MS + 7),
    (b"", None, [], NOW_MS - 90),
    (b"k" * 70, b"", [("ž", b"y" * 200)], NOW_MS + 7),
]


def with_header(batch: bytes, **changes: Any) -> bytearray:
    """The batch with changed header fields and a correct CRC."""
    changed = bytearray(batch)
    info = read_batch_header(changed, 0)
    for name, value in changes.items():
        assert hasattr(info, name)
        setattr(info, name, value)
    size = info.size
    info.size = len(changed)
    write_header(changed, info)
    changed[8:12] = (size - 12).to_bytes(4, "big", signed=True)
    return changed


def with_section(section: bytes, count: int, codec: int = 0, **changes: Any) -> bytearray:
    """A batch with a valid header around any bytes as its records."""
    packed = section if codec == 0 else compress(codec, section)
    info: BatchInfo = read_batch_header(build_batch([(None, None, [], NOW_MS)]), 0)
    batch = bytearray(RECORDS_AT) + packed
    info.size = len(batch)
    info.attributes = codec
    info.record_count = count
    info.last_offset_delta = count - 1
    for name, value in changes.items():
        setattr(info, name, value)
    write_header(batch, info)
    return batch


def zigzag(value: int) -> bytes:
    out = bytearray()
    folded = value * 2 if value >= 0 else value * -2 - 1
    while folded > 127:
        out.append(folded & 127 | 128)
        folded >>= 7
    out.append(folded)
    return bytes(out)


def record(
    offset_delta: int = 0,
    *,
    timestamp_delta: bytes = b"\x00",
    key: bytes = b"\x01",
    value: bytes = b"\x01",
    headers: bytes = b"\x00",
    size: int | None = None,
) -> bytes:
    """One record of raw parts: each part is its encoded bytes, lengths included."""
    body = b"\x00" + timestamp_delta + zigzag(offset_delta) + key + value + headers
    return zigzag(len(body) if size is None else size) + body
