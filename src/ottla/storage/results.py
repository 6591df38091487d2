"""Results and exceptions of the operations of a log.

No dataclasses: mypyc does not compile their generated methods, and every append and read creates an object.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.ports import FileRange


class UnexpectedOffset(Exception):
    """The leader sent records that do not continue this log."""

    def __init__(self, detail: str, first_offset: int, last_offset: int) -> None:
        super().__init__(detail)
        self.first_offset = first_offset
        self.last_offset = last_offset


class AppendInfo:
    def __init__(
        self,
        first_offset: int,
        last_offset: int,
        log_append_time_ms: int,
        log_start_offset: int,
        size_bytes: int,
        rolled: bool = False,
        duplicate: bool = False,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.log_append_time_ms = log_append_time_ms
        """NO_TIMESTAMP with CreateTime."""
        self.log_start_offset = log_start_offset
        self.size_bytes = size_bytes
        self.rolled = rolled
        """A segment was sealed and needs a flush."""
        self.duplicate = duplicate
        """Nothing was written: the batch is in the log at these offsets."""


class ReadInfo:
    def __init__(self, ranges: list[FileRange], size: int, records_end_offset: int, first_batch_too_large: bool = False) -> None:
        self.ranges = ranges
        """At most one range, of whole batches, in one segment."""
        self.size = size
        self.records_end_offset = records_end_offset
        """The offset behind the last record; the requested offset if there is none."""
        self.first_batch_too_large = first_batch_too_large
        """Empty because the first batch exceeds `max_bytes`."""


class OffsetByTime(NamedTuple):
    timestamp_ms: int
    offset: int
    leader_epoch: int
