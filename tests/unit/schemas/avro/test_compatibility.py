"""Verdicts on Avro schemas, each with its path, rule and remedy. tests/differential/test_avro.py compares them with Java's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.schemas.compatibility import incompatibilities
from ottla.schemas.model import AVRO, Incompatibility, ResolvedReference
from ottla.schemas.parsing import parse


def compare(reader: Any, writer: Any) -> list[Incompatibility]:
    return incompatibilities(parse(AVRO, json.dumps(reader)), parse(AVRO, json.dumps(writer)))


def rules(reader: Any, writer: Any) -> list[tuple[str, str]]:
    return [(each.rule, each.path) for each in compare(reader, writer)]


def record(*fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": list(fields)} | more


def field(name: str, type: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type} | more


def enum(*symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": list(symbols)} | more


@pytest.mark.parametrize(
    ("reader", "writers"),
    [
        ("int", {"int"}),
        ("long", {"int", "long"}),
        ("float", {"int", "long", "float"}),
        ("double", {"int", "long", "float", "double"}),
        ("string", {"string", "bytes"}),
        ("bytes", {"string", "bytes"}),
        ("boolean", {"boolean"}),
        ("null", {"null"}),
    ],
)
def test_av01_types_that_are_promoted(reader: str, writers: set[str]) -> None:
    primitives = ["null", "boolean", "int", "long", "float", "double", "string", "bytes"]
    assert {each for each in primitives if not compare(reader, each)} == writers


def test_av02_a_new_field_needs_a_default_that_a_reader_can_use() -> None:
    old = record(field("a", "int"))
    assert rules(record(field("a", "int"), field("b", "int")), old) == [("READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/1")]
    assert not compare(record(field("b", "int", default=1)), old)
    assert not compare(record(field("b", ["null", "int"], default=None)), old)
    assert not compare(record(), old), "a field may go"
    assert rules(record(field("b", enum("X"), default="Y")), old) == [("READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/0")]
    [found] = compare(record(field("b", "int")), old)
    assert "b has no default" in found.message
    assert "give b a default" in found.remedy


def test_av03_names_are_equal_or_aliases_of_the_reader() -> None:
    assert rules(record() | {"name": "S"}, record()) == [("NAME_MISMATCH", "/name")]
    assert not compare(record(aliases=["R"]) | {"name": "S"}, record())
    assert not compare(record(field("b", "int", aliases=["a"])), record(field("a", "int")))
    assert rules(record(field("b", "int", aliases=["a", "c"])), record(field("a", "int"), field("c", "int"))) == [
        ("READER_FIELD_AMBIGUOUS", "/fields/0")
    ]


def test_av04_symbols_of_the_writer_are_known_or_there_is_a_default() -> None:
    assert rules(enum("A"), enum("A", "B")) == [("MISSING_ENUM_SYMBOLS", "/symbols")]
    assert not compare(enum("A", default="A"), enum("A", "B"))
    assert not compare(enum("A", "B"), enum("A"))


def test_av05_a_fixed_keeps_its_size() -> None:
    fixed = {"type": "fixed", "name": "F", "size": 4}
    assert rules(fixed, fixed | {"size": 8}) == [("FIXED_SIZE_MISMATCH", "/size")]


def test_av06_unions_by_branches() -> None:
    assert not compare(["null", "long"], ["int", "null"])
    assert not compare(["null", "string"], "string")
    assert not compare("long", ["int", "long"]), "every branch of the writer is read"
    assert rules("long", ["int", "string"]) == [("TYPE_MISMATCH", "/1")]
    assert rules(["null", "int"], ["int", "string"]) == [("MISSING_UNION_BRANCH", "/1")]
    assert rules(["null", "int"], "string") == [("MISSING_UNION_BRANCH", "/")]


def node(*fields: dict[str, Any]) -> dict[str, Any]:
    return record(field("next", ["null", "R"], default=None), *fields)


def test_av07_recursive_schemas_end() -> None:
    assert not compare(node(field("a", "long")), node(field("a", "int")))
    found = rules(node(field("a", "int")), node(field("a", "string")))
    assert ("TYPE_MISMATCH", "/fields/1/type") in found


def test_av07_what_rests_on_a_refuted_assumption_is_compared_again() -> None:
    """The list within the first field is compatible only while A counts as such; Java's checker remembers that."""

    def schema(value: str, *, other: bool) -> dict[str, Any]:
        items = {"type": "record", "name": "L", "fields": [field("a", ["null", "A"], default=None)]}
        first = {"type": "record", "name": "A", "fields": [field("list", items), field("value", value)]}
        union = [first, {"type": "record", "name": "B", "fields": []}] if other else first
        return record(field("one", union), field("two", "L"))

    reader, writer = schema("int", other=True), schema("string", other=False)
    assert ("MISSING_UNION_BRANCH", "/fields/1/type/fields/0/type/1") in rules(reader, writer)


def test_av08_logical_types_docs_and_order_are_not_seen() -> None:
    date = {"type": "int", "logicalType": "date"}
    assert not compare("int", date)
    assert not compare(record(field("a", date, doc="day", order="ignore")), record(field("a", "int"), doc="words"))


def test_sr07_references_take_part() -> None:
    reference = ResolvedReference("a.F", "f", 1, '{"type": "fixed", "name": "a.F", "size": 4}')
    schema = parse(AVRO, json.dumps(record(field("f", "a.F"))), [reference])
    assert schema.canonical == '{"type":"record","name":"R","fields":[{"name":"f","type":"a.F"}]}'
    assert [(each.name, each.subject, each.version) for each in schema.references] == [("a.F", "f", 1)]
    other = ResolvedReference("a.F", "f", 2, '{"type": "fixed", "name": "a.F", "size": 8}')
    changed = parse(AVRO, json.dumps(record(field("f", "a.F"))), [other])
    assert [each.rule for each in incompatibilities(changed, schema)] == ["FIXED_SIZE_MISMATCH"]
    assert not schema.same_as(changed), "the text is the same, the reference is not"
