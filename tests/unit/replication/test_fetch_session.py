"""Incremental fetch sessions (KIP-227, W03)."""

from __future__ import annotations

from ottla.errors import ErrorCode
from ottla.replication.fetch_session import (
    EVICTION_MS,
    FetchContext,
    FetchPartition,
    FetchSessionCache,
    PartitionKey,
    next_epoch,
)
from ottla.types import ZERO_UUID


class CountingRandom:
    """Session ids 1, 2, 3 ..."""

    def __init__(self) -> None:
        self.count = 0

    def below(self, limit: int) -> int:
        self.count += 1
        return self.count - 1

    def bytes(self, count: int) -> bytes:
        return bytes(count)


def cache_of(slots: int = 10) -> FetchSessionCache:
    return FetchSessionCache(slots, CountingRandom())


def want(topic: str, partition: int = 0, offset: int = 0) -> FetchPartition:
    return FetchPartition(topic, ZERO_UUID, partition, offset, 1 << 20)


def begin(
    cache: FetchSessionCache,
    session_id: int,
    epoch: int,
    *wanted: FetchPartition,
    forgotten: list[PartitionKey] | None = None,
    now_ms: int = 0,
    privileged: bool = False,
    uses_topic_ids: bool = False,
) -> FetchContext:
    return cache.begin(
        session_id, epoch, wanted, forgotten or [], uses_topic_ids=uses_topic_ids, privileged=privileged, now_ms=now_ms
    )


def open_session(cache: FetchSessionCache, *wanted: FetchPartition, now_ms: int = 0, privileged: bool = False) -> int:
    context = begin(cache, 0, 0, *wanted, now_ms=now_ms, privileged=privileged)
    error, session_id = context.finish(now_ms)
    assert error == ErrorCode.NONE
    return session_id


def topics(context: FetchContext) -> list[str | None]:
    return [partition.topic for partition in context.partitions]


def tell(partition: FetchPartition, high_watermark: int, *, size: int = 0, failed: bool = False, start: int = 0) -> bool:
    return partition.tell(high_watermark, start, records_bytes=size, failed=failed, diverging=False)


def test_a_full_request_opens_a_session_and_the_next_ones_name_only_what_changed() -> None:
    cache = cache_of()
    session_id = open_session(cache, want("a"), want("b"))
    assert session_id != 0
    second = begin(cache, session_id, 1, want("a", offset=7))
    assert second.incremental
    assert [(partition.topic, partition.fetch_offset) for partition in second.partitions] == [("a", 7), ("b", 0)]
    assert second.finish(0) == (ErrorCode.NONE, session_id)
    third = begin(cache, session_id, 2, want("c"), forgotten=[("a", 0)])
    assert topics(third) == ["b", "c"]


def test_w03_unknown_session_and_wrong_epoch() -> None:
    cache = cache_of()
    session_id = open_session(cache, want("a"))
    assert begin(cache, session_id + 1, 1).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert begin(cache, session_id, 2).error == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert begin(cache, session_id, 1, uses_topic_ids=True).error == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert begin(cache, session_id, 1).error == ErrorCode.NONE, "the failed requests did not move the session"


def test_the_epoch_final_ends_the_session_and_opens_none() -> None:
    cache = cache_of()
    session_id = open_session(cache, want("a"))
    last = begin(cache, session_id, -1, want("a"))
    assert topics(last) == ["a"]
    assert last.finish(0) == (ErrorCode.NONE, 0)
    assert len(cache) == 0


def test_a_full_request_that_names_a_session_replaces_it() -> None:
    cache = cache_of()
    session_id = open_session(cache, want("a"))
    _, new_id = begin(cache, session_id, 0, want("b")).finish(0)
    assert new_id != session_id
    assert len(cache) == 1
    assert begin(cache, session_id, 1).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_without_partitions_ends() -> None:
    cache = cache_of()
    session_id = open_session(cache, want("a"))
    emptied = begin(cache, session_id, 1, forgotten=[("a", 0)])
    assert emptied.finish(0) == (ErrorCode.NONE, 0)
    assert len(cache) == 0


def test_what_is_asked_for_and_forgotten_at_once_is_read_without_a_session() -> None:
    cache = cache_of()
    session_id = open_session(cache, want("a"))
    emptied = begin(cache, session_id, 1, want("b"), forgotten=[("a", 0), ("b", 0)])
    assert topics(emptied) == ["b"]
    assert emptied.finish(0) == (ErrorCode.NONE, 0)


def test_only_what_changed_is_told() -> None:
    partition = want("a")
    assert tell(partition, 5), "nothing was told before"
    assert not tell(partition, 5)
    assert tell(partition, 6), "the high watermark moved"
    assert tell(partition, 6, size=10), "there are records"
    assert tell(partition, 6, start=2), "the log start moved"
    assert partition.tell(6, 2, records_bytes=0, failed=False, diverging=True)
    assert tell(partition, 6, failed=True, start=2)
    assert tell(partition, 6, start=2), "the error is gone, and that is news"
    assert not tell(partition, 6, start=2)


def test_partitions_that_gave_records_go_to_the_end() -> None:
    cache = cache_of()
    session_id = open_session(cache, want("a"), want("b"), want("c"))
    context = begin(cache, session_id, 1)
    context.served(next(iter(context.partitions)))
    context.finish(0)
    assert topics(begin(cache, session_id, 2)) == ["b", "c", "a"]


def test_a_request_that_came_twice_moves_the_session_once() -> None:
    cache = cache_of()
    session_id = open_session(cache, want("a"))
    slow = begin(cache, session_id, 1)
    begin(cache, session_id, 2).finish(0)
    assert slow.finish(0)[0] == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_the_epoch_wraps_to_one() -> None:
    assert next_epoch(0) == 1
    assert next_epoch(0x7FFFFFFF) == 1
    assert next_epoch(-1) == -1


def test_the_cache_is_bounded_and_young_sessions_keep_their_place() -> None:
    cache = cache_of(2)
    first = open_session(cache, want("a"))
    open_session(cache, want("b"))
    assert open_session(cache, want("c"), want("d")) == 0, "a larger one, but nobody is old enough to go"
    assert len(cache) == 2
    assert begin(cache, first, 1).error == ErrorCode.NONE


def test_an_unused_session_gives_way_to_any() -> None:
    cache = cache_of(2)
    idle = open_session(cache, want("a"), want("b"), want("c"))
    used = open_session(cache, want("d"))
    later = EVICTION_MS + 1
    begin(cache, used, 1, now_ms=later)
    assert open_session(cache, want("e"), now_ms=later) != 0
    assert begin(cache, idle, 1, now_ms=later).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert begin(cache, used, 2, now_ms=later).error == ErrorCode.NONE
    assert cache.evictions == 1


def test_a_follower_takes_the_place_of_the_smallest_consumer() -> None:
    cache = cache_of(2)
    large = open_session(cache, want("a"), want("b"))
    small = open_session(cache, want("c"))
    assert open_session(cache, want("d"), privileged=True) != 0
    assert begin(cache, small, 1).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert begin(cache, large, 1).error == ErrorCode.NONE
    assert cache.partition_count == 3


def test_no_slots_no_sessions() -> None:
    assert open_session(cache_of(0), want("a")) == 0
