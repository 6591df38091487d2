"""Points in time and durations, as people write them: `2024-05-01T10:00Z`, `1h30m`. Reads no clock."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

TIME_MS_MAX = 2**63 - 1
"""The largest timestamp of a record."""
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d|w))+")
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")


@dataclass(frozen=True, slots=True, order=True)
class Moment:
    """A point in time."""

    ms: int
    """Milliseconds since 1970."""


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """The time between two moments."""

    ms: int


def duration_ms(text: str) -> int | None:
    """`90s`, `1h30m`, `500ms` in milliseconds, or None if it is not a duration."""
    if not _DURATION.fullmatch(text):
        return None
    total_ms = sum(float(number) * _UNITS_MS[unit] for number, unit in _DURATION_PART.findall(text))
    return int(min(total_ms, TIME_MS_MAX))


def iso_time_ms(text: str) -> int | None:
    """An ISO 8601 time or date: 2024-05-01T10:00Z, 2024-05-01 10:00:00.5+02:00, 20240501T1000, 2024-W18-3."""
    text = text.upper()
    if "-" not in text[1:] and "T" not in text:
        return None  # 20240501 is an offset, or a number of milliseconds
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        return None
