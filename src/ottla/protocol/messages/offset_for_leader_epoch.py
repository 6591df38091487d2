"""OffsetForLeaderEpoch: where a leader epoch ends in the leader's log.

A follower, or a consumer after a change of leader, learns from it how far its own log or position is still right (KIP-101,
KIP-320).

Versions
    1       the response names the epoch found
    2       throttle time; the leader epoch the asker believes in
    3       replica id: -1 a consumer, -2 (if absent) one from before this version
    4       flexible
"""

from __future__ import annotations

from ottla.wire.schema import list_of, message, wire


@message()
class OffsetForLeaderPartition:
    partition: int = wire("int32")
    current_leader_epoch: int = wire("int32", "2+", default=-1, ignorable=True)
    leader_epoch: int = wire("int32")


@message()
class OffsetForLeaderTopic:
    topic: str = wire("string")
    partitions: list[OffsetForLeaderPartition] = wire(list_of(OffsetForLeaderPartition))


@message(versions="0-4", flexible="4+")
class OffsetForLeaderEpochRequest:
    replica_id: int = wire("int32", "3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = wire(list_of(OffsetForLeaderTopic))


@message()
class EpochEndOffset:
    error_code: int = wire("int16")
    partition: int = wire("int32")
    leader_epoch: int = wire("int32", "1+", default=-1, ignorable=True)
    end_offset: int = wire("int64", default=-1)


@message()
class OffsetForLeaderTopicResult:
    topic: str = wire("string")
    partitions: list[EpochEndOffset] = wire(list_of(EpochEndOffset))


@message(versions="0-4", flexible="4+")
class OffsetForLeaderEpochResponse:
    throttle_time_ms: int = wire("int32", "2+", ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = wire(list_of(OffsetForLeaderTopicResult))
