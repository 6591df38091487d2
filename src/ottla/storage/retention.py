"""The retention rules: which segments at the start of a log are deleted, by log start offset, size or age (F11).

A rule is applied to one segment after the other, oldest first, until it says no.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.storage.segment import Segment

Rule = Callable[[Segment, int | None], bool]
"""Whether to delete a segment, given the base offset of the next one (None: it is the active segment)."""


def below(log_start_offset: int) -> Rule:
    """All records are below the log start offset."""
    return lambda segment, follower: follower is not None and follower <= log_start_offset


def beyond_size(size_bytes: int, retention_bytes: int) -> Rule:
    """Without the segment the log still has `retention_bytes`."""
    excess = size_bytes - retention_bytes

    def due(segment: Segment, follower: int | None) -> bool:
        nonlocal excess
        if excess < segment.size:
            return False
        excess -= segment.size
        return True

    return due


def older_than(retention_ms: int, now_ms: int) -> Rule:
    """The newest record is too old. Without timestamps, the creation of the segment counts."""

    def due(segment: Segment, follower: int | None) -> bool:
        newest_ms = segment.max_timestamp
        return now_ms - (newest_ms if newest_ms >= 0 else segment.created_ms) > retention_ms

    return due
