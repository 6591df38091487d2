"""Limits on hostile schemas (SR11). They are checked before anything else looks at the text.

The rest of the parser may recurse once per level of nesting, so that NESTING_MAX also bounds its stack.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.schemas.model import InvalidSchema, ResolvedReference

TEXT_BYTES_MAX = 1024 * 1024
REFERENCES_MAX = 1000
NESTING_MAX = 100


class SchemaTooLarge(InvalidSchema):
    """The schema, or what it refers to, has more bytes than a registry takes."""


def require_size(text: str, references: Sequence[ResolvedReference]) -> None:
    """Refuse a text or a set of references over the limits."""
    size_bytes = len(text.encode("utf-8", "surrogatepass"))
    if size_bytes > TEXT_BYTES_MAX:
        raise SchemaTooLarge(f"the schema has {size_bytes:,} bytes, over the limit of {TEXT_BYTES_MAX:,}")
    if len(references) > REFERENCES_MAX:
        raise SchemaTooLarge(f"the schema refers to {len(references):,} others, over the limit of {REFERENCES_MAX:,}")


def require_nesting(text: str) -> None:
    """Refuse JSON whose arrays and objects nest deeper than NESTING_MAX, without parsing it."""
    depth = 0
    in_string = escaped = False
    for character in text:
        if in_string:
            if escaped:
                escaped = False
            elif character == "\\":
                escaped = True
            elif character == '"':
                in_string = False
        elif character == '"':
            in_string = True
        elif character in "{[":
            depth += 1
            if depth > NESTING_MAX:
                raise InvalidSchema(f"the schema nests deeper than {NESTING_MAX} levels")
        elif character in "}]":
            depth -= 1
