"""What administrators ask of the controller about single partitions: another leader (F54), other replicas (F56).

Functions on whichever controller there is, of one broker or of many. The rules are `cluster.elections` and
`cluster.reassignment`; the change is written and shown by the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ottla.broker.controller.controller_host import ControllerHost
from ottla.cluster.broker_changes import settled, with_partitions
from ottla.cluster.elections import eligible, prefer, settle, standing
from ottla.cluster.image import NO_LEADER, ClusterImage, PartitionImage
from ottla.cluster.reassignment import begin, check_target, is_moving, origin
from ottla.errors import ErrorCode, KafkaError


@dataclass(frozen=True, slots=True)
class Reassignment:
    topic: str
    partition: int
    target: tuple[int, ...] | None
    """None: stop the one that is under way."""


Elected = tuple[str, int, KafkaError | None]


async def elect_leaders(host: ControllerHost, asked: Sequence[tuple[str, int]] | None, *, unclean: bool) -> list[Elected]:
    """For each partition (None: all that need it): what became of it."""

    def plan(image: ClusterImage) -> tuple[ClusterImage, list[Elected]]:
        outcomes: list[Elected] = []
        changed: list[tuple[str, int, PartitionImage]] = []
        keys = asked
        if keys is None:
            keys = [(topic.name, number) for topic in image.topics.values() for number in range(len(topic.partitions))]
        for name, number in keys:
            try:
                after = _elected(image, _partition(image, name, number), unclean=unclean)
            except KafkaError as error:
                if asked is not None or error.code != ErrorCode.ELECTION_NOT_NEEDED:
                    outcomes.append((name, number, error))
                continue
            changed.append((name, number, after))
            outcomes.append((name, number, None))
        return with_partitions(image, changed), outcomes

    return await host.change(plan)


async def alter_reassignments(
    host: ControllerHost, asked: Sequence[Reassignment], *, factor_may_change: bool = True
) -> list[KafkaError | None]:
    """For each: None if the partition is on its way (or there), or why not (R18)."""

    def plan(image: ClusterImage) -> tuple[ClusterImage, list[KafkaError | None]]:
        outcomes: list[KafkaError | None] = []
        changed: list[tuple[str, int, PartitionImage]] = []
        for each in asked:
            try:
                partition = _partition(image, each.topic, each.partition)
                after = _reassigned(image, partition, each.target, factor_may_change=factor_may_change)
            except KafkaError as error:
                outcomes.append(error)
                continue
            outcomes.append(None)
            if after is not partition:
                changed.append((each.topic, each.partition, after))
        moved = with_partitions(image, changed)
        # A target that is in sync already is reached at once.
        return settled(moved, host.unclean_allowed, [moved.topics[name] for name in {name for name, _, _ in changed}]), outcomes

    return await host.change(plan)


def reassignments(image: ClusterImage) -> list[tuple[str, int, PartitionImage]]:
    """The partitions that are on their way to other replicas."""
    return [
        (topic.name, number, partition)
        for topic in image.topics.values()
        for number, partition in enumerate(topic.partitions)
        if is_moving(partition)
    ]


def _partition(image: ClusterImage, name: str, number: int) -> PartitionImage:
    topic = image.topics.get(name)
    if topic is None or not 0 <= number < len(topic.partitions):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{number}")
    return topic.partitions[number]


def _elected(image: ClusterImage, partition: PartitionImage, *, unclean: bool) -> PartitionImage:
    may_lead = eligible(image, partition)
    if not unclean:
        preferred = prefer(partition, may_lead)
        if preferred is None:
            raise KafkaError(
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                f"the preferred leader, broker {partition.replicas[0]}, does not run or is not in sync",
            )
        if preferred is partition:
            raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, f"broker {partition.leader} leads already")
        return preferred
    if partition.leader != NO_LEADER and partition.leader in image.brokers:
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, f"broker {partition.leader} leads")
    after = settle(partition, standing(image, partition), may_lead, unclean=True)
    if after.leader == NO_LEADER:
        raise KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "none of its replicas runs")
    return after


def _reassigned(
    image: ClusterImage, partition: PartitionImage, wanted: tuple[int, ...] | None, *, factor_may_change: bool
) -> PartitionImage:
    if wanted is None:
        if not is_moving(partition):
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "it is not being reassigned")
        wanted = origin(partition)
    else:
        check_target(image, partition, wanted, factor_may_change=factor_may_change)
    if not is_moving(partition) and wanted == partition.replicas:
        return partition
    return begin(partition, wanted, eligible(image, partition))
