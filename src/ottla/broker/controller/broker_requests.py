"""Requests of brokers to the controller of a cluster: AlterPartition (C05, C06), ControlledShutdown (C07), AllocateProducerIds.

The rules are `cluster.broker_changes`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from ottla.broker.controller.controller_channels import ControlRequestSender
from ottla.broker.controller.controller_state import ControllerState
from ottla.broker.controller.metadata_writer import MetadataWriter
from ottla.broker.controller.producer_ids import ProducerIds
from ottla.cluster.broker_changes import IsrProposal, alter_partition, led_by, with_elections, with_partitions
from ottla.cluster.controller_term import find_topic
from ottla.cluster.image import ClusterImage, PartitionImage
from ottla.cluster.reassignment import is_moving
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.stop_replica import StopReplicaPartitionState, StopReplicaTopicState

logger = logging.getLogger(__name__)

AlterPartitionResult = PartitionImage | ErrorCode


class BrokerRequests:
    def __init__(
        self,
        state: ControllerState,
        writer: MetadataWriter,
        sender: ControlRequestSender,
        producer_ids: ProducerIds,
        read_soon: Callable[[], None],
    ) -> None:
        """`read_soon` has `complete_reassignments` called, again if it fails."""
        self.state = state
        self._writer = writer
        self._sender = sender
        self._producer_ids = producer_ids
        self._read_soon = read_soon
        self._reassigning: set[str] = set()
        """Topics with a reassignment that may be complete, because an ISR has changed."""

    async def alter_partitions(
        self, broker_id: int, broker_epoch: int, proposals: Sequence[tuple[tuple[str | bytes, int], IsrProposal]]
    ) -> list[AlterPartitionResult]:
        """For each proposal: the partition as it is now, or why it is refused. A topic is named by its name or its id."""

        def alter(image: ClusterImage) -> tuple[ClusterImage, list[AlterPartitionResult]]:
            broker = image.brokers.get(broker_id)
            if broker is None or broker.epoch != broker_epoch:
                raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} is not registered with epoch {broker_epoch}")
            results: list[AlterPartitionResult] = []
            changed: list[tuple[str, int, PartitionImage]] = []
            for (name_or_id, number), proposal in proposals:
                topic = find_topic(image, name_or_id)
                if isinstance(topic, KafkaError):
                    results.append(topic.code)
                    continue
                if not 0 <= number < len(topic.partitions):
                    results.append(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                    continue
                present = topic.partitions[number]
                result = alter_partition(image, present, proposal)
                results.append(result)
                if isinstance(result, PartitionImage) and result is not present:
                    changed.append((topic.name, number, result))
                    if is_moving(result):
                        self._reassigning.add(topic.name)
            if self._reassigning:
                # Before the write: the request may be cancelled with its connection, the write is not.
                self._read_soon()
            return with_partitions(image, changed), results

        return await self._writer.change(alter)

    async def complete_reassignments(self) -> None:
        """Complete the reassignments whose target replicas are all in sync."""
        if not self._reassigning:
            return
        state = self.state
        async with state.lock:
            if state.is_active:
                topics = [state.image.topics[name] for name in sorted(self._reassigning) if name in state.image.topics]
                await self._writer.elect(state.image, topics)
            self._reassigning.clear()

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[tuple[str, int]]:
        """Move the leaderships of a broker that is about to stop. Returns the partitions it still leads."""

        def shut_down(image: ClusterImage) -> tuple[ClusterImage, ClusterImage]:
            broker = image.brokers.get(broker_id)
            if broker is None:
                raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not registered")
            if 0 <= broker_epoch < broker.epoch:
                raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} has epoch {broker.epoch} now")
            logger.info("Controlled shutdown of broker %d: moving its leaderships to other brokers", broker_id)
            leaving = replace(image, shutting_down=image.shutting_down | {broker_id})
            after = with_elections(leaving, self.state.unclean_allowed)
            return after, after

        image = await self._writer.change(shut_down)
        followed = _followed_by(image, broker_id)
        if followed:
            self._sender.stop_replicas(image.brokers[broker_id], followed)
        return led_by(image, broker_id)

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> range:
        """A block of producer ids for another broker."""
        broker = self.state.active_image().brokers.get(broker_id)
        if broker is None:
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered")
        if broker.epoch != broker_epoch:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} has epoch {broker.epoch}, not {broker_epoch}")
        return await self._producer_ids.allocate_block()


def _followed_by(image: ClusterImage, broker_id: int) -> list[StopReplicaTopicState]:
    found: list[StopReplicaTopicState] = []
    for topic in image.topics.values():
        states = [
            StopReplicaPartitionState(partition_index=number, leader_epoch=partition.leader_epoch)
            for number, partition in enumerate(topic.partitions)
            if broker_id in partition.replicas and partition.leader != broker_id and len(partition.replicas) > 1
        ]
        if states:
            found.append(StopReplicaTopicState(topic_name=topic.name, partition_states=states))
    return found
