"""The columns of a reader's schema, and the steps that read a writer's values into them, by Avro's rules of schema resolution.

What Spark has a type for can be read: no recursive types, and no unions but of null and one type. What the two schemas disagree
about is refused where it is met: a branch of a union may have no place in the reader's, as long as no value has it.
"""

from __future__ import annotations

import struct
from typing import Final, TypeVar

from ottla.schemas.avro import reading
from ottla.schemas.avro.columns import (
    BooleanColumn,
    Column,
    ListColumn,
    NullColumn,
    NumberColumn,
    StructColumn,
    TextColumn,
)
from ottla.schemas.avro.compatibility import names_apart, writer_fields
from ottla.schemas.avro.nodes import Array, Enum, Field, Fixed, Map, Node, Primitive, Record, Union
from ottla.schemas.avro.parser import describe
from ottla.schemas.avro.reading import Step
from ottla.schemas.json_text import Json
from ottla.schemas.limits import NESTING_MAX

T = TypeVar("T")

_WIDTHS: Final = {"int": 4, "long": 8, "float": 4, "double": 8}
_DECIMAL_BYTES: Final = 16
_UNITS: Final = {
    "timestamp-millis": 1_000,
    "local-timestamp-millis": 1_000,
    "timestamp-micros": 1,
    "local-timestamp-micros": 1,
}
"""The times that become a column of microseconds."""


class Unreadable(ValueError):
    """A reader's schema cannot read a writer's. The text says why."""


def columns(reader: Node) -> StructColumn:
    """The columns of a reader's record. A schema that is no record has the only column `value`."""
    column = _column(reader, 0)
    return column if isinstance(reader, Record) and isinstance(column, StructColumn) else StructColumn([column])


def step(reader: Node, writer: Node, column: StructColumn) -> Step:
    """Reads values of the writer into `columns(reader)`. Unreadable."""
    if isinstance(reader, Record):
        return _step(reader, writer, column)
    return reading.ReadRecord(column, [_step(reader, writer, column.fields[0])])


def _plain(reader: Node) -> Node:
    """The one type of a union with null."""
    if not isinstance(reader, Union):
        return reader
    kinds = [each for each in reader.branches if each.kind != "null"]
    if len(kinds) > 1:
        raise Unreadable(f"a union of {len(kinds)} types has no type of a column")
    return kinds[0] if kinds else reader.branches[0]


def _column(reader: Node, depth: int) -> Column:
    if depth > NESTING_MAX:
        raise Unreadable("a type within itself has no type of a column")
    node = _plain(reader)
    if isinstance(node, Record):
        return StructColumn([_column(each.type, depth + 1) for each in node.fields])
    if isinstance(node, Array):
        return ListColumn([_column(node.items, depth + 1)])
    if isinstance(node, Map):
        return ListColumn([TextColumn(), _column(node.values, depth + 1)])
    if _decimal(node) is not None:
        return NumberColumn(_DECIMAL_BYTES)
    if node.kind == "null":
        return NullColumn()
    if node.kind == "boolean":
        return BooleanColumn()
    return NumberColumn(_WIDTHS[node.kind]) if node.kind in _WIDTHS else TextColumn()


def _step(reader: Node, writer: Node, column: Column) -> Step:
    if isinstance(writer, Union):
        branches: list[Step] = []
        troubles = []
        for branch in writer.branches:
            try:
                branches.append(_step(reader, branch, column))
            except Unreadable as error:
                branches.append(reading.Refusal(str(error)))
                troubles.append(error)
        if len(troubles) == len(branches):
            raise troubles[0] if troubles else Unreadable("the writer's union has no branches")
        return reading.ReadUnion(branches)
    if writer.kind == "null" and (reader.kind == "null" or _takes_null(reader)):
        return reading.ReadNull(column)
    return _step_of_type(_plain(reader), writer, column)


def _takes_null(reader: Node) -> bool:
    return isinstance(reader, Union) and any(each.kind == "null" for each in reader.branches)


def _step_of_type(reader: Node, writer: Node, column: Column) -> Step:
    if isinstance(reader, Record) and isinstance(writer, Record):
        assert isinstance(column, StructColumn)
        _require_name(reader, writer)
        return _record(reader, writer, column)
    if isinstance(reader, Array) and isinstance(writer, Array):
        assert isinstance(column, ListColumn)
        return reading.ReadArray(column, _step(reader.items, writer.items, column.parts[0]))
    if isinstance(reader, Map) and isinstance(writer, Map):
        assert isinstance(column, ListColumn)
        key = column.parts[0]
        assert isinstance(key, TextColumn)
        return reading.ReadMap(column, reading.ReadBytes(key, True), _step(reader.values, writer.values, column.parts[1]))
    if isinstance(reader, Enum) and isinstance(writer, Enum):
        assert isinstance(column, TextColumn)
        _require_name(reader, writer)
        other = None if reader.default is None else reader.default.encode()
        known = frozenset(reader.symbols)
        return reading.ReadEnum(column, [each.encode() if each in known else other for each in writer.symbols])
    if isinstance(reader, Fixed) and isinstance(writer, Fixed):
        _require_name(reader, writer)
        if reader.size != writer.size:
            raise Unreadable(f"fixed {reader.name.full} has {reader.size} bytes, the writer's has {writer.size}")
        if _decimal(reader) is None:
            assert isinstance(column, TextColumn)
            is_uuid = _logical(reader) == "uuid" and reader.size == 16
            return reading.ReadUuid(column) if is_uuid else reading.ReadFixed(column, reader.size)
    if _decimal(reader) is not None and writer.kind == reader.kind:
        assert isinstance(column, NumberColumn)
        return _decimal_step(reader, writer, column)
    found = _primitive(reader, writer.kind, writer, column)
    if found is None:
        raise Unreadable(f"the reader's {describe(reader)} does not read the writer's {describe(writer)}")
    return found


def _primitive(reader: Node, written: str, writer: Node, column: Column) -> Step | None:
    wanted = reader.kind
    if isinstance(column, NumberColumn):
        if wanted == written == "int":
            return reading.ReadInt(column)
        if wanted == "long" and written in ("int", "long"):
            return _long(reader, writer, column)
        if wanted == "float" and written in ("int", "long", "float"):
            return reading.ReadFloat(column, written != "float")
        if wanted == "double" and written in ("int", "long", "float", "double"):
            return reading.ReadDouble(column, _WIDTHS[written] if written in ("float", "double") else 0)
    if isinstance(column, BooleanColumn) and wanted == written == "boolean":
        return reading.ReadBoolean(column)
    if isinstance(column, TextColumn) and wanted in ("string", "bytes") and written in ("string", "bytes"):
        return reading.ReadBytes(column, wanted == "string")
    return None


def _long(reader: Node, writer: Node, column: NumberColumn) -> Step:
    """A long, or a time in microseconds. The writer's unit counts, if it names one."""
    unit = _UNITS.get(_logical(reader))
    if unit is None:
        return reading.ReadLong(column)
    return reading.ReadLong(column, _UNITS.get(_logical(writer), unit))


def _decimal_step(reader: Node, writer: Node, column: NumberColumn) -> Step:
    wanted, written = _decimal(reader), _decimal(writer)
    assert wanted is not None
    precision, scale = wanted
    factor = scale - (written[1] if written is not None else scale)
    if factor < 0:
        raise Unreadable(f"the reader's decimal has the scale {scale}, which is less than the writer's")
    return reading.ReadDecimal(column, writer.size if isinstance(writer, Fixed) else 0, precision, 10**factor)


def _record(reader: Record, writer: Record, column: StructColumn) -> Step:
    target: dict[int, tuple[Field, Column]] = {}
    """By the writer's field."""
    defaults: list[Step] = []
    for field, part in zip(reader.fields, column.fields, strict=True):
        matching = writer_fields(writer, field)
        if matching:
            target.setdefault(id(matching[0]), (field, part))
        elif not field.has_default:
            raise Unreadable(f"field {field.name} has no default, and the writer's record {writer.name.full} has no such field")
        if not matching or target[id(matching[0])][0] is not field:
            try:
                encoded = _encoded(field.type, field.default)
            except (ValueError, TypeError, KeyError, OverflowError, struct.error, RecursionError):
                raise Unreadable(f"the default of field {field.name} does not fit its type") from None
            defaults.append(reading.AddDefault(_step(field.type, field.type, part), encoded))
    steps = []
    skips: dict[int, Step] = {}
    for each in writer.fields:
        found = target.get(id(each))
        steps.append(_step(found[0].type, each.type, found[1]) if found is not None else _skip(each.type, skips))
    return reading.ReadRecord(column, steps + defaults)


def _skip(writer: Node, known: dict[int, Step]) -> Step:
    """Passes a value that the reader does not want. `known` has the records that are met again within themselves."""
    if isinstance(writer, Record):
        if id(writer) not in known:
            record = reading.SkipRecord()
            known[id(writer)] = record
            record.steps += [_skip(each.type, known) for each in writer.fields]
        return known[id(writer)]
    if isinstance(writer, Union):
        return reading.ReadUnion([_skip(each, known) for each in writer.branches])
    if isinstance(writer, Array):
        return reading.SkipBlocks([_skip(writer.items, known)])
    if isinstance(writer, Map):
        return reading.SkipBlocks([reading.SkipBytes(), _skip(writer.values, known)])
    if isinstance(writer, Fixed):
        return reading.SkipFixed(writer.size)
    if writer.kind in ("int", "long", "enum"):
        return reading.SkipLong()
    if writer.kind in ("string", "bytes"):
        return reading.SkipBytes()
    return reading.SkipFixed({"null": 0, "boolean": 1, "float": 4, "double": 8}[writer.kind])


def _encoded(node: Node, value: Json) -> bytes:
    """The default of a field as a value of its type. ValueError, TypeError, KeyError if it is none."""
    if isinstance(node, Union):
        for index, branch in enumerate(node.branches):
            try:
                return _zigzag(index) + _encoded(branch, value)
            except (ValueError, TypeError, KeyError):
                continue
        raise ValueError(value)
    if isinstance(node, Record):
        given: dict[str, Json] = _of(dict, value)
        return b"".join(
            _encoded(each.type, given[each.name] if each.name in given or not each.has_default else each.default)
            for each in node.fields
        )
    if isinstance(node, Array):
        items: list[Json] = _of(list, value)
        return (_zigzag(len(items)) if items else b"") + b"".join(_encoded(node.items, each) for each in items) + b"\0"
    if isinstance(node, Map):
        entries: dict[str, Json] = _of(dict, value)
        parts = [_sized(key.encode()) + _encoded(node.values, each) for key, each in entries.items()]
        return (_zigzag(len(parts)) if parts else b"") + b"".join(parts) + b"\0"
    if isinstance(node, Enum):
        return _zigzag(node.symbols.index(value))  # type: ignore[arg-type]  # ValueError if it is none
    if isinstance(node, Fixed):
        return _of(str, value).encode("latin-1")[: node.size].ljust(node.size, b"\0")  # as Avro's reader in Java
    return _encoded_primitive(node.kind, value)


def _encoded_primitive(kind: str, value: Json) -> bytes:
    if kind == "null" and value is None:
        return b""
    if kind == "boolean":
        return bytes([_of(bool, value)])
    if kind in ("string", "bytes"):
        return _sized(_of(str, value).encode("utf-8" if kind == "string" else "latin-1"))
    if isinstance(value, int | float) and not isinstance(value, bool):
        if kind in ("float", "double"):
            return struct.pack("<f" if kind == "float" else "<d", value)
        if kind in ("int", "long") and value == int(value):
            return _zigzag(int(value))
    raise ValueError(value)


def _of(kind: type[T], value: Json) -> T:
    if not isinstance(value, kind):
        raise TypeError(value)
    return value


def _sized(data: bytes) -> bytes:
    return _zigzag(len(data)) + data


def _zigzag(number: int) -> bytes:
    if not -(2**63) <= number < 2**63:
        raise ValueError(number)
    left = (number << 1) ^ (number >> 63)
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def _require_name(reader: Record | Enum | Fixed, writer: Record | Enum | Fixed) -> None:
    if names_apart(reader, writer):
        raise Unreadable(f"the reader's {reader.kind} is {reader.name.full}, the writer's is {writer.name.full}")


def _logical(node: Node) -> str:
    if isinstance(node, Primitive | Fixed):
        found = node.properties.get("logicalType")
        if isinstance(found, str):
            return found
    return ""


def _decimal(node: Node) -> tuple[int, int] | None:
    """The precision and the scale of a decimal."""
    if _logical(node) != "decimal" or not isinstance(node, Primitive | Fixed) or node.kind not in ("bytes", "fixed"):
        return None
    precision, scale = node.properties.get("precision"), node.properties.get("scale", 0)
    return (precision, scale) if isinstance(precision, int) and isinstance(scale, int) else None
