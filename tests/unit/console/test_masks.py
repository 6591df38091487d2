"""Hidden fields are hidden wherever they are."""

from __future__ import annotations

import json

import pytest

from ottla.cli.failure import Failure
from ottla.cli.formats import Headers, Incoming
from ottla.console.records.masks import Masks


def record(value: object, key: bytes | None = b"k", headers: Headers | None = None, topic: str = "people") -> Incoming:
    data = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
    return Incoming(topic, 0, 0, 0, "CreateTime", key, data, headers or [])


def masked(masks: list[str], found: Incoming) -> Incoming:
    return Masks(masks).masked(found)


def test_a_field_inside_objects_and_lists() -> None:
    person = {"name": "Ada", "cards": [{"number": "1"}, {"number": "2"}, {"other": 3}]}
    value = masked(["value.cards.number"], record(person)).value
    assert value is not None
    assert json.loads(value) == {"name": "Ada", "cards": [{"number": "***"}, {"number": "***"}, {"other": 3}]}


def test_only_in_topics_that_match() -> None:
    same = record({"card": "1"}, topic="orders")
    assert masked(["people*:value.card"], same) is same
    assert masked(["people*:value.card"], record({"card": "1"})).value == b'{"card":"***"}'


def test_a_value_that_is_no_json_is_hidden_altogether() -> None:
    assert masked(["value.card"], record(b"card=4711")).value == b"***"
    assert masked(["value.card"], record(None)).value is None


def test_key_and_headers() -> None:
    found = masked(["key", "headers.token"], record({}, headers=[("token", b"x"), ("trace", b"7")]))
    assert (found.key, found.headers) == (b"***", [("token", b"***"), ("trace", b"7")])


def test_nothing_to_hide_changes_nothing() -> None:
    same = record({"name": "Ada"})
    assert masked(["value.card", "headers.token"], same) is same


@pytest.mark.parametrize("text", ["card", "value..card", "headers", "headers.a.b", "people:", ""])
def test_what_names_no_field(text: str) -> None:
    with pytest.raises(Failure, match="names no field"):
        Masks([text])
