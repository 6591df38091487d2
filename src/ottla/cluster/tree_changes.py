"""The writes that take the metadata tree from one image to the next. Pure; topics that are the same object are skipped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ottla.cluster import znodes
from ottla.cluster.image import ClusterImage, PartitionImage, TopicImage
from ottla.ports import Change, Check, Create, SetData

_OVERHEAD_BYTES = 64
"""Bytes of a change besides its path and its data."""


def state_changes(before: ClusterImage, after: ClusterImage, controller_epoch: int) -> list[Change]:
    """For topics in both images: the assignments and partition states of the later one."""
    changes: list[Change] = []
    for topic in changed_topics(before, after):
        former = before.topics.get(topic.name)
        if former is not None and former.topic_id == topic.topic_id:
            changes += _topic_changes(former, topic, controller_epoch)
    return changes


def changed_topics(before: ClusterImage, after: ClusterImage) -> Iterator[TopicImage]:
    """Topics that are new or not the same object."""
    if before.topics is after.topics:
        return
    for name, topic in after.topics.items():
        if before.topics.get(name) is not topic:
            yield topic


def _topic_changes(former: TopicImage, topic: TopicImage, controller_epoch: int) -> Iterator[Change]:
    pairs = list(zip(former.partitions, topic.partitions, strict=False))
    if any(_assignment(old) != _assignment(new) for old, new in pairs):
        yield SetData(znodes.topic_path(topic.name), znodes.encode_topic(topic.topic_id, topic.partitions))
    for number, (old, new) in enumerate(pairs):
        if new.partition_epoch != old.partition_epoch:
            yield SetData(
                znodes.partition_state_path(topic.name, number),
                znodes.encode_partition_state(new, controller_epoch),
                old.partition_epoch,
            )


def _assignment(partition: PartitionImage) -> tuple[tuple[int, ...], ...]:
    return partition.replicas, partition.adding, partition.removing


def split_changes(changes: Sequence[Change], bytes_max: int) -> list[list[Change]]:
    """Split changes that are too large for one write. The fence (a check that comes first) comes first in each part."""
    fence = list(changes[:1]) if changes and isinstance(changes[0], Check) else []
    found: list[list[Change]] = []
    present, size = list(fence), 0
    for change in changes[len(fence) :]:
        cost = _OVERHEAD_BYTES + len(change.path) + (len(change.data) if isinstance(change, (Create, SetData)) else 0)
        if len(present) > len(fence) and size + cost > bytes_max:
            found.append(present)
            present, size = list(fence), 0
        present.append(change)
        size += cost
    if len(present) > len(fence) or not found:
        found.append(present)
    return found
