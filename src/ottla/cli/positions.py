"""Positions in a log as people type them: `beginning`, `end`, `120`, `-5`, `10m`, `2024-05-01T10:00`, `@1714557600000`.

Pure: the present time is an argument. `offsets` turns a position into offsets, which needs a broker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ottla.cli.failure import EXIT_USAGE, Failure
from ottla.filters.times import TIME_MS_MAX, duration_ms, iso_time_ms

DIGITS_MAX = 19
"""Of an offset. `int` refuses thousands of digits."""
TopicIndex = tuple[str, int]
"""A topic and a partition's number."""


@dataclass(frozen=True, slots=True)
class Position:
    kind: Literal["beginning", "end", "offset", "back", "time"]
    value: int = 0
    """The offset, the number of records before the end, or the time in milliseconds since 1970."""


def is_number(text: str) -> bool:
    """Whether a text is a number that may be an offset."""
    return text.isdecimal() and len(text) <= DIGITS_MAX


def parse_time_ms(text: str, now_ms: int) -> int | None:
    """A point in time: ISO 8601 (local time unless it has a zone), `@` and milliseconds, or a duration before now."""
    ago_ms = duration_ms(text)
    if ago_ms is not None:
        return now_ms - ago_ms
    if text.startswith("@"):
        return int(text[1:]) if is_number(text[1:]) and int(text[1:]) <= TIME_MS_MAX else None
    return iso_time_ms(text)


def parse_position(text: str, now_ms: int) -> Position:
    word = text.strip().lower()
    if word in ("beginning", "earliest", "start"):
        return Position("beginning")
    if word in ("end", "latest"):
        return Position("end")
    if is_number(word):
        return Position("offset", int(word))
    if word.startswith("-") and is_number(word[1:]):
        return Position("back", int(word[1:]))
    time_ms = parse_time_ms(word, now_ms)
    if time_ms is not None:
        return Position("time", max(time_ms, 0))
    raise Failure(
        f"{text!r} is not a position",
        "use beginning, end, an offset (120), the last n records (-5), a time ago (10m, 1h30m), a time (2024-05-01T10:00)"
        " or milliseconds since 1970 (@1714557600000)",
        exit_code=EXIT_USAGE,
    )
