"""Arrow arrays of Avro values, by the steps of `ottla.schemas.avro.reading`: no Python object for a value or a row.

A batch is read at once. If a value of it is bad, it is read again, each value after a trial.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ottla.errors import MalformedInput
from ottla.schemas.avro.avro_schema import AvroSchema
from ottla.schemas.avro.columns import BooleanColumn, Column, ListColumn, NumberColumn, StructColumn, TextColumn
from ottla.schemas.avro.nodes import Node
from ottla.schemas.avro.reading import Refusal, Rows, Step, Values
from ottla.schemas.avro.resolution import Unreadable, columns, step
from ottla.schemas.work import SchemaText

if TYPE_CHECKING:
    import pyarrow as pa

WriterOf = Callable[[bytes], Node | str]
"""The writer's schema of values with this prefix, or why they are refused."""


@lru_cache(maxsize=100)
def root(schema: SchemaText) -> Node:
    """The parsed schema. InvalidSchema."""
    parsed = schema.parse()
    assert isinstance(parsed, AvroSchema), parsed
    return parsed.root


def decode(
    values: pa.Array, reader: Node, writer_of: WriterOf | None, target: pa.StructType, corrupt: str, headers: Any = None
) -> pa.StructArray:
    """The rows of a batch of values, `corrupt` being the reason why one does not decode. `headers` are their schema headers.

    Without `writer_of` the values are bare: the reader's schema has written them.
    """
    import pyarrow as pa

    given = _values(values, headers)
    for careful in (False, True):
        column, tried = columns(reader), columns(reader)
        trial: dict[bytes, Step] | None = {} if careful else None
        rows = Rows(column, writer_of is not None, trial)
        if writer_of is None:
            _add(rows, trial, b"", reader, reader, tried)
        try:
            while not rows.read(given):
                assert writer_of is not None
                _add(rows, trial, rows.unknown, reader, writer_of(rows.unknown), tried)
        except (MalformedInput, IndexError):
            if careful:
                raise
            continue
        arrays = [_array(each, field.type) for each, field in zip(column.fields, target, strict=False)]
        if careful or _are_valid(arrays):
            break
    refused = rows.refused
    reasons = pa.array([refused.get(row) for row in range(len(values))], pa.string()) if refused else None
    arrays.append(pa.nulls(len(values), pa.string()) if reasons is None else reasons)
    return _struct(arrays, column, target)


def _add(
    rows: Rows, trial: dict[bytes, Step] | None, prefix: bytes, reader: Node, writer: Node | str, tried: StructColumn
) -> None:
    rows.steps[prefix] = _step(reader, writer, rows.column)
    if trial is not None:
        trial[prefix] = _step(reader, writer, tried)


def _step(reader: Node, writer: Node | str, column: StructColumn) -> Step:
    if isinstance(writer, str):
        return Refusal(writer)
    try:
        return step(reader, writer, column)
    except Unreadable as error:
        return Refusal(f"not Avro of the reader's schema: {error}")


def _values(values: Any, headers: Any) -> Values:
    import pyarrow as pa

    if values.type != pa.binary():
        values = values.cast(pa.binary())
    validity, offsets, data = values.buffers()
    return Values(
        data.to_pybytes() if data is not None else b"",
        offsets.to_pybytes() if offsets is not None else bytes(4),
        validity.to_pybytes() if validity is not None and values.null_count else None,
        values.offset,
        len(values),
        headers.to_pylist() if headers is not None and headers.null_count < len(headers) else None,
    )


def _array(column: Column, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    rows, nulls = column.rows, column.nulls

    def made(buffers: list[bytes | None], children: list[pa.Array] | None = None) -> pa.Array:
        parts = [None if each is None else pa.py_buffer(each) for each in buffers]
        return pa.Array.from_buffers(kind, rows, parts, nulls, children=children)

    if isinstance(column, TextColumn):
        return made(list(column.texts.buffers()))
    if isinstance(column, NumberColumn):
        return made([column.validity(), column.data.getvalue()])
    if isinstance(column, BooleanColumn):
        return made([column.validity(), column.data()])
    if isinstance(column, StructColumn):
        return _struct([_array(each, field.type) for each, field in zip(column.fields, kind, strict=True)], column, kind)
    if isinstance(column, ListColumn):
        if pa.types.is_map(kind):
            fields = [kind.key_field, kind.item_field]
            parts = [_array(each, field.type) for each, field in zip(column.parts, fields, strict=True)]
            entries = pa.StructArray.from_arrays(parts, fields=fields)
        else:
            entries = _array(column.parts[0], kind.value_type)
        return made([column.validity(), column.offsets()], [entries])
    return pa.nulls(rows, kind)


def _struct(arrays: list[pa.Array], column: StructColumn, kind: pa.StructType) -> pa.StructArray:
    import pyarrow as pa

    validity = column.validity()
    buffers = [None if validity is None else pa.py_buffer(validity)]
    return pa.Array.from_buffers(kind, column.rows, buffers, column.nulls, children=arrays)


def _are_valid(arrays: list[pa.Array]) -> bool:
    """Whether all strings are UTF-8."""
    import pyarrow as pa

    try:
        for array in arrays:
            array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
