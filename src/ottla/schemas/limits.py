"""Limits on hostile schemas (SR11). They are checked before anything else looks at the text.

The rest of the parser may recurse once per level of nesting, so that NESTING_MAX also bounds its stack.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ottla.schemas.model import InvalidSchema, ResolvedReference

TEXT_BYTES_MAX = 1024 * 1024
REFERENCES_MAX = 1000
NESTING_MAX = 100
# A record within a record is an object in an array in an object.
JSON_NESTING_MAX = 3 * NESTING_MAX + 2

_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[][{}]', re.DOTALL)


class SchemaTooLarge(InvalidSchema):
    """The schema, or what it refers to, has more bytes than a registry takes."""


def require_size(text: str, references: Sequence[ResolvedReference]) -> None:
    """Refuse a text or a set of references over the limits."""
    size_bytes = len(text.encode("utf-8", "surrogatepass"))
    if size_bytes > TEXT_BYTES_MAX:
        raise SchemaTooLarge(f"the schema has {size_bytes:,} bytes, over the limit of {TEXT_BYTES_MAX:,}")
    if len(references) > REFERENCES_MAX:
        raise SchemaTooLarge(f"the schema refers to {len(references):,} others, over the limit of {REFERENCES_MAX:,}")


def require_json_nesting(text: str) -> None:
    """Refuse JSON whose arrays and objects nest deeper than JSON_NESTING_MAX, without parsing it."""
    if text.count("{") + text.count("[") <= JSON_NESTING_MAX:
        return
    depth = 0
    for found in _BRACKETS.finditer(text):
        bracket = found[0]
        if bracket in "{[":
            depth += 1
            if depth > JSON_NESTING_MAX:
                raise InvalidSchema(f"the JSON nests deeper than {JSON_NESTING_MAX} levels")
        elif bracket in "}]":
            depth -= 1


def require_depth(depth: int, path: str) -> None:
    """Refuse a schema within more than NESTING_MAX others."""
    if depth > NESTING_MAX:
        raise InvalidSchema(f"schemas nest deeper than {NESTING_MAX} levels", path)
