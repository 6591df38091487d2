"""The work that a server hands to a worker process with a time limit: plain values in, plain values out, all of them picklable.

Schemas are hostile input (SR11). The limits of `limits` are checked first; what is left may still take long, such as a
comparison of deep oneOf nests, so that the server ends the process when its time is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ottla.schemas.compatibility import Conflict, compared, conflicts
from ottla.schemas.model import ParsedSchema, Reference, ResolvedReference
from ottla.schemas.parsing import parse


@dataclass(frozen=True, slots=True)
class SchemaText:
    """A schema as a request or the log has it, with everything that it refers to."""

    schema_type: str
    text: str
    references: tuple[ResolvedReference, ...] = ()
    lenient: bool = False

    def parse(self) -> ParsedSchema:
        return parse(self.schema_type, self.text, self.references, lenient=self.lenient)


@dataclass(frozen=True, slots=True)
class Described:
    """What a server keeps of a parsed schema."""

    schema_type: str
    canonical: str
    name: str | None
    fields: tuple[str, ...]
    references: tuple[Reference, ...]


def describe(schema: SchemaText, normalize: bool = False) -> Described:
    """Parse, and normalise if asked. Raises InvalidSchema."""
    parsed = schema.parse()
    if normalize:
        parsed = parsed.normalized()
    return Described(parsed.schema_type, parsed.canonical, parsed.name, parsed.fields, parsed.references)


def formatted(schema: SchemaText, format: str) -> str:
    """The text in the `format` of a request (`serialized`, `resolved`). Raises InvalidSchema."""
    return schema.parse().formatted(format)


def check(level: str, new: SchemaText, earlier: Sequence[SchemaText], lenient: bool = False) -> list[Conflict]:
    """Why `new` may not follow `earlier`, the live versions in order, at this level. Raises InvalidSchema."""
    needed = set(compared(level, len(earlier)))
    first = min(needed, default=len(earlier))
    found = conflicts(level, new.parse(), [each.parse() for each in earlier[first:]], lenient=lenient)
    return [Conflict(each.position + first, each.direction, each.incompatibility) for each in found]
