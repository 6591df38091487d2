"""The image after brokers join, leave or shut down, with the leaders and ISRs that follow (F51, F61).

Pure. One pass over all partitions, whatever happened: the failure of ten brokers is one change, and what the previous controller
left undone is done in the first pass of the next one (C09).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ottla.cluster.elections import elect_leader, eligible_replicas, online_replicas
from ottla.cluster.image import NO_LEADER, BrokerImage, ClusterImage, PartitionImage, TopicImage
from ottla.cluster.reassignment import finished, is_moving
from ottla.cluster.tree_changes import changed_topics
from ottla.errors import ErrorCode

UncleanAllowed = Callable[[TopicImage], bool]


UNKNOWN_EPOCH = -1


def with_brokers(image: ClusterImage, brokers: Mapping[int, BrokerImage]) -> ClusterImage:
    """With these brokers registered. One that left or registered again is not shutting down and has no offline replicas."""
    renewed = {
        number for number, broker in image.brokers.items() if number not in brokers or brokers[number].epoch != broker.epoch
    }
    changed = replace(image, brokers=dict(sorted(brokers.items())), shutting_down=image.shutting_down - renewed)
    if not renewed:
        return changed
    topics = [
        _with_partitions(
            topic,
            [
                replace(partition, offline=tuple(each for each in partition.offline if each not in renewed))
                if not renewed.isdisjoint(partition.offline)
                else partition
                for partition in topic.partitions
            ],
        )
        for topic in image.topics.values()
        if any(partition.offline for partition in topic.partitions)
    ]
    return changed.with_topics(topics)


def with_elections(image: ClusterImage, unclean: UncleanAllowed, topics: Iterable[TopicImage] | None = None) -> ClusterImage:
    """Every partition (of `topics`, or of all) with the leader and ISR that the online replicas allow.

    Reassignments whose target replicas are in sync are completed.
    """
    staying = set(image.brokers) - image.shutting_down
    changed: list[TopicImage] = []
    for topic in image.topics.values() if topics is None else topics:
        partitions = [_elected(image, topic, partition, staying, unclean) for partition in topic.partitions]
        after = _with_partitions(topic, partitions)
        if after is not topic:
            changed.append(after)
    return image.with_topics(changed)


def _elected(
    image: ClusterImage, topic: TopicImage, partition: PartitionImage, staying: set[int], unclean: UncleanAllowed
) -> PartitionImage:
    if partition.leader in staying and not partition.offline and staying.issuperset(partition.isr):
        after = partition
    else:
        online, may_lead = online_replicas(image, partition), eligible_replicas(image, partition)
        after = elect_leader(partition, online, may_lead, unclean=False)
        if after.leader == NO_LEADER and may_lead and unclean(topic):
            after = elect_leader(partition, online, may_lead, unclean=True)
    if is_moving(after) and after.leader != NO_LEADER:
        after = finished(after, eligible_replicas(image, after)) or after
    return after


def with_consecutive_epochs(before: ClusterImage, after: ClusterImage) -> ClusterImage:
    """Partition epochs one above those of `before`, however many steps lie between: one write makes them all."""
    changed: list[TopicImage] = []
    for topic in changed_topics(before, after):
        former = before.topics.get(topic.name)
        if former is None or former.topic_id != topic.topic_id:
            continue
        partitions = list(topic.partitions)
        for number, (old, new) in enumerate(zip(former.partitions, topic.partitions, strict=False)):
            if new.partition_epoch > old.partition_epoch + 1:
                partitions[number] = replace(new, partition_epoch=old.partition_epoch + 1)
        renewed = _with_partitions(topic, partitions)
        if renewed is not topic:
            changed.append(renewed)
    return after.with_topics(changed)


def with_offline(image: ClusterImage, broker_id: int, failed: Iterable[tuple[str, int]]) -> ClusterImage:
    """With these replicas of a broker offline, and its others online."""
    wanted = set(failed)
    changed: list[TopicImage] = []
    for topic in image.topics.values():
        partitions: list[PartitionImage] = []
        for number, partition in enumerate(topic.partitions):
            is_off = broker_id in partition.offline
            if broker_id in partition.replicas and is_off != ((topic.name, number) in wanted):
                rest = tuple(each for each in partition.offline if each != broker_id)
                partitions.append(replace(partition, offline=rest if is_off else (*rest, broker_id)))
            else:
                partitions.append(partition)
        after = _with_partitions(topic, partitions)
        if after is not topic:
            changed.append(after)
    return image.with_topics(changed)


def with_partitions(image: ClusterImage, changed: Iterable[tuple[str, int, PartitionImage]]) -> ClusterImage:
    """With these partitions replaced."""
    by_topic: dict[str, list[PartitionImage]] = {}
    for name, number, partition in changed:
        partitions = by_topic.setdefault(name, list(image.topics[name].partitions))
        partitions[number] = partition
    return image.with_topics([_with_partitions(image.topics[name], partitions) for name, partitions in by_topic.items()])


def led_by(image: ClusterImage, broker_id: int) -> list[tuple[str, int]]:
    """The replicated partitions that a broker leads."""
    return [
        (topic.name, number)
        for topic in image.topics.values()
        for number, partition in enumerate(topic.partitions)
        if partition.leader == broker_id and len(partition.replicas) > 1
    ]


def _with_partitions(topic: TopicImage, partitions: list[PartitionImage]) -> TopicImage:
    if all(after is before for after, before in zip(partitions, topic.partitions, strict=True)):
        return topic
    return replace(topic, partitions=tuple(partitions))


@dataclass(frozen=True, slots=True)
class IsrProposal:
    leader: int
    leader_epoch: int
    isr: Sequence[tuple[int, int]]
    """(broker id, the broker epoch that the leader knows, or -1)."""
    partition_epoch: int
    recovering: bool = False


def alter_partition(image: ClusterImage, partition: PartitionImage, proposal: IsrProposal) -> PartitionImage | ErrorCode:
    """AlterPartition: the partition with the ISR that its leader proposes (the same object if it has it already), or why it is
    refused (KIP-497, KIP-841, KIP-903; C05, C06).

    A proposal that equals the present ISR is accepted before its partition epoch is checked, so that a leader whose response was
    lost can repeat it.
    """
    if proposal.partition_epoch > partition.partition_epoch or proposal.leader_epoch > partition.leader_epoch:
        # The leader has heard from a newer controller.
        return ErrorCode.NOT_CONTROLLER
    if proposal.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if proposal.leader != partition.leader:
        return ErrorCode.INVALID_REQUEST
    isr = tuple(broker for broker, _ in proposal.isr)
    if set(isr) == set(partition.isr) and proposal.recovering == partition.recovering:
        return partition
    if proposal.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    if proposal.leader not in isr or len(set(isr)) < len(isr) or not set(isr) <= set(partition.replicas):
        return ErrorCode.INVALID_REQUEST
    if proposal.recovering and (len(isr) > 1 or not partition.recovering):
        return ErrorCode.INVALID_REQUEST
    for broker, epoch in proposal.isr:
        known = image.brokers.get(broker)
        if known is None or (broker in image.shutting_down and broker != partition.leader) or broker in partition.offline:
            return ErrorCode.INELIGIBLE_REPLICA
        if epoch not in (UNKNOWN_EPOCH, known.epoch):
            return ErrorCode.INELIGIBLE_REPLICA
    return replace(partition, isr=isr, recovering=proposal.recovering, partition_epoch=partition.partition_epoch + 1)
