"""Compatibility levels: which of the earlier versions a new schema is compared with, and in which direction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ottla.schemas.model import Incompatibility, ParsedSchema

LEVELS = ("NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE")
DEFAULT_LEVEL = "BACKWARD"
LENIENT = "LENIENT"
POLICIES = ("STRICT", LENIENT)


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why a new schema and one earlier version do not fit.

    `position` is the index of the earlier schema in what `conflicts` was given. `direction` is BACKWARD if the new schema
    cannot read the earlier one's data, FORWARD if the earlier one cannot read the new one's, and empty if the new one is refused
    by itself.
    """

    position: int
    direction: str
    incompatibility: Incompatibility


def incompatibilities(reader: ParsedSchema, writer: ParsedSchema, *, lenient: bool = False) -> list[Incompatibility]:
    """Why `reader` cannot read data of `writer`; empty if it can."""
    if reader.schema_type != writer.schema_type:
        message = f"the reader's schema is {reader.schema_type}, the writer's is {writer.schema_type}"
        remedy = f"keep the type {writer.schema_type}, or register in another subject"
        return [Incompatibility("", "SCHEMA_TYPE_CHANGED", message, remedy)]
    return reader.incompatibilities(writer, lenient=lenient)


def compared(level: str, count: int) -> range:
    """The positions, among `count` live versions in order, that `level` compares a new schema with, the latest first."""
    if level not in LEVELS:
        raise ValueError(f"compatibility level {level!r} is unknown; use one of {', '.join(LEVELS)}")
    if level == "NONE" or not count:
        return range(0)
    return range(count - 1, -1, -1) if level.endswith("_TRANSITIVE") else range(count - 1, count - 2, -1)


def conflicts(level: str, new: ParsedSchema, earlier: Sequence[ParsedSchema], *, lenient: bool = False) -> list[Conflict]:
    """Why `new` may not follow `earlier`, the live versions in order, at this level; empty if it may.

    As Confluent does, it stops at the first version that does not fit, beginning with the latest.
    """
    for position in compared(level, len(earlier)):
        found: list[Conflict] = []
        old = earlier[position]
        if level.startswith(("BACKWARD", "FULL")):
            found += [Conflict(position, "BACKWARD", each) for each in incompatibilities(new, old, lenient=lenient)]
        if level.startswith(("FORWARD", "FULL")):
            found += [Conflict(position, "FORWARD", each) for each in incompatibilities(old, new, lenient=lenient)]
        if found:
            return found
    return []
