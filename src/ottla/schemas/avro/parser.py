"""Reads Avro schemas from JSON, with the rules of Avro's own parser in Java.

A name may be used before it is defined. A type may be defined twice if both say the same. With `lenient`, names and defaults
are not checked: a log may hold schemas that an older registry accepted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeVar

from ottla.schemas.avro.nodes import (
    PRIMITIVES,
    Array,
    Enum,
    Field,
    Fixed,
    Map,
    Name,
    Named,
    Node,
    Primitive,
    Record,
    Union,
    Unresolved,
    equal,
    kind_or_name,
    name_of,
)
from ottla.schemas.json_text import Json, dumps
from ottla.schemas.limits import require_depth
from ottla.schemas.model import InvalidSchema

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED = frozenset(
    {"doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases"},
)
_ENUM_RESERVED = _RESERVED | {"default"}
_FIELD_RESERVED = frozenset({"default", "doc", "name", "order", "type", "aliases"})
_FIXED_SIZE_MAX = 2**31 - 9

NamedT = TypeVar("NamedT", Record, Enum, Fixed)


class Parser:
    """Parses several schemas in turn; each may use the names of those before it."""

    def __init__(self, *, lenient: bool = False) -> None:
        self._lenient = lenient
        self._named: dict[str, Named] = {}
        self._new: list[Named] = []
        self._fields: list[tuple[Field, str]] = []

    def parse(self, value: Json) -> Node:
        self._new, self._fields = [], []
        root = self._node(value, "", "", 0)
        root = self._resolved(root)
        for named in self._new:
            self._resolve_within(named)
        if not self._lenient:
            for field, path in self._fields:
                if field.has_default and not valid_default(field.type, field.default):
                    raise InvalidSchema(
                        f"field {field.name}: the default {dumps(field.default)} is no {describe(field.type)}", path
                    )
        return root

    def _node(self, value: Json, namespace: str, path: str, depth: int) -> Node:
        require_depth(depth, path)
        if isinstance(value, str):
            return self._by_name(value, namespace, path)
        if isinstance(value, list):
            return self._union(value, namespace, path, depth)
        if not isinstance(value, dict):
            raise InvalidSchema(f"{dumps(value)} is no schema: give a name, an object or an array", path)
        kind = value.get("type")
        if not isinstance(kind, str):
            raise InvalidSchema('the object has no "type" that is a string', path)
        if kind in PRIMITIVES:
            return Primitive(kind, _properties(value, _RESERVED))
        if kind in ("record", "error"):
            return self._record(value, namespace, path, depth)
        if kind == "enum":
            return self._enum(value, namespace, path)
        if kind == "fixed":
            return self._fixed(value, namespace, path)
        if kind == "array":
            items = self._required(value, "items", namespace, path, depth)
            return Array(items, _properties(value, _RESERVED))
        if kind == "map":
            values = self._required(value, "values", namespace, path, depth)
            return Map(values, _properties(value, _RESERVED))
        raise InvalidSchema(f'type "{kind}" is none of the primitive types, record, enum, array, map and fixed', path)

    def _required(self, value: dict[str, Json], key: str, namespace: str, path: str, depth: int) -> Node:
        if key not in value:
            raise InvalidSchema(f'the {value["type"]} has no "{key}"', path)
        return self._node(value[key], namespace, f"{path}/{key}", depth + 1)

    def _by_name(self, text: str, namespace: str, path: str) -> Node:
        if text in PRIMITIVES:
            return Primitive(text)
        full_name = f"{namespace}.{text}" if namespace and "." not in text else text
        return self._named.get(full_name) or self._named.get(text) or Unresolved(full_name, path)

    def _union(self, value: list[Json], namespace: str, path: str, depth: int) -> Union:
        branches: list[Node] = []
        seen: set[str] = set()
        for index, each in enumerate(value):
            branch = self._node(each, namespace, f"{path}/{index}", depth + 1)
            if isinstance(branch, Union):
                raise InvalidSchema("a union may not directly contain a union", path)
            key = kind_or_name(branch)
            if key in seen:
                raise InvalidSchema(f"the union has {key} twice", path)
            seen.add(key)
            branches.append(branch)
        return Union(branches)

    def _record(self, value: dict[str, Json], namespace: str, path: str, depth: int) -> Record:
        name = self._name(value, namespace, path)
        listed = value.get("fields")
        if not isinstance(listed, list):
            raise InvalidSchema(f"record {name.full} has no array of fields", path)
        fields: dict[str, Field] = {}
        for index, each in enumerate(listed):
            field = self._field(each, name.namespace, f"{path}/fields/{index}", depth)
            if field.name in fields:
                raise InvalidSchema(f"record {name.full} has the field {field.name} twice", path)
            fields[field.name] = field
        record = Record(
            name,
            _text(value, "doc"),
            self._aliases(value, name, path),
            _properties(value, _RESERVED),
            value["type"] == "error",
            list(fields.values()),
        )
        return self._defined(record, path)

    def _field(self, value: Json, namespace: str, path: str, depth: int) -> Field:
        if not isinstance(value, dict):
            raise InvalidSchema(f"{dumps(value)} is no field", path)
        name = _text(value, "name")
        if name is None:
            raise InvalidSchema("the field has no name", path)
        self._require_identifier(name, "field name", path)
        if "type" not in value:
            raise InvalidSchema(f"field {name} has no type", path)
        node = self._node(value["type"], namespace, f"{path}/type", depth + 1)
        default = value.get("default")
        if isinstance(default, str) and node.kind in ("float", "double"):
            try:
                default = float(default)
            except ValueError:
                raise InvalidSchema(f"field {name}: the default {dumps(default)} is no {node.kind}", path) from None
        order = value.get("order", "ascending")
        if not isinstance(order, str) or order.lower() not in ("ascending", "descending", "ignore"):
            raise InvalidSchema(f"field {name}: order {dumps(order)} is none of ascending, descending and ignore", path)
        field = Field(
            name,
            node,
            _text(value, "doc"),
            "default" in value,
            default,
            order.lower(),
            _alias_texts(value, path),
            _properties(value, _FIELD_RESERVED),
        )
        self._fields.append((field, path))
        return field

    def _enum(self, value: dict[str, Json], namespace: str, path: str) -> Enum:
        name = self._name(value, namespace, path)
        listed = value.get("symbols")
        if not isinstance(listed, list):
            raise InvalidSchema(f"enum {name.full} has no array of symbols", path)
        symbols: dict[str, None] = {}
        for symbol in listed:
            if not isinstance(symbol, str):
                raise InvalidSchema(f"enum {name.full}: symbol {dumps(symbol)} is no string", path)
            self._require_identifier(symbol, "symbol", path)
            if symbol in symbols:
                raise InvalidSchema(f"enum {name.full} has the symbol {symbol} twice", path)
            symbols[symbol] = None
        default = _text(value, "default")
        if default is not None and default not in symbols:
            raise InvalidSchema(f"enum {name.full}: the default {default} is none of its symbols", path)
        aliases = self._aliases(value, name, path)
        enum = Enum(name, _text(value, "doc"), aliases, _properties(value, _ENUM_RESERVED), list(symbols), default)
        return self._defined(enum, path)

    def _fixed(self, value: dict[str, Json], namespace: str, path: str) -> Fixed:
        name = self._name(value, namespace, path)
        size = value.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= _FIXED_SIZE_MAX:
            raise InvalidSchema(f"fixed {name.full} has no size between 0 and {_FIXED_SIZE_MAX}", path)
        aliases = self._aliases(value, name, path)
        return self._defined(Fixed(name, _text(value, "doc"), aliases, _properties(value, _RESERVED), size), path)

    def _name(self, value: dict[str, Json], namespace: str, path: str) -> Name:
        text = _text(value, "name")
        if text is None:
            raise InvalidSchema(f"the {value['type']} has no name", path)
        own = _text(value, "namespace")
        name = name_of(text, namespace if own is None else own)
        for part in name.namespace.split(".") if name.namespace else ():
            self._require_identifier(part, "namespace", path)
        self._require_identifier(name.simple, "name", path)
        if name.full in PRIMITIVES:
            raise InvalidSchema(f"a type may not have the name of the primitive type {name.full}", path)
        return name

    def _aliases(self, value: dict[str, Json], name: Name, path: str) -> list[Name]:
        aliases = [name_of(text, name.namespace) for text in _alias_texts(value, path)]
        for alias in aliases:
            self._require_identifier(alias.simple, "alias", path)
        return list(dict.fromkeys(aliases))

    def _require_identifier(self, text: str, what: str, path: str) -> None:
        if not self._lenient and not _IDENTIFIER.fullmatch(text):
            raise InvalidSchema(f"{what} {dumps(text)} is not a letter or _, then letters, digits or _", path)

    def _defined(self, named: NamedT, path: str) -> NamedT:
        known = self._named.setdefault(named.name.full, named)
        if not equal(known, named):
            raise InvalidSchema(f"{named.name.full} is defined twice, in two ways", path)
        self._new.append(named)
        return named

    def _resolved(self, node: Node) -> Node:
        """The node itself, or what its name stands for now that everything is defined."""
        if isinstance(node, Unresolved):
            found = self._named.get(node.full_name)
            if found is None:
                raise InvalidSchema(f"{node.full_name} is not defined, here or in a reference", node.path)
            return found
        if not isinstance(node, Record | Enum | Fixed):
            self._resolve_within(node)
        return node

    def _resolve_within(self, node: Node) -> None:
        if isinstance(node, Array):
            node.items = self._resolved(node.items)
        elif isinstance(node, Map):
            node.values = self._resolved(node.values)
        elif isinstance(node, Union):
            node.branches = [self._resolved(each) for each in node.branches]
        elif isinstance(node, Record):
            for field in node.fields:
                field.type = self._resolved(field.type)


def _text(value: dict[str, Json], key: str) -> str | None:
    found = value.get(key)
    return found if isinstance(found, str) else None


def _properties(value: dict[str, Json], reserved: Iterable[str]) -> dict[str, Json]:
    return {key: each for key, each in value.items() if key not in reserved}


def _alias_texts(value: dict[str, Json], path: str) -> list[str]:
    if "aliases" not in value:
        return []
    aliases = value["aliases"]
    texts = [each for each in aliases if isinstance(each, str)] if isinstance(aliases, list) else None
    if texts is None or not isinstance(aliases, list) or len(texts) != len(aliases):
        raise InvalidSchema("aliases is no array of strings", path)
    return list(dict.fromkeys(texts))


def describe(node: Node) -> str:
    """The node in the words of an error: a kind, a name, or the branches of a union."""
    if isinstance(node, Union):
        return "union of " + ", ".join(describe(each) for each in node.branches)
    if isinstance(node, Record | Enum | Fixed):
        return f"{node.kind} {node.name.full}"
    return node.kind


def valid_default(node: Node, value: Json) -> bool:
    """Whether a default fits a type (AV09): any branch of a union; a record's may leave out fields with defaults."""
    kind = node.kind
    if kind in ("string", "bytes", "enum", "fixed"):
        return isinstance(value, str)
    if kind in ("int", "long"):
        bits = 31 if kind == "int" else 63
        return isinstance(value, int) and not isinstance(value, bool) and -(1 << bits) <= value < 1 << bits
    if kind in ("float", "double"):
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "boolean":
        return isinstance(value, bool)
    if kind == "null":
        return value is None
    if isinstance(node, Union):
        return any(valid_default(branch, value) for branch in node.branches)
    if isinstance(node, Array):
        return isinstance(value, list) and all(valid_default(node.items, each) for each in value)
    if isinstance(node, Map):
        return isinstance(value, dict) and all(valid_default(node.values, each) for each in value.values())
    if isinstance(node, Record) and isinstance(value, dict):
        return all(_valid_in_record(field, value) for field in node.fields)
    return False


def _valid_in_record(field: Field, value: dict[str, Json]) -> bool:
    if field.name in value:
        return valid_default(field.type, value[field.name])
    return field.has_default and valid_default(field.type, field.default)
