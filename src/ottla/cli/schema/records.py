"""Records with schemas of a registry: what `ottla produce --schema` writes and `ottla consume --schema` reads.

A value is JSON: Avro in Avro's JSON encoding, as Confluent's console tools have it, Protobuf in its own.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.cli.failure import EXIT_USAGE, Failure
from ottla.cli.formats import Incoming, Outgoing
from ottla.cli.options import read_text_or_stdin

if TYPE_CHECKING:
    from ottla.client.schema_registry import Registered, SchemaRegistry
    from ottla.records.record import Headers

SUFFIXES = {".avsc": "AVRO", ".json": "JSON", ".proto": "PROTOBUF"}
"""The type of a schema by the name of its file."""


class SchemaReader:
    """Makes JSON text of keys and values that name a schema. Others stay as they are."""

    def __init__(self, registry: SchemaRegistry) -> None:
        from ottla.client.schema_values import SchemaValues

        self._values = SchemaValues(registry)

    def concerns(self, topic: str, key: bytes | None, value: bytes | None, headers: Headers) -> bool:
        """Whether a key or value may name a schema. Others are as they are."""
        from ottla.schemas.framing import names_schema, whole

        return names_schema(whole(key, headers, key=True)) or names_schema(whole(value, headers, key=False))

    def read(self, record: Incoming) -> Incoming:
        return replace(record, key=self._text(record, "key", record.key), value=self._text(record, "value", record.value))

    def _text(self, record: Incoming, what: str, data: bytes | None) -> bytes | None:
        from ottla.client.schema_values import NotOfSchema
        from ottla.schemas.framing import NotFramed, whole

        framed = whole(data, record.headers, key=what == "key")
        if framed is None:
            return None
        try:
            return self._values.decode(framed).encode()
        except NotFramed:
            return data
        except NotOfSchema as error:
            place = f"{record.topic}-{record.partition} offset {record.offset}"
            raise Failure(f"{place}: the {what} is {error}", "without --schema it is printed as it is") from None


class SchemaWriter:
    """Makes the bytes of keys or values from JSON text, all with one schema, which a header names if `by_header` is true."""

    def __init__(self, registry: SchemaRegistry, topic: str, word: str, *, key: bool = False, by_header: bool = False) -> None:
        from ottla.client.schema_values import SchemaValues

        self._key = key
        self._values = SchemaValues(registry)
        self._schema = _schema(registry, f"{topic}-{'key' if key else 'value'}", word)
        self._by_header = by_header
        if by_header and not self._schema.guid:
            raise Failure("the schema registry gives no GUIDs", "without --schema-header the id is in the value")

    def write(self, record: Outgoing, line: str) -> None:
        what, data = ("key", record.key) if self._key else ("value", record.value)
        if data is None:
            return
        text = self._written(data, record, f"{line}: the {what}")
        if self._key:
            record.key = text
        else:
            record.value = text

    def _written(self, data: bytes, record: Outgoing, where: str) -> bytes:
        from ottla.client.schema_values import NotOfSchema
        from ottla.schemas.framing import KEY_HEADER, VALUE_HEADER

        try:
            if not self._by_header:
                return self._values.encode(data.decode(), self._schema)
            header, payload = self._values.encode_for_header(data.decode(), self._schema)
            record.headers = [*record.headers, (KEY_HEADER if self._key else VALUE_HEADER, header)]
            return payload
        except UnicodeDecodeError:
            raise Failure(f"{where} is not UTF-8 text, and so no JSON") from None
        except NotOfSchema as error:
            raise Failure(f"{where} {error}", 'values are JSON; Avro writes a union\'s value as {"string": …}') from None


def _schema(registry: SchemaRegistry, subject: str, word: str) -> Registered:
    """The schema that a word names: `latest`, the number of a version, or a file, whose schema is registered."""
    if word == "latest" or word.isdecimal():
        return registry.version(subject, word)
    file = Path(word)
    if file.suffix.lower() not in SUFFIXES:
        hint = "write latest, the number of a version, or a file .avsc, .json or .proto"
        raise Failure(f"--schema {word!r} names no schema", hint, exit_code=EXIT_USAGE)
    schema_type, text = SUFFIXES[file.suffix.lower()], read_text_or_stdin(file)
    registry.register(subject, schema_type, text)
    return registry.lookup(subject, schema_type, text)
