"""Text, validity and references of JSON Schemas."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from ottla.schemas.limits import SchemaTooLarge
from ottla.schemas.model import JSON, InvalidSchema, ResolvedReference
from ottla.schemas.parsing import parse


def test_sr05_the_text_keeps_its_order_and_numbers_are_java_s() -> None:
    assert (
        parse(JSON, '{ "type" : "number", "maximum" : 1e10, "$id": "é" }').canonical
        == '{"type":"number","maximum":1E+10,"$id":"é"}'
    )
    assert parse(JSON, "true").canonical == "true"
    assert parse(JSON, '{"title": "T"}').name == "T"


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("1.10", "1.10"),
        ("1e2", "1E+2"),
        ("1e400", "1E+400"),
        ("-0.0", "0.0"),
        ("0.0000001", "1E-7"),
        ("12345678901234567890", "12345678901234567890"),
    ],
)
def test_sr05_a_number_keeps_its_digits(written: str, stored: str) -> None:
    """As a BigDecimal of Java prints it."""
    assert parse(JSON, '{"minimum":' + written + "}").canonical == '{"minimum":' + stored + "}"


def test_sr11_a_number_that_no_program_can_hold() -> None:
    with pytest.raises(InvalidSchema, match="exponent"):
        parse(JSON, '{"minimum":1e99999999999999999999}')


def test_sr05_normalized_orders_keys() -> None:
    one = parse(JSON, '{"type": "object", "properties": {"b": {}, "a": {"z": 1, "y": 2}}}').normalized()
    assert one.canonical == '{"properties":{"a":{"y":2,"z":1},"b":{}},"type":"object"}'


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ("[1]", ""),
        ('"string"', ""),
        ("{", ""),
        ('{"type": "text"}', ".type"),
        ('{"properties": {"a": {"minLength": "1"}}}', ".properties.a.minLength"),
        ('{"$schema": "http://json-schema.org/draft-04/schema#", "exclusiveMaximum": 5}', ""),
        ('{"$schema": "https://json-schema.org/draft/2020-12/schema", "items": []}', ".items"),
    ],
)
def test_an_invalid_schema_says_where(schema: str, path: str) -> None:
    with pytest.raises(InvalidSchema) as refused:
        parse(JSON, schema)
    assert refused.value.path.startswith(path)


def test_sr07_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*arguments: Any) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", connect)
    for reference in (
        "http://127.0.0.1:1/x.json",
        "file:///etc/passwd",
        "other.json",
        "#/definitions/none",
        "http://[",
        "#anchor",
    ):
        with pytest.raises(InvalidSchema, match="nothing is fetched"):
            parse(JSON, json.dumps({"properties": {"a": {"$ref": reference}}}))


def test_sr07_metaschemas_and_references_are_known() -> None:
    parse(JSON, '{"$ref": "http://json-schema.org/draft-07/schema#"}')
    reference = ResolvedReference("http://x.example/a.json", "a", 1, '{"definitions": {"D": {"type": "string"}}}')
    schema = parse(JSON, '{"$ref": "http://x.example/a.json#/definitions/D"}', [reference])
    assert [each.name for each in schema.references] == ["http://x.example/a.json"]
    inner = ResolvedReference("b.json", "b", 1, '{"type": "string"}', direct=False)
    outer = ResolvedReference("a.json", "a", 1, '{"$ref": "b.json"}')
    assert len(parse(JSON, '{"$id": "http://x.example/root.json", "$ref": "a.json"}', [inner, outer]).references) == 1


def test_sr11_limits() -> None:
    with pytest.raises(SchemaTooLarge):
        parse(JSON, '{"title": "' + "x" * (1 << 20) + '"}')
    for deep in ('{"not":' * 150 + "{}" + "}" * 150, '{"a":' * 100_000):
        with pytest.raises(InvalidSchema, match="deeper"):
            parse(JSON, deep)
    assert parse(JSON, '{"not":' * 60 + "{}" + "}" * 60)


def test_sr11_a_pattern_that_backtracks_costs_nothing() -> None:
    slow = '{"type": "object", "patternProperties": {"^(a+)+$": {"type": "string"}}, "properties": {"' + "a" * 40 + '!": {}}}'
    from ottla.schemas.compatibility import incompatibilities

    incompatibilities(parse(JSON, slow), parse(JSON, slow.replace('"string"', '"integer"')))


@pytest.mark.parametrize(
    "old", ['{"$ref": "gone.json"}', '{"type": "object", "allOf": ["x", 1]}', '{"type": "text", "$ref": "%zz"}']
)
def test_a_broken_schema_of_an_older_registry_gets_a_verdict(old: str) -> None:
    from ottla.schemas.compatibility import incompatibilities

    writer = parse(JSON, old, lenient=True)
    assert incompatibilities(parse(JSON, '{"type": "object", "properties": {"a": {"type": "string"}}}'), writer)
    assert not incompatibilities(writer, parse(JSON, old, lenient=True))


def test_what_was_registered_before_is_read_leniently() -> None:
    assert parse(JSON, '{"type": "text", "$ref": "gone.json"}', lenient=True).canonical
