"""Which segments at the start of a log are due to go: below its start, by size, by time (F11).

Owns: the three rules. Each is asked of one segment after the other, oldest first, until it says no; what then happens to the
files is the log's business.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.storage.segment import Segment

Rule = Callable[[Segment, int | None], bool]
"""Of a segment and the base offset of the next one (None: it is the active one)."""


def below(log_start_offset: int) -> Rule:
    """All of its records lie before the start of the log."""
    return lambda segment, follower: follower is not None and follower <= log_start_offset


def beyond_size(size_bytes: int, retention_bytes: int) -> Rule:
    """The log would still have `retention_bytes` without it."""
    excess = size_bytes - retention_bytes

    def due(segment: Segment, follower: int | None) -> bool:
        nonlocal excess
        if excess < segment.size:
            return False
        excess -= segment.size
        return True

    return due


def older_than(retention_ms: int, now_ms: int) -> Rule:
    """Its newest record is too old; where no record has a timestamp, its creation counts."""

    def due(segment: Segment, follower: int | None) -> bool:
        newest_ms = segment.max_timestamp
        return now_ms - (newest_ms if newest_ms >= 0 else segment.created_ms) > retention_ms

    return due
