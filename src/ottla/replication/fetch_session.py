"""Incremental fetch sessions (KIP-227): a fetcher names its partitions once, and hears only of those that changed.

Owns the bounded cache of sessions and the rule of what must be in a reply. Never reads a log.

1. A request with epoch 0 or -1 is full: it says everything, and a session it names ends. Epoch 0 asks for a new one, -1 does not.
2. Any other epoch is incremental and must be exactly the session's next one; else nothing is read and the session is unchanged.
3. An incremental reply leaves a partition out only if it has no records, no error, no divergence, and the high watermark and log
   start that the fetcher was told last.
4. A partition that gave records goes to the end of its session, so that a full reply does not starve those behind it.
5. The cache never holds more than its slots. A session unused for two minutes gives way to any; a follower's or a larger session
   takes the place of a smaller one (of consumers first).
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
"""Topic id (or the name, in versions without ids) and partition number."""


def next_epoch(epoch: int) -> int:
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == _EPOCH_MAX else epoch + 1


# The classes are written out: what `dataclass` makes is not compiled, and every fetch makes some.


class FetchPartition:
    """What a fetcher wants of one partition, and what it was told of it last."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "follower_log_start_offset",
        "last_fetched_epoch",
        "max_bytes",
        "partition",
        "told_high_watermark",
        "told_log_start_offset",
        "topic",
        "topic_id",
    )

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
        """None while the topic id is unknown here."""
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
        # Neither id nor name is nobody's topic; its key is the empty id.
        if self.topic is None or self.topic_id != ZERO_UUID:
            return self.topic_id, self.partition
        return self.topic, self.partition

    def ask_anew(self, wanted: FetchPartition) -> None:
        self.fetch_offset = wanted.fetch_offset
        self.max_bytes = wanted.max_bytes
        self.current_leader_epoch = wanted.current_leader_epoch
        self.last_fetched_epoch = wanted.last_fetched_epoch
        self.follower_log_start_offset = wanted.follower_log_start_offset

    def tell(self, high_watermark: int, log_start_offset: int, *, records_bytes: int, failed: bool, diverging: bool) -> bool:
        """Note what the reply says of this partition; False if an incremental reply can leave it out (rule 3)."""
        changed = (
            records_bytes > 0
            or failed
            or diverging
            or high_watermark != self.told_high_watermark
            or log_start_offset != self.told_log_start_offset
        )
        # After an error the fetcher hears of the partition again once the error is gone, whatever the watermark.
        self.told_high_watermark = -1 if failed else high_watermark
        self.told_log_start_offset = log_start_offset
        return changed


class FetchSession:
    __slots__ = ("created_ms", "epoch", "id", "last_used_ms", "partitions", "privileged", "uses_topic_ids")

    def __init__(
        self, id: int, uses_topic_ids: bool, privileged: bool, created_ms: int, partitions: dict[PartitionKey, FetchPartition]
    ) -> None:
        self.id = id
        self.epoch = next_epoch(INITIAL_EPOCH)
        """The epoch that the next request must carry."""
        self.uses_topic_ids = uses_topic_ids
        self.privileged = privileged
        """A follower's."""
        self.created_ms = created_ms
        self.last_used_ms = created_ms
        self.partitions = partitions


class FetchContext:
    """One fetch request as its session sees it: what to read, and how to answer."""

    __slots__ = (
        "_cache",
        "_epoch",
        "_privileged",
        "_served",
        "_session",
        "_uses_topic_ids",
        "error",
        "incremental",
        "partitions",
    )

    def __init__(
        self,
        error: ErrorCode,
        partitions: Collection[FetchPartition],
        session: FetchSession | None = None,
        cache: FetchSessionCache | None = None,
        uses_topic_ids: bool = False,
        privileged: bool = False,
    ) -> None:
        """Of a request in a session, or of one that asks for a session (`cache` makes it), or of one without."""
        self.error = error
        """Not NONE: the reply carries this and nothing else."""
        self.partitions = partitions
        self.incremental = session is not None
        self._cache = cache
        self._session = session
        self._epoch = session.epoch if session is not None else 0
        self._uses_topic_ids = uses_topic_ids
        self._privileged = privileged
        self._served: list[PartitionKey] | None = None

    def served(self, partition: FetchPartition) -> None:
        """The reply holds records of this partition."""
        if self._session is None:
            return
        if self._served is None:
            self._served = []
        self._served.append(partition.key)

    def finish(self, now_ms: int) -> tuple[ErrorCode, int]:
        """The reply is ready: its top-level error, and the session id it names (0: none)."""
        session = self._session
        if session is not None:
            if session.epoch != self._epoch:
                # The same request came twice, over two connections; only one of them may move the session.
                return ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.id
            for key in self._served or ():
                partition = session.partitions.pop(key, None)
                if partition is not None:
                    session.partitions[key] = partition
            return ErrorCode.NONE, session.id
        if self._cache is not None:
            return ErrorCode.NONE, self._cache._create(self, now_ms)
        return self.error, NO_SESSION


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
                known.ask_anew(partition)
        for key in forgotten:
            session.partitions.pop(key, None)
        if not session.partitions:
            # Nothing is left to remember: the reply names no session, and the next request is a full one. What this one asks for
            # and forgets at once is read, as without a session.
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
        """Make room for a session of that size (rule 5); False if none may go."""
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
