"""Prints Avro schemas as Java's `Schema.toString()` does, and orders what has no order (SR05)."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.schemas.avro.nodes import Array, Enum, Field, Fixed, Map, Name, Named, Node, Primitive, Record, Union
from ottla.schemas.json_text import Json, ordered


def printed(node: Node, known: Iterable[str] = ()) -> Json:
    """The JSON of a schema. Types whose full names are `known` are written as names."""
    return _printed(node, set(known), "")


def _printed(node: Node, known: set[str], namespace: str) -> Json:
    if isinstance(node, Primitive):
        return {"type": node.kind, **node.properties} if node.properties else node.kind
    if isinstance(node, Array):
        return {"type": "array", "items": _printed(node.items, known, namespace), **node.properties}
    if isinstance(node, Map):
        return {"type": "map", "values": _printed(node.values, known, namespace), **node.properties}
    if isinstance(node, Union):
        return [_printed(each, known, namespace) for each in node.branches]
    assert isinstance(node, Record | Enum | Fixed), node
    return _named(node, known, namespace)


def _named(node: Named, known: set[str], namespace: str) -> Json:
    if node.name.full in known:
        return node.name.within(namespace)
    known.add(node.name.full)
    value: dict[str, Json] = {"type": "error" if isinstance(node, Record) and node.is_error else node.kind}
    value["name"] = node.name.simple
    if node.name.namespace != namespace:
        value["namespace"] = node.name.namespace
    if node.doc is not None:
        value["doc"] = node.doc
    if isinstance(node, Record):
        value["fields"] = [_field(each, known, node.name.namespace) for each in node.fields]
    elif isinstance(node, Enum):
        value["symbols"] = list(node.symbols)
        if node.default is not None:
            value["default"] = node.default
    else:
        value["size"] = node.size
    value |= node.properties
    if node.aliases:
        value["aliases"] = [alias.within(node.name.namespace) for alias in node.aliases]
    return value


def _field(field: Field, known: set[str], namespace: str) -> Json:
    value: dict[str, Json] = {"name": field.name, "type": _printed(field.type, known, namespace)}
    if field.doc is not None:
        value["doc"] = field.doc
    if field.has_default:
        value["default"] = field.default
    if field.order != "ascending":
        value["order"] = field.order
    if field.aliases:
        value["aliases"] = list(field.aliases)
    return value | field.properties


def normalized(node: Node, done: dict[int, Node] | None = None) -> Node:
    """A copy with properties and aliases in order, empty docs left out, and defaults as their types write them."""
    done = {} if done is None else done
    if id(node) in done:
        return done[id(node)]
    copy: Node
    if isinstance(node, Primitive):
        copy = Primitive(node.kind, _in_order(node.properties))
    elif isinstance(node, Array):
        copy = Array(normalized(node.items, done), _in_order(node.properties))
    elif isinstance(node, Map):
        copy = Map(normalized(node.values, done), _in_order(node.properties))
    elif isinstance(node, Union):
        copy = Union([normalized(each, done) for each in node.branches])
    elif isinstance(node, Enum):
        copy = Enum(*_head(node), node.symbols, node.default)
    elif isinstance(node, Fixed):
        copy = Fixed(*_head(node), node.size)
    else:
        assert isinstance(node, Record), node
        copy = done[id(node)] = Record(*_head(node), node.is_error, [])
        copy.fields.extend(_normalized_field(each, done) for each in node.fields)
    done[id(node)] = copy
    return copy


def _head(node: Named) -> tuple[Name, str | None, list[Name], dict[str, Json]]:
    return node.name, node.doc or None, sorted(node.aliases, key=lambda alias: alias.full), _in_order(node.properties)


def _normalized_field(field: Field, done: dict[int, Node]) -> Field:
    default = _typed_default(field.type, ordered(field.default))
    properties = {key: ordered(field.properties[key]) for key in sorted(field.properties)}
    node = normalized(field.type, done)
    return Field(field.name, node, field.doc, field.has_default, default, field.order, sorted(field.aliases), properties)


def _typed_default(node: Node, value: Json) -> Json:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return float(value) if whole and node.kind in ("float", "double") and isinstance(value, int) else value


def _in_order(properties: dict[str, Json]) -> dict[str, Json]:
    first = [key for key in ("logicalType", "precision", "scale") if key in properties]
    rest = sorted(key for key in properties if key not in first)
    return {key: ordered(properties[key]) for key in [*first, *rest]}
