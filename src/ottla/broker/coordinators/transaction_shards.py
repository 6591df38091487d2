"""What the shards of transactions add to their `ShardHost` (`Coordinator`): their topic, their settings, and their markers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from ottla.broker.coordinators.internal_topic import Controller, InternalTopic, replication_factor
from ottla.cluster.requests import NewTopic

if TYPE_CHECKING:
    from ottla.broker.coordinators.marker_delivery import MarkerDelivery
    from ottla.broker.coordinators.shard_host import HostedShard
    from ottla.broker.metadata.local_metadata import LocalMetadata
    from ottla.broker.replicas.partitions import Partitions
    from ottla.cluster.settings import BrokerSettings
    from ottla.coordinator.shard import Decision, Now
    from ottla.coordinator.txn.pending_markers import Marker
    from ottla.coordinator.txn.shard import TransactionConfig, TransactionShard

logger = logging.getLogger(__name__)

TRANSACTIONS_TOPIC: Final = "__transaction_state"


def transactions_topic(metadata: LocalMetadata, partitions: Partitions, controller: Callable[[], Controller]) -> InternalTopic:
    return InternalTopic(TRANSACTIONS_TOPIC, metadata, partitions, controller, _topic_definition)


def _topic_definition(metadata: LocalMetadata) -> NewTopic:
    settings = metadata.settings
    replicas = replication_factor(metadata, "transaction.state.log.replication.factor")
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


class TransactionShards:
    def __init__(self, metadata: LocalMetadata, delivery: MarkerDelivery) -> None:
        self._metadata = metadata
        self._delivery = delivery

    def new_shard(self, partition: int) -> TransactionShard:
        # Imported with the first transaction: a broker without transactions starts faster.
        from ottla.coordinator.txn.shard import TransactionShard

        return TransactionShard(transaction_config(self._metadata.settings), partition)

    def on_loaded(self, hosted: HostedShard[TransactionShard], shard: TransactionShard, now: Now) -> Iterator[Decision]:
        if shard.transactions:
            logger.info(
                "Loaded %d transactional ids from %s, %d of them with markers to write",
                len(shard.transactions),
                hosted.topic_partition,
                len(shard.pending_markers),
            )
        yield shard.on_loaded(now)

    def perform_effect(self, hosted: HostedShard[TransactionShard], effect: Marker) -> None:
        self._delivery.deliver(hosted, effect)

    @property
    def codec(self) -> int:
        return 0

    @property
    def outlasts_epochs(self) -> bool:
        return False  # as in Kafka: markers carry the epoch of their coordinator

    @property
    def load_buffer_bytes(self) -> int:
        return self._metadata.settings.int("transaction.state.log.load.buffer.size")

    @property
    def commit_timeout_ms(self) -> int:
        return self._metadata.settings.int("request.timeout.ms")


def configure(shards: Iterable[TransactionShard], settings: BrokerSettings) -> None:
    """Have loaded shards use changed settings."""
    config = transaction_config(settings)
    for shard in shards:
        shard.settings_changed(config)


def transaction_config(settings: BrokerSettings) -> TransactionConfig:
    from ottla.coordinator.txn.shard import TransactionConfig

    return TransactionConfig(
        timeout_max_ms=settings.int("transaction.max.timeout.ms"),
        id_expiration_ms=settings.int("transactional.id.expiration.ms"),
    )
