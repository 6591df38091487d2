"""Text and validity of Avro schemas. tests/differential/test_avro.py compares them with Java's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.schemas.limits import SchemaTooLarge
from ottla.schemas.model import AVRO, InvalidSchema, ResolvedReference
from ottla.schemas.parsing import parse


def text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def record(*fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": list(fields)} | more


def field(name: str, type: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type} | more


def test_sr05_a_primitive_type_is_printed_as_its_name() -> None:
    assert parse(AVRO, '{"type": "string"}').canonical == '"string"'


def test_sr05_a_namespace_written_in_two_ways_is_one_schema() -> None:
    one = parse(AVRO, text(record() | {"name": "a.b.R"}))
    other = parse(AVRO, text(record(namespace="a.b")))
    assert one.canonical == other.canonical == '{"type":"record","name":"R","namespace":"a.b","fields":[]}'
    assert one.same_as(other)
    assert one.name == "a.b.R"


def test_sr05_doc_default_aliases_and_order_are_kept() -> None:
    schema = record(field("a", "int", doc="d", default=1, order="ignore", aliases=["b"]), doc="e", aliases=["S"])
    assert json.loads(parse(AVRO, text(schema)).canonical) == schema


def test_sr05_normalized_orders_properties_aliases_and_types_defaults() -> None:
    schema = record(field("a", "double", default=1, z=1, b={"y": 1, "x": 2}), aliases=["T", "S"], doc="")
    assert parse(AVRO, text(schema)).normalized().canonical == (
        '{"type":"record","name":"R","fields":[{"name":"a","type":"double","default":1.0,"b":{"x":2,"y":1},"z":1}],'
        '"aliases":["S","T"]}'
    )


def test_sr05_resolved_has_the_references_in_it() -> None:
    reference = ResolvedReference("a.F", "f", 1, '{"type": "fixed", "name": "a.F", "size": 4}')
    schema = parse(AVRO, text(record(field("f", "a.F"))), [reference])
    assert '"size":4' in schema.formatted("resolved")
    assert schema.formatted("") == schema.formatted("unknown") == schema.canonical


@pytest.mark.parametrize(
    ("schema", "path", "reason"),
    [
        ("{", "", "not JSON"),
        ('"Unknown"', "", "Unknown is not defined"),
        (record(field("a", "Missing")), "/fields/0/type", "Missing is not defined"),
        (record(field("a", "int", default="1")), "/fields/0", 'the default "1" is no int'),
        (record(field("a", ["null", "int"], default="x")), "/fields/0", "is no union of null, int"),
        (record(field("a-b", "int")), "/fields/0", "field name"),
        (record() | {"name": "a-b.R"}, "", "namespace"),
        (record(field("a", "int"), field("a", "int")), "", "the field a twice"),
        ({"type": "enum", "name": "E", "symbols": ["A", "A"]}, "", "the symbol A twice"),
        ({"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}, "", "none of its symbols"),
        (["null", "null"], "", "null twice"),
        ({"type": "fixed", "name": "F", "size": "4"}, "", "size"),
        (record(field("a", {"type": "record", "name": "R", "fields": []}), field("b", "int")), "", "in two ways"),
    ],
)
def test_av09_an_invalid_schema_says_where_and_why(schema: Any, path: str, reason: str) -> None:
    with pytest.raises(InvalidSchema) as refused:
        parse(AVRO, text(schema))
    assert refused.value.path == path
    assert reason in refused.value.reason


def test_av09_what_an_old_registry_accepted_is_still_read() -> None:
    old = text(record(field("a-b", "int", default="x")))
    assert parse(AVRO, old, lenient=True).canonical == old.replace(" ", "")


def test_av09_a_broken_reference_is_named() -> None:
    with pytest.raises(InvalidSchema, match=r"reference F \(f version 2\): .*not JSON"):
        parse(AVRO, '"int"', [ResolvedReference("F", "f", 2, "{")])


def test_sr11_size_references_and_nesting_are_limited() -> None:
    with pytest.raises(SchemaTooLarge, match="bytes, over the limit"):
        parse(AVRO, '"int"' + " " * (1 << 20))
    with pytest.raises(SchemaTooLarge, match="1,001 others"):
        parse(AVRO, '"int"', [ResolvedReference(str(n), "s", 1, '"int"') for n in range(1001)])
    for deep in ('{"type":"array","items":' * 101 + '"int"' + "}" * 101, "[" * 500_000, '{"a":' * 200_000):
        with pytest.raises(InvalidSchema, match=r"nests? deeper"):
            parse(AVRO, deep)
    assert parse(AVRO, '{"type":"array","items":' * 99 + '"int"' + "}" * 99)


def test_sr11_a_default_without_end_is_refused() -> None:
    with pytest.raises(InvalidSchema):
        parse(AVRO, text(record(field("a", "R", default={}))))


@pytest.mark.parametrize(
    "schema", ['{"type":"int","a":NaN}', '{"type":"int","a":"\\ud800"}', '{"type":"int","a":' + "9" * 5000 + "}"]
)
def test_sr11_what_cannot_be_stored_is_refused(schema: str) -> None:
    with pytest.raises(InvalidSchema):
        parse(AVRO, schema)
