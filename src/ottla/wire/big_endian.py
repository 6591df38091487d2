"""Numbers as they stand in requests, for those who read them without a decoder. Compiled. IndexError where the bytes end."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_extensions import i64


def int32(data: bytes, at: i64) -> i64:
    value: i64 = data[at] << 24 | data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3]
    return value - 0x1_0000_0000 if value >= 0x8000_0000 else value


def int64(data: bytes, at: i64) -> i64:
    # The high half keeps its sign, the low one has none.
    low: i64 = data[at + 4] << 24 | data[at + 5] << 16 | data[at + 6] << 8 | data[at + 7]
    return int32(data, at) << 32 | low
