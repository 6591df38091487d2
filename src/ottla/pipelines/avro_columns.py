"""Avro columns: their types, decoding (`avro_arrow`), and encoding with fastavro (`ottla[avro]`, needed on the executors too).

Spark's own Avro functions need a jar that the pyspark wheel does not have.
"""

from __future__ import annotations

import io
import json
from typing import Any

from ottla.pipelines.failure import PipelineError, Place
from ottla.schemas.model import AVRO, InvalidSchema, ParsedSchema
from ottla.schemas.work import SchemaText

_PLAIN = {
    "null": "void",
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "string": "string",
    "fixed": "binary",
    "enum": "string",
}
_LOGICAL = {
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "local-timestamp-millis": "timestamp_ntz",
    "local-timestamp-micros": "timestamp_ntz",
    "date": "date",
    "uuid": "string",
}


def parse(schema: str, place: Place) -> Any:
    """The schema as parsed by fastavro. PipelineError says what is wrong with it."""
    try:
        import fastavro
    except ImportError:
        raise PipelineError(
            "fastavro is not installed", place, hint="install it, on the executors too: pip install 'ottla[avro]'"
        ) from None
    try:
        parsed = fastavro.parse_schema(json.loads(schema))
    except json.JSONDecodeError as error:
        raise PipelineError(f"the Avro schema is not JSON: {error}", place) from None
    except Exception as error:
        raise PipelineError(f"the Avro schema does not parse: {type(error).__name__}: {error}", place) from None
    from ottla.pipelines import avro_arrow

    try:
        avro_arrow.root(SchemaText(AVRO, schema, lenient=True))  # which reads the values
    except InvalidSchema as error:
        raise PipelineError(f"the Avro schema does not parse: {error}", place) from None
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise PipelineError("the Avro schema of a value must be a record", place)
    return parsed


def ddl_fields(schema: Any, place: Place) -> list[tuple[str, str]]:
    """The record's fields and their Spark types."""
    names: dict[str, Any] = {}
    _type(schema, names, place)
    return [(field["name"], _type(field["type"], names, place)) for field in schema["fields"]]


def _type(schema: Any, names: dict[str, Any], place: Place) -> str:
    if isinstance(schema, list):
        kinds = [each for each in schema if each != "null"]
        if len(kinds) != 1:
            raise PipelineError(
                f"an Avro union of {len(kinds)} types has no Spark type", place, hint="use a union of null and one type"
            )
        return _type(kinds[0], names, place)
    if isinstance(schema, str):
        if schema in _PLAIN:
            return _PLAIN[schema]
        if schema not in names:
            raise PipelineError(f"Avro type {schema!r} is not defined", place)
        return _type(names[schema], {name: known for name, known in names.items() if name != schema}, place)
    kind = schema["type"]
    if "name" in schema:
        names[schema["name"]] = schema
    logical = schema.get("logicalType")
    if logical == "decimal":
        return f"decimal({schema['precision']},{schema.get('scale', 0)})"
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if kind == "record":
        inner = ", ".join(f"`{field['name']}`: {_type(field['type'], names, place)}" for field in schema["fields"])
        return f"struct<{inner}>"
    if kind == "array":
        return f"array<{_type(schema['items'], names, place)}>"
    if kind == "map":
        return f"map<string, {_type(schema['values'], names, place)}>"
    return _type(kind, names, place)


def document_of(parsed: ParsedSchema) -> Any:
    """The JSON of a schema of the registry, with what it refers to."""
    from ottla.client.schema_values import avro_document

    return avro_document(parsed)


def as_record(document: Any) -> Any:
    """The schema as a record. One of another type becomes that of the only field, `value`, whose bytes are the same."""
    if isinstance(document, dict) and document.get("type") == "record":
        return document
    return {"type": "record", "name": "Value", "fields": [{"name": "value", "type": document}]}


def decoder(schema: str, returns: Any, corrupt: str) -> Any:
    """An Arrow UDF: bytes -> struct of the fields and of `corrupt`, the reason why the bytes do not decode."""

    def decode(values: Any) -> Any:
        from ottla.pipelines import avro_arrow
        from ottla.pipelines.arrow_types import arrow_type

        root = avro_arrow.root(SchemaText(AVRO, schema, lenient=True))
        return avro_arrow.decode(values, root, None, arrow_type(returns), corrupt)

    return arrow_udf(decode, returns)


def encoder(schema: Any) -> Any:
    """An Arrow UDF: struct -> bytes. A null struct is null."""

    def encode(rows: Any) -> Any:
        import fastavro
        import pyarrow as pa

        encoded: list[bytes | None] = []
        for row in rows.to_pylist():
            if row is None:
                encoded.append(None)
                continue
            stream = io.BytesIO()
            fastavro.schemaless_writer(stream, schema, row)
            encoded.append(stream.getvalue())
        return pa.array(encoded, type=pa.binary())

    return arrow_udf(encode, "binary")


def arrow_udf(function: Any, returns: Any) -> Any:
    """The UDF of a function from an Arrow array to another."""
    import pyarrow as pa
    from pyspark.sql.pandas.functions import arrow_udf

    # PySpark finds the kind of a UDF by its type hints, which must be types, not strings.
    function.__annotations__ = dict.fromkeys([*function.__annotations__], pa.Array)
    return arrow_udf(function, returnType=returns)
