"""The transaction coordinators of this broker: one shard for each partition of `__transaction_state` that it leads (F64).

Answers requests, with a new producer id where one is needed. Which shards are here and how their decisions are performed is
`shard_host`; their topic and settings are `transaction_shards`; `transaction_timeouts` ends what is open for too long;
`marker_delivery` delivers markers; `transaction_verifier` answers the writers of partitions.

1. No request is answered before all that its reply rests on is committed.
2. A marker is written once PREPARE_* is committed, never before (T06). COMPLETE_* follows when all markers are committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.broker.coordinators.new_producer_ids import NoProducerId
from ottla.broker.coordinators.transaction_shards import configure

if TYPE_CHECKING:
    from ottla.broker.coordinators.new_producer_ids import NewProducerIds
    from ottla.broker.coordinators.reply import Reply
    from ottla.broker.coordinators.shard_host import ShardHost
    from ottla.broker.coordinators.transaction_timeouts import TransactionTimeouts
    from ottla.cluster.image import ClusterImage
    from ottla.cluster.settings import BrokerSettings
    from ottla.coordinator.shard import Decision
    from ottla.coordinator.txn.shard import ProducerIds, TransactionShard

T = TypeVar("T")

TRANSACTION_VERSION: Final = 2
"""The level of the feature `transaction.version` in ApiVersions."""


class TransactionCoordinators:
    def __init__(self, shards: ShardHost[TransactionShard], producer_ids: NewProducerIds, timeouts: TransactionTimeouts) -> None:
        self.shards = shards
        self.timeouts = timeouts
        self._producer_ids = producer_ids

    def close(self) -> None:
        self.timeouts.stop()
        self._producer_ids.close()
        self.shards.close()

    def ask(
        self,
        transactional_id: str,
        reply: Reply[T],
        question: Callable[[TransactionShard, ProducerIds, int], Decision],
    ) -> T | Awaitable[T]:
        """Have the shard of an id decide a request. KafkaError if it is not here, or refuses."""
        hosted, shard = self.shards.find(transactional_id)
        try:
            decision = question(shard, self._producer_ids.take, self.shards.now().wall_ms)
        except NoProducerId:
            return self._ask_with_id(transactional_id, reply, question)
        return self.shards.reply_of(hosted, reply, decision)

    async def _ask_with_id(
        self,
        transactional_id: str,
        reply: Reply[T],
        question: Callable[[TransactionShard, ProducerIds, int], Decision],
    ) -> T:
        producer_id = await self._producer_ids.next()
        hosted, shard = self.shards.find(transactional_id)
        decision = question(shard, lambda: producer_id, self.shards.now().wall_ms)
        answer = self.shards.reply_of(hosted, reply, decision)
        return await answer if isinstance(answer, asyncio.Future) else answer

    def apply(self, image: ClusterImage, led: Mapping[int, int] | None = None) -> None:
        """Follow the cluster image."""
        self.shards.apply(image, led)
        if self.shards.any:
            self.timeouts.start()

    def settings_changed(self, settings: BrokerSettings) -> None:
        configure((shard for _, shard in self.shards.loaded()), settings)
