"""A follower's rules for one partition: where its log may go on, and how much of it must go first.

Pure: asks a log for its epochs, answers with offsets. Fetching, cutting and appending are the shell's.

1. A follower never cuts to its high watermark as long as it has epochs: what it cuts is what the leader's epochs contradict, and
   nothing else (KIP-101, R05, R06).
2. It believes only the leader of its own epoch: every request names that epoch, and an answer FENCED or UNKNOWN changes nothing
   (R08, R09).
3. If the leader names an epoch that this log does not have, the log is cut to the end of the largest one below it, and the leader
   is asked again (KIP-279, R07).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from ottla.errors import ErrorCode
from ottla.types import NO_LEADER_EPOCH, NO_OFFSET, OffsetAndEpoch


class EpochsOfLog(Protocol):
    """What a follower's log knows of its epochs."""

    @property
    def log_end_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def latest_epoch(self) -> int: ...

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch: ...


@dataclass(frozen=True, slots=True)
class Truncation:
    offset: int
    """Where the log is to end."""
    complete: bool
    """False: the leader has to be asked again, about what is left."""


def truncation(log: EpochsOfLog, leader_epoch: int, leader_end_offset: int) -> Truncation:
    """How far to cut, when the leader says that its epoch `leader_epoch` ends at `leader_end_offset`."""
    end_offset = log.log_end_offset
    if leader_end_offset == NO_OFFSET:
        # The leader knows nothing of our epoch, not even that it is older: no common history can be named.
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
    """What to do about an offset that the leader does not have."""

    truncate_to: int | None = None
    """The leader's log is shorter: an unclean election. Cut to its end."""
    truncate_fully_and_start_at: int | None = None
    """The leader's log begins behind our end: forget everything."""


def out_of_range(log_end_offset: int, leader_start_offset: int, leader_end_offset: int) -> OutOfRange:
    if leader_end_offset < log_end_offset:
        return OutOfRange(truncate_to=leader_end_offset)
    if leader_start_offset > log_end_offset:
        return OutOfRange(truncate_fully_and_start_at=leader_start_offset)
    return OutOfRange()


class FetchErrorAction(Enum):
    """What an error code in a fetch reply means for one partition."""

    AGAIN = "after a pause"
    OUT_OF_RANGE = "after looking where the leader's log is"
    FENCED = "not before the controller's next order: our epoch is over"


_ACTIONS: Final = {
    ErrorCode.OFFSET_OUT_OF_RANGE: FetchErrorAction.OUT_OF_RANGE,
    ErrorCode.FENCED_LEADER_EPOCH: FetchErrorAction.FENCED,
}


def action_for(code: int) -> FetchErrorAction:
    return _ACTIONS.get(ErrorCode(code), FetchErrorAction.AGAIN)
