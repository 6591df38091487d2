"""The rules of a follower: how far to truncate its log before it fetches.

1. A follower with leader epochs never truncates to its high watermark. It truncates exactly what contradicts the leader's epochs
   (KIP-101, R05, R06).
2. It trusts only the leader of its own epoch: every request names the epoch, and FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH
   changes nothing (R08, R09).
3. If the leader names an epoch that this log does not have, the log is truncated to the end of the largest epoch below it, and
   the leader is asked again (KIP-279, R07).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from ottla.errors import ErrorCode
from ottla.types import NO_LEADER_EPOCH, NO_OFFSET, OffsetAndEpoch


class EpochsOfLog(Protocol):
    """The leader epochs of a follower's log."""

    @property
    def log_end_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch: ...


@dataclass(frozen=True, slots=True)
class Truncation:
    offset: int
    """The new log end offset."""
    complete: bool
    """False: ask the leader again after the truncation."""


def truncation(log: EpochsOfLog, leader_epoch: int, leader_end_offset: int) -> Truncation:
    """How far to truncate if the leader's epoch `leader_epoch` ends at `leader_end_offset`."""
    end_offset = log.log_end_offset
    if leader_end_offset == NO_OFFSET:
        # The leader does not know the follower's epoch: the last common offset is unknown.
        return Truncation(min(log.high_watermark, end_offset), True)
    if leader_epoch == NO_LEADER_EPOCH:
        return Truncation(min(leader_end_offset, end_offset), True)
    own = log.end_offset_for_epoch(leader_epoch)
    if own.leader_epoch == NO_LEADER_EPOCH:
        return Truncation(min(leader_end_offset, end_offset), True)
    if own.leader_epoch != leader_epoch:
        return Truncation(min(own.offset, end_offset), False)
    return Truncation(min(own.offset, leader_end_offset, end_offset), True)


@dataclass(frozen=True, slots=True)
class OutOfRange:
    """The reaction to OFFSET_OUT_OF_RANGE. Without an offset: retry later."""

    truncate_to: int | None = None
    """The leader's log is shorter, after an unclean leader election: truncate to its end."""
    truncate_fully_and_start_at: int | None = None
    """The leader's log starts behind the end of this one: drop everything."""


def out_of_range(log_end_offset: int, leader_start_offset: int, leader_end_offset: int) -> OutOfRange:
    if leader_end_offset < log_end_offset:
        return OutOfRange(truncate_to=leader_end_offset)
    if leader_start_offset > log_end_offset:
        return OutOfRange(truncate_fully_and_start_at=leader_start_offset)
    return OutOfRange()


class FetchErrorAction(Enum):
    """The reaction to an error code of one partition in a fetch response."""

    RETRY = "retry after a pause"
    OUT_OF_RANGE = "ask for the leader's log start and end offset"
    FENCED = "wait for the next LeaderAndIsr request: the leader epoch is over"


_ACTIONS: Final = {
    ErrorCode.OFFSET_OUT_OF_RANGE: FetchErrorAction.OUT_OF_RANGE,
    ErrorCode.FENCED_LEADER_EPOCH: FetchErrorAction.FENCED,
}


def action_for(code: int) -> FetchErrorAction:
    return _ACTIONS.get(ErrorCode(code), FetchErrorAction.RETRY)
