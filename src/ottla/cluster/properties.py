"""Parses Java properties files such as `server.properties`.

Comments (`#`, `!`), the separators (`=`, `:`, blank), lines continued by a backslash, and escapes
(`\\t \\n \\r \\f \\uXXXX`; any other escaped character is itself). The last of two lines with the same name wins, as in Java.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_LINE_END = re.compile(r"\r\n|\r|\n")
_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class PropertiesError(ValueError):
    """A syntax error; the message names the line."""


def parse_properties(text: str) -> dict[str, str]:
    properties: dict[str, str] = {}
    for number, line in _logical_lines(text):
        name, value = _split(line)
        properties[_unescape(name, number)] = _unescape(value, number)
    return properties


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with continuations joined, without comments and empty lines, numbered from 1 by their first line."""
    held = ""
    held_from = 0
    for number, raw in enumerate(_LINE_END.split(text), start=1):
        line = raw.lstrip(_BLANK)
        if not held_from:
            if not line or line[0] in "#!":
                continue
            held_from = number
        if (len(line) - len(line.rstrip("\\"))) % 2:
            held += line[:-1]
            # After a line with only a backslash, the next one may still be a comment.
            held_from = held_from if held else 0
            continue
        yield held_from, held + line
        held, held_from = "", 0
    if held_from and held:
        yield held_from, held


def _split(line: str) -> tuple[str, str]:
    position = 0
    while position < len(line):
        character = line[position]
        if character == "\\":
            position += 2
            continue
        if character in "=:" or character in _BLANK:
            break
        position += 1
    name, rest = line[:position], line[position:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return name, rest


def _unescape(text: str, number: int) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\":
            parts.append(character)
            continue
        escaped = text[position : position + 1]
        position += 1
        if escaped == "u":
            digits = text[position : position + 4]
            if not re.fullmatch(r"[0-9a-fA-F]{4}", digits):
                raise PropertiesError(f"line {number}: \\u must be followed by four hexadecimal digits, not {digits!r}")
            parts.append(chr(int(digits, 16)))
            position += 4
        else:
            parts.append(_ESCAPES.get(escaped, escaped))
    # Two \u escapes may be the surrogate pair of one character.
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
