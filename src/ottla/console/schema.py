"""JSON schemas of the console's documents, in few words. Pure."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

STRING: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
BOOLEAN: Schema = {"type": "boolean"}
ANYTHING: Schema = {}
OBJECT: Schema = {"type": "object"}


def one_of(*words: str) -> Schema:
    return {"type": "string", "enum": list(words)}


def maybe(schema: Schema) -> Schema:
    """The schema, or null."""
    if isinstance(schema.get("type"), str) and "enum" not in schema:
        return {**schema, "type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


def listed(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def by_name(schema: Schema) -> Schema:
    """An object whose fields all are of one schema."""
    return {"type": "object", "additionalProperties": schema}


def document(**fields: Schema) -> Schema:
    """An object with exactly these fields. One whose name ends in `_` may be missing."""
    return {
        "type": "object",
        "properties": {name.rstrip("_"): schema for name, schema in fields.items()},
        "required": [name for name in fields if not name.endswith("_")],
        "additionalProperties": False,
    }


def request(**fields: Schema) -> Schema:
    """The body of a request. Fields whose names end in `_` may be missing."""
    return document(**fields)
