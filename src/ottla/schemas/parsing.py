"""Parses a schema of any type. The one door into the formats."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.schemas.limits import NESTING_MAX, require_size
from ottla.schemas.model import AVRO, JSON, PROTOBUF, SCHEMA_TYPES, InvalidSchema, ParsedSchema, ResolvedReference


def parse(schema_type: str, text: str, references: Sequence[ResolvedReference] = (), *, lenient: bool = False) -> ParsedSchema:
    """The schema of this text. InvalidSchema says where and why it is none.

    `references` has all referenced schemas, those of references too, each before those that use it. `lenient` is for
    schemas that a registry accepted before: names and defaults are not checked again.
    """
    require_size(text, references)
    try:
        # A format takes a while to import, and those who only ask a registry need none.
        if schema_type == AVRO:
            from ottla.schemas.avro.avro_schema import AvroSchema

            return AvroSchema.parse(text, references, lenient=lenient)
        if schema_type == JSON:
            from ottla.schemas.json_schema.json_schema import JsonSchema

            return JsonSchema.parse(text, references, lenient=lenient)
        if schema_type == PROTOBUF:
            from ottla.schemas.protobuf.protobuf_schema import ProtobufSchema

            return ProtobufSchema.parse(text, references)
    except RecursionError:
        raise InvalidSchema(f"schemas nest deeper than {NESTING_MAX} levels") from None
    raise InvalidSchema(f"schema type {schema_type!r} is none of {', '.join(SCHEMA_TYPES)}")
