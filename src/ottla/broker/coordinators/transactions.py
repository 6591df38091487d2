"""The host of the transaction coordinators: one shard for each partition of `__transaction_state` that this broker leads (F64).

Owns what is particular to transactions: the topic, markers and their retries, timeouts, expiry of ids, and the question that
writers of partitions have to ask (`verify`). The rest is `shard_host`.

1. Nothing is answered before all that it may rest on is committed.
2. A marker is written once PREPARE_* is committed, never before (T06); COMPLETE_* follows when all markers are committed.
3. Markers for partitions that other brokers lead are sent to them (`marker_sender`); a partition without a leader waits for one;
   a deleted one is owed nothing.
4. `verify` asks the shard, here or on the broker that has it (AddPartitionsToTxn 4+). Between an answer that had to be waited for
   and the write, the transaction may have ended: the writer holds a guard of the partition, which a marker takes away
   (`Partition.start_verification`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.broker.coordinators.markers import write_marker
from ottla.broker.coordinators.shard_host import HostedShard, Reply, ShardHost
from ottla.broker.replicas.commit_wait import CommitWait, wait_for_commits
from ottla.cluster.requests import NewTopic
from ottla.errors import ErrorCode, KafkaError
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from ottla.broker.app import Broker
    from ottla.broker.coordinators.marker_sender import MarkerSender
    from ottla.broker.replicas.partition import Partition
    from ottla.cluster.settings import BrokerSettings
    from ottla.coordinator.shard import Decision
    from ottla.coordinator.txn.markers import Marker
    from ottla.coordinator.txn.shard import ProducerIds, TransactionConfig, TransactionShard

logger = logging.getLogger(__name__)

T = TypeVar("T")

TRANSACTIONS_TOPIC: Final = "__transaction_state"
TRANSACTION_VERSION: Final = 2
"""The level of the feature `transaction.version`, which ApiVersions tells clients."""

_ADDS_PARTITIONS_SINCE: Final = {"produce": 12, "txn_offset_commit": 5}
_KNOWS_ABORTABLE_SINCE: Final = {"produce": 11, "txn_offset_commit": 4}

Refusals = dict[TopicPartition, KafkaError]
RefusalsLater = Callable[[], Awaitable[Refusals]]
"""Nothing is begun before it is called: a connection may be gone before its turn comes, and a coroutine that nobody awaits would
be complained about."""


class NoProducerId(Exception):
    """No producer id is at hand without waiting."""


class Transactions(ShardHost["TransactionShard"]):
    def __init__(self, broker: Broker, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(broker, loop, TRANSACTIONS_TOPIC)
        self._timeouts: asyncio.TimerHandle | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._fetching_ids: asyncio.Task[int] | None = None
        self._sender: MarkerSender | None = None

    def close(self) -> None:
        for handle in (self._timeouts, self._expiry, self._fetching_ids):
            if handle is not None:
                handle.cancel()
        if self._sender is not None:
            self._sender.close()
        super().close()

    # Asking

    def ask(
        self,
        transactional_id: str,
        reply: Reply[T],
        question: Callable[[TransactionShard, ProducerIds, int], Decision],
    ) -> T | Awaitable[T]:
        """Have the shard of an id decide a request. KafkaError if it is not here, or refuses."""
        hosted, shard = self.shard_for(transactional_id)
        try:
            decision = question(shard, self._producer_id, self._clock.now_ms())
        except NoProducerId:
            return self._ask_with_id(transactional_id, reply, question)
        return self.reply_of(hosted, reply, decision)

    async def _ask_with_id(
        self,
        transactional_id: str,
        reply: Reply[T],
        question: Callable[[TransactionShard, ProducerIds, int], Decision],
    ) -> T:
        producer_id = await self._broker.controller.next_producer_id()
        hosted, shard = self.shard_for(transactional_id)
        answer = self.reply_of(hosted, reply, question(shard, lambda: producer_id, self._clock.now_ms()))
        return await answer if isinstance(answer, asyncio.Future) else answer

    def _producer_id(self) -> int:
        producer_id = self._broker.controller.take_producer_id()
        if producer_id is None:
            raise NoProducerId
        return producer_id

    # Writers of partitions ask

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        api_name: str,
        version: int,
    ) -> Refusals | RefusalsLater:
        """Whether a producer may write to partitions in its transaction (T10), asked where the partition knows of no open one.

        `api_name` and `version` of the request (produce, txn_offset_commit) tell the producer's generation: before KIP-890 it
        has added the partitions itself; with transaction version 2 this adds them. Returned are the partitions that may not
        be written to, each with what the producer should hear. Nothing is awaited on the broker that coordinates the id, unless
        the end of the transaction before is still under way.
        """
        adds = version >= _ADDS_PARTITIONS_SINCE[api_name]
        if not adds and not self._broker.settings.bool("transaction.partition.verification.enable"):
            return {}
        coordinator = self._elsewhere(transactional_id)
        if coordinator is not None:
            return partial(
                self._verify_elsewhere, coordinator, transactional_id, producer_id, producer_epoch, partitions, api_name, version
            )
        try:
            answer = self._verify_once(transactional_id, producer_id, producer_epoch, partitions, adds)
        except KafkaError as error:
            if adds and error.code == ErrorCode.CONCURRENT_TRANSACTIONS:
                return partial(self._verify_soon, transactional_id, producer_id, producer_epoch, partitions, api_name, version)
            answer = dict.fromkeys(partitions, error)
        if isinstance(answer, dict):
            return _as_writers_hear(answer, api_name, version)
        return partial(self._verify_later, answer, partitions, api_name, version)

    def _verify_once(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Collection[TopicPartition], adds: bool
    ) -> Refusals | Awaitable[ErrorCode]:
        if not adds:
            _, shard = self.shard_for(transactional_id)
            verified = shard.verify_partitions(transactional_id, producer_id, producer_epoch, partitions)
            return {partition: KafkaError(code) for partition, code in verified.items() if code}
        reply: Reply[ErrorCode] = Reply()
        hosted, shard = self.shard_for(transactional_id)
        wall_ms = self._clock.now_ms()
        decision = shard.add_partitions(
            transactional_id, producer_id, producer_epoch, partitions, TRANSACTION_VERSION, reply, wall_ms
        )
        answer = self.reply_of(hosted, reply, decision)
        return answer if isinstance(answer, asyncio.Future) else {}

    def _elsewhere(self, transactional_id: str) -> int | None:
        """The broker that coordinates an id, if it is another one (or none, -1)."""
        if not self._broker.is_in_cluster:
            return None
        leader = self.known_leader_of(transactional_id)
        return None if leader is None or leader == self._broker.broker_id else leader

    async def _verify_elsewhere(
        self,
        coordinator: int,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        api_name: str,
        version: int,
    ) -> Refusals:
        from ottla.broker.coordinators.txn_verification import ask_coordinator

        settings, adds = self._broker.settings, version >= _ADDS_PARTITIONS_SINCE[api_name]
        deadline = self._loop.time() + settings.int("add.partitions.to.txn.retry.backoff.max.ms") / 1000
        while True:
            refusals = await ask_coordinator(
                self._broker, coordinator, transactional_id, producer_id, producer_epoch, partitions, adds=adds
            )
            busy = any(error.code == ErrorCode.CONCURRENT_TRANSACTIONS for error in refusals.values())
            if not (adds and busy) or self._loop.time() >= deadline:
                return _as_writers_hear(refusals, api_name, version)
            await asyncio.sleep(settings.int("add.partitions.to.txn.retry.backoff.ms") / 1000)

    async def _verify_later(
        self, added: Awaitable[ErrorCode], partitions: Collection[TopicPartition], api_name: str, version: int
    ) -> Refusals:
        try:
            await added
        except KafkaError as error:
            return _as_writers_hear(dict.fromkeys(partitions, error), api_name, version)
        return {}

    async def _verify_soon(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        api_name: str,
        version: int,
    ) -> Refusals:
        """The markers of the transaction before are still being written: they will not take long."""
        settings = self._broker.settings
        deadline = self._loop.time() + settings.int("add.partitions.to.txn.retry.backoff.max.ms") / 1000
        pause = settings.int("add.partitions.to.txn.retry.backoff.ms") / 1000
        while True:
            await asyncio.sleep(pause)
            try:
                answer = self._verify_once(transactional_id, producer_id, producer_epoch, partitions, True)
                if isinstance(answer, dict):
                    return answer
                await answer
            except KafkaError as error:
                if error.code == ErrorCode.CONCURRENT_TRANSACTIONS and self._loop.time() < deadline:
                    continue
                return _as_writers_hear(dict.fromkeys(partitions, error), api_name, version)
            return {}

    # What is particular to transactions

    def _new_shard(self, hosted: HostedShard[TransactionShard]) -> TransactionShard:
        # Imported when the first transaction is near: a broker without any starts faster.
        from ottla.coordinator.txn.shard import TransactionShard

        if self._timeouts is None:
            self._schedule_timeouts()
            self._schedule_expiry()
        return TransactionShard(transaction_config(self._broker.settings), hosted.number)

    def _new_topic(self) -> NewTopic:
        broker, settings = self._broker, self._broker.settings
        replicas = settings.int("transaction.state.log.replication.factor")
        if not broker.is_in_cluster:
            replicas = min(replicas, len(broker.image.brokers))
        return NewTopic(
            TRANSACTIONS_TOPIC,
            settings.int("transaction.state.log.num.partitions"),
            # Fewer where there is one broker: it must have transactions too.
            replicas,
            config={
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(min(settings.int("transaction.state.log.min.isr"), replicas)),
                "segment.bytes": str(settings.int("transaction.state.log.segment.bytes")),
                "unclean.leader.election.enable": "false",
            },
        )

    @property
    def _load_piece_bytes(self) -> int:
        return self._broker.settings.int("transaction.state.log.load.buffer.size")

    @property
    def _commit_timeout_ms(self) -> int:
        return self._broker.settings.int("request.timeout.ms")

    def _begin(self, hosted: HostedShard[TransactionShard], shard: TransactionShard) -> None:
        if shard.transactions:
            logger.info(
                "%s-%d: %d transactional ids loaded, %d of them are ending a transaction",
                TRANSACTIONS_TOPIC,
                hosted.number,
                len(shard.transactions),
                len(shard.owed),
            )
        super()._begin(hosted, shard)

    def settings_changed(self, settings: BrokerSettings) -> None:
        config = transaction_config(settings)
        for hosted in self._hosted.values():
            if hosted.shard is not None:
                hosted.shard.settings_changed(config)

    # Markers

    def _effect(self, hosted: HostedShard[TransactionShard], effect: object) -> None:
        from ottla.coordinator.txn.markers import Marker, Outcome, by_leader, outcome_of

        assert isinstance(effect, Marker)
        marker = effect
        leaders, settled = by_leader(marker.partitions, self._leader_of)
        retry = False
        for leader, partitions in leaders.items():
            if leader != self._broker.broker_id:
                retry = not self._send(hosted, leader, marker, partitions) or retry
                continue
            for topic_partition in partitions:
                try:
                    partition, end_offset = write_marker(
                        self._broker,
                        topic_partition,
                        marker.producer_id,
                        marker.producer_epoch,
                        commit=marker.commit,
                        coordinator_epoch=hosted.leader_epoch,
                        transaction_version=marker.transaction_version,
                    )
                except KafkaError as error:
                    outcome = outcome_of(error.code)
                    if outcome is Outcome.GIVEN_UP:
                        logger.warning("%s refuses the marker of %s: %s", topic_partition, marker.transactional_id, error)
                    elif outcome is Outcome.WRITTEN:
                        settled.append(topic_partition)
                    else:
                        retry = True
                    continue
                if partition.log.high_watermark >= end_offset:
                    settled.append(topic_partition)
                else:
                    self._complete_when_committed(hosted, marker, partition, end_offset)
        self._markers_written(hosted, marker, settled, retry)

    def _leader_of(self, topic_partition: TopicPartition) -> int | None:
        topic = self._broker.image.topics.get(topic_partition.topic)
        if topic is None or topic_partition.partition >= len(topic.partitions):
            return None
        return topic.partitions[topic_partition.partition].leader

    def _send(
        self, hosted: HostedShard[TransactionShard], leader: int, marker: Marker, partitions: Collection[TopicPartition]
    ) -> bool:
        """Have another broker write the marker. False: that is not possible now, and to be tried again."""
        if leader < 0 or not self._broker.is_in_cluster:
            return False
        if self._sender is None:
            from ottla.broker.coordinators.marker_sender import MarkerSender

            self._sender = MarkerSender(self._broker, self._loop)
        self._sender.send(
            leader, marker, hosted.leader_epoch, partitions, lambda codes: self._sent(hosted, leader, marker, codes)
        )
        return True

    def _sent(
        self, hosted: HostedShard[TransactionShard], leader: int, marker: Marker, codes: Mapping[TopicPartition, int]
    ) -> None:
        from ottla.coordinator.txn.markers import Outcome, outcome_of

        written: list[TopicPartition] = []
        retry = False
        for topic_partition, code in codes.items():
            outcome = outcome_of(code)
            if outcome is Outcome.WRITTEN:
                written.append(topic_partition)
            elif outcome is Outcome.RETRY:
                retry = True
            else:
                logger.warning(
                    "%s, led by broker %d, refuses the marker of %s: %s",
                    topic_partition,
                    leader,
                    marker.transactional_id,
                    ErrorCode(code).name,
                )
        self._markers_written(hosted, marker, written, retry)

    def _complete_when_committed(
        self, hosted: HostedShard[TransactionShard], marker: Marker, partition: Partition, end_offset: int
    ) -> None:
        wait = CommitWait(self._broker.partitions, partition, end_offset)

        def ended() -> None:
            committed = wait.error is None
            self._markers_written(hosted, marker, [partition.topic_partition] if committed else [], not committed)

        wait_for_commits(self._broker.purgatory, [wait], self._commit_timeout_ms, ended)

    def _markers_written(
        self,
        hosted: HostedShard[TransactionShard],
        marker: Marker,
        partitions: Collection[TopicPartition],
        retry: bool,
    ) -> None:
        shard = hosted.shard
        if shard is None or not self._is_here(hosted):
            return
        now = self.now()
        decision = shard.markers_written(marker, partitions, now.wall_ms)
        self.perform(hosted, decision)
        if retry or (decision.records and shard.owed.get(marker.transactional_id) is not None):
            self.perform(hosted, shard.markers_missing(marker, now))

    # Time

    def _schedule_timeouts(self) -> None:
        interval_ms = self._broker.settings.int("transaction.abort.timed.out.transaction.cleanup.interval.ms")
        self._timeouts = self._loop.call_later(interval_ms / 1000, self._abort_timed_out)

    def _abort_timed_out(self) -> None:
        self._schedule_timeouts()
        wall_ms = self._clock.now_ms()
        for hosted in list(self._hosted.values()):
            shard = hosted.shard
            if shard is None:
                continue
            for transactional_id in shard.timed_out(wall_ms):
                try:
                    decision = shard.abort_timed_out(transactional_id, self._producer_id, wall_ms)
                except NoProducerId:
                    self._fetch_ids()
                    continue
                logger.info("the transaction of %s has timed out and is aborted", transactional_id)
                self.perform(hosted, decision)

    def _fetch_ids(self) -> None:
        """For the next round."""
        if self._fetching_ids is None or self._fetching_ids.done():
            self._fetching_ids = self._loop.create_task(self._broker.controller.next_producer_id())
            self._fetching_ids.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _schedule_expiry(self) -> None:
        interval_ms = self._broker.settings.int("transaction.remove.expired.transaction.cleanup.interval.ms")
        self._expiry = self._loop.call_later(interval_ms / 1000, self._expire)

    def _expire(self) -> None:
        self._schedule_expiry()
        wall_ms = self._broker.clock_watch.now_ms()
        for hosted in list(self._hosted.values()):
            if hosted.shard is not None:
                self.perform(hosted, hosted.shard.expire_ids(wall_ms))


_AS_NOT_ENOUGH_REPLICAS: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


def _as_writers_hear(refusals: Refusals, api_name: str, version: int) -> Refusals:
    return {partition: _as_writer_hears(error, api_name, version) for partition, error in refusals.items()}


def _as_writer_hears(error: KafkaError, api_name: str, version: int) -> KafkaError:
    """The coordinator's answer, in words a producer of this generation handles rightly."""
    code = error.code
    if code == ErrorCode.PRODUCER_FENCED:
        return KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, error.detail)
    if code == ErrorCode.TRANSACTION_ABORTABLE and version < _KNOWS_ABORTABLE_SINCE[api_name]:
        return KafkaError(ErrorCode.INVALID_TXN_STATE, "the partition was not added to the transaction")
    if api_name == "produce" and (
        code in _AS_NOT_ENOUGH_REPLICAS
        or (code == ErrorCode.CONCURRENT_TRANSACTIONS and version < _ADDS_PARTITIONS_SINCE[api_name])
    ):
        # Tried again by every producer, and without asking for metadata.
        return KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, f"the transaction could not be asked about the partition: {error}")
    return error


def transaction_config(settings: BrokerSettings) -> TransactionConfig:
    from ottla.coordinator.txn.shard import TransactionConfig

    return TransactionConfig(
        timeout_max_ms=settings.int("transaction.max.timeout.ms"),
        id_expiration_ms=settings.int("transactional.id.expiration.ms"),
    )
