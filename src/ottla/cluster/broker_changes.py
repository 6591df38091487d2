"""Brokers come, go, or ask to go: the image that follows, with leaders and in-sync replicas as they should be then (F51, F61).

Pure. One pass over all partitions whatever happened, so a failure of one broker or of ten is one decision, and what an earlier
controller left undone is done by the next one's first pass (C09).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from ottla.cluster.elections import eligible, settle, standing
from ottla.cluster.image import NO_LEADER, BrokerImage, ClusterImage, PartitionImage, TopicImage
from ottla.cluster.reassignment import finished, is_moving
from ottla.cluster.tree_changes import changed_topics

UncleanAllowed = Callable[[TopicImage], bool]


def with_brokers(image: ClusterImage, brokers: Mapping[int, BrokerImage]) -> ClusterImage:
    """These brokers are here. One that is gone or in a new life is no longer shutting down, and its directories are as new."""
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


def settled(image: ClusterImage, unclean: UncleanAllowed, topics: Iterable[TopicImage] | None = None) -> ClusterImage:
    """Every partition (of `topics`, or of all) with the leader and the in-sync replicas that those who are here allow."""
    lively = set(image.brokers) - image.shutting_down
    changed: list[TopicImage] = []
    for topic in image.topics.values() if topics is None else topics:
        partitions = [_settled(image, topic, partition, lively, unclean) for partition in topic.partitions]
        after = _with_partitions(topic, partitions)
        if after is not topic:
            changed.append(after)
    return image.with_topics(changed)


def _settled(
    image: ClusterImage, topic: TopicImage, partition: PartitionImage, lively: set[int], unclean: UncleanAllowed
) -> PartitionImage:
    if partition.leader in lively and not partition.offline and lively.issuperset(partition.isr):
        after = partition
    else:
        here, may_lead = standing(image, partition), eligible(image, partition)
        after = settle(partition, here, may_lead, unclean=False)
        if after.leader == NO_LEADER and may_lead and unclean(topic):
            after = settle(partition, here, may_lead, unclean=True)
    if is_moving(after) and after.leader != NO_LEADER:
        after = finished(after, eligible(image, after)) or after
    return after


def renumbered(before: ClusterImage, after: ClusterImage) -> ClusterImage:
    """However many steps lie between two images: one write takes a partition from one to the other, and counts as one."""
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
    """The replicas of a broker whose directory failed; its others are fine (again)."""
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
    """These partitions in place of those they were."""
    by_topic: dict[str, list[PartitionImage]] = {}
    for name, number, partition in changed:
        partitions = by_topic.setdefault(name, list(image.topics[name].partitions))
        partitions[number] = partition
    return image.with_topics([_with_partitions(image.topics[name], partitions) for name, partitions in by_topic.items()])


def led_by(image: ClusterImage, broker_id: int) -> list[tuple[str, int]]:
    """What a broker leads although others could."""
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
