"""Lead of a committed offset in seconds: the time until retention deletes the record that the group reads next. Reads no clock.

The rules, for a committed offset `c` and the log start `s` at time `now`:

1. By time: the record is deleted `retention.ms` after its timestamp. Its age is the group's lag in seconds.
2. By size: (c - s) / rate, with the rate at which the log start moved since its first move of the last hour. Retention deletes
   whole segments, so a rate takes at least two moves. While the log start stands still there is none.
3. The earlier of both counts. Without a record to read, and for a topic whose records are not deleted, there is no value.
4. A group whose offset is below the log start has lost records: 0.
"""

from __future__ import annotations

from ottla.exporter.lag import SAMPLES_MAX, WINDOW_S
from ottla.exporter.reading import Topic

UNLIMITED = -1


class LogStarts:
    """The moves of one partition's log start in the last hour, oldest first."""

    __slots__ = ("_moves", "_start")

    def __init__(self) -> None:
        self._start: int | None = None
        self._moves: list[tuple[float, int]] = []

    def add(self, time_s: float, start: int) -> None:
        if self._start is not None and start < self._start:
            self._moves.clear()  # the topic was created anew
        elif self._start is not None and start > self._start:
            self._moves.append((time_s, start))
        self._start = start
        while self._moves and (self._moves[0][0] < time_s - WINDOW_S or len(self._moves) > SAMPLES_MAX):
            del self._moves[0]

    def reaches_in_s(self, lead: int, now_s: float) -> float | None:
        """When the log start will have moved by `lead`. None while it does not move."""
        if len(self._moves) < 2:
            return None
        (first_s, first), (_, last) = self._moves[0], self._moves[-1]
        return max(lead, 0) * (now_s - first_s) / (last - first)


def lead_s(topic: Topic, starts: LogStarts | None, lead: int, lag: int, lag_s: float | None, now_s: float) -> float | None:
    """None if nothing that the group has yet to read is about to be deleted."""
    if lag <= 0 or (topic.cleanup_policy is not None and "delete" not in topic.cleanup_policy):
        return None
    if lead < 0:
        return 0.0
    ends = []
    if topic.retention_ms is not None and topic.retention_ms != UNLIMITED and lag_s is not None:
        ends.append(max(topic.retention_ms / 1000 - lag_s, 0.0))
    if topic.retention_bytes != UNLIMITED and starts is not None:
        by_size = starts.reaches_in_s(lead, now_s)
        if by_size is not None:
            ends.append(by_size)
    return round(min(ends), 3) if ends else None
