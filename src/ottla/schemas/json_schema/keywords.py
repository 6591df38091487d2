"""What the limits, properties and items of a reader's schema demand of a writer's (JS01-JS05, JS08)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Protocol, TypeAlias

import re2

from ottla.schemas.json_schema.located import Located, pointer
from ottla.schemas.model import Incompatibility

Fail: TypeAlias = "list[Incompatibility]"

# Numbers are integers and fractions: `number` accepts both.
ATOMS = frozenset({"null", "boolean", "object", "array", "string", "integer", "fraction"})


class Accepts(Protocol):
    lenient: bool

    def accepts(self, reader: Located, writer: tuple[Located, ...], path: str) -> Fail: ...
    def accepts_within(self, reader: Located, writer: tuple[Located, ...], path: str) -> Fail: ...


def fail(path: str, rule: str, message: str, remedy: str) -> Incompatibility:
    return Incompatibility(path or "/", rule, message, remedy)


def types_of(schemas: Sequence[Located], *, own: bool = False) -> frozenset[str]:
    """The types of the values that all of the schemas accept, as far as `type`, `enum` and `const` tell. `own`: `type` only."""
    types = ATOMS
    for each in schemas:
        named = each.get("type")
        if isinstance(named, str):
            named = [named]
        if isinstance(named, list):
            types &= {atom for name in named for atom in (("integer", "fraction") if name == "number" else (name,))}
        if not own:
            refused = each.get("not")
            if isinstance(refused, dict) and set(refused) == {"type"}:
                types -= types_of([Located(refused, each.resolver, each.dialect)])
            values = [each.get("const")] if isinstance(each.value, dict) and "const" in each.value else each.get("enum")
            if isinstance(values, list):
                types &= {_type(value) for value in values}
    return types


def _type(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "integer" if value == int(value) else "fraction"
    return {type(None): "null", str: "string", list: "array", dict: "object"}[type(value)]


# --- limits (JS03) -------------------------------------------------------------------------------------------------------------

_UPPER = (
    ("maxLength", "MAX_LENGTH", "string"),
    ("maxItems", "MAX_ITEMS", "array"),
    ("maxProperties", "MAX_PROPERTIES", "object"),
)
_LOWER = (
    ("minLength", "MIN_LENGTH", "string"),
    ("minItems", "MIN_ITEMS", "array"),
    ("minProperties", "MIN_PROPERTIES", "object"),
)


def limit_demands(reader: Located, writer: Sequence[Located], path: str) -> Fail:
    types = types_of(writer)
    found: Fail = []
    for keyword, rule, type_name in _UPPER:
        if type_name in types:
            found += _upper(keyword, rule, reader.get(keyword), [each.get(keyword) for each in writer], path)
    for keyword, rule, type_name in _LOWER:
        if type_name in types:
            found += _lower(keyword, rule, reader.get(keyword), [each.get(keyword) for each in writer], path)
    if types & {"integer", "fraction"}:
        found += _numbers(reader, writer, path)
    if "string" in types and isinstance(reader.get("pattern"), str):
        patterns = [each.get("pattern") for each in writer]
        if reader.get("pattern") not in patterns:
            added = all(each is None for each in patterns)
            message = f"the pattern {json.dumps(reader.get('pattern'))} is {'new' if added else 'another'}"
            rule = "PATTERN_ADDED" if added else "PATTERN_CHANGED"
            found.append(fail(f"{path}/pattern", rule, message, "keep the pattern, or remove it"))
    return found


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _upper(keyword: str, rule: str, limit: Any, limits: list[Any], path: str) -> Fail:
    known = [each for each in limits if _number(each)]
    if not _number(limit) or any(each <= limit for each in known):
        return []
    return [_limited(keyword, rule, limit, min(known, default=None), "DECREASED", path)]


def _lower(keyword: str, rule: str, limit: Any, limits: list[Any], path: str) -> Fail:
    known = [each for each in limits if _number(each)]
    if not _number(limit) or limit <= 0 or any(each >= limit for each in known):
        return []
    return [_limited(keyword, rule, limit, max(known, default=None), "INCREASED", path)]


def _limited(keyword: str, rule: str, limit: Any, old: Any, change: str, path: str) -> Incompatibility:
    if old is None:
        return fail(f"{path}/{keyword}", f"{rule}_ADDED", f"{keyword} {limit} is new", f"remove {keyword}")
    message = f"{keyword} is {limit}, the writer's is {old}"
    return fail(f"{path}/{keyword}", f"{rule}_{change}", message, f"keep {keyword} {old}, or widen it")


def _numbers(reader: Located, writer: Sequence[Located], path: str) -> Fail:
    found: Fail = []
    for keyword, exclusive, rule, change, sign in (
        ("maximum", "exclusiveMaximum", "MAXIMUM", "DECREASED", 1),
        ("minimum", "exclusiveMinimum", "MINIMUM", "INCREASED", -1),
    ):
        limits = [limit for each in writer for limit in _limits(each, keyword, exclusive, sign)]
        for limit in _limits(reader, keyword, exclusive, sign):
            if any(old <= limit for old in limits):
                continue
            name, named = (exclusive, f"EXCLUSIVE_{rule}") if limit[1] < 0 else (keyword, rule)
            old = min(limits, default=None)
            shown = None if old is None else old[0] * sign
            found.append(_limited(name, named, _plain(limit[0] * sign), _plain(shown), change, path))
    factor = reader.get("multipleOf")
    if _number(factor) and factor:
        factors = [each.get("multipleOf") for each in writer if _number(each.get("multipleOf"))]
        integers = "fraction" not in types_of(writer)
        if not any((_fraction(old) / _fraction(factor)).denominator == 1 for old in [*factors, *([1] if integers else [])]):
            rule = "MULTIPLE_OF_CHANGED" if factors else "MULTIPLE_OF_ADDED"
            message = f"multipleOf is {factor}, the writer's {'is ' + str(factors[0]) if factors else 'schema has none'}"
            found.append(fail(f"{path}/multipleOf", rule, message, "keep multipleOf, use a divisor of it, or remove it"))
    return found


def _plain(value: Fraction | None) -> Any:
    if value is None:
        return None
    return int(value) if value.denominator == 1 else float(value)


def _fraction(value: Any) -> Fraction:
    return Fraction(str(value))


def _limits(schema: Located, keyword: str, exclusive: str, sign: int) -> list[tuple[Fraction, int]]:
    """Upper limits as (limit, -1 if exclusive else 0): the smaller one accepts less. Lower limits have the other sign."""
    limit, strict = schema.get(keyword), schema.get(exclusive)
    found = []
    if _number(limit):
        found.append((_fraction(limit) * sign, -1 if schema.dialect.boolean_limits and strict is True else 0))
    if _number(strict) and not schema.dialect.boolean_limits:
        found.append((_fraction(strict) * sign, -1))
    return found


# --- objects (JS01, JS02, JS08) ------------------------------------------------------------------------------------------------


def matches(pattern: str, name: str) -> bool | None:
    """Whether a pattern of `patternProperties` finds a name; None if the pattern is none that can be tried in linear time."""
    try:
        return re2.search(pattern, name) is not None
    except re2.error:
        return None


def _additional(schema: Located) -> Located | None:
    """The schema of properties that nothing else of this schema names."""
    for keyword in ("additionalProperties", "unevaluatedProperties"):
        child = schema.child(keyword)
        if child is not None:
            return child
    return None


def _open_writer(schema: Located) -> Located | None:
    """As `_additional`. What a writer's schema leaves unevaluated may be named by its other parts."""
    applied = {"allOf", "anyOf", "oneOf", "$ref", "if", "dependentSchemas", "not", "$dynamicRef", "$recursiveRef"}
    if schema.child("additionalProperties") is None and isinstance(schema.value, dict) and applied & set(schema.value):
        return None
    return _additional(schema)


def _property(schema: Located, name: str, *, certain: bool) -> list[Located]:
    """The schemas that apply to the property of this name. `certain`: only those that surely do; else also those that may."""
    found = [schema.named("properties")[name]] if name in schema.named("properties") else []
    for pattern, each in schema.named("patternProperties").items():
        fits = matches(pattern, name)
        if fits or (fits is None and not certain):
            found.append(each)
    if not found:
        unsure = any(matches(pattern, name) is None for pattern in schema.named("patternProperties"))
        rest = _open_writer(schema) if certain else _additional(schema)
        if rest is not None and not (certain and unsure):
            found.append(rest)
    return found


def object_demands(comparison: Accepts, reader: Located, writer: tuple[Located, ...], path: str) -> Fail:
    found = _required(reader, writer, path) + _dependencies(comparison, reader, writer, path)
    names = dict.fromkeys(name for each in (reader, *writer) for name in each.named("properties"))
    for name in names:
        found += _property_demands(comparison, reader, writer, name, path)
    found += _pattern_demands(comparison, reader, writer, path)
    found += _rest_demands(comparison, reader, writer, path)
    wanted = reader.child("propertyNames")
    if wanted is not None:
        given = tuple(child for each in writer if (child := each.child("propertyNames")) is not None)
        string = Located({"type": "string"}, reader.resolver, reader.dialect)
        if comparison.accepts_within(wanted, (*given, string), f"{path}/propertyNames"):
            message = "propertyNames refuses names that the writer's schema accepts"
            found.append(fail(f"{path}/propertyNames", "PROPERTY_NAMES_CHANGED", message, "keep propertyNames, or remove it"))
    return found


def _required(reader: Located, writer: Sequence[Located], path: str) -> Fail:
    required = reader.get("required")
    given = {name for each in writer if isinstance(each.get("required"), list) for name in each.get("required")}
    found: Fail = []
    for name in required if isinstance(required, list) else []:
        if name in given:
            continue
        if any("default" in each.value for each in _property(reader, name, certain=True) if isinstance(each.value, dict)):
            continue
        known = any(name in each.named("properties") for each in writer)
        rule = "REQUIRED_ATTRIBUTE_ADDED" if known else "REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"
        if not known and any(_closes(each) for each in writer):
            rule = "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"
        message = f"property {name} is required, the writer's schema does not require it"
        found.append(fail(f"{path}/required", rule, message, f"give {name} a default, or do not require it"))
    return found


def _closes(schema: Located) -> bool:
    rest = _additional(schema)
    return rest is not None and rest.value not in (True, {})


def _property_demands(comparison: Accepts, reader: Located, writer: tuple[Located, ...], name: str, path: str) -> Fail:
    given = tuple(schema for each in writer for schema in _property(each, name, certain=True))
    own = name in reader.named("properties")
    where = f"{path}/properties/{pointer(name)}"
    found: Fail = []
    for wanted in _property(reader, name, certain=False):
        reasons = comparison.accepts_within(wanted, given, where)
        if not reasons:
            continue
        known = any(name in each.named("properties") for each in writer)
        if own and known:
            found += reasons
        elif comparison.lenient:
            # What is listed under the name counts, not what an open or closed schema says of names that it does not list.
            found += reasons if wanted.value is not False and given else []
        elif own:
            found.append(_added(name, given, where))
            found += reasons if given else []
        else:
            found.append(_removed(name, wanted, where))
    return found


def _added(name: str, given: tuple[Located, ...], path: str) -> Incompatibility:
    if given:
        message = f"property {name} is new and does not accept all that the writer's schema allows under that name"
        rule = "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
        return fail(path, rule, message, "give it a schema that accepts the writer's additional properties")
    message = f"property {name} is new, and the writer's schema is open: its data may have {name} with any value"
    remedy = 'use the schema {} for it, or close schemas with "additionalProperties": false from the first version on'
    return fail(path, "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", message, remedy)


def _removed(name: str, wanted: Located, path: str) -> Incompatibility:
    if wanted.value is False:
        message = f"property {name} is gone, and the reader's schema is closed"
        return fail(path, "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", message, f"keep {name}, or allow additional properties")
    message = f"property {name} is gone, and what the reader's schema allows in its place does not accept it"
    rule = "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
    return fail(path, rule, message, f"keep {name}, or widen the schema of additional properties")


def _pattern_demands(comparison: Accepts, reader: Located, writer: tuple[Located, ...], path: str) -> Fail:
    found: Fail = []
    for pattern, wanted in reader.named("patternProperties").items():
        same = tuple(each.named("patternProperties")[pattern] for each in writer if pattern in each.named("patternProperties"))
        where = f"{path}/patternProperties/{pointer(pattern)}"
        if same and not comparison.accepts_within(wanted, same, where):
            continue
        if any(not _uncovered(comparison, wanted, each, where) for each in writer):
            continue
        message = f"properties of the pattern {pattern} must fit a schema that the writer's data need not fit"
        found.append(fail(where, "PATTERN_PROPERTY_NARROWED", message, "keep the writer's pattern and its schema"))
    return found


def _rest_demands(comparison: Accepts, reader: Located, writer: tuple[Located, ...], path: str) -> Fail:
    wanted = _additional(reader)
    if wanted is None:
        return []
    keyword = "additionalProperties" if reader.child("additionalProperties") is not None else "unevaluatedProperties"
    where = f"{path}/{keyword}"
    skip = reader.named("patternProperties")
    if any(not _uncovered(comparison, wanted, each, where, skip) for each in writer):
        return []
    closed = wanted.value is False
    if comparison.lenient and (closed or not any(_closes(each) for each in writer)):
        return []
    rule = "ADDITIONAL_PROPERTIES_REMOVED" if closed else "ADDITIONAL_PROPERTIES_NARROWED"
    message = f"{keyword} {'is false' if closed else 'has a schema'}, and the writer's data may have more properties"
    return [fail(where, rule, message, f"remove {keyword}, or widen it to what the writer's schema allows")]


def _uncovered(comparison: Accepts, wanted: Located, writer: Located, path: str, skip: dict[str, Located] | None = None) -> bool:
    """Whether names that `writer` does not list may have values that `wanted` does not accept."""
    rest = _open_writer(writer)
    schemas = [() if rest is None else (rest,)]
    schemas += [(each,) for pattern, each in writer.named("patternProperties").items() if pattern not in (skip or {})]
    return any(bool(comparison.accepts_within(wanted, each, path)) for each in schemas)


def _dependencies(comparison: Accepts, reader: Located, writer: tuple[Located, ...], path: str) -> Fail:
    found: Fail = []
    for name, needed in _needed(reader).items():
        given = {other for each in writer for other in _needed(each).get(name, [])}
        given |= {other for each in writer if isinstance(each.get("required"), list) for other in each.get("required")}
        if not set(needed) <= given:
            known = any(name in _needed(each) for each in writer)
            rule = "DEPENDENCY_ARRAY_EXTENDED" if known else "DEPENDENCY_ARRAY_ADDED"
            message = f"with property {name} the reader requires {', '.join(sorted(set(needed) - given))}"
            found.append(
                fail(f"{path}/dependencies/{pointer(name)}", rule, message, "keep the dependency as it was, or remove it")
            )
    for name, wanted in _dependent(reader).items():
        given_schemas = tuple(schema for each in writer if (schema := _dependent(each).get(name)) is not None)
        where = f"{path}/dependencies/{pointer(name)}"
        if comparison.accepts(wanted, (*writer, *given_schemas), where):
            rule = "DEPENDENCY_SCHEMA_CHANGED" if given_schemas else "DEPENDENCY_SCHEMA_ADDED"
            message = f"with property {name} the reader demands what the writer's schema does not"
            found.append(fail(where, rule, message, "keep the dependency as it was, or remove it"))
    return found


def _needed(schema: Located) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for keyword in ("dependencies", "dependentRequired"):
        value = schema.get(keyword)
        if isinstance(value, dict):
            found |= {name: each for name, each in value.items() if isinstance(each, list)}
    return found


def _dependent(schema: Located) -> dict[str, Located]:
    return schema.named("dependencies") | schema.named("dependentSchemas")


# --- arrays (JS05) -------------------------------------------------------------------------------------------------------------


def _items(schema: Located) -> tuple[list[Located], Located | None]:
    """The schemas of the first items, and the one of the others."""
    if schema.dialect.prefix_items:
        first, rest = schema.list("prefixItems"), schema.child("items")
    elif isinstance(schema.get("items"), list):
        first, rest = schema.list("items"), schema.child("additionalItems")
    else:
        first, rest = [], schema.child("items")
    return first, rest if rest is not None else schema.child("unevaluatedItems")


def _item(schema: Located, index: int) -> Located | None:
    first, rest = _items(schema)
    return first[index] if index < len(first) else rest


def array_demands(comparison: Accepts, reader: Located, writer: tuple[Located, ...], path: str) -> Fail:
    found: Fail = []
    count = max(len(_items(each)[0]) for each in (reader, *writer))
    for index in range(count + 1):
        wanted = _item(reader, index)
        given = tuple(schema for each in writer if (schema := _item(each, index)) is not None)
        where = f"{path}/items" if index == count else f"{path}/items/{index}"
        if wanted is None or not (reasons := comparison.accepts_within(wanted, given, where)):
            continue
        own = index < len(_items(reader)[0])
        known = any(index < len(_items(each)[0]) for each in writer)
        if index == count or own == known:
            found += reasons
        else:
            change = (
                "ADDED_TO_OPEN" if own and not given else "ADDED_NOT_COVERED_BY_PARTIALLY_OPEN" if own else "REMOVED_FROM_CLOSED"
            )
            message = f"item {index} {'is new' if own else 'is gone'}, and does not accept what the writer's data may have there"
            found.append(
                fail(where, f"ITEM_{change}_CONTENT_MODEL", message, "keep the items, or let additional ones have any value")
            )
    if reader.get("uniqueItems") is True and not any(each.get("uniqueItems") is True for each in writer):
        found.append(fail(f"{path}/uniqueItems", "UNIQUE_ITEMS_ADDED", "uniqueItems is new", "remove uniqueItems"))
    return found + _contains(comparison, reader, writer, path)


def _contains(comparison: Accepts, reader: Located, writer: tuple[Located, ...], path: str) -> Fail:
    wanted = reader.child("contains")
    if wanted is None:
        return []
    least, most = reader.get("minContains"), reader.get("maxContains")
    least = least if _number(least) else 1
    enough = most_kept = False
    for each in writer:
        given = each.child("contains")
        if given is None:
            continue
        known = each.get("minContains")
        known = known if _number(known) else 1
        enough = enough or (known >= least and not comparison.accepts_within(wanted, (given,), path))
        limit = each.get("maxContains")
        most_kept = most_kept or (
            _number(limit) and _number(most) and limit <= most and not comparison.accepts_within(given, (wanted,), path)
        )
    if (enough or least == 0) and (most_kept or not _number(most)):
        return []
    message = "contains demands items that the writer's data need not have"
    return [fail(f"{path}/contains", "CONTAINS_CHANGED", message, "keep contains and its limits, or remove it")]
