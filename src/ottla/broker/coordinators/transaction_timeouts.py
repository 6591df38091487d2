"""Ends transactions that are open for longer than their timeout, and removes transactional ids that expired."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.broker.coordinators.new_producer_ids import NoProducerId
from ottla.broker.coordinators.shard_timers import Periodic

if TYPE_CHECKING:
    from ottla.broker.clock_watch import ClockWatch
    from ottla.broker.coordinators.new_producer_ids import NewProducerIds
    from ottla.broker.coordinators.shard_host import ShardHost
    from ottla.broker.metadata.local_metadata import LocalMetadata
    from ottla.coordinator.txn.shard import TransactionShard

logger = logging.getLogger(__name__)


class TransactionTimeouts:
    def __init__(
        self,
        metadata: LocalMetadata,
        shards: ShardHost[TransactionShard],
        producer_ids: NewProducerIds,
        clock_watch: ClockWatch,
    ) -> None:
        self._shards = shards
        self._producer_ids = producer_ids
        self._clock_watch = clock_watch
        self._started = False
        self.timeouts = Periodic(
            lambda: metadata.settings.int("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
            self.abort_timed_out,
        )
        self.expiry = Periodic(
            lambda: metadata.settings.int("transaction.remove.expired.transaction.cleanup.interval.ms"), self.expire_ids
        )

    def start(self) -> None:
        """Begin to check, if it has not begun before: a broker without transactions has no timers."""
        if not self._started:
            self._started = True
            self.timeouts.start()
            self.expiry.start()

    def stop(self) -> None:
        self.timeouts.stop()
        self.expiry.stop()

    def abort_timed_out(self) -> None:
        wall_ms = self._shards.now().wall_ms
        for hosted, shard in self._shards.loaded():
            for transaction in shard.timed_out(wall_ms):
                try:
                    decision = shard.abort_timed_out(transaction.transactional_id, self._producer_ids.take, wall_ms)
                except NoProducerId:
                    self._producer_ids.fetch()  # for the next check
                    continue
                logger.info(
                    "Aborting the transaction of %s: it has been open for longer than its transaction.timeout.ms=%d (producer %d "
                    "is fenced)",
                    transaction.transactional_id,
                    transaction.timeout_ms,
                    transaction.producer_id,
                )
                hosted.perform(decision)

    def expire_ids(self) -> None:
        wall_ms = self._clock_watch.now_ms()
        for hosted, shard in self._shards.loaded():
            hosted.perform(shard.expire_ids(wall_ms))
