"""The host of the group coordinators: one shard for each partition of `__consumer_offsets` that this broker leads (F37, G07).

Owns which shards are here, their loading, their timers, and the requests that wait. Performs what a shard decides: appends its
records as one batch, replays them, and answers when they are committed. Never decides anything about a group itself.

1. A group belongs to the partition of its id's hash (Java's), and the broker that leads this partition coordinates it.
   Others answer NOT_COORDINATOR; while the log is being replayed, this one answers COORDINATOR_LOAD_IN_PROGRESS.
2. A shard belongs to one leader epoch. With the epoch it goes, and whoever waits in it hears NOT_COORDINATOR.
3. If records cannot be appended, the shard is thrown away and loaded anew (unless nothing but the records was at stake): what it
   has thought of in the meantime would not be what the log says.
4. What is answered at once costs neither a task nor a future: heartbeats and, with this broker alone in sync, commits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from ottla.broker.partition import ACKS_ALL
from ottla.cluster.requests import NewTopic
from ottla.coordinator.group.group import Caller, GroupConfig
from ottla.coordinator.shard import CoordinatorRecord, Decision, SetTimer, TimerKey
from ottla.errors import ErrorCode, KafkaError, MalformedInput
from ottla.records.batch import BatchInfo, scan_batches
from ottla.records.control import COMMIT, control_type
from ottla.records.record import build_batch, read_records
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from ottla.broker.app import Broker
    from ottla.broker.context import RequestContext
    from ottla.broker.partition import Partition
    from ottla.cluster.image import ClusterImage, TopicImage
    from ottla.cluster.settings import BrokerSettings
    from ottla.coordinator.group.shard import GroupShard

logger = logging.getLogger(__name__)

T = TypeVar("T")

OFFSETS_TOPIC: Final = "__consumer_offsets"
_TIMER_SLACK: Final = 64
_BATCH_SLACK_BYTES: Final = 1024
_RECORD_OVERHEAD_BYTES: Final = 32


class Reply(Generic[T]):
    """One request's answer: here already, or waited for."""

    __slots__ = ("_convert", "_done", "_error", "_future", "_response")

    def __init__(self, convert: Callable[[Any], T] | None = None) -> None:
        self._convert = convert
        """From what the shard says to what this version of the API can carry."""
        self._response: T | None = None
        self._error: KafkaError | None = None
        self._future: asyncio.Future[T] | None = None
        self._done = False

    @property
    def done(self) -> bool:
        """Nobody waits for it any more."""
        return self._done or (self._future is not None and self._future.done())

    def answer(self, response: Any) -> None:
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
        if self.done:
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

    def future(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[T]:
        """For what is not done."""
        self._future = loop.create_future()
        return self._future


class HostedShard:
    """One shard in one leader epoch."""

    __slots__ = ("leader_epoch", "number", "shard", "timers", "waiting")

    def __init__(self, number: int, leader_epoch: int) -> None:
        self.number = number
        self.leader_epoch = leader_epoch
        self.shard: GroupShard | None = None
        """None while it is being loaded."""
        self.timers: dict[TimerKey, int] = {}
        """What is set, and the number of the entry in the heap that counts."""
        self.waiting: dict[Reply[Any], None] = {}
        """Requests parked in the shard or in the log."""


class Coordinators:
    def __init__(self, broker: Broker, loop: asyncio.AbstractEventLoop) -> None:
        self._broker = broker
        self._loop = loop
        self._clock = broker.world.clock
        self._config = group_config(broker.settings)
        self._codec = broker.settings.int("offsets.topic.compression.codec")
        self._hosted: dict[int, HostedShard] = {}
        self._topic: TopicImage | None = None
        self._partition_count = 0
        self._to_load: dict[HostedShard, None] = {}
        self._loading: asyncio.Task[None] | None = None
        self._heap: list[tuple[float, int, HostedShard, TimerKey]] = []
        self._heap_limit = _TIMER_SLACK
        """When to look for dead entries: never more of them than of live ones, and a few."""
        self._sequence = 0
        self._timer: asyncio.Handle | None = None
        self._timer_due = 0.0  # kept here: what uvloop gives for a time that is already past has no `when`
        self._expiry: asyncio.TimerHandle | None = None
        self._creating: asyncio.Task[None] | None = None
        self._closed = False
        self._schedule_expiry()

    def close(self) -> None:
        """Let everything go: those who wait lose their connections with the server."""
        self._closed = True
        for handle in (self._timer, self._expiry, self._loading, self._creating):
            if handle is not None:
                handle.cancel()
        for hosted in list(self._hosted.values()):
            self._unload(hosted)

    # Finding

    def partition_for(self, group_id: str) -> int:
        return java_hash(group_id) % self._partition_count

    def shard_for(self, group_id: str) -> tuple[HostedShard, GroupShard]:
        """Where a group is coordinated. KafkaError if that is not here, or not yet."""
        count = self._partition_count
        hosted = self._hosted.get(java_hash(group_id) % count) if count else None
        if hosted is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"this broker does not coordinate the group {group_id}")
        shard = hosted.shard
        if shard is None:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"the group {group_id} is being loaded")
        return hosted, shard

    def shards(self) -> Iterator[GroupShard]:
        """All that are here. KafkaError if one is still being loaded."""
        for hosted in self._hosted.values():
            if hosted.shard is None:
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            yield hosted.shard

    async def leader_of(self, group_id: str) -> int:
        """The broker that coordinates a group, -1 if none does now. Creates the topic of offsets on first use."""
        if self._topic is None:
            await self._create_topic()
        topic = self._topic
        return topic.partitions[self.partition_for(group_id)].leader if topic is not None else -1

    def known_leader_of(self, group_id: str) -> int | None:
        """As `leader_of`, if that can be said without waiting."""
        topic = self._topic
        return None if topic is None else topic.partitions[self.partition_for(group_id)].leader

    async def _create_topic(self) -> None:
        if self._creating is None:
            self._creating = self._loop.create_task(self._create_offsets_topic())
        try:
            await asyncio.shield(self._creating)
        finally:
            if self._creating is not None and self._creating.done():
                self._creating = None

    async def _create_offsets_topic(self) -> None:
        broker, settings = self._broker, self._broker.settings
        new = NewTopic(
            OFFSETS_TOPIC,
            settings.int("offsets.topic.num.partitions"),
            # Fewer where the cluster has fewer brokers: a single one must have groups too.
            min(settings.int("offsets.topic.replication.factor"), len(broker.image.brokers)),
            config={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(settings.int("offsets.topic.segment.bytes")),
            },
        )
        for outcome in await broker.controller.create_topics([new]):
            if isinstance(outcome, KafkaError) and outcome.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                logger.error("%s cannot be created: %s", OFFSETS_TOPIC, outcome)
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the topic of offsets cannot be created: {outcome.detail}")

    # Asking a shard

    def reply_of(self, hosted: HostedShard, reply: Reply[T], decision: Decision) -> T | asyncio.Future[T]:
        """Perform what a shard decided for a request; the answer to it, or a future."""
        self.perform(hosted, decision)
        if reply.done:
            return reply.outcome()
        hosted.waiting[reply] = None
        future = reply.future(self._loop)
        future.add_done_callback(lambda done: hosted.waiting.pop(reply, None))
        return future

    def caller(self, context: RequestContext) -> Caller:
        return Caller(
            context.version, context.client_id or "", f"/{context.client_host}", uuid_text(self._broker.world.random.bytes(16))
        )

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def when_committed(self, hosted: HostedShard, read: Callable[[], T]) -> T | asyncio.Future[T]:
        """What `read` finds once all that was appended before is committed: what a reader saw cannot be lost afterwards."""
        try:
            partition = self._partition(hosted)
        except KafkaError as error:
            raise _as_coordinator_error(error) from error
        end_offset = partition.log.log_end_offset
        if partition.log.high_watermark >= end_offset:
            return read()
        return self._broker.purgatory.wait(
            [partition.topic_partition],
            self._broker.settings.int("offsets.commit.timeout.ms"),
            lambda: partition.log.high_watermark >= end_offset or not self._is_here(hosted),
            lambda: self._read_if_committed(hosted, partition, end_offset, read),
        )

    def _read_if_committed(self, hosted: HostedShard, partition: Partition, end_offset: int, read: Callable[[], T]) -> T:
        if not self._is_here(hosted):
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if partition.log.high_watermark < end_offset:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return read()

    def perform(self, hosted: HostedShard, decision: Decision) -> None:
        """Append, replay, set timers, answer."""
        if decision.records:
            self._append(hosted, decision)
            return
        if decision.timers:
            self._set_timers(hosted, decision)
        _release(decision)

    def _append(self, hosted: HostedShard, decision: Decision) -> None:
        shard = hosted.shard
        assert shard is not None
        now_ms = self._clock.now_ms()
        try:
            partition = self._partition(hosted)
            last_offset = -1
            for records in self._batches(decision, partition.rules.max_message_bytes):
                batch = build_batch([(record.key, record.value, (), now_ms) for record in records], codec=self._codec)
                last_offset = partition.append(batch, ACKS_ALL, now_ms).last_offset
                for record in records:
                    shard.replay(record.key, record.value)
        except KafkaError as error:
            self._append_failed(hosted, decision, error)
            return
        self._set_timers(hosted, decision)
        if partition.log.high_watermark > last_offset:
            _release(decision)
        elif decision.replies:
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

    def _wait_for_commit(self, hosted: HostedShard, partition: Partition, end_offset: int, decision: Decision) -> None:
        def settled() -> bool:
            return partition.log.high_watermark >= end_offset or not self._is_here(hosted)

        def release() -> None:
            if partition.log.high_watermark >= end_offset and self._is_here(hosted):
                _release(decision)
            else:
                _refuse(decision, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "not replicated in time"))

        self._broker.purgatory.wait(
            [partition.topic_partition], self._broker.settings.int("offsets.commit.timeout.ms"), settled, release
        )

    def _append_failed(self, hosted: HostedShard, decision: Decision, error: KafkaError) -> None:
        logger.warning("group records of %s-%d cannot be appended: %s", OFFSETS_TOPIC, hosted.number, error)
        failure = _as_coordinator_error(error)
        _refuse(decision, failure)
        if not decision.pure and self._is_here(hosted):
            fresh = HostedShard(hosted.number, hosted.leader_epoch)
            self._unload(hosted, failure)
            self._load(fresh)

    def _is_here(self, hosted: HostedShard) -> bool:
        return self._hosted.get(hosted.number) is hosted

    def _partition(self, hosted: HostedShard) -> Partition:
        return self._broker.partitions.get(TopicPartition(OFFSETS_TOPIC, hosted.number))

    # Following the image

    def apply(self, image: ClusterImage) -> None:
        """The cluster has become another: shards come and go with the leadership of their partitions."""
        topic = image.topics.get(OFFSETS_TOPIC)
        if topic is not self._topic:
            self._topic = topic
            self._partition_count = len(topic.partitions) if topic is not None else 0
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
            self._configure()
        now_ms = self._clock.now_ms()
        for hosted in list(self._hosted.values()):
            if hosted.shard is not None:
                self.perform(hosted, hosted.shard.topics_changed(image, now_ms))

    def settings_changed(self, settings: BrokerSettings) -> None:
        self._config = group_config(settings)
        self._codec = settings.int("offsets.topic.compression.codec")
        self._configure()

    def _configure(self) -> None:
        config = self._shard_config()
        for hosted in self._hosted.values():
            if hosted.shard is not None:
                hosted.shard.settings_changed(config)

    def _unload(self, hosted: HostedShard, error: KafkaError | None = None) -> None:
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

    def _load(self, hosted: HostedShard) -> None:
        try:
            log = self._partition(hosted).log
        except KafkaError as error:
            logger.error("%s-%d cannot be loaded: %s", OFFSETS_TOPIC, hosted.number, error)
            return
        self._hosted[hosted.number] = hosted
        if log.log_start_offset == log.log_end_offset:
            self._loaded(hosted, self._new_shard(hosted))
            return
        self._to_load[hosted] = None
        if self._loading is None:
            self._loading = self._loop.create_task(self._load_all())

    def _new_shard(self, hosted: HostedShard) -> GroupShard:
        # Imported when the first group is near: a broker without groups starts faster.
        from ottla.coordinator.group.shard import GroupShard

        return GroupShard(self._shard_config(), hosted.number)

    def _shard_config(self) -> GroupConfig:
        limit = self._broker.partitions.topic_settings(OFFSETS_TOPIC).int("max.message.bytes")
        return replace(self._config, record_bytes_max=limit)

    async def _load_all(self) -> None:
        """One after the other, a piece at a time, so that requests come in between."""
        try:
            while self._to_load:
                hosted = next(iter(self._to_load))
                try:
                    shard = await self._read(hosted)
                except (KafkaError, MalformedInput, OSError) as error:
                    # The groups stay unavailable, and the others do not suffer for it.
                    logger.error("%s-%d cannot be loaded: %s", OFFSETS_TOPIC, hosted.number, error)
                    self._unload(hosted)
                    continue
                if hosted in self._to_load:
                    del self._to_load[hosted]
                    self._loaded(hosted, shard)
        finally:
            self._loading = None

    async def _read(self, hosted: HostedShard) -> GroupShard:
        shard = self._new_shard(hosted)
        partition = self._partition(hosted)
        log = partition.log
        offset = log.log_start_offset
        piece_bytes = self._broker.settings.int("offsets.load.buffer.size")
        undecided: dict[int, list[tuple[bytes, bytes | None]]] = {}
        """Records of transactions whose end has not been read yet, by producer."""
        while offset < log.log_end_offset and hosted in self._to_load:
            read = partition.read(offset, piece_bytes, log.log_end_offset, True)
            if not read.size:
                break
            data = b"".join(part.file.read(part.position, part.size) for part in read.ranges)
            batches, _ = scan_batches(data)
            for batch in batches:
                if batch.next_offset > offset:
                    for key, value in _decided(data, batch, undecided):
                        shard.replay(key, value)
                    offset = batch.next_offset
            await asyncio.sleep(0)
        return shard

    def _loaded(self, hosted: HostedShard, shard: GroupShard) -> None:
        hosted.shard = shard
        now_ms = self._clock.now_ms()
        if shard.groups.by_id:
            logger.info("%s-%d: %d groups loaded", OFFSETS_TOPIC, hosted.number, len(shard.groups.by_id))
        self.perform(hosted, shard.topics_changed(self._broker.image, now_ms))
        if hosted.shard is shard:
            self.perform(hosted, shard.on_loaded(now_ms))

    # Timers

    def _set_timers(self, hosted: HostedShard, decision: Decision) -> None:
        if not self._is_here(hosted):
            return
        now, now_ms = self._loop.time(), self._clock.now_ms()
        heap, timers = self._heap, hosted.timers
        for timer in decision.timers:
            if isinstance(timer, SetTimer):
                self._sequence += 1
                timers[timer.key] = self._sequence
                heappush(heap, (now + max(timer.due_ms - now_ms, 0) / 1000, self._sequence, hosted, timer.key))
            else:
                timers.pop(timer.key, None)
        if len(heap) > self._heap_limit:
            heap[:] = [entry for entry in heap if entry[2].timers.get(entry[3]) == entry[1]]
            heapify(heap)
            self._heap_limit = 2 * len(heap) + _TIMER_SLACK
        self._arm()

    def _arm(self) -> None:
        heap = self._heap
        while heap and heap[0][2].timers.get(heap[0][3]) != heap[0][1]:
            heappop(heap)
        if self._timer is not None:
            if heap and self._timer_due <= heap[0][0] and not self._timer.cancelled():
                return
            self._timer.cancel()
            self._timer = None
        if heap and not self._closed:
            self._timer_due = heap[0][0]
            self._timer = self._loop.call_at(self._timer_due, self._fire)

    def _fire(self) -> None:
        self._timer = None
        # The loop may call a hair early; what is due within that hair is due.
        now = self._loop.time() + 0.001
        heap = self._heap
        while heap and heap[0][0] <= now:
            _, sequence, hosted, key = heappop(heap)
            if hosted.timers.get(key) != sequence:
                continue
            del hosted.timers[key]
            if hosted.shard is not None:
                try:
                    self.perform(hosted, hosted.shard.on_timer(key, self._clock.now_ms()))
                except Exception:
                    # A bug in one group must not stop the time of all others.
                    logger.exception("the timer %s failed", key)
        self._arm()

    # Expiry

    def _schedule_expiry(self) -> None:
        interval_ms = self._broker.settings.int("offsets.retention.check.interval.ms")
        self._expiry = self._loop.call_later(interval_ms / 1000, self._expire)

    def _expire(self) -> None:
        self._schedule_expiry()
        now_ms = self._clock.now_ms()
        for hosted in list(self._hosted.values()):
            if hosted.shard is not None:
                self.perform(hosted, hosted.shard.expire_offsets(now_ms))


def _release(decision: Decision) -> None:
    for reply, response in decision.replies:
        assert isinstance(reply, Reply)
        reply.answer(response)


def _refuse(decision: Decision, error: KafkaError) -> None:
    for reply, _ in decision.replies:
        assert isinstance(reply, Reply)
        reply.fail(error)


def _decided(
    data: bytes, batch: BatchInfo, undecided: dict[int, list[tuple[bytes, bytes | None]]]
) -> Iterator[tuple[bytes, bytes | None]]:
    """The records of a batch that count now: those of a transaction when its end is read."""
    if batch.is_control:
        for record in read_records(data, batch):
            ended = undecided.pop(batch.producer_id, [])
            if control_type(record) == COMMIT:
                yield from ended
        return
    records = [(record.key, record.value) for record in read_records(data, batch) if record.key is not None]
    if batch.is_transactional:
        undecided.setdefault(batch.producer_id, []).extend(records)
    else:
        yield from records


_AS_NOT_AVAILABLE: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT}
)
_AS_NOT_COORDINATOR: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR})


def _as_coordinator_error(error: KafkaError) -> KafkaError:
    """What a member hears of a log that did not take its group's records."""
    if error.code in _AS_NOT_AVAILABLE:
        return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.detail)
    if error.code in _AS_NOT_COORDINATOR:
        return KafkaError(ErrorCode.NOT_COORDINATOR, error.detail)
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, error.detail)


def group_config(settings: BrokerSettings) -> GroupConfig:
    return GroupConfig(
        initial_rebalance_delay_ms=settings.int("group.initial.rebalance.delay.ms"),
        session_timeout_min_ms=settings.int("group.min.session.timeout.ms"),
        session_timeout_max_ms=settings.int("group.max.session.timeout.ms"),
        size_max=settings.int("group.max.size"),
        offset_metadata_bytes_max=settings.int("offset.metadata.max.bytes"),
        offsets_retention_ms=settings.int("offsets.retention.minutes") * 60_000,
        rebalance_protocols=frozenset(settings.list("group.coordinator.rebalance.protocols")),
        consumer_session_timeout_ms=settings.int("group.consumer.session.timeout.ms"),
        consumer_heartbeat_interval_ms=settings.int("group.consumer.heartbeat.interval.ms"),
        consumer_size_max=settings.int("group.consumer.max.size"),
        consumer_assignors=tuple(settings.list("group.consumer.assignors")),
        consumer_migration_policy=settings.str("group.consumer.migration.policy"),
        consumer_regex_refresh_interval_ms=settings.int("group.consumer.regex.refresh.interval.ms"),
        consumer_assignment_interval_ms=settings.int("group.consumer.assignment.interval.ms"),
    )


@lru_cache(maxsize=16_384)
def java_hash(text: str) -> int:
    """Java's String.hashCode, made positive as Kafka does it: the sign bit is dropped."""
    units = text.encode("utf-16-be", "surrogatepass")
    code = 0
    for at in range(0, len(units), 2):
        code = (31 * code + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return _positive(code)


def _positive(code: int) -> int:
    signed = code - (1 << 32) if code & 0x80000000 else code
    # Kafka's Utils.abs: the smallest int has no positive counterpart and counts as 0.
    return 0 if signed == -(1 << 31) else abs(signed)


def uuid_text(random: bytes) -> str:
    """A random (version 4) uuid in the form Java prints."""
    raw = bytearray(random)
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
