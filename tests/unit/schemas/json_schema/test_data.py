"""Values that a writer's JSON Schema accepts are accepted by every reader's that a verdict calls compatible (CO01)."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ottla.schemas.compatibility import incompatibilities
from ottla.schemas.json_schema.compatibility import Comparison
from ottla.schemas.json_schema.json_schema import JsonSchema
from ottla.schemas.model import JSON, InvalidSchema
from ottla.schemas.parsing import parse
from tests.kit.random_json_schema import RandomJsonSchema


def filled(schema: Any, value: Any, root: Any) -> Any:
    """The value as a reader completes it: required properties that are absent have their defaults (JS02)."""
    if isinstance(schema, dict) and "$ref" in schema:
        return filled(root["definitions"]["D"], value, root)
    if isinstance(value, dict) and isinstance(schema, dict):
        properties = schema.get("properties", {})
        value = {
            name: filled(properties.get(name, schema.get("additionalProperties")), each, root) for name, each in value.items()
        }
        for name in schema.get("required", []):
            if isinstance(properties.get(name), dict) and "default" in properties[name]:
                value.setdefault(name, properties[name]["default"])
    return value


def one_ofs(schema: Any) -> set[str]:
    """The texts of all `oneOf` in a schema."""
    if isinstance(schema, list):
        return {text for each in schema for text in one_ofs(each)}
    if not isinstance(schema, dict):
        return set()
    own = {json.dumps(schema["oneOf"])} if "oneOf" in schema else set()
    return own.union(*map(one_ofs, schema.values()))


def has_default(schema: Any) -> bool:
    return '"default"' in json.dumps(schema)


@given(st.integers(0, 2**32))
@settings(max_examples=300, deadline=None)
def test_co01_values_of_a_compatible_writer_are_accepted(seed: int) -> None:
    maker = RandomJsonSchema(seed)
    writer = maker.document()
    reader = maker.changed(writer)
    assume(not has_default(reader))
    assume(one_ofs(reader) <= one_ofs(writer))  # JS06 takes changed branches to exclude each other
    try:
        found = incompatibilities(parse(JSON, json.dumps(reader)), parse(JSON, json.dumps(writer)))
    except InvalidSchema:
        assume(False)
    assume(not found)
    writes, reads = jsonschema.Draft7Validator(writer), jsonschema.Draft7Validator(reader)
    for _ in range(40):
        value = maker.value()
        try:
            if writes.is_valid(value):
                assert reads.is_valid(value), f"{json.dumps(reader)}\n{json.dumps(writer)}\n{json.dumps(value)}"
        except (RecursionError, TypeError):  # a definition refers to itself at once; jsonschema fails on additionalItems
            assume(False)


@given(st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_co01_a_schema_is_compatible_with_itself(seed: int) -> None:
    text = json.dumps(RandomJsonSchema(seed).document())
    one, other = JsonSchema.parse(text, []), JsonSchema.parse(text, [])
    found = {each.rule for each in Comparison().compare(one.root, other.root)}
    assert found <= {"REFERENCE_LOOP"}, text


def test_js02_a_new_required_property_with_a_default_is_filled_in() -> None:
    old = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
    new = {**old, "properties": {**old["properties"], "b": {"type": "integer", "default": 1}}, "required": ["b"]}  # type: ignore[dict-item]
    assert not incompatibilities(parse(JSON, json.dumps(new)), parse(JSON, json.dumps(old)))
    jsonschema.Draft7Validator(new).validate(filled(new, {"a": "x"}, new))
