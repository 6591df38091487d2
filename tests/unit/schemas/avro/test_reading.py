"""Avro values in Arrow's columns: fastavro reads the same; what does not decode is refused and changes no other row."""

from __future__ import annotations

import io
import json
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ottla.pipelines import avro_arrow
from ottla.schemas.avro.nodes import Array, Fixed, Map, Node, Record, Union
from ottla.schemas.avro.resolution import Unreadable, columns
from ottla.schemas.compatibility import incompatibilities
from ottla.schemas.framing import write_id
from ottla.schemas.model import AVRO, InvalidSchema
from ottla.schemas.parsing import parse
from ottla.schemas.work import SchemaText
from tests.kit.random_avro import Endless, RandomAvro, RandomData, plain, without_logical_types

PLAIN = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "enum": pa.string(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
}


def root_of(schema: Any) -> Node:
    return avro_arrow.root(SchemaText(AVRO, json.dumps(schema), lenient=True))


def kind_of(node: Node) -> pa.DataType:
    if isinstance(node, Union):
        return kind_of(next((each for each in node.branches if each.kind != "null"), node.branches[0]))
    if isinstance(node, Array):
        return pa.list_(kind_of(node.items))
    if isinstance(node, Map):
        return pa.map_(pa.string(), kind_of(node.values))
    if isinstance(node, Record):
        return pa.struct([pa.field(each.name, kind_of(each.type)) for each in node.fields])
    return PLAIN[node.kind]


def target_of(reader: Node) -> pa.StructType:
    fields = list(kind_of(reader)) if isinstance(reader, Record) else [pa.field("value", kind_of(reader))]
    return pa.struct([*fields, pa.field("bad", pa.string())])


def written(schema: Any, *values: Any) -> list[bytes]:
    parsed = fastavro.parse_schema(schema, _ignore_default_error=True)
    found = []
    for value in values:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, value)
        found.append(out.getvalue())
    return found


def read(values: list[bytes | None], reader: Any, writer: Any, target: pa.StructType | None = None) -> list[Any]:
    """The rows of values of one id."""
    root = root_of(reader)
    data = pa.array([None if each is None else write_id(7) + each for each in values], pa.binary())
    found = avro_arrow.decode(data, root, lambda _: root_of(writer), target or target_of(root), "bad")
    found.validate(full=True)
    rows: list[Any] = found.to_pylist()
    return rows


def as_written(node: Node, value: Any) -> Any:
    """What fastavro read, as a row of the column: it gives defaults as they are in the schema."""
    if value is None:
        return None
    if isinstance(node, Union):
        return as_written(next(each for each in node.branches if each.kind != "null"), value)
    if isinstance(node, Array):
        return [as_written(node.items, each) for each in value]
    if isinstance(node, Map):
        return [(key, as_written(node.values, each)) for key, each in value.items()]
    if isinstance(node, Record):
        return {each.name: as_written(each.type, value.get(each.name, each.default)) for each in node.fields}
    if node.kind in ("bytes", "fixed") and isinstance(value, str):
        return value.encode("latin-1").ljust(node.size if isinstance(node, Fixed) else 0, b"\0")
    if node.kind == "float":
        return struct.unpack("<f", struct.pack("<f", value))[0]
    return value


@given(st.integers(0, 2**32), st.integers(0, 2**32))
@settings(max_examples=200, deadline=None)
def test_co01_every_value_is_read_as_fastavro_reads_it_and_damage_stays_in_its_row(seed: int, damage: int) -> None:
    maker = RandomAvro(seed, [""])
    schema = maker.schema()
    reader, writer = (without_logical_types(plain(each)) for each in (schema, maker.changed(schema)))
    try:
        parsed = [parse(AVRO, json.dumps(each)) for each in (reader, writer)]
        columns(root_of(reader))
        kind_of(root_of(reader))
    except (InvalidSchema, Unreadable, RecursionError):
        assume(False)
    assume(not incompatibilities(parsed[0], parsed[1]))
    try:
        values = [RandomData(seed + number, writer).value(writer) for number in range(5)]
    except Endless:
        assume(False)
    readers, writers = (
        fastavro.parse_schema(json.loads(each.normalized().canonical), _ignore_default_error=True) for each in parsed
    )
    try:
        data = written(writers, *values)
    except ValueError:  # fastavro does not find the branch of a union within a union of records
        assume(False)
    root = root_of(reader)
    expected = []
    for each in data:
        value: Any = fastavro.schemaless_reader(io.BytesIO(each), writers, readers)
        row = as_written(root, value)
        expected.append(row | {"bad": None} if isinstance(root, Record) else {"value": row, "bad": None})
    assert str(read([*data, None], reader, writer)) == str([*expected, None]), "NaN is not equal to itself"

    where, bit = damage % len(data), damage // len(data)
    hurt = bytearray(data[where])
    if damage % 3 == 0 or not hurt:
        hurt = hurt[: bit % (len(hurt) + 1)] + (b"" if damage % 2 else b"xx")
    else:
        hurt[bit // 8 % len(hurt)] ^= 1 << bit % 8
    found = read([*data[:where], bytes(hurt), *data[where + 1 :]], reader, writer)
    assert str(found[:where] + found[where + 1 :]) == str(expected[:where] + expected[where + 1 :])


def test_logical_types_defaults_and_aliases() -> None:
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    fixed = {"type": "fixed", "name": "D", "size": 8, "logicalType": "decimal", "precision": 9, "scale": 2}
    writer = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "ms", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "us", "type": ["null", {"type": "long", "logicalType": "local-timestamp-micros"}]},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "price", "type": decimal},
            {"name": "cost", "type": fixed},
            {"name": "old", "type": "int"},
        ],
    }
    reader = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "ms", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "us", "type": ["null", {"type": "long", "logicalType": "local-timestamp-micros"}]},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "price", "type": {**decimal, "scale": 4}},
            {"name": "cost", "type": fixed},
            {"name": "new", "type": "long", "aliases": ["old"]},
            {"name": "tags", "type": {"type": "map", "values": "int"}, "default": {"a": 1}},
            {"name": "raw", "type": "bytes", "default": "\u00ff"},
            {"name": "inner", "type": {"type": "record", "name": "I", "fields": [{"name": "x", "type": "double", "default": 2}]},
             "default": {}},
        ],
    }  # fmt: skip
    target = pa.struct(
        [
            ("ms", pa.timestamp("us", "UTC")),
            ("us", pa.timestamp("us")),
            ("day", pa.date32()),
            ("price", pa.decimal128(9, 4)),
            ("cost", pa.decimal128(9, 2)),
            ("new", pa.int64()),
            ("tags", pa.map_(pa.string(), pa.int32())),
            ("raw", pa.binary()),
            ("inner", pa.struct([("x", pa.float64())])),
            ("bad", pa.string()),
        ]
    )
    moment = datetime(2026, 1, 1, 12, tzinfo=UTC)
    value = {"ms": moment, "us": moment.replace(tzinfo=None), "day": date(1969, 12, 31), "cost": Decimal("-1.25"), "old": -3}
    data = written(writer, {**value, "price": Decimal("12.34")}, {**value, "us": None, "price": Decimal("9999999.99")})
    first, second = read(list(data), reader, writer, target)
    assert (first["ms"], first["us"], first["day"]) == (moment, moment.replace(tzinfo=None), date(1969, 12, 31))
    assert (first["price"], first["cost"], first["new"]) == (Decimal("12.3400"), Decimal("-1.25"), -3)
    assert (first["tags"], first["raw"], first["inner"], first["bad"]) == ([("a", 1)], b"\xff", {"x": 2.0}, None)
    assert second["bad"] == "not Avro of its schema: a decimal has more digits than its precision"


@pytest.mark.parametrize(
    ("writer", "data", "reason"),
    [
        ("string", b"\x02\xff", "a string is no UTF-8"),
        ("string", b"\x01", "a length is negative"),
        ("string", b"\x0aab", "the value ends too early"),
        ("boolean", b"\x02", "2 is no boolean"),
        ("int", b"\xff\xff\xff\xff\xff\x7f", "is no int"),
        ("long", b"\xff" * 11, "does not fit 64 bits"),
        (["null", "string"], b"\x08", "4 is no branch of the union"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02", "1 is no symbol of the enum"),
        ({"type": "array", "items": "null"}, b"\xfe\xff\xff\xff\x0f\0", "the value ends too early"),
        ({"type": "array", "items": "int"}, b"\xff" * 9 + b"\1\0", "the value ends too early"),
        ({"type": "map", "values": "int"}, b"\x02\x02a", "the value ends too early"),
        ("int", b"\x02\x02", "1 bytes after it"),
    ],
)
def test_hostile_values_have_reasons(writer: Any, data: bytes, reason: str) -> None:
    good = {"enum": b"\0", "array": b"\0", "map": b"\0"}.get(writer["type"] if isinstance(writer, dict) else "", b"\0")
    found = read([good, data, good], writer, writer)
    assert reason in found[1]["bad"]
    assert found[1]["value"] is None
    assert [found[0]["bad"], found[2]["bad"]] == [None, None]


def test_a_record_within_itself_that_the_reader_does_not_want_is_passed_to_a_depth() -> None:
    node = {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}
    writer = {"type": "record", "name": "R", "fields": [{"name": "list", "type": ["null", node]}, {"name": "id", "type": "int"}]}
    reader = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}
    found = read([b"\2\2\2\0\6", b"\2" * 100_000 + b"\0\6", b"\0\6"], reader, writer)
    assert [row["id"] for row in found] == [3, None, 3]
    assert "too deep" in found[1]["bad"]


def test_what_the_reader_has_no_place_for_is_refused_where_a_value_has_it() -> None:
    found = read([b"\0\2", b"\2\2a"], ["null", "long"], ["int", "string"])
    assert found[0] == {"value": 1, "bad": None}
    assert "does not read the writer's" in found[1]["bad"]
    [row] = read([b"\0"], {"type": "record", "name": "A", "fields": []}, {"type": "record", "name": "B", "fields": []})
    assert row["bad"] == "not Avro of the reader's schema: the reader's record is A, the writer's is B"
