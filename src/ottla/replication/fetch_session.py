"""Incremental fetch sessions (KIP-227), the broker's side: a request and a response have only the partitions that changed.

Owns the bounded session cache and the rule of which partitions a response includes.

1. A request with epoch 0 or -1 is a full one, and ends the session it names. Epoch 0 requests a new session, -1 does not.
2. Any other epoch is incremental and must be the next one of the session; otherwise nothing is read and the session is unchanged.
3. An incremental response omits a partition only if it has no records, no error, no divergence, and the same high watermark and
   log start offset as in the last response.
4. A partition that returned records moves to the end of its session, so that a full response does not starve the others.
5. The cache never exceeds its slots. A session that is unused for two minutes may be evicted by any other; a follower's or larger
   session evicts a smaller one, those of consumers first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from ottla.errors import ErrorCode
from ottla.ports import Random
from ottla.types import ZERO_UUID

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
EVICTION_MS: Final = 120_000
_EPOCH_MAX: Final = 0x7FFF_FFFF

PartitionKey = tuple[bytes | str, int]
"""Topic id (the name, in versions without ids) and partition."""


def next_epoch(epoch: int) -> int:
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == _EPOCH_MAX else epoch + 1


# No dataclasses: mypyc does not compile their generated methods, and every fetch creates some objects.


class FetchPartition:
    """One partition of a fetch request, and what the last response said about it."""

    def __init__(
        self,
        topic: str | None,
        topic_id: bytes,
        partition: int,
        fetch_offset: int,
        max_bytes: int,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        follower_log_start_offset: int = -1,
    ) -> None:
        self.topic = topic
        """None if the topic id is unknown."""
        self.topic_id = topic_id
        self.partition = partition
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.follower_log_start_offset = follower_log_start_offset
        self.told_high_watermark = -1
        self.told_log_start_offset = -1

    @property
    def key(self) -> PartitionKey:
        # Without id and name the topic is unknown; the key is the zero id.
        if self.topic is None or self.topic_id != ZERO_UUID:
            return self.topic_id, self.partition
        return self.topic, self.partition

    def update(self, wanted: FetchPartition) -> None:
        self.fetch_offset = wanted.fetch_offset
        self.max_bytes = wanted.max_bytes
        self.current_leader_epoch = wanted.current_leader_epoch
        self.last_fetched_epoch = wanted.last_fetched_epoch
        self.follower_log_start_offset = wanted.follower_log_start_offset

    def tell(self, high_watermark: int, log_start_offset: int, *, records_bytes: int, failed: bool, diverging: bool) -> bool:
        """Remember what the response says. False: an incremental response omits the partition (rule 3)."""
        changed = (
            records_bytes > 0
            or failed
            or diverging
            or high_watermark != self.told_high_watermark
            or log_start_offset != self.told_log_start_offset
        )
        # The first response after an error includes the partition, whatever the high watermark.
        self.told_high_watermark = -1 if failed else high_watermark
        self.told_log_start_offset = log_start_offset
        return changed


class FetchSession:
    def __init__(
        self, id: int, uses_topic_ids: bool, privileged: bool, created_ms: int, partitions: dict[PartitionKey, FetchPartition]
    ) -> None:
        self.id = id
        self.epoch = next_epoch(INITIAL_EPOCH)
        """The epoch of the next request."""
        self.uses_topic_ids = uses_topic_ids
        self.privileged = privileged
        """The session of a follower."""
        self.created_ms = created_ms
        self.last_used_ms = created_ms
        self.partitions = partitions
        self.reader: object = None
        """Who may read every partition of the session, as of `reader_generation` (`broker.authorization`)."""
        self.reader_generation = 0


class FetchContext:
    """One fetch request in its session: the partitions to read, and how to respond."""

    def __init__(
        self,
        error: ErrorCode,
        partitions: Collection[FetchPartition],
        session: FetchSession | None = None,
        cache: FetchSessionCache | None = None,
        uses_topic_ids: bool = False,
        privileged: bool = False,
    ) -> None:
        """`session`: of an incremental request. `cache`: creates a session for a full request that wants one."""
        self.error = error
        """Not NONE: the response has this error and no partitions."""
        self.partitions = partitions
        self.incremental = session is not None
        self._cache = cache
        self._session = session
        self._epoch = session.epoch if session is not None else 0
        self._uses_topic_ids = uses_topic_ids
        self._privileged = privileged
        self._served: list[PartitionKey] | None = None

    def served(self, partition: FetchPartition) -> None:
        """The response has records of this partition."""
        if self._session is None:
            return
        if self._served is None:
            self._served = []
        self._served.append(partition.key)

    def finish(self, now_ms: int) -> tuple[ErrorCode, int]:
        """Returns the top-level error of the response and its session id (0: none)."""
        session = self._session
        if session is not None:
            if session.epoch != self._epoch:
                # The same request came over two connections; only one of them may advance the session.
                return ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.id
            for key in self._served or ():
                partition = session.partitions.pop(key, None)
                if partition is not None:
                    session.partitions[key] = partition
            return ErrorCode.NONE, session.id
        if self._cache is not None:
            return ErrorCode.NONE, self._cache._create(self, now_ms)
        return self.error, NO_SESSION

    def finish_throttled(self) -> tuple[ErrorCode, int]:
        """As `finish`, for an empty response in place of what was read: it creates no session."""
        session = self._session
        if session is None:
            return self.error, NO_SESSION
        return ErrorCode.NONE if session.epoch == self._epoch else ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.id


class FetchSessionCache:
    def __init__(self, slots_max: int, random: Random) -> None:
        self.slots_max = slots_max
        self._random = random
        self._sessions: dict[int, FetchSession] = {}
        """By id, least recently used first."""
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        return sum(len(session.partitions) for session in self._sessions.values())

    def find(self, session_id: int) -> FetchSession | None:
        return self._sessions.get(session_id)

    def begin(
        self,
        session_id: int,
        epoch: int,
        wanted: Collection[FetchPartition],
        forgotten: Iterable[PartitionKey],
        *,
        uses_topic_ids: bool,
        privileged: bool,
        now_ms: int,
    ) -> FetchContext:
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session_id != NO_SESSION:
                self._sessions.pop(session_id, None)
            partitions = {partition.key: partition for partition in wanted}.values()
            if epoch == FINAL_EPOCH:
                return FetchContext(ErrorCode.NONE, partitions)
            return FetchContext(ErrorCode.NONE, partitions, None, self, uses_topic_ids, privileged)

        session = self._sessions.get(session_id)
        if session is None:
            return FetchContext(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ())
        if session.epoch != epoch:
            return FetchContext(ErrorCode.INVALID_FETCH_SESSION_EPOCH, ())
        if session.uses_topic_ids != uses_topic_ids:
            return FetchContext(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, ())
        for partition in wanted:
            key = partition.key
            known = session.partitions.get(key)
            if known is None:
                session.partitions[key] = partition
            else:
                known.update(partition)
        for key in forgotten:
            session.partitions.pop(key, None)
        if not session.partitions:
            # The session ends, and the next request is a full one. What this request both adds and forgets is read once.
            del self._sessions[session_id]
            return FetchContext(ErrorCode.NONE, {partition.key: partition for partition in wanted}.values())
        session.epoch = next_epoch(epoch)
        session.last_used_ms = now_ms
        del self._sessions[session_id]
        self._sessions[session_id] = session
        return FetchContext(ErrorCode.NONE, session.partitions.values(), session)

    def _create(self, context: FetchContext, now_ms: int) -> int:
        if self.slots_max <= 0:
            return NO_SESSION
        if len(self._sessions) >= self.slots_max and not self._evict(context._privileged, len(context.partitions), now_ms):
            return NO_SESSION
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._random.below(_EPOCH_MAX) + 1
        self._sessions[session_id] = FetchSession(
            session_id,
            context._uses_topic_ids,
            context._privileged,
            now_ms,
            {partition.key: partition for partition in context.partitions},
        )
        return session_id

    def _evict(self, privileged: bool, size: int, now_ms: int) -> bool:
        """Evict a session in favour of one of that size (rule 5). False: none may be evicted."""
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms > EVICTION_MS:
            victim = oldest
        else:
            candidates = [
                session
                for session in self._sessions.values()
                if now_ms - session.created_ms > EVICTION_MS or (privileged and not session.privileged)
            ]
            if not candidates:
                return False
            victim = min(candidates, key=lambda session: (session.privileged, len(session.partitions), session.id))
            if (privileged, size) < (victim.privileged, len(victim.partitions)):
                return False
        del self._sessions[victim.id]
        self.evictions += 1
        return True
