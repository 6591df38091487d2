"""Verdicts on JSON Schemas, each with its path, rule and remedy (JS01-JS10)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.schemas.compatibility import conflicts, incompatibilities
from ottla.schemas.model import JSON, ResolvedReference
from ottla.schemas.parsing import parse

DRAFTS = [
    "http://json-schema.org/draft-04/schema#",
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
]


def rules(reader: Any, writer: Any, draft: str | None = None) -> set[str]:
    named = {} if draft is None else {"$schema": draft}
    texts = [json.dumps(each | named) for each in (reader, writer)]
    return {each.rule for each in incompatibilities(parse(JSON, texts[0]), parse(JSON, texts[1]))}


def properties(**schemas: Any) -> dict[str, Any]:
    return {"type": "object", "properties": schemas}


STRING, INTEGER, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}
CLOSED: dict[str, Any] = {"additionalProperties": False}


@pytest.mark.parametrize("draft", DRAFTS)
def test_js01_an_open_model_may_lose_properties_and_not_gain_them(draft: str) -> None:
    old, new = properties(a=STRING), properties(a=STRING, b=STRING)
    assert rules(new, old, draft) == {"OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"}
    assert not rules(properties(a=STRING, b={}), old, draft)
    assert not rules(old, new, draft)


@pytest.mark.parametrize("draft", DRAFTS)
def test_js01_a_closed_model_may_gain_properties_and_not_lose_them(draft: str) -> None:
    old, new = properties(a=STRING) | CLOSED, properties(a=STRING, b=STRING) | CLOSED
    assert not rules(new, old, draft)
    assert "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL" in rules(old, new, draft)
    assert rules(properties(a=STRING) | CLOSED, properties(a=STRING), draft) == {"ADDITIONAL_PROPERTIES_REMOVED"}
    assert not rules(properties(a=STRING), old, draft)


def test_js01_a_partly_open_model_covers_a_property_or_not() -> None:
    old = properties(a=STRING) | {"additionalProperties": INTEGER}
    assert not rules(properties(a=STRING, b=NUMBER) | {"additionalProperties": INTEGER}, old)
    assert "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL" in rules(
        properties(a=STRING, b=STRING) | {"additionalProperties": INTEGER}, old
    )
    patterned = {"type": "object", "patternProperties": {"^x": INTEGER}, "additionalProperties": False}
    assert not rules(patterned | {"properties": {"xa": NUMBER}}, patterned)
    assert rules(patterned | {"patternProperties": {"^x": STRING}}, patterned)
    assert "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL" in rules(
        properties() | {"additionalProperties": INTEGER}, properties(a=STRING) | CLOSED
    )


def test_js01_a_property_that_nothing_fits_may_go() -> None:
    assert not rules(properties() | CLOSED, properties(a=False) | CLOSED)


def test_js02_required_may_vanish_and_be_added_with_a_default_only() -> None:
    plain, required = properties(a=STRING), properties(a=STRING) | {"required": ["a"]}
    assert rules(required, plain) == {"REQUIRED_ATTRIBUTE_ADDED"}
    assert not rules(plain, required)
    assert not rules(properties(a=STRING | {"default": ""}) | {"required": ["a"]}, plain)
    closed = properties() | CLOSED
    assert rules(properties(a=STRING) | CLOSED | {"required": ["a"]}, closed) == {
        "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"
    }


@pytest.mark.parametrize(
    ("kind", "keyword", "narrow", "wide"),
    [
        ("string", "maxLength", 1, 2),
        ("string", "minLength", 2, 1),
        ("number", "maximum", 1, 1.5),
        ("number", "minimum", 2, 1),
        ("number", "multipleOf", 4, 2),
        ("array", "maxItems", 1, 2),
        ("array", "minItems", 2, 1),
        ("object", "maxProperties", 1, 2),
        ("object", "minProperties", 2, 1),
    ],
)
def test_js03_limits_widen(kind: str, keyword: str, narrow: float, wide: float) -> None:
    typed = {"type": kind}
    assert not rules(typed | {keyword: wide}, typed | {keyword: narrow})
    assert not rules(typed, typed | {keyword: narrow})
    assert rules(typed | {keyword: narrow}, typed | {keyword: wide})
    assert rules(typed | {keyword: narrow}, typed)


def test_js03_exclusive_limits_pattern_and_unique_items() -> None:
    four = DRAFTS[0]
    assert not rules(NUMBER | {"maximum": 5}, NUMBER | {"maximum": 5, "exclusiveMaximum": True}, four)
    assert rules(NUMBER | {"maximum": 5, "exclusiveMaximum": True}, NUMBER | {"maximum": 5}, four) == {
        "EXCLUSIVE_MAXIMUM_DECREASED"
    }
    assert not rules(NUMBER | {"maximum": 5}, NUMBER | {"exclusiveMaximum": 5})
    assert rules(NUMBER | {"exclusiveMaximum": 5}, NUMBER | {"maximum": 5})
    assert not rules(NUMBER | {"multipleOf": 0.5}, NUMBER | {"multipleOf": 1.5})
    assert rules(STRING | {"pattern": "a"}, STRING) == {"PATTERN_ADDED"}
    assert rules(STRING | {"pattern": "a"}, STRING | {"pattern": "b"}) == {"PATTERN_CHANGED"}
    assert not rules(STRING, STRING | {"pattern": "a"})
    assert rules({"type": "array", "uniqueItems": True}, {"type": "array"}) == {"UNIQUE_ITEMS_ADDED"}


def test_js04_types_and_values_grow() -> None:
    assert not rules(NUMBER, INTEGER)
    assert rules(INTEGER, NUMBER) == {"TYPE_NARROWED"}
    assert rules(STRING, INTEGER) == {"TYPE_CHANGED"}
    assert not rules({"type": ["string", "null"]}, STRING)
    assert rules(STRING, {"type": ["string", "null"]}) == {"TYPE_NARROWED"}
    assert not rules({"enum": ["a", "b"]}, {"enum": ["a"]})
    assert rules({"enum": ["a"]}, {"enum": ["a", "b"]}) == {"ENUM_ARRAY_NARROWED"}
    assert rules({"enum": ["a", "c"]}, {"enum": ["a", "b"]}) == {"ENUM_ARRAY_CHANGED"}
    assert rules({"const": 1}, {"const": 2})
    assert not rules(STRING, {"enum": ["a", "b"]}), "the values tell the type"


@pytest.mark.parametrize(
    ("draft", "first", "rest"), [(DRAFTS[2], "items", "additionalItems"), (DRAFTS[4], "prefixItems", "items")]
)
def test_js05_items_as_properties(draft: str, first: str, rest: str) -> None:
    def tuple_of(*schemas: Any, closed: bool = False) -> dict[str, Any]:
        return {"type": "array", first: list(schemas)} | ({rest: False} if closed else {})

    assert not rules({"type": "array", "items": NUMBER}, {"type": "array", "items": INTEGER}, draft)
    assert rules({"type": "array", "items": INTEGER}, {"type": "array", "items": NUMBER}, draft) == {"TYPE_NARROWED"}
    assert rules(tuple_of(STRING, STRING), tuple_of(STRING), draft) == {"ITEM_ADDED_TO_OPEN_CONTENT_MODEL"}
    assert not rules(tuple_of(STRING), tuple_of(STRING, STRING), draft)
    assert not rules(tuple_of(STRING, STRING, closed=True), tuple_of(STRING, closed=True), draft)
    assert "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL" in rules(
        tuple_of(STRING, closed=True), tuple_of(STRING, STRING, closed=True), draft
    )


def test_js06_sums_gain_and_products_lose() -> None:
    for keyword in ("anyOf", "oneOf"):
        assert not rules({keyword: [STRING, INTEGER]}, {keyword: [STRING]})
        assert not rules({keyword: [INTEGER, STRING]}, {keyword: [STRING, INTEGER]})
        assert rules({keyword: [STRING]}, {keyword: [STRING, INTEGER]})
        assert not rules({keyword: [STRING, INTEGER]}, STRING)
    assert not rules({"allOf": [STRING]}, {"allOf": [STRING, {"maxLength": 3}]})
    assert rules({"allOf": [STRING, {"maxLength": 3}]}, {"allOf": [STRING]}) == {"MAX_LENGTH_ADDED"}
    assert not rules(NUMBER, {"anyOf": [INTEGER, NUMBER]}), "what each branch accepts"


def test_js06_a_branch_of_one_of_that_takes_all_of_another_is_refused() -> None:
    assert "SUM_TYPE_OVERLAPS" in rules({"oneOf": [INTEGER, NUMBER]}, INTEGER)
    assert rules({"oneOf": [INTEGER, NUMBER]}, {"oneOf": [INTEGER]})


def test_js07_not_may_refuse_less() -> None:
    assert not rules({"not": INTEGER}, {"not": NUMBER})
    assert rules({"not": NUMBER}, {"not": INTEGER}) == {"NOT_TYPE_EXTENDED"}
    assert rules({"not": NUMBER}, {}) == {"NOT_TYPE_EXTENDED"}
    assert not rules({"not": NUMBER}, STRING)


@pytest.mark.parametrize(("keyword", "draft"), [("dependencies", DRAFTS[2]), ("dependentRequired", DRAFTS[4])])
def test_js08_dependencies_shrink(keyword: str, draft: str) -> None:
    few, many = {"type": "object", keyword: {"a": ["b"]}}, {"type": "object", keyword: {"a": ["b", "c"]}}
    assert not rules(few, many, draft)
    assert not rules({"type": "object"}, few, draft)
    assert rules(many, few, draft) == {"DEPENDENCY_ARRAY_EXTENDED"}
    assert rules(few, {"type": "object"}, draft) == {"DEPENDENCY_ARRAY_ADDED"}


def test_js08_dependent_schemas_and_conditions() -> None:
    plain = {"type": "object"}
    dependent = plain | {"dependencies": {"a": {"required": ["b"]}}}
    assert rules(dependent, plain) == {"DEPENDENCY_SCHEMA_ADDED"}
    assert not rules(plain, dependent)
    condition = plain | {"if": {"required": ["a"]}, "then": {"required": ["b"]}}
    assert rules(condition, plain) == {"CONDITION_CHANGED"}
    assert not rules(condition | {"then": {}}, condition)


def test_js09_words_are_free() -> None:
    words = {"title": "t", "description": "d", "default": 1, "$id": "http://x.example/y", "examples": [1], "format": "email"}
    assert not rules(STRING | words, STRING)
    assert not rules(STRING, STRING | words)


@pytest.mark.parametrize("definitions", ["definitions", "$defs"])
def test_js10_references_that_go_round(definitions: str) -> None:
    def tree(value: Any) -> dict[str, Any]:
        node = {"type": "object", "properties": {"value": value, "next": {"$ref": f"#/{definitions}/node"}}}
        return {"$ref": f"#/{definitions}/node", definitions: {"node": node}}

    assert not rules(tree(NUMBER), tree(INTEGER))
    assert rules(tree(INTEGER), tree(NUMBER)) == {"TYPE_NARROWED"}


def test_js10_references_to_other_subjects() -> None:
    def order(version: int, address: Any) -> Any:
        reference = ResolvedReference("address.json", "address", version, json.dumps(address))
        return parse(JSON, '{"type": "object", "properties": {"to": {"$ref": "address.json"}}}', [reference])

    old, new = order(1, properties(street=STRING)), order(2, properties(street=INTEGER))
    [found] = incompatibilities(new, old)
    assert (found.rule, found.path) == ("TYPE_CHANGED", "/properties/to/properties/street/type")


def test_sr11_nests_of_one_of_end_with_a_verdict() -> None:
    def nest(depth: int, leaf: Any) -> Any:
        return leaf if not depth else {"oneOf": [properties(a=nest(depth - 1, leaf), **{str(n): STRING}) for n in range(4)]}

    assert "TOO_COMPLEX" in rules(nest(5, INTEGER), nest(5, NUMBER))


def test_levels_choose_versions_and_direction() -> None:
    versions = [parse(JSON, json.dumps(each)) for each in (STRING, INTEGER)]
    new = parse(JSON, json.dumps(NUMBER))
    assert not conflicts("BACKWARD", new, versions)
    assert [(each.position, each.direction) for each in conflicts("BACKWARD_TRANSITIVE", new, versions)] == [(0, "BACKWARD")]
    assert [(each.position, each.direction) for each in conflicts("FULL", new, versions)] == [(1, "FORWARD")]
    assert not conflicts("NONE", new, versions)
    assert not conflicts("FULL", new, [])
    with pytest.raises(ValueError, match="unknown"):
        conflicts("SIDEWARD", new, [])
