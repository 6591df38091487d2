"""ElectLeaders (F54) and AlterPartitionReassignments (F56), as the controller performs them.

The rules are `cluster.elections` and `cluster.reassignment`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ottla.broker.controller.controller_state import ControllerState
from ottla.broker.controller.metadata_writer import MetadataWriter
from ottla.cluster.broker_changes import with_elections, with_partitions
from ottla.cluster.elections import elect_leader, elect_preferred, eligible_replicas, online_replicas
from ottla.cluster.image import NO_LEADER, ClusterImage, PartitionImage
from ottla.cluster.reassignment import begin, check_target, is_moving, origin
from ottla.errors import ErrorCode, KafkaError


@dataclass(frozen=True, slots=True)
class Reassignment:
    topic: str
    partition: int
    target: tuple[int, ...] | None
    """The replicas to be; None cancels the reassignment in progress."""


ElectionResult = tuple[str, int, KafkaError | None]


class PartitionRequests:
    def __init__(self, state: ControllerState, writer: MetadataWriter) -> None:
        self._state = state
        self._writer = writer

    async def elect_leaders(self, requested: Sequence[tuple[str, int]] | None, *, unclean: bool) -> list[ElectionResult]:
        """For each partition (None: all that need an election): None if its leader was elected, or a KafkaError."""

        def elect(image: ClusterImage) -> tuple[ClusterImage, list[ElectionResult]]:
            results: list[ElectionResult] = []
            changed: list[tuple[str, int, PartitionImage]] = []
            keys = requested
            if keys is None:
                keys = [(topic.name, number) for topic in image.topics.values() for number in range(len(topic.partitions))]
            for name, number in keys:
                try:
                    after = _elected(image, _partition(image, name, number), unclean=unclean)
                except KafkaError as error:
                    if requested is not None or error.code != ErrorCode.ELECTION_NOT_NEEDED:
                        results.append((name, number, error))
                    continue
                changed.append((name, number, after))
                results.append((name, number, None))
            return with_partitions(image, changed), results

        return await self._writer.change(elect)

    async def alter_reassignments(
        self, requested: Sequence[Reassignment], *, factor_may_change: bool = True
    ) -> list[KafkaError | None]:
        """For each: None if the reassignment has begun (or is complete), or a KafkaError (R18)."""

        def reassign(image: ClusterImage) -> tuple[ClusterImage, list[KafkaError | None]]:
            results: list[KafkaError | None] = []
            changed: list[tuple[str, int, PartitionImage]] = []
            for each in requested:
                try:
                    partition = _partition(image, each.topic, each.partition)
                    after = _reassigned(image, partition, each.target, factor_may_change=factor_may_change)
                except KafkaError as error:
                    results.append(error)
                    continue
                results.append(None)
                if after is not partition:
                    changed.append((each.topic, each.partition, after))
            moved = with_partitions(image, changed)
            # A reassignment whose target replicas are in sync is complete at once.
            topics = [moved.topics[name] for name in {name for name, _, _ in changed}]
            return with_elections(moved, self._state.unclean_allowed, topics), results

        return await self._writer.change(reassign)

    def reassignments(self) -> list[tuple[str, int, PartitionImage]]:
        """The partitions with a reassignment in progress."""
        return [
            (topic.name, number, partition)
            for topic in self._state.active_image().topics.values()
            for number, partition in enumerate(topic.partitions)
            if is_moving(partition)
        ]


def _partition(image: ClusterImage, name: str, number: int) -> PartitionImage:
    topic = image.topics.get(name)
    if topic is None or not 0 <= number < len(topic.partitions):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {name}-{number} does not exist")
    return topic.partitions[number]


def _elected(image: ClusterImage, partition: PartitionImage, *, unclean: bool) -> PartitionImage:
    may_lead = eligible_replicas(image, partition)
    if not unclean:
        preferred = elect_preferred(partition, may_lead)
        if preferred is None:
            raise KafkaError(
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                f"the preferred leader, broker {partition.replicas[0]}, is not running or not in the ISR",
            )
        if preferred is partition:
            raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, f"broker {partition.leader} is the leader already")
        return preferred
    if partition.leader != NO_LEADER and partition.leader in image.brokers:
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, f"the partition has a leader, broker {partition.leader}")
    after = elect_leader(partition, online_replicas(image, partition), may_lead, unclean=True)
    if after.leader == NO_LEADER:
        raise KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "no replica of the partition is online")
    return after


def _reassigned(
    image: ClusterImage, partition: PartitionImage, wanted: tuple[int, ...] | None, *, factor_may_change: bool
) -> PartitionImage:
    if wanted is None:
        if not is_moving(partition):
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "the partition has no reassignment in progress")
        wanted = origin(partition)
    else:
        check_target(image, partition, wanted, factor_may_change=factor_may_change)
    if not is_moving(partition) and wanted == partition.replicas:
        return partition
    return begin(partition, wanted, eligible_replicas(image, partition))
