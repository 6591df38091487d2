"""An internal topic whose partitions are coordinators: `__consumer_offsets` or `__transaction_state` (F37).

Owns which partition coordinates a key (a group id or a transactional id), which broker leads it, and the creation of the topic on
first use. The partition is Java's hash of the key, as in Kafka.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ottla.cluster.settings import TopicSettings
from ottla.coordinator.shard import positive_hash
from ottla.errors import ErrorCode, KafkaError
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from ottla.broker.metadata.local_metadata import LocalMetadata
    from ottla.broker.replicas.partitions import Partitions
    from ottla.cluster.image import ClusterImage, TopicImage
    from ottla.cluster.requests import NewTopic

logger = logging.getLogger(__name__)


class TopicRequests(Protocol):
    async def create(self, requested: Sequence[NewTopic]) -> Sequence[Any]:
        """For each topic: the topic, or a KafkaError."""
        ...


class Controller(Protocol):
    @property
    def topic_requests(self) -> TopicRequests: ...


class InternalTopic:
    def __init__(
        self,
        name: str,
        metadata: LocalMetadata,
        partitions: Partitions,
        controller: Callable[[], Controller],
        definition: Callable[[LocalMetadata], NewTopic],
    ) -> None:
        self.name = name
        self.image: TopicImage | None = None
        self.partition_count = 0
        self._metadata = metadata
        self._partitions = partitions
        self._controller = controller
        self._definition = definition
        """How the topic is created."""
        self._creation: asyncio.Task[None] | None = None
        self._last_error = ""

    def close(self) -> None:
        if self._creation is not None:
            self._creation.cancel()

    def apply(self, image: ClusterImage) -> bool:
        """Follow the cluster image. Whether the topic changed."""
        topic = image.topics.get(self.name)
        changed = topic is not self.image
        self.image = topic
        self.partition_count = len(topic.partitions) if topic is not None else 0
        return changed

    @property
    def message_bytes_max(self) -> int:
        """`max.message.bytes` of the topic."""
        config = self.image.config if self.image is not None else {}
        return TopicSettings.resolve(self._metadata.settings, config).int("max.message.bytes")

    def partition_for(self, key: str) -> int:
        return positive_hash(key) % self.partition_count

    def led_here(self) -> dict[int, int]:
        """The partitions that this broker leads by the image, with their leader epochs."""
        partitions = self.image.partitions if self.image is not None else ()
        return {
            number: partition.leader_epoch
            for number, partition in enumerate(partitions)
            if partition.leader == self._metadata.broker_id
        }

    async def leader_of(self, key: str) -> int:
        """The broker that coordinates a key, -1 if there is none now. Creates the topic on first use."""
        if self.image is None:
            await self._create()
        leader = self.known_leader_of(key)
        return -1 if leader is None else leader

    def known_leader_of(self, key: str) -> int | None:
        """As `leader_of`; None if the topic does not exist yet."""
        if self.image is None:
            return None
        number = self.partition_for(key)
        leader = self.image.partitions[number].leader
        if leader == self._metadata.broker_id and self._partitions.is_lost(TopicPartition(self.name, number)):
            return -1
        return leader

    async def _create(self) -> None:
        """Concurrent callers share one attempt."""
        if self._creation is None:
            self._creation = asyncio.get_running_loop().create_task(self._create_once())
        try:
            await asyncio.shield(self._creation)
        finally:
            if self._creation is not None and self._creation.done():
                self._creation = None

    async def _create_once(self) -> None:
        for outcome in await self._controller().topic_requests.create([self._definition(self._metadata)]):
            if not isinstance(outcome, KafkaError) or outcome.code == ErrorCode.TOPIC_ALREADY_EXISTS:
                continue
            if outcome.code == ErrorCode.LEADER_NOT_AVAILABLE:
                # Another broker created the topic and this one has not received its metadata yet, or the controller is changing.
                logger.info("Internal topic %s is not available yet: %s", self.name, outcome.detail)
            elif str(outcome) != self._last_error:  # clients retry FindCoordinator: log each error once
                self._last_error = str(outcome)
                logger.error("Cannot create internal topic %s: %s", self.name, outcome)
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the internal topic {self.name} cannot be created: {outcome.detail}"
            )


def replication_factor(metadata: LocalMetadata, setting: str) -> int:
    """The setting; but not above the number of brokers on a broker alone, which needs coordinators too. In a cluster the other
    brokers may only be late."""
    factor = metadata.settings.int(setting)
    if metadata.settings.optional_str("zookeeper.connect") is not None:
        return factor
    return min(factor, len(metadata.image.brokers))
