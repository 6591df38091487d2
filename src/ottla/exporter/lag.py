"""Lag of a committed offset in seconds, from samples (time, log end) of its partition.

Owns the samples of the last hour, at most `SAMPLES_MAX` of each partition: of several with the same end the first and the last
are kept, and beyond the limit every second one of the older half is dropped. Reads no clock.

The rules, for a committed offset `c` and the log end `e` at time `now`:

1. Lag is 0 seconds if c >= e. Otherwise it is the age of record c, which the group reads next: now - t(c).
2. t(c) lies on the line between the last sample whose end was at most c (record c was not there yet) and the first one above it.
   While nothing was produced, many samples have the same end; the last of them counts.
3. If every sample is above c, the record is older than the samples. t(c) is then where the line through the first and the last
   sample reaches c. Without growth in between it is the time of the first sample: the lag is at least that.
   `record_ages` corrects what this says of records that retention deletes soon.
4. A log end below the last sample (the topic was created anew, or lost records) discards the samples.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import Final

WINDOW_S: Final = 3600.0
SAMPLES_MAX: Final = 120


class LogEnds:
    """The samples of one partition, oldest first."""

    __slots__ = ("_ends", "_times")

    def __init__(self) -> None:
        self._times = array("d")
        self._ends = array("q")

    def __len__(self) -> int:
        return len(self._times)

    def add(self, time_s: float, end: int) -> None:
        times, ends = self._times, self._ends
        if times and (end < ends[-1] or time_s < times[-1]):
            del times[:], ends[:]
        if len(ends) >= 2 and ends[-2] == end:
            times[-1] = time_s
        else:
            times.append(time_s)
            ends.append(end)
        # The sample before the window stays: the line to the next one reaches to its edge.
        while len(times) > 2 and times[1] <= time_s - WINDOW_S:
            del times[0], ends[0]
        if len(times) > SAMPLES_MAX:
            del times[1 : SAMPLES_MAX // 2 : 2], ends[1 : SAMPLES_MAX // 2 : 2]

    def lag_s(self, committed: int, now_s: float) -> float | None:
        """None without samples."""
        times, ends = self._times, self._ends
        if not times:
            return None
        if committed >= ends[-1]:
            return 0.0
        above = bisect_right(ends, committed)
        if above:
            produced_s = _on_line(committed, times[above - 1], ends[above - 1], times[above], ends[above])
        else:
            produced_s = min(times[0], _on_line(committed, times[0], ends[0], times[-1], ends[-1]))
        return round(max(now_s - produced_s, 0.0), 3)

    def records_per_s(self) -> float | None:
        """What was produced between the samples; None if that was nothing."""
        times, ends = self._times, self._ends
        if len(times) < 2 or ends[-1] == ends[0]:
            return None
        return (ends[-1] - ends[0]) / (times[-1] - times[0])


def _on_line(offset: int, time_1: float, end_1: int, time_2: float, end_2: int) -> float:
    """The time at which the line through two samples reaches an offset; the first time if the line is flat."""
    if end_2 == end_1:
        return time_1
    return time_1 + (offset - end_1) * (time_2 - time_1) / (end_2 - end_1)
