"""What a group commits: an offset is the smallest piece of a shard's state, and the one there is most of. Compiled."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.types import NO_LEADER_EPOCH, NO_TIMESTAMP, ZERO_UUID


@dataclass(init=False)
class CommittedOffset:
    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    commit_timestamp_ms: int = NO_TIMESTAMP
    expire_timestamp_ms: int = NO_TIMESTAMP
    """Set by old clients that bring their own retention; else the broker's counts."""
    topic_id: bytes = ZERO_UUID
    order: int = field(default=0, compare=False)
    """Rises with the place in the log, and is known when it has one."""

    # Written out: the one that `dataclass` makes is not compiled, and every commit makes some.
    def __init__(
        self,
        offset: int,
        leader_epoch: int = NO_LEADER_EPOCH,
        metadata: str = "",
        commit_timestamp_ms: int = NO_TIMESTAMP,
        expire_timestamp_ms: int = NO_TIMESTAMP,
        topic_id: bytes = ZERO_UUID,
    ) -> None:
        self.offset = offset
        self.leader_epoch = leader_epoch
        self.metadata = metadata
        self.commit_timestamp_ms = commit_timestamp_ms
        self.expire_timestamp_ms = expire_timestamp_ms
        self.topic_id = topic_id
        self.order = 0


class Commits(NamedTuple):
    """What the records of some offsets say, of one group, in their order."""

    group: str
    offsets: list[tuple[str, int, CommittedOffset]]
    """Topic, partition, and what is committed."""
