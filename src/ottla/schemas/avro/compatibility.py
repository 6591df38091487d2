"""Whether a reader's Avro schema resolves a writer's: the rules AV01-AV08, with the verdicts of Avro's `SchemaCompatibility`.

A pair of types that is being compared counts as compatible where it meets itself again. If it turns out not to be, whatever
was found compatible meanwhile is forgotten, for it may rest on that assumption; Java keeps it.
"""

from __future__ import annotations

from ottla.schemas.avro.nodes import Array, Enum, Field, Fixed, Map, Named, Node, Record, Union
from ottla.schemas.avro.parser import describe, valid_default
from ottla.schemas.json_text import Json, dumps
from ottla.schemas.limits import NESTING_MAX
from ottla.schemas.model import Incompatibility

_PROMOTED = {
    "long": frozenset({"int"}),
    "float": frozenset({"int", "long"}),
    "double": frozenset({"int", "long", "float"}),
    "bytes": frozenset({"string"}),
    "string": frozenset({"bytes"}),
}
"""What each type reads besides itself (AV01)."""


class Comparison:
    """One comparison of two schemas, with the memory of the pairs that it met (AV07)."""

    def __init__(self) -> None:
        self._results: dict[tuple[int, int], list[Incompatibility] | None] = {}

    def compare(self, reader: Node, writer: Node, path: str = "") -> list[Incompatibility]:
        pair = (id(reader), id(writer))
        if pair in self._results:
            return self._results[pair] or []
        self._results[pair] = None
        since = len(self._results)
        found = self._compared(reader, writer, path)
        if found:
            for later in list(self._results)[since:]:
                if not self._results[later]:
                    del self._results[later]
        self._results[pair] = found
        return found

    def _compared(self, reader: Node, writer: Node, path: str) -> list[Incompatibility]:
        if isinstance(writer, Union):
            if isinstance(reader, Union):
                return [
                    each
                    for index, branch in enumerate(writer.branches)
                    if self.compare(reader, branch, path)
                    for each in [_no_branch(branch, f"{path}/{index}")]
                ]
            compared = [self.compare(reader, branch, f"{path}/{index}") for index, branch in enumerate(writer.branches)]
            return [each for found in compared for each in found]
        if isinstance(reader, Union):
            if any(not self.compare(branch, writer, f"{path}/{index}") for index, branch in enumerate(reader.branches)):
                return []
            return [_no_branch(writer, path)]
        if isinstance(reader, Array) and isinstance(writer, Array):
            return self.compare(reader.items, writer.items, f"{path}/items")
        if isinstance(reader, Map) and isinstance(writer, Map):
            return self.compare(reader.values, writer.values, f"{path}/values")
        if isinstance(reader, Record) and isinstance(writer, Record):
            return _names(reader, writer, path) + self._fields(reader, writer, path)
        if isinstance(reader, Enum) and isinstance(writer, Enum):
            return _names(reader, writer, path) + _symbols(reader, writer, path)
        if isinstance(reader, Fixed) and isinstance(writer, Fixed):
            return _names(reader, writer, path) + _sizes(reader, writer, path)
        if reader.kind == writer.kind or writer.kind in _PROMOTED.get(reader.kind, ()):
            return []
        message = f"the reader's {describe(reader)} does not read the writer's {describe(writer)}"
        remedy = f"keep {describe(writer)}, or use a union with it"
        return [Incompatibility(path or "/", "TYPE_MISMATCH", message, remedy)]

    def _fields(self, reader: Record, writer: Record, path: str) -> list[Incompatibility]:
        found: list[Incompatibility] = []
        for position, field in enumerate(reader.fields):
            where = f"{path}/fields/{position}"
            matching = writer_fields(writer, field)
            if len(matching) == 1:
                found += self.compare(field.type, matching[0].type, f"{where}/type")
            elif matching:
                names = " and ".join(each.name for each in matching)
                message = f"field {field.name} and its aliases match {names} of the writer's record {writer.name.full}"
                remedy = "remove aliases until one writer's field matches"
                found.append(Incompatibility(where, "READER_FIELD_AMBIGUOUS", message, remedy))
            elif field.has_default and not readable_default(field.type, field.default):
                message = (
                    f"the default {dumps(field.default)} of field {field.name} is no {describe(field.type)} a reader can make"
                )
                remedy = f"give {field.name} a default that its type has; put the type of the default first in a union"
                found.append(Incompatibility(where, "READER_FIELD_MISSING_DEFAULT_VALUE", message, remedy))
            elif not field.has_default:
                message = f"field {field.name} has no default, and the writer's record {writer.name.full} has no such field"
                remedy = f'give {field.name} a default, such as null with the type ["null", ...]'
                found.append(Incompatibility(where, "READER_FIELD_MISSING_DEFAULT_VALUE", message, remedy))
        return found


def readable_default(node: Node, value: Json, depth: int = 0) -> bool:
    """Whether a reader can make the value of a field from its default (AV02).

    It is stricter than what a schema may be registered with: an enum's default must be one of its symbols, a union's one of
    the branch that Java's reader takes, and a record's must not contain itself.
    """
    if depth > NESTING_MAX:
        return False
    if isinstance(node, Union):
        branch = next((each for each in node.branches if _taken_for(each, value)), None)
        return branch is not None and readable_default(branch, value, depth + 1)
    if isinstance(node, Enum):
        return value in node.symbols
    if isinstance(node, Array):
        return isinstance(value, list) and all(readable_default(node.items, each, depth + 1) for each in value)
    if isinstance(node, Map):
        return isinstance(value, dict) and all(readable_default(node.values, each, depth + 1) for each in value.values())
    if isinstance(node, Record):
        given = value if isinstance(value, dict) else {}
        return all(
            (field.name in given or field.has_default)
            and readable_default(field.type, given.get(field.name, field.default), depth + 1)
            for field in node.fields
        )
    return _is_number(value) if node.kind in ("int", "long", "float", "double") else valid_default(node, value)


def _taken_for(node: Node, value: Json) -> bool:
    """Whether Java's reader tries this branch of a union for a default: it looks no further than the first that passes."""
    if node.kind in ("null", "boolean", "string", "bytes", "fixed"):
        return valid_default(node, value)
    return node.kind in ("record", "enum", "array", "map") or _is_number(value)


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def writer_fields(writer: Record, field: Field) -> list[Field]:
    """The writer's fields of the reader's name, or of one of its aliases."""
    wanted = [field.name, *field.aliases]
    return [each for name in wanted for each in writer.fields if each.name == name]


def names_apart(reader: Named, writer: Named) -> bool:
    """AV03. As in Java, another namespace is no other name."""
    aliases = {f".{each.simple}" if reader.name.namespace and not each.namespace else each.full for each in reader.aliases}
    return reader.name.simple != writer.name.simple and writer.name.full not in aliases


def _names(reader: Named, writer: Named, path: str) -> list[Incompatibility]:
    if not names_apart(reader, writer):
        return []
    message = f"the reader's {reader.kind} is {reader.name.full}, the writer's is {writer.name.full}"
    remedy = f"keep the name, or give {reader.name.full} the alias {writer.name.full}"
    return [Incompatibility(f"{path}/name", "NAME_MISMATCH", message, remedy)]


def _symbols(reader: Enum, writer: Enum, path: str) -> list[Incompatibility]:
    missing = sorted(set(writer.symbols) - set(reader.symbols))
    if not missing or reader.default is not None:
        return []
    message = f"enum {reader.name.full} lacks the writer's symbols {', '.join(missing)}"
    remedy = "keep the symbols, or give the enum a default"
    return [Incompatibility(f"{path}/symbols", "MISSING_ENUM_SYMBOLS", message, remedy)]


def _sizes(reader: Fixed, writer: Fixed, path: str) -> list[Incompatibility]:
    if reader.size == writer.size:
        return []
    message = f"fixed {reader.name.full} has {reader.size} bytes, the writer's has {writer.size}"
    return [Incompatibility(f"{path}/size", "FIXED_SIZE_MISMATCH", message, f"keep the size {writer.size}")]


def _no_branch(writer: Node, path: str) -> Incompatibility:
    message = f"no branch of the reader's union reads the writer's {describe(writer)}"
    return Incompatibility(path or "/", "MISSING_UNION_BRANCH", message, f"keep {describe(writer)} in the union")
