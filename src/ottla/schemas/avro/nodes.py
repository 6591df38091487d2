"""The parts of an Avro schema.

Named types may refer to themselves, so that nodes are compared by identity; `equal` compares what they say.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from ottla.schemas.json_text import Json

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
TYPE_NAMES = PRIMITIVES | {"record", "enum", "array", "map", "union", "fixed"}
"""What a name may not be written as without its namespace."""


class Name(NamedTuple):
    """The name of a type and its namespace, which is empty without one."""

    simple: str
    namespace: str

    @property
    def full(self) -> str:
        return f"{self.namespace}.{self.simple}" if self.namespace else self.simple

    def within(self, namespace: str) -> str:
        """How to write the name inside a namespace."""
        if self.namespace != namespace or (namespace and self.simple in TYPE_NAMES):
            return self.full
        return self.simple


def name_of(text: str, namespace: str) -> Name:
    """A name as written: with dots it brings its own namespace."""
    own, dot, simple = text.rpartition(".")
    return Name(simple, own if dot else namespace)


@dataclass(slots=True, eq=False)
class Primitive:
    kind: str
    properties: dict[str, Json] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Array:
    items: Node
    properties: dict[str, Json]
    kind: Final = "array"


@dataclass(slots=True, eq=False)
class Map:
    values: Node
    properties: dict[str, Json]
    kind: Final = "map"


@dataclass(slots=True, eq=False)
class Union:
    branches: list[Node]
    kind: Final = "union"


@dataclass(slots=True, eq=False)
class Field:
    """A field of a record. `has_default` tells the default null from none."""

    name: str
    type: Node
    doc: str | None
    has_default: bool
    default: Json
    order: str
    aliases: list[str]
    properties: dict[str, Json]


@dataclass(slots=True, eq=False)
class Record:
    name: Name
    doc: str | None
    aliases: list[Name]
    properties: dict[str, Json]
    is_error: bool
    fields: list[Field]
    kind: Final = "record"


@dataclass(slots=True, eq=False)
class Enum:
    name: Name
    doc: str | None
    aliases: list[Name]
    properties: dict[str, Json]
    symbols: list[str]
    default: str | None
    kind: Final = "enum"


@dataclass(slots=True, eq=False)
class Fixed:
    name: Name
    doc: str | None
    aliases: list[Name]
    properties: dict[str, Json]
    size: int
    kind: Final = "fixed"


@dataclass(slots=True, eq=False)
class Unresolved:
    """A name that is not defined yet. None is left once a schema is parsed."""

    full_name: str
    path: str
    kind: Final = "unresolved"


Named: TypeAlias = Record | Enum | Fixed
Node: TypeAlias = Primitive | Array | Map | Union | Record | Enum | Fixed | Unresolved


def kind_or_name(node: Node) -> str:
    """What tells the branches of a union apart."""
    if isinstance(node, Unresolved):
        return node.full_name
    return node.name.full if isinstance(node, Record | Enum | Fixed) else node.kind


def equal(one: Node, other: Node, seen: set[tuple[int, int]] | None = None) -> bool:
    """Whether both define the same: doc, aliases and the default of an enum do not count, as in Java."""
    if one is other:
        return True
    if isinstance(one, Unresolved) or isinstance(other, Unresolved):
        return kind_or_name(one) == kind_or_name(other)
    if isinstance(one, Union) and isinstance(other, Union):
        return _all_equal(one.branches, other.branches, seen)
    if isinstance(one, Union) or isinstance(other, Union) or one.kind != other.kind or one.properties != other.properties:
        return False
    if isinstance(one, Array) and isinstance(other, Array):
        return equal(one.items, other.items, seen)
    if isinstance(one, Map) and isinstance(other, Map):
        return equal(one.values, other.values, seen)
    if isinstance(one, Record) and isinstance(other, Record):
        return one.name == other.name and _fields_equal(one, other, seen)
    if isinstance(one, Enum) and isinstance(other, Enum):
        return one.name == other.name and one.symbols == other.symbols
    if isinstance(one, Fixed) and isinstance(other, Fixed):
        return one.name == other.name and one.size == other.size
    return True


def _all_equal(some: list[Node], others: list[Node], seen: set[tuple[int, int]] | None) -> bool:
    return len(some) == len(others) and all(equal(one, other, seen) for one, other in zip(some, others, strict=True))


def _fields_equal(one: Record, other: Record, seen: set[tuple[int, int]] | None) -> bool:
    seen = set() if seen is None else seen
    pair = (id(one), id(other))
    if pair in seen:
        return True
    seen.add(pair)
    return _all_equal([each.type for each in one.fields], [each.type for each in other.fields], seen) and all(
        (mine.name, mine.has_default, mine.default, mine.order, mine.properties)
        == (theirs.name, theirs.has_default, theirs.default, theirs.order, theirs.properties)
        for mine, theirs in zip(one.fields, other.fields, strict=True)
    )
