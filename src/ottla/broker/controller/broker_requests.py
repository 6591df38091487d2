"""What brokers ask of the controller: other in-sync replicas (C05, C06), and to be relieved before they stop (C07).

Functions on the controller of a cluster. The rules are `cluster.isr_changes` and `cluster.broker_changes`; the change is written
and told by the host.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from ottla.broker.controller.cluster_host import ClusterHost
from ottla.cluster.broker_changes import led_by, settled, with_partitions
from ottla.cluster.image import ClusterImage, PartitionImage
from ottla.cluster.isr_changes import IsrWish, grant
from ottla.cluster.reassignment import is_moving
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.stop_replica import StopReplicaPartitionState, StopReplicaTopicState
from ottla.types import TopicPartition

logger = logging.getLogger(__name__)

IsrOutcome = PartitionImage | ErrorCode


async def alter_partitions(
    host: ClusterHost, broker_id: int, broker_epoch: int, wishes: Sequence[tuple[TopicPartition, IsrWish]]
) -> list[IsrOutcome]:
    """For each wish: the partition as it is now, or why not."""
    moving: set[str] = set()

    def plan(image: ClusterImage) -> tuple[ClusterImage, list[IsrOutcome]]:
        broker = image.brokers.get(broker_id)
        if broker is None or broker.epoch != broker_epoch:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} is not here with epoch {broker_epoch}")
        outcomes: list[IsrOutcome] = []
        changed: list[tuple[str, int, PartitionImage]] = []
        for key, wish in wishes:
            topic = image.topics.get(key.topic)
            if topic is None or not 0 <= key.partition < len(topic.partitions):
                outcomes.append(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                continue
            present = topic.partitions[key.partition]
            outcome = grant(image, present, wish)
            outcomes.append(outcome)
            if isinstance(outcome, PartitionImage) and outcome is not present:
                changed.append((key.topic, key.partition, outcome))
                if is_moving(outcome):
                    moving.add(key.topic)
        return with_partitions(image, changed), outcomes

    outcomes = await host.change(plan)
    if moving:
        host.finish_reassignments(moving)
    return outcomes


async def controlled_shutdown(host: ClusterHost, broker_id: int, broker_epoch: int) -> list[tuple[str, int]]:
    """Move leaderships away from a broker that wants to stop. Returns those that could not be moved."""

    def plan(image: ClusterImage) -> tuple[ClusterImage, ClusterImage]:
        broker = image.brokers.get(broker_id)
        if broker is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"there is no broker {broker_id}")
        if 0 <= broker_epoch < broker.epoch:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} has epoch {broker.epoch} now")
        logger.info("broker %d wants to stop", broker_id)
        leaving = replace(image, shutting_down=image.shutting_down | {broker_id})
        after = settled(leaving, host.unclean_allowed)
        return after, after

    image = await host.change(plan)
    followed = _followed_by(image, broker_id)
    if followed:
        host.tell(image.brokers[broker_id], followed)
    return led_by(image, broker_id)


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
