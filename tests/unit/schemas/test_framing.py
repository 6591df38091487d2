"""The bytes that name a record's schema. The examples are those of Confluent's description of the wire format."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.schemas.framing import (
    KEY_HEADER,
    VALUE_HEADER,
    NotFramed,
    names_schema,
    prefix_of,
    read_id,
    read_indexes,
    whole,
    write_guid,
    write_id,
    write_indexes,
)


def test_an_id_is_five_bytes() -> None:
    assert write_id(1) == b"\0\0\0\0\1"
    assert read_id(b"\0\xff\xff\xff\xfepayload") == (0xFFFFFFFE, 5)


@pytest.mark.parametrize("data", [b"", b"\0\0\0\1", b"\1\0\0\0\1", b"{..}}"])
def test_bytes_without_an_id_are_named(data: bytes) -> None:
    with pytest.raises(NotFramed, match=r"bytes are too few|first byte"):
        read_id(data)


def test_message_indexes_are_zigzag_and_the_first_message_is_one_byte() -> None:
    assert write_indexes([0]) == b"\0"
    assert write_indexes([1]) == b"\2\2"
    assert write_indexes([1, 0]) == b"\4\2\0"
    assert read_indexes(b"\0abc", 0) == ((0,), 1)
    assert read_indexes(b"\2\0abc", 0) == ((0,), 2), "as Java writes [0] at times"
    assert read_indexes(b"\1\1abc", 0, zigzag=False) == ((1,), 2), "as old .NET clients wrote"


@given(st.lists(st.integers(0, 2**20), min_size=1, max_size=20))
def test_message_indexes_are_read_as_written(indexes: list[int]) -> None:
    data = write_indexes(indexes) + b"rest"
    assert read_indexes(data, 0) == (tuple(indexes), len(data) - 4)


@pytest.mark.parametrize("data", [b"", b"\2", b"\xff\xff\xff\xff\xff\xff", b"\xd0\x0f", b"\1", b"\2\1"])
def test_broken_message_indexes_are_named(data: bytes) -> None:
    with pytest.raises(NotFramed):
        read_indexes(data, 0)


def test_a_guid_is_byte_one_and_sixteen_bytes_in_a_header_before_the_value() -> None:
    guid = uuid.uuid4()
    header = write_guid(guid)
    assert len(header) == 17
    assert read_id(header + b"payload") == (guid, 17)
    assert prefix_of(header + b"payload") == header
    assert names_schema(header)
    assert not names_schema(header[:-1])
    headers = [(VALUE_HEADER, b"old"), (VALUE_HEADER, header), (KEY_HEADER, None)]
    assert whole(b"payload", headers, key=False) == header + b"payload", "the last one counts"
    assert whole(b"payload", headers, key=True) == b"payload"
    assert whole(None, headers, key=False) is None
    with pytest.raises(NotFramed, match="first byte is 1"):
        read_id(header[:-1])
