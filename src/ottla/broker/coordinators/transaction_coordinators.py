"""The transaction coordinators of this broker: one shard for each partition of `__transaction_state` that it leads (F64).

Owns the topic, the producer ids that requests need, the timeouts of transactions and the expiry of transactional ids. Which
shards are here and how their decisions are performed is `shard_host`; `marker_delivery` delivers markers; `transaction_verifier`
answers the writers of partitions.

1. No request is answered before all that its reply rests on is committed.
2. A marker is written once PREPARE_* is committed, never before (T06). COMPLETE_* follows when all markers are committed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from ottla.broker.coordinators import internal_topic
from ottla.broker.coordinators.internal_topic import InternalTopic, replication_factor
from ottla.broker.coordinators.marker_delivery import MarkerDelivery
from ottla.broker.coordinators.shard_host import HostedShard, ShardHost
from ottla.broker.coordinators.shard_timers import Periodic
from ottla.cluster.requests import NewTopic

if TYPE_CHECKING:
    from ottla.broker.clock_watch import ClockWatch
    from ottla.broker.coordinators.marker_writer import MarkerWriter
    from ottla.broker.coordinators.reply import Reply
    from ottla.broker.metadata.local_metadata import LocalMetadata
    from ottla.broker.network.inter_broker import InterBroker
    from ottla.broker.network.purgatory import Purgatory
    from ottla.broker.replicas.partitions import Partitions
    from ottla.cluster.image import ClusterImage
    from ottla.cluster.settings import BrokerSettings
    from ottla.coordinator.shard import Decision
    from ottla.coordinator.txn.pending_markers import Marker
    from ottla.coordinator.txn.shard import ProducerIds, TransactionConfig, TransactionShard
    from ottla.ports import Clock

logger = logging.getLogger(__name__)

T = TypeVar("T")

TRANSACTIONS_TOPIC: Final = "__transaction_state"
TRANSACTION_VERSION: Final = 2
"""The level of the feature `transaction.version` in ApiVersions."""


class ProducerIdBlock(Protocol):
    def take(self) -> int | None:
        """A new producer id, if one is at hand without waiting."""
        ...

    async def next(self) -> int: ...


class Controller(internal_topic.Controller, Protocol):
    @property
    def producer_ids(self) -> ProducerIdBlock: ...


class NoProducerId(Exception):
    """No producer id is at hand without waiting."""


class TransactionCoordinators:
    def __init__(
        self,
        metadata: LocalMetadata,
        partitions: Partitions,
        purgatory: Purgatory,
        controller: Callable[[], Controller],
        clock: Clock,
        clock_watch: ClockWatch,
        marker_writer: MarkerWriter,
        inter_broker: InterBroker | None,
    ) -> None:
        """`inter_broker`: None on a broker alone."""
        self._metadata = metadata
        self._controller = controller
        self._clock = clock
        self._clock_watch = clock_watch
        self._loop = asyncio.get_running_loop()
        topic = InternalTopic(TRANSACTIONS_TOPIC, metadata, partitions, controller, self._topic_definition)
        self.shards: ShardHost[TransactionShard] = ShardHost(self, topic, partitions, purgatory, clock)
        self._delivery = MarkerDelivery(self.shards, metadata, marker_writer, purgatory, inter_broker)
        self._timeout_check = Periodic(
            lambda: metadata.settings.int("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
            self._abort_timed_out,
        )
        self._expiry = Periodic(
            lambda: metadata.settings.int("transaction.remove.expired.transaction.cleanup.interval.ms"), self._expire_ids
        )
        self._fetching_ids: asyncio.Task[int] | None = None

    def close(self) -> None:
        self._timeout_check.stop()
        self._expiry.stop()
        if self._fetching_ids is not None:
            self._fetching_ids.cancel()
        self._delivery.close()
        self.shards.close()

    # Requests

    def ask(
        self,
        transactional_id: str,
        reply: Reply[T],
        question: Callable[[TransactionShard, ProducerIds, int], Decision],
    ) -> T | Awaitable[T]:
        """Have the shard of an id decide a request. KafkaError if it is not here, or refuses."""
        hosted, shard = self.shards.find(transactional_id)
        try:
            decision = question(shard, self._producer_id, self._clock.now_ms())
        except NoProducerId:
            return self._ask_with_id(transactional_id, reply, question)
        return self.shards.reply_of(hosted, reply, decision)

    async def _ask_with_id(
        self,
        transactional_id: str,
        reply: Reply[T],
        question: Callable[[TransactionShard, ProducerIds, int], Decision],
    ) -> T:
        producer_id = await self._controller().producer_ids.next()
        hosted, shard = self.shards.find(transactional_id)
        answer = self.shards.reply_of(hosted, reply, question(shard, lambda: producer_id, self._clock.now_ms()))
        return await answer if isinstance(answer, asyncio.Future) else answer

    def _producer_id(self) -> int:
        producer_id = self._controller().producer_ids.take()
        if producer_id is None:
            raise NoProducerId
        return producer_id

    # What the shard host asks

    def new_shard(self, partition: int) -> TransactionShard:
        # Imported with the first transaction: a broker without transactions starts faster.
        from ottla.coordinator.txn.shard import TransactionShard

        self._timeout_check.start()
        self._expiry.start()
        return TransactionShard(transaction_config(self._metadata.settings), partition)

    def on_loaded(self, hosted: HostedShard[TransactionShard], shard: TransactionShard) -> None:
        if shard.transactions:
            logger.info(
                "Loaded %d transactional ids from %s, %d of them with markers to write",
                len(shard.transactions),
                hosted.topic_partition,
                len(shard.pending_markers),
            )
        self.shards.perform(hosted, shard.on_loaded(self.shards.now()))

    def perform_effect(self, hosted: HostedShard[TransactionShard], effect: Marker) -> None:
        self._delivery.deliver(hosted, effect)

    @property
    def codec(self) -> int:
        return 0

    @property
    def load_buffer_bytes(self) -> int:
        return self._metadata.settings.int("transaction.state.log.load.buffer.size")

    @property
    def commit_timeout_ms(self) -> int:
        return self._metadata.settings.int("request.timeout.ms")

    def _topic_definition(self) -> NewTopic:
        settings = self._metadata.settings
        replicas = replication_factor(self._metadata, "transaction.state.log.replication.factor")
        return NewTopic(
            TRANSACTIONS_TOPIC,
            settings.int("transaction.state.log.num.partitions"),
            replicas,
            config={
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(min(settings.int("transaction.state.log.min.isr"), replicas)),
                "segment.bytes": str(settings.int("transaction.state.log.segment.bytes")),
                "unclean.leader.election.enable": "false",
            },
        )

    # Following image, settings and time

    def apply(self, image: ClusterImage, led: Mapping[int, int] | None = None) -> None:
        self.shards.apply(image, led)

    def settings_changed(self, settings: BrokerSettings) -> None:
        config = transaction_config(settings)
        for _, shard in self.shards.loaded():
            shard.settings_changed(config)

    def _abort_timed_out(self) -> None:
        wall_ms = self._clock.now_ms()
        for hosted, shard in self.shards.loaded():
            for transaction in shard.timed_out(wall_ms):
                try:
                    decision = shard.abort_timed_out(transaction.transactional_id, self._producer_id, wall_ms)
                except NoProducerId:
                    self._fetch_ids()
                    continue
                logger.info(
                    "Aborting the transaction of %s: it is open for longer than its transaction.timeout.ms=%d (producer %d is "
                    "fenced)",
                    transaction.transactional_id,
                    transaction.timeout_ms,
                    transaction.producer_id,
                )
                self.shards.perform(hosted, decision)

    def _fetch_ids(self) -> None:
        """Have a block of producer ids for the next check."""
        if self._fetching_ids is None or self._fetching_ids.done():
            self._fetching_ids = self._loop.create_task(self._controller().producer_ids.next())
            self._fetching_ids.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _expire_ids(self) -> None:
        wall_ms = self._clock_watch.now_ms()
        for hosted, shard in self.shards.loaded():
            self.shards.perform(hosted, shard.expire_ids(wall_ms))


def transaction_config(settings: BrokerSettings) -> TransactionConfig:
    from ottla.coordinator.txn.shard import TransactionConfig

    return TransactionConfig(
        timeout_max_ms=settings.int("transaction.max.timeout.ms"),
        id_expiration_ms=settings.int("transactional.id.expiration.ms"),
    )
