"""The format of bytes is found, and why others do not fit is told."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.console.records import internal
from ottla.console.records.datum import TEXT_MAX, datum
from ottla.protocol.internal.group_records import OffsetCommitKey, encode_key


def shown(data: bytes | None, wanted: str = "auto", **more: Any) -> dict[str, Any]:
    found = datum(data, wanted, **more)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("data", "format_", "text"),
    [
        (b'{"a": 9007199254740993}', "json", '{"a": 9007199254740993}'),
        (b" [1]", "json", " [1]"),
        (b"12", "text", "12"),
        ("größe".encode(), "text", "größe"),
        (b"a\tb\nc", "text", "a\tb\nc"),
        (b"", "empty", ""),
        (b"\x82\xa1a\x01\xa1b\x93\xc0\xc3\xca\x3f\xc0\x00\x00", "msgpack", '{"a": 1, "b": [null, true, 1.5]}'),
        (b"\x00\xff", "hex", "00 ff"),
        (b"\x00\x00\x00\x00\x07abc", "hex", "00 00 00 00 07 61 62 63"),
    ],
)
def test_formats(data: bytes, format_: str, text: str) -> None:
    assert (shown(data)["format"], shown(data)["text"]) == (format_, text)


def test_null_is_not_empty() -> None:
    assert datum(None) is None
    assert shown(b"")["size"] == 0


def test_why_a_format_does_not_fit_is_told() -> None:
    assert [each["format"] for each in shown(b"\xff\x00")["tried"]] == ["json", "text", "msgpack"]
    assert "not UTF-8" in shown(b"\xff\x00")["tried"][0]["why"]
    assert shown(b'{"a": ')["format"] == "text"
    assert "Expecting value" in shown(b'{"a": ')["tried"][0]["why"]
    assert "tried" not in shown(b"plain")
    wanted = shown(b"\xff", "json")
    assert (wanted["format"], wanted["tried"][0]["format"]) == ("hex", "json")


def test_long_values_are_cut_in_lists_only() -> None:
    data = json.dumps({"a": "x" * 2 * TEXT_MAX}).encode()
    assert (len(shown(data)["text"]), shown(data)["truncated"]) == (TEXT_MAX, True)
    assert (shown(data, whole=True)["text"], shown(data, whole=True)["truncated"]) == (data.decode(), False)
    assert "base64" in shown(data, whole=True)


@given(st.binary(max_size=200))
def test_any_bytes_are_shown(data: bytes) -> None:
    found = shown(data)
    json.dumps(found)
    assert found["size"] == len(data)
    for wanted in ("json", "text", "hex", "base64", "msgpack"):
        json.dumps(shown(data, wanted))


def test_records_of_brokers_are_decoded() -> None:
    key = encode_key(OffsetCommitKey(group="g", topic="orders", partition=3))
    special = internal.decoded("__consumer_offsets", key, None)
    assert special is not None
    found = shown(key, special=[special[0]])
    assert found["format"] == "internal"
    assert json.loads(found["text"]) == {"type": "OffsetCommit", "group": "g", "topic": "orders", "partition": 3}
    assert internal.decoded("orders", key, None) is None
    broken = internal.decoded("__consumer_offsets", b"\x00\x01\xff", None)
    assert broken is not None
    assert shown(b"\x00\x01\xff", special=[broken[0]])["tried"][0]["format"] == "internal"
