"""Positions in a log as people type them: `beginning`, `end`, `120`, `-5`, `10m`, `2024-05-01T10:00`, `@1714557600000`.

Pure: the present time is an argument. `offsets` turns a position into offsets, which needs a broker.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from ottla.cli.failure import EXIT_USAGE, Failure

TopicIndex = tuple[str, int]
"""A topic and a partition's number."""

TIME_MS_MAX = 2**63 - 1
"""The largest timestamp of a record."""

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_AGO = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d|w))+")
_AGO_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")


@dataclass(frozen=True, slots=True)
class Position:
    kind: Literal["beginning", "end", "offset", "back", "time"]
    value: int = 0
    """The offset, the number of records before the end, or the time in milliseconds since 1970."""


def duration_ms(text: str) -> int | None:
    """`90s`, `1h30m`, `500ms` in milliseconds, or None if it is not a duration."""
    if not _AGO.fullmatch(text):
        return None
    total_ms = sum(float(number) * _UNITS_MS[unit] for number, unit in _AGO_PART.findall(text))
    return int(min(total_ms, TIME_MS_MAX))


def parse_time_ms(text: str, now_ms: int) -> int | None:
    """A point in time: ISO 8601 (local time unless it has a zone), `@` and milliseconds, or a duration before now."""
    ago_ms = duration_ms(text)
    if ago_ms is not None:
        return now_ms - ago_ms
    if text.startswith("@"):
        return int(text[1:]) if text[1:].isdecimal() and int(text[1:]) <= TIME_MS_MAX else None
    return iso_time_ms(text)


def iso_time_ms(text: str) -> int | None:
    """An ISO 8601 time or date: 2024-05-01T10:00Z, 2024-05-01 10:00:00.5+02:00, 20240501T1000, 2024-W18-3."""
    text = text.upper()
    if "-" not in text[1:] and "T" not in text:
        return None  # 20240501 is an offset, or a number of milliseconds
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def parse_position(text: str, now_ms: int) -> Position:
    word = text.strip().lower()
    if word in ("beginning", "earliest", "start"):
        return Position("beginning")
    if word in ("end", "latest"):
        return Position("end")
    if word.isdecimal():
        return Position("offset", int(word))
    if word.startswith("-") and word[1:].isdecimal():
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
