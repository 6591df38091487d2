"""The columns of a JSON Schema, as Spark's DDL. Spark itself reads the values: they are JSON behind the id."""

from __future__ import annotations

from ottla.pipelines.failure import PipelineError, Place
from ottla.schemas.json_schema.json_schema import JsonSchema
from ottla.schemas.json_schema.located import Located
from ottla.schemas.model import ParsedSchema

_PLAIN = {"string": "string", "boolean": "boolean", "integer": "bigint", "number": "double"}
_FORMATS = {"date-time": "timestamp", "date": "date"}
_DEPTH_MAX = 50


def ddl_of(parsed: ParsedSchema, place: Place) -> str:
    assert isinstance(parsed, JsonSchema), parsed
    root = _followed(parsed.root)
    fields = _fields(root, 0)
    if not fields:
        raise PipelineError("the JSON Schema of a value must be an object with properties", place)
    return ", ".join(f"{_quoted(name)} {kind}" for name, kind in fields)


def _fields(schema: Located, depth: int) -> list[tuple[str, str]]:
    found: dict[str, str] = {}
    for each in (schema, *map(_followed, schema.list("allOf"))):
        found |= {name: _type(value, depth + 1) for name, value in each.named("properties").items()}
    return list(found.items())


def _followed(schema: Located) -> Located:
    """The schema that references lead to."""
    for _ in range(_DEPTH_MAX):
        target = next(schema.referred(), None)
        if target is None:
            break
        schema = target
    return schema


def _type(schema: Located, depth: int) -> str:
    """What has no type of its own in Spark, such as a choice of several, stays JSON text."""
    schema = _followed(schema)
    if depth > _DEPTH_MAX:
        return "string"
    branches = [
        each for keyword in ("anyOf", "oneOf") for each in map(_followed, schema.list(keyword)) if each.get("type") != "null"
    ]
    if len(branches) == 1 and schema.get("type") is None:
        return _type(branches[0], depth + 1)
    named = schema.get("type")
    kinds = [each for each in (named if isinstance(named, list) else [named]) if each != "null"]
    if len(kinds) != 1 or kinds[0] is None:
        return "string"
    kind = kinds[0]
    if kind == "object":
        fields = _fields(schema, depth)
        if fields:
            return f"struct<{', '.join(f'{_quoted(name)}: {each}' for name, each in fields)}>"
        rest = schema.child("additionalProperties")
        return f"map<string, {_type(rest, depth + 1)}>" if rest is not None and isinstance(rest.value, dict) else "string"
    if kind == "array":
        items = schema.child("items")
        return f"array<{_type(items, depth + 1)}>" if items is not None else "array<string>"
    if kind == "string":
        return _FORMATS.get(str(schema.get("format")), "string")
    return _PLAIN.get(kind, "string")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
