"""Columns of values that name their schema by its id in a schema registry, decoded and encoded in Arrow batches.

Each value is read by the schema of its own id and resolved to the reader's, so that versions may mix in a topic. A worker asks
the registry once for each id. What cannot be read becomes a row with the reason; a registry that does not answer fails the task,
which Spark tries again.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ottla.client.schema_registry import READING, WRITING, Registered, RegistryFailed, RegistryOptions, SchemaRegistry
from ottla.pipelines import avro_arrow, avro_columns
from ottla.pipelines.definitions import Sink
from ottla.pipelines.failure import PipelineError, Place
from ottla.pipelines.values import Framed
from ottla.schemas.avro.avro_schema import AvroSchema
from ottla.schemas.avro.nodes import Node
from ottla.schemas.framing import (
    GUID_BYTES,
    KEY_HEADER,
    PREFIX_BYTES,
    VALUE_HEADER,
    NotFramed,
    prefix_of,
    read_id,
    write_guid,
    write_id,
    write_indexes,
)
from ottla.schemas.model import AVRO, JSON, PROTOBUF, InvalidSchema, ParsedSchema
from ottla.schemas.work import SchemaText

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

Decode: TypeAlias = "Callable[[list[bytes]], list[dict[str, Any] | str]]"
"""Reads values of one id: each becomes the fields of a row, or the reason why it does not decode."""


@lru_cache(maxsize=16)
def connected(options: RegistryOptions) -> SchemaRegistry:
    """The client of this process for a registry. What it learned stays for later tasks of the worker."""
    return SchemaRegistry(options)


def options_of(value: Framed, place: Place) -> RegistryOptions:
    try:
        options = RegistryOptions.of(dict(value.registry))
        SchemaRegistry(options)
    except ValueError as error:
        raise PipelineError(str(error), place, hint='write registry="http://host:8081"') from None
    return options


def reader_schema(value: Framed, place: Place) -> SchemaText:
    """The schema that a source reads with: the one given, or the version of the subject."""
    options = options_of(value, place)
    if value.schema is not None:
        return SchemaText(value.schema_type, value.schema)
    registered = _version(value, options, place)
    if refusal := registered.rules_not_run(READING):
        raise PipelineError(refusal, place, hint="with schema=… values are read as they are stored")
    try:
        references = tuple(connected(options).resolved(registered.references))
    except RegistryFailed as error:
        raise PipelineError(str(error), place) from None
    return SchemaText(registered.schema_type, registered.text, references, lenient=True)


def _version(value: Framed, options: RegistryOptions, place: Place) -> Registered:
    try:
        found = connected(options).version(value.subject, value.version)
    except RegistryFailed as error:
        hint = "give schema=…, or register one: ottla schema register" if error.code in (40401, 40402) else None
        raise PipelineError(str(error), place, hint=hint) from None
    if found.schema_type != (value.schema_type or found.schema_type):
        raise PipelineError(f"subject {value.subject!r} has {found.schema_type} schemas, not {value.schema_type}", place)
    return found


class Written(NamedTuple):
    """The schema that values are written with, and the bytes that name it: before the payload, or in a header."""

    schema: SchemaText
    prefix: bytes
    header: bytes | None


def written_schema(value: Framed, place: Place) -> Written:
    """What a sink writes with. A schema that is given is registered."""
    client = connected(options_of(value, place))
    if value.schema is None:
        found = _version(value, client.options, place)
    else:
        try:
            client.register(value.subject, value.schema_type, value.schema)
            found = client.lookup(value.subject, value.schema_type, value.schema)
        except RegistryFailed as error:
            raise PipelineError(str(error), place) from None
    if refusal := found.rules_not_run(WRITING):
        raise PipelineError(refusal, place, hint="write with one of them, or to a subject without rules")
    schema = SchemaText(found.schema_type, found.text, tuple(client.resolved(found.references)), lenient=True)
    indexes = write_indexes((0,)) if found.schema_type == PROTOBUF else b""
    if not value.schema_header:
        return Written(schema, write_id(found.schema_id) + indexes, None)
    if not found.guid:
        raise PipelineError("the schema registry gives no GUIDs", place, hint="without schema_header the id is in the value")
    return Written(schema, b"", write_guid(uuid.UUID(found.guid)) + indexes)


def parse(schema: SchemaText, place: Place) -> ParsedSchema:
    try:
        return schema.parse()
    except InvalidSchema as error:
        raise PipelineError(f"the {schema.schema_type} schema does not parse: {error}", place) from None
    except ImportError as error:
        hint = "install it, on the executors too: pip install 'ottla[registry]'"
        raise PipelineError(f"{error.name} is not installed, which {schema.schema_type} needs", place, hint=hint) from None


def ddl(parsed: ParsedSchema, place: Place) -> str:
    """The columns of a schema, as Spark's DDL. A schema that is no record has one column `value`."""
    if parsed.schema_type == AVRO:
        document = avro_columns.as_record(avro_columns.document_of(parsed))
        return ", ".join(f"`{name}` {kind}" for name, kind in avro_columns.ddl_fields(document, place))
    if parsed.schema_type == PROTOBUF:
        from ottla.pipelines import protobuf_columns

        return protobuf_columns.ddl_of(parsed, place)
    from ottla.pipelines import json_schema_columns

    return json_schema_columns.ddl_of(parsed, place)


def header_of(headers: Column, *, key: bool) -> Column:
    """What the headers of a record tell of the schema of its key or value."""
    from pyspark.sql import functions as F

    name = KEY_HEADER if key else VALUE_HEADER
    return F.try_element_at(F.filter(headers, lambda each: each["key"] == name), F.lit(-1))["value"]


def decoded(column: Column, value: Framed, place: Place, corrupt: str, header: Column | None = None) -> tuple[Column, StructType]:
    """The struct of a column of framed values, with `corrupt`, the reason why one does not decode; and the struct's type.

    A `header` that is not null names the schema instead of the bytes before the payload."""
    from pyspark.sql import functions as F

    from ottla.pipelines.reading import struct

    reader = reader_schema(value, place)
    fields = struct(ddl(parse(reader, place), place), place)
    returns = struct(fields, place).add(corrupt, "string")
    if reader.schema_type == JSON:
        # The JVM reads JSON, whose schema only tells the columns.
        whole = column if header is None else F.concat(F.coalesce(header, F.lit(b"")), column)
        by_id = (F.length(whole) >= PREFIX_BYTES) & (F.substring(whole, 1, 1) == F.unhex(F.lit("00")))
        by_guid = (F.length(whole) >= GUID_BYTES) & (F.substring(whole, 1, 1) == F.unhex(F.lit("01")))
        start = F.when(by_guid, GUID_BYTES).otherwise(PREFIX_BYTES) + 1
        text = F.substring(whole, start, F.lit(2**31 - 1 - GUID_BYTES - 1)).cast("string")
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": corrupt}
        found = F.from_json(text, returns, options)
        why = (
            F.when(~(by_id | by_guid), "no value of a schema registry: it does not begin with byte 0 and an id")
            .when(~F.is_valid_utf8(text), "the value is no UTF-8")
            .when(F.try_parse_json(text).isNull(), "the value is no JSON")
            .when(found[corrupt].isNotNull() | found.isNull(), "the value does not fit the schema")
        )
        columns = [found[name].alias(name) for name in fields.fieldNames()]
        return F.when(column.isNotNull(), F.struct(*columns, why.alias(corrupt))), returns
    decode = decoder(options_of(value, place), reader, returns, corrupt)
    return decode(column, F.lit(None).cast("binary") if header is None else header), returns


def decoder(options: RegistryOptions, reader: SchemaText, returns: StructType, corrupt: str) -> Callable[[Any, Any], Column]:
    """An Arrow UDF: bytes, header -> struct of the reader's fields and of `corrupt`, the reason why the bytes do not decode."""

    def decode(values: Any, headers: Any) -> Any:
        from ottla.pipelines.arrow_types import arrow_type

        return decode_batch(values, options, reader, arrow_type(returns), corrupt, headers)

    made: Callable[[Any, Any], Column] = avro_columns.arrow_udf(decode, returns)
    return made


def decode_batch(
    values: Any, options: RegistryOptions, reader: SchemaText, target: Any, corrupt: str, headers: Any = None
) -> Any:
    """The struct array of a batch of values. `headers` are their schema headers."""
    registry = connected(options)
    if reader.schema_type == AVRO:
        return avro_arrow.decode(values, avro_arrow.root(reader), partial(_avro_writer, registry), target, corrupt, headers)
    return _decoded_messages(values, registry, reader, target, corrupt, headers)


def _avro_writer(registry: SchemaRegistry, prefix: bytes) -> Node | str:
    """The schema of values with this prefix, or why they are refused."""
    try:
        writer = _writer(registry, prefix, AVRO)
    except Refused as error:
        return str(error)
    assert isinstance(writer, AvroSchema), writer
    return writer.root


class Refused(Exception):
    """Values with a prefix are refused. The text says why."""


def _writer(registry: SchemaRegistry, prefix: bytes, schema_type: str) -> ParsedSchema:
    """The schema of values with this prefix. Refused."""
    if len(prefix) == 1 and prefix != b"\0":
        prefix += bytes(PREFIX_BYTES - 1)  # of bytes that name no schema `Rows` has kept the first
    try:
        schema_id = read_id(prefix).schema_id
        writer = registry.parsed(schema_id)
    except NotFramed as error:
        raise Refused(f"no value of a schema registry: {error}") from None
    except InvalidSchema as error:
        raise Refused(f"schema {schema_id} does not parse: {error}") from None
    except RegistryFailed as error:
        if error.code == 40403:
            raise Refused(f"the registry has no schema {schema_id}") from None
        raise
    if writer.schema_type != schema_type:
        raise Refused(f"schema {schema_id} is {writer.schema_type}, not {schema_type}")
    return writer


def _decoded_messages(values: Any, registry: SchemaRegistry, reader: SchemaText, target: Any, corrupt: str, headers: Any) -> Any:
    import pyarrow as pa

    rows: list[dict[str, Any] | None] = [None] * len(values)
    # By the bytes in front: a batch has few ids, and reading one takes as long as a part of its value.
    positions: dict[bytes, list[int]] = {}
    data: list[bytes | None] = values.to_pylist()
    if headers is not None and headers.null_count < len(headers):
        data = [
            (header or b"") + value if value is not None else None
            for value, header in zip(data, headers.to_pylist(), strict=True)
        ]
    for position, value in enumerate(data):
        if value is not None:
            positions.setdefault(prefix_of(value), []).append(position)
    for prefix, where in positions.items():
        try:
            decode = _message_decoder(registry, prefix, reader)
        except Refused as error:
            for position in where:
                rows[position] = {corrupt: str(error)}
            continue
        # None of them is null: they have a prefix.
        for position, row in zip(where, decode([data[each] or b"" for each in where]), strict=True):
            rows[position] = {corrupt: row} if isinstance(row, str) else row
    return pa.array(rows, type=target)


@lru_cache(maxsize=1000)
def _message_decoder(registry: SchemaRegistry, prefix: bytes, reader: SchemaText) -> Decode:
    from ottla.pipelines import protobuf_columns

    return protobuf_columns.decoder(_writer(registry, prefix, PROTOBUF), reader.parse(), len(prefix))


class Encoded(NamedTuple):
    """A column of bytes, and the header that names their schema if they do not."""

    column: Column
    header: bytes | None = None


def encoded(columns: Mapping[str, Column], value: Framed, sink: Sink, what: str, present: Column) -> Encoded:
    """The bytes of these columns, null where `present` is false."""
    from pyspark.sql import functions as F

    written = written_schema(value, sink.place)
    wanted = list(columns) if written.schema.schema_type == JSON else fields_of(written.schema, sink.place)
    absent = [name for name in wanted if name not in columns]
    if absent:
        raise PipelineError(f"{what} has no column {absent[0]!r}, which the schema of {value.subject!r} has", sink.place)
    row = F.when(present, F.struct(*(columns[name].alias(name) for name in wanted)))
    return Encoded(_bytes_of(row, written), written.header)


def encoded_struct(column: Column, value: Framed, place: Place) -> Column:
    """The column of framed bytes of a struct column."""
    from pyspark.sql import functions as F

    if value.schema_header:
        hint = 'leave schema_header out, or write with a sink or with format("ottla")'
        raise PipelineError("to_registry makes values, and schema_header puts the schema into a header", place, hint=hint)
    written = written_schema(value, place)
    if written.schema.schema_type == JSON:
        return _bytes_of(column, written)
    fields = F.struct(*(column[name].alias(name) for name in fields_of(written.schema, place)))
    return _bytes_of(F.when(column.isNotNull(), fields), written)


def fields_of(schema: SchemaText, place: Place) -> list[str]:
    """The names of the columns of an Avro or Protobuf schema. A schema that is no record has one column `value`."""
    parsed = parse(schema, place)
    return list(parsed.fields) if parsed.name is not None else ["value"]


def _bytes_of(row: Column, written: Written) -> Column:
    from pyspark.sql import functions as F

    if written.schema.schema_type == JSON:
        # Everything is written, as JSON allows; the JVM does it.
        text = F.to_json(row).cast("binary")
        return F.concat(F.lit(written.prefix), text) if written.prefix else text

    def encode(rows: Any) -> Any:
        return encode_rows(rows, written.schema, written.prefix)

    made: Column = avro_columns.arrow_udf(encode, "binary")(row)
    return made


def encode_rows(rows: Any, schema: SchemaText, prefix: bytes) -> Any:
    """The bytes of an Arrow array of structs. A null struct is null."""
    import pyarrow as pa

    encode_row = _encoder(schema, prefix)
    return pa.array([None if row is None else encode_row(row) for row in rows.to_pylist()], type=pa.binary())


def encode_row(value: Framed, row: Mapping[str, Any], place: Place) -> bytes:
    """The bytes of one row, with the id before the payload."""
    written = written_schema(replace(value, schema_header=False), place)
    return _encoder(written.schema, written.prefix)(dict(row))


@lru_cache(maxsize=100)
def _encoder(schema: SchemaText, prefix: bytes) -> Callable[[dict[str, Any]], bytes]:
    parsed = schema.parse()
    if schema.schema_type == PROTOBUF:
        from ottla.pipelines import protobuf_columns

        return protobuf_columns.encoder(parsed, prefix)
    if schema.schema_type != AVRO:
        import json

        return lambda row: prefix + json.dumps(row, default=str, ensure_ascii=False).encode()
    import fastavro

    document = fastavro.parse_schema(avro_columns.as_record(avro_columns.document_of(parsed)), _ignore_default_error=True)

    def encode(row: dict[str, Any]) -> bytes:
        stream = io.BytesIO()
        stream.write(prefix)
        fastavro.schemaless_writer(stream, document, row)
        return stream.getvalue()

    return encode
