"""One committed offset of a group. Compiled: shards hold many of them."""

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
    """Set by old clients with a retention time of their own; otherwise offsets.retention.minutes applies."""
    topic_id: bytes = ZERO_UUID
    order: int = field(default=0, compare=False)
    """The order in the log, set when the record is replayed."""

    # Written by hand: the one of `dataclass` would not be compiled.
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
    """The offsets of one commit of a group, in the order of their records."""

    group: str
    offsets: list[tuple[str, int, CommittedOffset]]
    """Topic, partition and offset."""
