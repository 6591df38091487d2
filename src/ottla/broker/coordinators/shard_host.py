"""What the hosts of coordinators share: one shard for each partition of an internal topic that this broker leads (F37, G07, T06).

Owns which shards are here, their loading, their timers, and the requests that wait. Performs what a shard decides: appends its
records as one batch, replays them, answers when they are committed, and has the kind of host perform the effects. Never decides
anything itself.

1. A key (a group, a transactional id) belongs to the partition of its hash (Java's), and the broker that leads this partition
   coordinates it. Others answer NOT_COORDINATOR; while the log is being replayed, this one answers COORDINATOR_LOAD_IN_PROGRESS.
2. A shard belongs to one leader epoch. With the epoch it goes, and whoever waits in it hears NOT_COORDINATOR.
3. If records cannot be appended, the shard is thrown away and loaded anew (unless nothing but the records was at stake): what it
   has thought of in the meantime would not be what the log says.
4. Also what changes nothing is answered only when all that it may rest on is committed: what somebody heard is not lost.
5. What is answered at once costs neither a task nor a future: heartbeats while nothing is on its way to the other replicas and,
   with this broker alone in sync, commits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from ottla.broker.coordinators.shard_timers import ShardTimers
from ottla.broker.replicas.commit_wait import CommitWait, wait_for_commits
from ottla.coordinator.java_hash import positive_hash
from ottla.coordinator.shard import CoordinatorRecord, Decision, Now, Shard, TimerKey
from ottla.errors import ErrorCode, KafkaError, MalformedInput
from ottla.records.batch import BatchInfo, scan_batches
from ottla.records.control import COMMIT, control_type
from ottla.records.record import read_records
from ottla.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition

if TYPE_CHECKING:
    from ottla.broker.app import Broker
    from ottla.broker.replicas.partition import Partition
    from ottla.cluster.image import ClusterImage, TopicImage
    from ottla.cluster.requests import NewTopic

logger = logging.getLogger(__name__)

T = TypeVar("T")
S = TypeVar("S", bound=Shard)

_BATCH_SLACK_BYTES: Final = 1024
_RECORD_OVERHEAD_BYTES: Final = 32


class Reply(Generic[T]):
    """One request's answer: here already, or waited for."""

    __slots__ = ("_convert", "_done", "_error", "_future", "_refuse", "_response", "_waiting")

    def __init__(self, convert: Callable[[Any], T] | None = None, refuse: Callable[[KafkaError], object] | None = None) -> None:
        self._convert = convert
        """From what the shard says to what this version of the API can carry."""
        self._refuse = refuse
        """What the shard would say of an error, where the handler's own word for it does not know the version."""
        self._response: T | None = None
        self._error: KafkaError | None = None
        self._future: asyncio.Future[T] | None = None
        self._done = False
        self._waiting: dict[Reply[Any], None] | None = None
        """Where it is named as long as nobody has answered it."""

    @property
    def done(self) -> bool:
        """Nobody waits for it any more."""
        return self._done or (self._future is not None and self._future.done())

    def answer(self, response: Any) -> None:
        if self._waiting is not None:
            self._waiting.pop(self, None)
        if self.done:
            return
        self._done = True
        if self._convert is not None:
            response = self._convert(response)
        if self._future is not None:
            self._future.set_result(response)
        else:
            self._response = response

    def fail(self, error: KafkaError) -> None:
        if self._waiting is not None:
            self._waiting.pop(self, None)
        if self.done:
            return
        if self._refuse is not None:
            self.answer(self._refuse(error))
            return
        self._done = True
        if self._future is not None:
            self._future.set_exception(error)
        else:
            self._error = error

    def outcome(self) -> T:
        """The response, once it is done. KafkaError if there is none."""
        if self._error is not None:
            raise self._error
        assert self._response is not None, "not done"
        return self._response

    def wait_in(self, waiting: dict[Reply[Any], None], loop: asyncio.AbstractEventLoop) -> asyncio.Future[T]:
        """For what is not done. Named in `waiting` until it is answered, also if the asker goes away meanwhile."""
        waiting[self] = None
        self._waiting = waiting
        self._future = loop.create_future()
        return self._future


class HostedShard(Generic[S]):
    """One shard in one leader epoch."""

    __slots__ = ("leader_epoch", "number", "shard", "timers", "waiting")

    def __init__(self, number: int, leader_epoch: int) -> None:
        self.number = number
        self.leader_epoch = leader_epoch
        self.shard: S | None = None
        """None while it is being loaded."""
        self.timers: dict[TimerKey, int] = {}
        """What is set, and the number of the entry in the heap that counts."""
        self.waiting: dict[Reply[Any], None] = {}
        """Requests parked in the shard or in the log."""


class ShardHost(Generic[S]):
    def __init__(self, broker: Broker, loop: asyncio.AbstractEventLoop, topic_name: str) -> None:
        self._broker = broker
        self._loop = loop
        self._clock = broker.world.clock
        self._topic_name = topic_name
        self._topic: TopicImage | None = None
        self._partition_count = 0
        self._hosted: dict[int, HostedShard[S]] = {}
        self._to_load: dict[HostedShard[S], None] = {}
        self._loading: asyncio.Task[None] | None = None
        self._creating: asyncio.Task[None] | None = None
        self._last_refusal = ""
        self._timers = ShardTimers(loop, self._clock, self._due)
        self._closed = False

    def close(self) -> None:
        """Let everything go: those who wait lose their connections with the server."""
        self._closed = True
        self._timers.close()
        for task in (self._loading, self._creating):
            if task is not None:
                task.cancel()
        for hosted in list(self._hosted.values()):
            self._unload(hosted)

    # What a kind of host says

    def _new_shard(self, hosted: HostedShard[S]) -> S:
        raise NotImplementedError

    def _new_topic(self) -> NewTopic:
        """The internal topic, as it is created on first use."""
        raise NotImplementedError

    def _begin(self, hosted: HostedShard[S], shard: S) -> None:
        """A shard has been loaded."""
        self.perform(hosted, shard.on_loaded(self.now()))

    def _effect(self, hosted: HostedShard[S], effect: object) -> None:
        raise NotImplementedError

    def _settle(self, shard: S, producer_id: int, *, commit: bool) -> None:
        """The log has the marker of a transaction."""

    @property
    def _codec(self) -> int:
        return 0

    @property
    def _load_piece_bytes(self) -> int:
        raise NotImplementedError

    @property
    def _commit_timeout_ms(self) -> int:
        raise NotImplementedError

    # Finding

    def partition_for(self, key: str) -> int:
        return positive_hash(key) % self._partition_count

    def shard_for(self, key: str) -> tuple[HostedShard[S], S]:
        """Where a group or a transactional id is coordinated. KafkaError if that is not here, or not yet."""
        count = self._partition_count
        hosted = self._hosted.get(positive_hash(key) % count) if count else None
        if hosted is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"this broker does not coordinate {key}")
        shard = hosted.shard
        if shard is None:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{key} is being loaded")
        return hosted, shard

    def shards(self) -> Iterator[S]:
        """All that are here. KafkaError if one is still being loaded."""
        for hosted in self._hosted.values():
            if hosted.shard is None:
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            yield hosted.shard

    async def leader_of(self, key: str) -> int:
        """The broker that coordinates a key, -1 if none does now. Creates the topic on first use."""
        if self._topic is None:
            await self._create_topic()
        leader = self.known_leader_of(key)
        return -1 if leader is None else leader

    def known_leader_of(self, key: str) -> int | None:
        """As `leader_of`, if that can be said without waiting."""
        topic = self._topic
        if topic is None:
            return None
        number = self.partition_for(key)
        leader = topic.partitions[number].leader
        if leader == self._broker.broker_id and self._broker.partitions.is_lost(TopicPartition(self._topic_name, number)):
            return -1
        return leader

    async def _create_topic(self) -> None:
        if self._creating is None:
            self._creating = self._loop.create_task(self._create_internal_topic())
        try:
            await asyncio.shield(self._creating)
        finally:
            if self._creating is not None and self._creating.done():
                self._creating = None

    async def _create_internal_topic(self) -> None:
        for outcome in await self._broker.controller.create_topics([self._new_topic()]):
            if isinstance(outcome, KafkaError) and outcome.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                if outcome.code == ErrorCode.LEADER_NOT_AVAILABLE:
                    # Another broker was faster, and this one has not heard of it yet; or the controller is changing.
                    logger.info("%s is not here yet: %s", self._topic_name, outcome.detail)
                elif str(outcome) != self._last_refusal:  # clients ask again and again
                    self._last_refusal = str(outcome)
                    logger.error("%s cannot be created: %s", self._topic_name, outcome)
                raise KafkaError(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the topic {self._topic_name} cannot be created: {outcome.detail}"
                )

    # Asking a shard

    def reply_of(self, hosted: HostedShard[S], reply: Reply[T], decision: Decision) -> T | asyncio.Future[T]:
        """Perform what a shard decided for a request; the answer to it, or a future."""
        self.perform(hosted, decision)
        if reply.done:
            return reply.outcome()
        return reply.wait_in(hosted.waiting, self._loop)

    def now(self) -> Now:
        clock = self._clock
        return Now(int(clock.monotonic() * 1000), clock.now_ms())

    def when_committed(self, hosted: HostedShard[S], read: Callable[[], T]) -> T | asyncio.Future[T]:
        """What `read` finds once all that was appended before is committed: what a reader saw cannot be lost afterwards."""
        try:
            partition = self._partition(hosted)
        except KafkaError as error:
            raise _as_coordinator_error(error) from error
        end_offset = partition.log.log_end_offset
        if partition.log.high_watermark >= end_offset:
            return read()

        def ended(error: KafkaError | None) -> T:
            if error is not None:
                raise error
            return read()

        return self._after_commit(hosted, partition, end_offset, ended)

    def _after_commit(
        self, hosted: HostedShard[S], partition: Partition, end_offset: int, ended: Callable[[KafkaError | None], T]
    ) -> asyncio.Future[T]:
        """`ended(None)` when the log is committed up to `end_offset`; with an error for clients if that is not to be expected, or
        if the shard was unloaded meanwhile."""
        wait = CommitWait(self._broker.partitions, partition, end_offset)

        def answer() -> T:
            if not self._is_here(hosted):
                return ended(KafkaError(ErrorCode.NOT_COORDINATOR))
            return ended(_as_coordinator_error(wait.error) if wait.error is not None else None)

        return wait_for_commits(self._broker.purgatory, [wait], self._commit_timeout_ms, answer)

    def perform(self, hosted: HostedShard[S], decision: Decision) -> None:
        """Append, replay, set timers, answer, and what else is to be done."""
        if decision.records:
            self._append(hosted, decision)
            return
        if decision.timers:
            self._set_timers(hosted, decision)
        if decision.replies or decision.effects:
            self._release_when_committed(hosted, decision)

    def _append(self, hosted: HostedShard[S], decision: Decision) -> None:
        shard = hosted.shard
        assert shard is not None
        now_ms = self._clock.now_ms()
        producer_id, producer_epoch = decision.producer or (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        try:
            partition = self._partition(hosted)
            last_offset = -1
            for records in self._batches(decision, partition.rules.max_message_bytes):
                last_offset = partition.append_own(
                    [(record.key, record.value) for record in records],
                    now_ms,
                    codec=self._codec,
                    producer_id=producer_id,
                    producer_epoch=producer_epoch,
                ).last_offset
                if decision.message is not None:
                    continue
                for record in records:
                    if record.message is None:
                        shard.replay(record.key, record.value, producer_id)
                    else:
                        shard.replay_message(record.message, producer_id)
            if decision.message is not None:
                shard.replay_message(decision.message, producer_id)
        except KafkaError as error:
            self._append_failed(hosted, decision, error)
            return
        self._set_timers(hosted, decision)
        if partition.log.high_watermark > last_offset:
            self._release(hosted, decision)
        elif decision.replies or decision.effects:
            self._wait_for_commit(hosted, partition, last_offset + 1, decision)

    @staticmethod
    def _batches(decision: Decision, bytes_max: int) -> Iterable[list[CoordinatorRecord]]:
        """All in one batch; but tombstones may be many, and each stands for itself."""
        records = decision.records
        if not decision.pure or len(records) < 100 or any(record.value is not None for record in records):
            return [records]
        batches: list[list[CoordinatorRecord]] = [[]]
        room = limit = bytes_max - _BATCH_SLACK_BYTES
        for record in records:
            size = len(record.key) + _RECORD_OVERHEAD_BYTES
            if size > room and batches[-1]:
                batches.append([])
                room = limit
            batches[-1].append(record)
            room -= size
        return batches

    def _release_when_committed(self, hosted: HostedShard[S], decision: Decision) -> None:
        try:
            partition = self._partition(hosted)
        except KafkaError as error:
            _refuse(decision, _as_coordinator_error(error))
            return
        end_offset = partition.log.log_end_offset
        if partition.log.high_watermark >= end_offset:
            self._release(hosted, decision)
        else:
            self._wait_for_commit(hosted, partition, end_offset, decision)

    def _wait_for_commit(self, hosted: HostedShard[S], partition: Partition, end_offset: int, decision: Decision) -> None:
        def ended(error: KafkaError | None) -> None:
            if error is None:
                self._release(hosted, decision)
                return
            _refuse(decision, error)
            if decision.effects and self._is_here(hosted) and error.code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
                # The records stand, and what follows from them is done when they are committed after all.
                self._wait_for_commit(hosted, partition, end_offset, Decision(effects=decision.effects))

        self._after_commit(hosted, partition, end_offset, ended)

    def _release(self, hosted: HostedShard[S], decision: Decision) -> None:
        for reply, response in decision.replies:
            assert isinstance(reply, Reply)
            reply.answer(response)
        for effect in decision.effects:
            self._effect(hosted, effect)

    def _append_failed(self, hosted: HostedShard[S], decision: Decision, error: KafkaError) -> None:
        logger.warning("records of %s-%d cannot be appended: %s", self._topic_name, hosted.number, error)
        failure = _as_coordinator_error(error)
        _refuse(decision, failure)
        if not decision.pure and self._is_here(hosted):
            fresh: HostedShard[S] = HostedShard(hosted.number, hosted.leader_epoch)
            self._unload(hosted, failure)
            self._load(fresh)

    def _is_here(self, hosted: HostedShard[S]) -> bool:
        return self._hosted.get(hosted.number) is hosted

    def _partition(self, hosted: HostedShard[S]) -> Partition:
        return self._broker.partitions.get(TopicPartition(self._topic_name, hosted.number))

    # Following the image

    @property
    def topic_name(self) -> str:
        return self._topic_name

    def apply(self, image: ClusterImage, led: Mapping[int, int] | None = None) -> None:
        """The cluster has become another: shards come and go with the leadership of their partitions.

        `led`: the partitions that this broker leads, with their epochs, where the image does not decide that (in a cluster).
        """
        topic = image.topics.get(self._topic_name)
        if topic is self._topic and led is None:
            return
        self._topic = topic
        self._partition_count = len(topic.partitions) if topic is not None else 0
        if led is None:
            led = {
                number: partition.leader_epoch
                for number, partition in enumerate(topic.partitions if topic is not None else ())
                if partition.leader == self._broker.broker_id
            }
        for hosted in list(self._hosted.values()):
            if led.get(hosted.number) != hosted.leader_epoch:
                self._unload(hosted, KafkaError(ErrorCode.NOT_COORDINATOR))
        for number, leader_epoch in led.items():
            if number not in self._hosted:
                self._load(HostedShard(number, leader_epoch))

    def _unload(self, hosted: HostedShard[S], error: KafkaError | None = None) -> None:
        if self._is_here(hosted):
            del self._hosted[hosted.number]
        self._to_load.pop(hosted, None)
        hosted.shard = None
        hosted.timers.clear()
        waiting, hosted.waiting = list(hosted.waiting), {}
        if error is not None:
            for reply in waiting:
                reply.fail(error)

    # Loading

    def _load(self, hosted: HostedShard[S]) -> None:
        try:
            log = self._partition(hosted).log
        except KafkaError as error:
            logger.error("%s-%d cannot be loaded: %s", self._topic_name, hosted.number, error)
            return
        self._hosted[hosted.number] = hosted
        if log.log_start_offset == log.log_end_offset:
            self._loaded(hosted, self._new_shard(hosted))
            return
        self._to_load[hosted] = None
        if self._loading is None:
            self._loading = self._loop.create_task(self._load_all())

    async def _load_all(self) -> None:
        """One after the other, a piece at a time, so that requests come in between."""
        try:
            while self._to_load:
                hosted = next(iter(self._to_load))
                try:
                    shard = await self._read(hosted)
                except (KafkaError, MalformedInput, OSError) as error:
                    # Its keys stay unavailable, and the others do not suffer for it.
                    logger.error("%s-%d cannot be loaded: %s", self._topic_name, hosted.number, error)
                    self._unload(hosted)
                    continue
                if hosted in self._to_load:
                    del self._to_load[hosted]
                    self._loaded(hosted, shard)
        finally:
            self._loading = None

    async def _read(self, hosted: HostedShard[S]) -> S:
        shard = self._new_shard(hosted)
        partition = self._partition(hosted)
        log = partition.log
        offset = log.log_start_offset
        while offset < log.log_end_offset and hosted in self._to_load:
            read = partition.read(offset, self._load_piece_bytes, log.log_end_offset, True)
            if not read.size:
                break
            data = b"".join(part.file.read(part.position, part.size) for part in read.ranges)
            batches, _ = scan_batches(data)
            for batch in batches:
                if batch.next_offset > offset:
                    self._replay_batch(shard, data, batch)
                    offset = batch.next_offset
            await asyncio.sleep(0)
        return shard

    def _replay_batch(self, shard: S, data: bytes, batch: BatchInfo) -> None:
        records = read_records(data, batch)
        if batch.is_control:
            for record in records:
                self._settle(shard, batch.producer_id, commit=control_type(record) == COMMIT)
            return
        producer_id = batch.producer_id if batch.is_transactional else NO_PRODUCER_ID
        for record in records:
            if record.key is not None:
                shard.replay(record.key, record.value, producer_id)

    def _loaded(self, hosted: HostedShard[S], shard: S) -> None:
        hosted.shard = shard
        self._begin(hosted, shard)

    # Timers

    def _set_timers(self, hosted: HostedShard[S], decision: Decision) -> None:
        if decision.timers and self._is_here(hosted):
            self._timers.set(hosted, decision.timers)

    def _due(self, hosted: HostedShard[S], key: TimerKey) -> None:
        if hosted.shard is not None:
            self.perform(hosted, hosted.shard.on_timer(key, self.now()))


def _refuse(decision: Decision, error: KafkaError) -> None:
    for reply, _ in decision.replies:
        assert isinstance(reply, Reply)
        reply.fail(error)


_AS_NOT_AVAILABLE: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT}
)
_AS_NOT_COORDINATOR: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR})
_AS_THEY_ARE: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE})
"""What the log says to a zombie that commits offsets in a transaction."""


def _as_coordinator_error(error: KafkaError) -> KafkaError:
    """What a client hears of a log that did not take its records."""
    if error.code in _AS_NOT_AVAILABLE:
        return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.detail)
    if error.code in _AS_NOT_COORDINATOR:
        return KafkaError(ErrorCode.NOT_COORDINATOR, error.detail)
    if error.code in _AS_THEY_ARE:
        return error
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, error.detail)
