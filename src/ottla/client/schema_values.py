"""Values and keys with a schema: bytes of the wire format from JSON text, and back.

Avro is in Avro's JSON encoding, as Confluent's console tools have it; Protobuf in its own.
"""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ottla.client.avro_arrays import has_endless_array
from ottla.client.schema_registry import WRITING, Registered, SchemaRegistry
from ottla.schemas.framing import (
    PREFIX_BYTES,
    NotFramed,
    SchemaName,
    read_id,
    read_indexes,
    write_guid,
    write_id,
    write_indexes,
)
from ottla.schemas.model import AVRO, JSON, ParsedSchema


class NotOfSchema(ValueError):
    """A value does not fit its schema. The text says why."""


@dataclass(frozen=True, slots=True)
class Codec:
    """How payloads of one schema become JSON text, and back. `prefix` follows the id."""

    prefix: bytes
    to_json: Callable[[bytes], str]
    from_json: Callable[[str], bytes]


@dataclass(frozen=True, slots=True)
class Found:
    """How the payload of values that begin alike is read."""

    schema: Registered
    payload_start: int
    codec: Codec

    def text(self, data: bytes) -> str:
        """The JSON text of a value. NotOfSchema if it does not fit. Asks nobody."""
        try:
            return self.codec.to_json(data[self.payload_start :])
        except NotOfSchema:
            raise
        except Exception as error:
            raise NotOfSchema(f"not {self.schema.schema_type} of schema {self.schema.schema_id}: {error}") from None


class SchemaValues:
    """Decodes and encodes with the schemas of one registry."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self.registry = registry
        self._codecs: dict[tuple[SchemaName, tuple[int, ...]], Codec] = {}

    def decode(self, data: bytes) -> str:
        """The JSON text of a value. NotFramed if it names no schema, NotOfSchema if it does not fit, RegistryFailed."""
        return self.found(data).text(data)

    def found(self, data: bytes) -> Found:
        """The schema of a value. Asks the registry if it is new."""
        framed = read_id(data)
        schema = self.registry.schema(framed.schema_id)
        start = framed.payload_start
        indexes: tuple[int, ...] = (0,)
        if schema.schema_type not in (AVRO, JSON):
            indexes, start = read_indexes(data, start)
        return Found(schema, start, self._codec(framed.schema_id, indexes))

    def encode(self, text: str, schema: Registered) -> bytes:
        """The bytes of a value for a topic. NotOfSchema says why the text does not fit."""
        if refusal := schema.rules_not_run(WRITING):
            raise NotOfSchema(refusal)
        codec = self._codec(schema.schema_id, (0,), schema)
        try:
            payload = codec.from_json(text)
        except NotOfSchema:
            raise
        except Exception as error:
            raise NotOfSchema(f"does not fit schema {schema.schema_id}: {error}") from None
        return write_id(schema.schema_id) + codec.prefix + payload

    def encode_for_header(self, text: str, schema: Registered) -> tuple[bytes, bytes]:
        """The header of a value and its bytes. NotOfSchema says why the text does not fit."""
        data = self.encode(text, schema)
        start = PREFIX_BYTES + len(self._codec(schema.schema_id, (0,), schema).prefix)
        return write_guid(uuid.UUID(schema.guid)) + data[PREFIX_BYTES:start], data[start:]

    def _codec(self, schema_id: SchemaName, indexes: tuple[int, ...], schema: Registered | None = None) -> Codec:
        key = (schema_id, indexes)
        if key not in self._codecs:
            parsed = self.registry.parsed(schema_id) if schema is None else self.registry.parse(schema)
            makers = {AVRO: _avro, JSON: _json_schema}
            make = makers.get(parsed.schema_type)
            self._codecs[key] = make(parsed) if make is not None else _protobuf(parsed, indexes)
        return self._codecs[key]


def avro_document(parsed: ParsedSchema) -> Any:
    """An Avro schema as fastavro takes it: references in it, and defaults of the types that their fields have."""
    return json.loads(parsed.normalized().formatted("resolved"))


def _avro(parsed: ParsedSchema) -> Codec:
    import fastavro

    schema = fastavro.parse_schema(avro_document(parsed), _ignore_default_error=True)

    endless = has_endless_array(schema)

    def to_json(payload: bytes) -> str:
        if endless:
            raise NotOfSchema("it may be of any length: an array of the schema has items that take no bytes")
        stream = io.BytesIO(payload)
        value = fastavro.schemaless_reader(stream, schema, None)
        rest = len(payload) - stream.tell()
        if rest:
            raise NotOfSchema(f"{rest} bytes after the Avro value")
        out = io.StringIO()
        fastavro.json_writer(out, schema, [value])
        return out.getvalue().strip()

    def from_json(text: str) -> bytes:
        [value] = fastavro.json_reader(io.StringIO(text), schema)
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, value)
        return out.getvalue()

    return Codec(b"", to_json, from_json)


def _json_schema(parsed: ParsedSchema) -> Codec:
    from jsonschema.exceptions import best_match

    from ottla.schemas.json_schema.json_schema import JsonSchema

    assert isinstance(parsed, JsonSchema), parsed
    validator = parsed.root.dialect.validator(parsed.root.value, _resolver=parsed.root.resolver)

    def from_json(text: str) -> bytes:
        value = json.loads(text)
        worst = best_match(validator.iter_errors(value))
        if worst is not None:
            raise NotOfSchema(f"{worst.json_path}: {worst.message}")
        return text.encode()

    return Codec(b"", lambda payload: json.dumps(json.loads(payload), ensure_ascii=False), from_json)


def message_class(parsed: ParsedSchema, indexes: tuple[int, ...]) -> Any:
    """The class of the message at these indexes of a Protobuf schema."""
    from google.protobuf import message_factory

    from ottla.schemas.protobuf.protobuf_schema import ProtobufSchema

    assert isinstance(parsed, ProtobufSchema), parsed
    name = parsed.message_name(indexes)
    if name is None:
        raise NotFramed(f"the schema has no message at the indexes {list(indexes)}")
    return message_factory.GetMessageClass(parsed.linked.pool.FindMessageTypeByName(name))


def _protobuf(parsed: ParsedSchema, indexes: tuple[int, ...]) -> Codec:
    from google.protobuf import json_format

    message = message_class(parsed, indexes)

    def to_json(payload: bytes) -> str:
        found = message.FromString(payload)
        return str(json_format.MessageToJson(found, indent=None, preserving_proto_field_name=True, ensure_ascii=False))

    def from_json(text: str) -> bytes:
        return bytes(json_format.Parse(text, message()).SerializeToString())

    return Codec(write_indexes(indexes), to_json, from_json)
