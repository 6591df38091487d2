"""Numbers of variable length: known bytes, round trips, and the bytes that are refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.errors import MalformedInput
from ottla.records import walk
from ottla.wire import varint


def read_back(data: bytes) -> tuple[int, int]:
    """A zig-zag folded number as whoever walks over records reads it, and the bytes it takes."""
    return walk.varlong_at(data, 0), walk.varlong_end(data, 0)


_few = settings(derandomize=True, deadline=None, database=None, max_examples=200)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0, "00"),
        (1, "01"),
        (127, "7f"),
        (128, "8001"),
        (300, "ac02"),
        (0xFFFFFFFF, "ffffffff0f"),
    ],
)
def test_unsigned_varint_has_known_bytes(value: int, written: str) -> None:
    out = bytearray()
    varint.write_unsigned_varint(out, value)
    assert out.hex() == written
    assert varint.read_unsigned_varint(bytes(out), 0) == (value, len(out))


@pytest.mark.parametrize(
    ("value", "written"), [(0, "00"), (-1, "01"), (1, "02"), (-64, "7f"), (64, "8001"), (-(1 << 31), "ffffffff0f")]
)
def test_varint_is_zigzag_folded(value: int, written: str) -> None:
    out = bytearray()
    varint.write_varint(out, value)
    assert out.hex() == written
    assert read_back(bytes(out)) == (value, len(out))


@_few
@given(st.integers(-(1 << 63), (1 << 63) - 1), st.binary(max_size=3))
def test_varlong_comes_back(value: int, before: bytes) -> None:
    out = bytearray(before)
    varint.write_varlong(out, value)
    assert out.startswith(before)
    assert read_back(bytes(out[len(before) :])) == (value, len(out) - len(before))


@_few
@given(st.integers(0, (1 << 64) - 1))
def test_unsigned_varlong_comes_back(value: int) -> None:
    out = bytearray()
    varint.write_unsigned_varlong(out, value)
    folded = value >> 1 if value % 2 == 0 else ~(value >> 1)
    assert read_back(bytes(out)) == (folded, len(out))


@pytest.mark.parametrize("data", ["", "80", "ffffffff", "ffffffff1f", "ffffffff7f", "808080808000"])
def test_what_is_cut_or_too_wide_is_refused(data: str) -> None:
    with pytest.raises(MalformedInput):
        varint.read_unsigned_varint(bytes.fromhex(data), 0)


def test_padding_inside_the_width_is_accepted_as_kafka_does() -> None:
    assert varint.read_unsigned_varint(b"\x80\x00", 0) == (0, 2)
    assert varint.read_unsigned_varint(b"\x81\x80\x80\x80\x00", 0) == (1, 5)


@pytest.mark.parametrize(
    ("write", "value"),
    [
        (varint.write_unsigned_varint, -1),
        (varint.write_unsigned_varint, 1 << 32),
        (varint.write_varint, 1 << 31),
        (varint.write_unsigned_varlong, 1 << 64),
        (varint.write_varlong, -(1 << 63) - 1),
    ],
)
def test_a_value_too_wide_is_not_written(write: object, value: int) -> None:
    out = bytearray()
    with pytest.raises(ValueError):
        write(out, value)  # type: ignore[operator]
    assert out == b""
