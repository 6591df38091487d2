"""What changes for the replicas of this broker from one cluster image to the next. Topics that both images share are skipped."""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.cluster.image import ClusterImage, PartitionImage, TopicImage
from ottla.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Role:
    """A replica of this broker that is new, or whose leader, leader epoch or ISR changed."""

    topic: TopicImage
    topic_partition: TopicPartition
    partition: PartitionImage


@dataclass(slots=True)
class RoleChanges:
    removed: list[TopicPartition] = field(default_factory=list)
    """Applied first: a topic that was deleted and created again is another topic."""
    taken: list[Role] = field(default_factory=list)
    reconfigured: list[TopicImage] = field(default_factory=list)
    """Topics whose settings changed, or that are new in the image: in a cluster LeaderAndIsr may precede UpdateMetadata."""
    settings_changed: bool = False
    """The dynamic settings of the broker changed, on which all topics may depend."""


def role_changes(before: ClusterImage | None, after: ClusterImage, broker_id: int) -> RoleChanges:
    changes = RoleChanges()
    known = before.topics if before is not None else {}
    for name, topic in known.items():
        now = after.topics.get(name)
        if now is topic:
            continue
        kept = _hosted(now, broker_id) if now is not None and now.topic_id == topic.topic_id else {}
        changes.removed += [TopicPartition(name, index) for index in _hosted(topic, broker_id) if index not in kept]
    for name, topic in after.topics.items():
        former = known.get(name)
        if former is topic:
            continue
        if former is not None and former.topic_id != topic.topic_id:
            former = None
        for index, partition in _hosted(topic, broker_id).items():
            if former is None or index >= len(former.partitions) or former.partitions[index] != partition:
                changes.taken.append(Role(topic, TopicPartition(name, index), partition))
        if former is None or former.config != topic.config:
            changes.reconfigured.append(topic)
    if before is None:
        changes.settings_changed = any(after.dynamic_config(broker_id))
    else:
        changes.settings_changed = before.dynamic_config(broker_id) != after.dynamic_config(broker_id)
    return changes


def _hosted(topic: TopicImage, broker_id: int) -> dict[int, PartitionImage]:
    return {index: partition for index, partition in enumerate(topic.partitions) if broker_id in partition.replicas}
