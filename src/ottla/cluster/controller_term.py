"""A term of the controller, and the changes it makes on request: topics, partitions, configs, producer ids.

Pure: a request and the present image give changes of the metadata tree and the next image. `broker.controller` writes them.
Changes by elections, reassignments and ISR proposals are in `broker_changes`, `elections` and `reassignment`.

1. Every list of changes begins with a check of /controller_epoch: a controller that was replaced writes nothing (C02).
2. An item of a request sees the items before it, as if they were written already.
3. An item that is refused changes nothing; the other items of the request are performed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ottla.cluster import znodes
from ottla.cluster.config_changes import altered_config, config_change, with_config
from ottla.cluster.image import NO_LEADER, ClusterImage, PartitionImage, TopicImage
from ottla.cluster.requests import ConfigAlteration, FoundTopic, NewPartitions, NewTopic, ResourceType, collision_key
from ottla.cluster.settings import BrokerSettings
from ottla.cluster.topic_changes import (
    check_total,
    create_changes,
    delete_changes,
    extended_topic,
    first_state,
    grow_changes,
    new_topic,
    partitions_asked,
)
from ottla.cluster.tree_changes import state_changes
from ottla.cluster.znodes import new_uuid
from ottla.errors import ErrorCode, KafkaError
from ottla.ports import Change, Check, Create, Random, SetData
from ottla.security.quotas import Charge
from ottla.types import ZERO_UUID

PRODUCER_ID_BLOCK_SIZE: Final = 1000
PRODUCER_ID_MAX: Final = 2**63 - 1

_ADOPTED_HOLES_MAX: Final = 10_000
"""A stray directory may have any partition number: no topic is adopted with a larger gap before it."""

_ADOPTED_CONFIG: Final = {"retention.ms": "-1", "retention.bytes": "-1"}
"""A data directory does not hold the configs of its topics. Until they are set, no record of an adopted topic is deleted."""

_INTERNAL_CONFIG: Final = {
    "__consumer_offsets": {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"},
    "__transaction_state": {"cleanup.policy": "compact", "compression.type": "uncompressed", "segment.bytes": "104857600"},
}

TopicResult = TopicImage | KafkaError


@dataclass(slots=True)
class MetadataUpdate:
    """Changes to write, and the image once they are written."""

    changes: list[Change]
    image: ClusterImage

    @property
    def empty(self) -> bool:
        """Whether there is nothing to write but the fence."""
        return len(self.changes) <= 1


@dataclass(slots=True)
class Adoption:
    update: MetadataUpdate
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ControllerTerm:
    """The broker that is the controller, its controller epoch, and the version of /controller_epoch."""

    broker_id: int
    epoch: int
    epoch_version: int

    @property
    def fence(self) -> Change:
        """Fails if another broker has become the controller."""
        return Check(znodes.CONTROLLER_EPOCH, self.epoch_version)

    def _update(self, image: ClusterImage) -> MetadataUpdate:
        return MetadataUpdate([self.fence], image)

    def create_topics(
        self,
        image: ClusterImage,
        settings: BrokerSettings,
        requested: Sequence[NewTopic],
        random: Random,
        charge: Charge | None = None,
    ) -> tuple[MetadataUpdate, list[TopicResult]]:
        """For each topic: the topic, or a KafkaError."""
        update = self._update(image)
        results: list[TopicResult] = []
        counts = Counter(new.name for new in requested)
        total = sum(partitions_asked(new, settings) for new in requested if counts[new.name] == 1)
        by_collision_key = {collision_key(name): name for name in image.topics}
        created: list[TopicImage] = []
        for new in requested:
            try:
                if counts[new.name] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic {new.name} appears twice in the request")
                check_total(total)
                topic = new_topic(image, settings, self._new_topic_id(image, random), new, random, by_collision_key)
                if charge is not None:
                    charge(len(topic.partitions))
            except KafkaError as error:
                results.append(error)
                continue
            by_collision_key[collision_key(topic.name)] = topic.name
            update.changes += create_changes(topic, self.epoch)
            created.append(topic)
            results.append(topic)
        update.image = image.with_topics(created)
        return update, results

    def _new_topic_id(self, image: ClusterImage, random: Random) -> bytes:
        while True:
            topic_id = new_uuid(random)
            if topic_id not in image.topic_names:
                return topic_id

    def delete_topics(
        self, image: ClusterImage, settings: BrokerSettings, requested: Sequence[str | bytes], charge: Charge | None = None
    ) -> tuple[MetadataUpdate, list[TopicResult]]:
        """For each topic, by name or id: the topic to delete, or a KafkaError."""
        update = self._update(image)
        if not settings.bool("delete.topic.enable"):
            disabled = KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "topic deletion is disabled: delete.topic.enable=false")
            return update, [disabled for _ in requested]
        results: list[TopicResult] = []
        found = [find_topic(image, name_or_id) for name_or_id in requested]
        counts = Counter(topic.name for topic in found if isinstance(topic, TopicImage))
        removed: list[str] = []
        for topic in found:
            if isinstance(topic, KafkaError):
                results.append(topic)
            elif counts[topic.name] > 1:
                results.append(KafkaError(ErrorCode.INVALID_REQUEST, f"topic {topic.name} appears twice in the request"))
            else:
                try:
                    if charge is not None:
                        charge(len(topic.partitions))
                except KafkaError as error:
                    results.append(error)
                    continue
                update.changes += delete_changes(topic)
                removed.append(topic.name)
                results.append(topic)
        update.image = image.with_topics((), removed)
        return update, results

    def create_partitions(
        self, image: ClusterImage, requested: Sequence[NewPartitions], charge: Charge | None = None
    ) -> tuple[MetadataUpdate, list[TopicResult]]:
        update = self._update(image)
        results: list[TopicResult] = []
        counts = Counter(new.topic for new in requested)
        added = {new.topic: new.count - len(image.topics[new.topic].partitions) for new in requested if new.topic in image.topics}
        total = sum(count for count in added.values() if count > 0)
        grown: list[TopicImage] = []
        for new in requested:
            try:
                if counts[new.topic] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic {new.topic} appears twice in the request")
                if added.get(new.topic, 0) > 0:
                    check_total(total)
                topic = extended_topic(image, new)
                if charge is not None:
                    charge(added[new.topic])
            except KafkaError as error:
                results.append(error)
                continue
            update.changes += grow_changes(image.topics[topic.name], topic, self.epoch)
            grown.append(topic)
            results.append(topic)
        update.image = image.with_topics(grown)
        return update, results

    def alter_configs(
        self, image: ClusterImage, settings: BrokerSettings, requested: Sequence[ConfigAlteration]
    ) -> tuple[MetadataUpdate, list[KafkaError | None]]:
        update = self._update(image)
        results: list[KafkaError | None] = []
        counts = Counter((alteration.resource_type, alteration.resource_name) for alteration in requested)
        topics: list[TopicImage] = []
        for alteration in requested:
            try:
                if counts[alteration.resource_type, alteration.resource_name] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "a resource may appear only once in a request")
                config = altered_config(update.image, settings, alteration)
            except KafkaError as error:
                results.append(error)
                continue
            change = config_change(update.image, alteration, config)
            if change is not None:
                update.changes.append(change)
            if alteration.resource_type == ResourceType.TOPIC:
                # All topics at once, below: each change copies all topics.
                topics.append(replace(image.topics[alteration.resource_name], config=config))
            else:
                update.image = with_config(update.image, alteration, config)
            results.append(None)
        update.image = update.image.with_topics(topics)
        return update, results

    def next_producer_ids(self, last: int, version: int) -> tuple[list[Change], range]:
        """The block after `last`. The write checks the version of the node that was read: no two brokers get the same block."""
        if last > PRODUCER_ID_MAX - PRODUCER_ID_BLOCK_SIZE:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "there are no producer ids left")
        block = range(last + 1, last + 1 + PRODUCER_ID_BLOCK_SIZE)
        data = znodes.encode_producer_id_block(self.broker_id, block[0], block[-1])
        return [self.fence, SetData(znodes.PRODUCER_ID_BLOCK, data, version)], block

    def take_leadership(self, image: ClusterImage) -> MetadataUpdate:
        """At the start of a broker that is alone: elect the leader of every partition, under a new leader epoch.

        The leader epoch grows although the leader may be the same: the broker may have lost the end of its log, and a client that
        read that end must be able to tell (KIP-101, KIP-320).
        """
        update = self._update(image)
        changed = [
            replace(topic, partitions=tuple(reelect(partition, image.brokers.keys()) for partition in topic.partitions))
            for topic in image.topics.values()
        ]
        update.image = image.with_topics(changed)
        update.changes += state_changes(image, update.image, self.epoch)
        return update

    def adopt(self, image: ClusterImage, found: Iterable[FoundTopic], random: Random) -> Adoption:
        """Enter the topics found in data directories, with this broker as their only replica, and mark the adoption as done."""
        update = self._update(image)
        warnings: list[str] = []
        for topic in sorted(found, key=lambda topic: topic.name):
            if topic.name in image.topics or not topic.partitions:
                continue
            count = max(topic.partitions) + 1
            missing_count = count - len(topic.partitions)
            if missing_count > _ADOPTED_HOLES_MAX:
                warnings.append(f"{topic.name}-{count - 1} is not adopted: {missing_count} partitions before it are missing")
                continue
            holes = sorted(set(range(count)) - topic.partitions)
            if holes:
                missing = ", ".join(str(partition) for partition in holes)
                warnings.append(
                    f"topic {topic.name} was found without the partitions {missing}: they are created empty. If their data is "
                    f"elsewhere, stop the broker and move it here before anything is written to them"
                )
            topic_id = topic.topic_id
            if topic_id is None or topic_id == ZERO_UUID or topic_id in update.image.topic_names:
                topic_id = self._new_topic_id(update.image, random)
            config = _INTERNAL_CONFIG.get(topic.name, _ADOPTED_CONFIG)
            adopted = TopicImage(topic.name, topic_id, tuple(first_state((self.broker_id,)) for _ in range(count)), dict(config))
            update.changes += create_changes(adopted, self.epoch)
            update.image = update.image.with_topics([adopted])
        adopted_names = [name for name in update.image.topics if name not in image.topics]
        if adopted_names:
            warnings.append(
                f"{len(adopted_names)} {'topic was' if len(adopted_names) == 1 else 'topics were'} found in the data directories "
                f"and adopted: {', '.join(adopted_names[:10])}{' …' if len(adopted_names) > 10 else ''}. Their configs are not "
                f"known, so no record of them is deleted until retention.ms or retention.bytes is set"
            )
        update.changes.append(Create(znodes.ADOPTED))
        return Adoption(update, warnings)


def reelect(partition: PartitionImage, alive: Iterable[int]) -> PartitionImage:
    """The first live replica in the ISR leads, or nobody. Replicas that are gone leave the ISR."""
    living = set(alive)
    leader = next((replica for replica in partition.replicas if replica in living and replica in partition.isr), NO_LEADER)
    # The last replica stays in the ISR although it is gone: only it has every acknowledged record.
    isr = tuple(replica for replica in partition.isr if replica in living) or partition.isr
    return PartitionImage(leader, partition.leader_epoch + 1, isr, partition.replicas, partition.partition_epoch + 1)


def find_topic(image: ClusterImage, name_or_id: str | bytes) -> TopicResult:
    if isinstance(name_or_id, str):
        topic = image.topics.get(name_or_id)
        return topic or KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic does not exist")
    topic = image.topic_by_id(name_or_id)
    return topic or KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
