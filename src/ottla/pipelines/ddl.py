"""Mistakes in a schema in Spark's DDL that can be known without Spark, which takes seconds to start.

Only what Spark refuses for certain is a mistake here: an unknown type, a column without one, a bracket that does not close. Spark
itself finds the rest.
"""

from __future__ import annotations

import re
from difflib import get_close_matches

_TYPES = frozenset(
    {
        *("boolean", "byte", "tinyint", "short", "smallint", "int", "integer", "long", "bigint", "float", "real", "double"),
        *("date", "time", "timestamp", "timestamp_ntz", "timestamp_ltz", "string", "char", "character", "varchar", "binary"),
        *("decimal", "dec", "numeric", "void", "interval", "variant", "geometry", "geography", "object"),
        *("array", "struct", "map"),
    }
)
_AFTER_TYPE = frozenset({"not", "comment", "default", "generated", "collate", "precision", "varying", "with", "without", "to"})
"""Words that may follow a type and be followed by one."""
_TOKEN = re.compile(r"`(?:[^`]|``)*`|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[\w.]+|[<>(),:]|\S")
_WORD = re.compile(r"[A-Za-z_]\w*")
_OPENS = {"<": ">", "(": ")"}


def mistake_in(ddl: str) -> str | None:
    """What is wrong with the schema; None if nothing is known to be."""
    tokens = _TOKEN.findall(ddl)
    if not tokens:
        return "it has no columns"
    if not _is_closed(tokens):
        return "a bracket does not close"
    return _columns(tokens) if _WORD.fullmatch(tokens[0]) and tokens[0].lower() != "struct" else None


def _is_closed(tokens: list[str]) -> bool:
    open_brackets: list[str] = []
    for token in tokens:
        if token in _OPENS:
            open_brackets.append(_OPENS[token])
        elif token in (">", ")") and (not open_brackets or open_brackets.pop() != token):
            return False
    return not open_brackets


def _columns(tokens: list[str]) -> str | None:
    for column in _parts(tokens):
        if not column:
            return "between two commas there is no column"
        name, *rest = column
        if rest and rest[0] == ":":
            rest = rest[1:]
        if not rest:
            # One type alone is a schema too.
            return None if len(tokens) == 1 and name.lower() in _TYPES else f"column {name!r} has no type"
        found = _type(rest)
        if found is not None:
            return f"column {name!r}: {found}"
    return None


def _type(tokens: list[str]) -> str | None:
    kind, inside = tokens[0], tokens[2:-1] if tokens[1:2] == ["<"] and tokens[-1] == ">" else None
    if not _WORD.fullmatch(kind):
        return None
    if kind.lower() not in _TYPES:
        near = get_close_matches(kind.lower(), sorted(_TYPES), 1)
        return f"type {kind!r} is unknown" + (f"; did you mean {near[0]}?" if near else "")
    after = tokens[_end_of_brackets(tokens) :]
    if len(after) > 1 and after[0].lower() not in _AFTER_TYPE and after[1].lower() in _TYPES:
        return f"a comma is missing before {after[0]!r}"
    if inside is None:
        return None
    if kind.lower() == "struct":
        return _columns(inside) if inside else None
    return next((found for part in _parts(inside) if part and (found := _type(part)) is not None), None)


def _end_of_brackets(tokens: list[str]) -> int:
    """The index behind a type and the brackets that follow it."""
    depth = 0
    for index, token in enumerate(tokens[1:], 1):
        depth += (token in _OPENS) - (token in (">", ")"))
        if not depth and token not in (">", ")"):
            return index
    return len(tokens)


def _parts(tokens: list[str]) -> list[list[str]]:
    """The tokens between commas outside of brackets."""
    parts: list[list[str]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token in _OPENS) - (token in (">", ")"))
        if token == "," and not depth:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts
