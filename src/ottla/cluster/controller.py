"""The controller's decisions: what is asked, and the image as it is, give changes of the metadata tree and the next image.

Owns: the epoch under which this controller may write, and the order of decisions within one request. Never writes, waits or
sends: `broker.controller_host` does. What several brokers have beyond this is decided beside it: `broker_changes` and `elections`
(who leads when they come and go), `isr_changes`, `reassignment`, `balance`.

Invariants:
1. Every list of changes begins with a check of /controller_epoch: a controller that was replaced can write nothing (C02).
2. A decision sees the decisions before it in the same request, as if they were written already.
3. What is refused changes nothing; the others of the same request go on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ottla.cluster import znodes
from ottla.cluster.config_changes import config_change, plan_config
from ottla.cluster.image import NO_LEADER, ClusterImage, PartitionImage, TopicImage
from ottla.cluster.requests import ConfigAlteration, FoundTopic, NewPartitions, NewTopic, ResourceType
from ottla.cluster.settings import BrokerSettings
from ottla.cluster.topic_changes import (
    check_total,
    create_changes,
    delete_changes,
    first_state,
    grow_changes,
    partitions_asked,
    plan_partitions,
    plan_topic,
)
from ottla.cluster.topic_names import collision_key
from ottla.cluster.uuids import new_uuid
from ottla.errors import ErrorCode, KafkaError
from ottla.ports import Change, Check, Create, Random, SetData
from ottla.types import ZERO_UUID

PRODUCER_ID_BLOCK_SIZE: Final = 1000
PRODUCER_ID_MAX: Final = 2**63 - 1

_ADOPTED_HOLES_MAX: Final = 10_000
"""A stray directory may carry any number: a topic is not made of the gap before it."""

_ADOPTED_CONFIG: Final = {"retention.ms": "-1", "retention.bytes": "-1"}
"""A data directory does not hold its topics' settings. Until somebody sets them, nothing of an adopted topic is removed."""

_INTERNAL_CONFIG: Final = {
    "__consumer_offsets": {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"},
    "__transaction_state": {"cleanup.policy": "compact", "compression.type": "uncompressed", "segment.bytes": "104857600"},
}

TopicOutcome = TopicImage | KafkaError


@dataclass(slots=True)
class Decision:
    """What to write, and the image that holds once it is written."""

    changes: list[Change]
    image: ClusterImage

    @property
    def empty(self) -> bool:
        """Nothing but the fence."""
        return len(self.changes) <= 1


@dataclass(slots=True)
class Adoption:
    decision: Decision
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Controller:
    """A controller in office: its broker, its epoch, and the version of the node that says so."""

    broker_id: int
    epoch: int
    epoch_version: int

    def _decide(self, image: ClusterImage) -> Decision:
        return Decision([Check(znodes.CONTROLLER_EPOCH, self.epoch_version)], image)

    def create_topics(
        self, image: ClusterImage, settings: BrokerSettings, asked: Sequence[NewTopic], random: Random
    ) -> tuple[Decision, list[TopicOutcome]]:
        """For each topic asked for: the topic as created, or why not."""
        decision = self._decide(image)
        outcomes: list[TopicOutcome] = []
        counts = Counter(new.name for new in asked)
        total = sum(partitions_asked(new, settings) for new in asked if counts[new.name] == 1)
        by_collision_key = {collision_key(name): name for name in image.topics}
        created: list[TopicImage] = []
        for new in asked:
            try:
                if counts[new.name] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, f"the topic {new.name} stands in the request twice")
                check_total(total)
                topic = plan_topic(image, settings, self._new_topic_id(image, random), new, random, by_collision_key)
            except KafkaError as error:
                outcomes.append(error)
                continue
            by_collision_key[collision_key(topic.name)] = topic.name
            decision.changes += create_changes(topic, self.epoch)
            created.append(topic)
            outcomes.append(topic)
        decision.image = image.with_topics(created)
        return decision, outcomes

    def _new_topic_id(self, image: ClusterImage, random: Random) -> bytes:
        while True:
            topic_id = new_uuid(random)
            if topic_id not in image.topic_names:
                return topic_id

    def delete_topics(
        self, image: ClusterImage, settings: BrokerSettings, asked: Sequence[str | bytes]
    ) -> tuple[Decision, list[TopicOutcome]]:
        """For each topic, by name or by id: the topic that goes, or why it stays."""
        decision = self._decide(image)
        if not settings.bool("delete.topic.enable"):
            disabled = KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "topics cannot be deleted: delete.topic.enable=false")
            return decision, [disabled for _ in asked]
        outcomes: list[TopicOutcome] = []
        found = [_find(image, name_or_id) for name_or_id in asked]
        counts = Counter(topic.name for topic in found if isinstance(topic, TopicImage))
        removed: list[str] = []
        for topic in found:
            if isinstance(topic, KafkaError):
                outcomes.append(topic)
            elif counts[topic.name] > 1:
                outcomes.append(KafkaError(ErrorCode.INVALID_REQUEST, f"the topic {topic.name} stands in the request twice"))
            else:
                decision.changes += delete_changes(topic)
                removed.append(topic.name)
                outcomes.append(topic)
        decision.image = image.with_topics((), removed)
        return decision, outcomes

    def create_partitions(self, image: ClusterImage, asked: Sequence[NewPartitions]) -> tuple[Decision, list[TopicOutcome]]:
        decision = self._decide(image)
        outcomes: list[TopicOutcome] = []
        counts = Counter(new.topic for new in asked)
        added = {new.topic: new.count - len(image.topics[new.topic].partitions) for new in asked if new.topic in image.topics}
        total = sum(count for count in added.values() if count > 0)
        grown: list[TopicImage] = []
        for new in asked:
            try:
                if counts[new.topic] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, f"the topic {new.topic} stands in the request twice")
                if added.get(new.topic, 0) > 0:
                    check_total(total)
                topic = plan_partitions(image, new)
            except KafkaError as error:
                outcomes.append(error)
                continue
            decision.changes += grow_changes(image.topics[topic.name], topic, self.epoch)
            grown.append(topic)
            outcomes.append(topic)
        decision.image = image.with_topics(grown)
        return decision, outcomes

    def alter_configs(
        self, image: ClusterImage, settings: BrokerSettings, asked: Sequence[ConfigAlteration]
    ) -> tuple[Decision, list[KafkaError | None]]:
        decision = self._decide(image)
        outcomes: list[KafkaError | None] = []
        counts = Counter((alteration.resource_type, alteration.resource_name) for alteration in asked)
        topics: list[TopicImage] = []
        for alteration in asked:
            try:
                if counts[alteration.resource_type, alteration.resource_name] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "a resource may stand in the request only once")
                config = plan_config(decision.image, settings, alteration)
            except KafkaError as error:
                outcomes.append(error)
                continue
            change = config_change(decision.image, alteration, config)
            if change is not None:
                decision.changes.append(change)
            if alteration.resource_type == ResourceType.TOPIC:
                topics.append(replace(image.topics[alteration.resource_name], config=config))
            elif alteration.resource_type == ResourceType.GROUP:
                decision.image = decision.image.with_group_config(alteration.resource_name, config)
            else:
                decision.image = decision.image.with_broker_config(alteration.resource_name, config)
            outcomes.append(None)
        decision.image = decision.image.with_topics(topics)
        return decision, outcomes

    def next_producer_ids(self, last: int, version: int) -> tuple[list[Change], range]:
        """The block after `last`, written against the version of the node it was read from: no two brokers get the same."""
        if last > PRODUCER_ID_MAX - PRODUCER_ID_BLOCK_SIZE:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids are used up")
        block = range(last + 1, last + 1 + PRODUCER_ID_BLOCK_SIZE)
        data = znodes.encode_producer_id_block(self.broker_id, block[0], block[-1])
        return [
            Check(znodes.CONTROLLER_EPOCH, self.epoch_version),
            SetData(znodes.PRODUCER_ID_BLOCK, data, version),
        ], block

    def take_leadership(self, image: ClusterImage) -> Decision:
        """After a start: every partition that has a replica here gets a leader, under a new epoch.

        The epoch grows although the leader may be the same, because a broker that comes back may have lost the end of its log:
        whoever read that end must be able to tell (KIP-101, KIP-320).
        """
        decision = self._decide(image)
        changed: list[TopicImage] = []
        for topic in image.topics.values():
            partitions = tuple(elect(partition, image.brokers.keys()) for partition in topic.partitions)
            for number, (before, after) in enumerate(zip(topic.partitions, partitions, strict=True)):
                if after is not before:
                    decision.changes.append(
                        SetData(
                            znodes.partition_state_path(topic.name, number),
                            znodes.encode_partition_state(after, self.epoch),
                            before.partition_epoch,
                        )
                    )
            changed.append(replace(topic, partitions=partitions))
        decision.image = image.with_topics(changed)
        return decision

    def adopt(self, image: ClusterImage, found: Iterable[FoundTopic], random: Random) -> Adoption:
        """Enter the topics found in data directories, this broker being replica and leader; and mark that it was done."""
        decision = self._decide(image)
        warnings: list[str] = []
        for topic in sorted(found, key=lambda topic: topic.name):
            if topic.name in image.topics or not topic.partitions:
                continue
            count = max(topic.partitions) + 1
            missing_count = count - len(topic.partitions)
            if missing_count > _ADOPTED_HOLES_MAX:
                warnings.append(f"{topic.name}-{count - 1} is not taken over: {missing_count} partitions before it are missing")
                continue
            holes = sorted(set(range(count)) - topic.partitions)
            if holes:
                missing = ", ".join(str(partition) for partition in holes)
                warnings.append(
                    f"the topic {topic.name} was found without the partitions {missing}: they are created empty. If their "
                    f"data lie elsewhere, stop the broker and bring them here before anything is written to them"
                )
            topic_id = topic.topic_id
            if topic_id is None or topic_id == ZERO_UUID or topic_id in decision.image.topic_names:
                topic_id = self._new_topic_id(decision.image, random)
            config = _INTERNAL_CONFIG.get(topic.name, _ADOPTED_CONFIG)
            adopted = TopicImage(topic.name, topic_id, tuple(first_state((self.broker_id,)) for _ in range(count)), dict(config))
            decision.changes += create_changes(adopted, self.epoch)
            decision.image = decision.image.with_topics([adopted])
        adopted_names = [name for name in decision.image.topics if name not in image.topics]
        if adopted_names:
            warnings.append(
                f"{len(adopted_names)} {'topic was' if len(adopted_names) == 1 else 'topics were'} found in the data directories "
                f"and taken over: {', '.join(adopted_names[:10])}{' …' if len(adopted_names) > 10 else ''}. Their settings were "
                f"not kept there, so nothing of them is removed until retention.ms or retention.bytes is set"
            )
        decision.changes.append(Create(znodes.ADOPTED))
        return Adoption(decision, warnings)


def elect(partition: PartitionImage, alive: Iterable[int]) -> PartitionImage:
    """The first replica that lives and is in sync leads; without one, nobody. In-sync replicas that are gone leave the set."""
    living = set(alive)
    leader = next((replica for replica in partition.replicas if replica in living and replica in partition.isr), NO_LEADER)
    # The last in-sync replica stays one although it is gone: only it holds every acknowledged record.
    isr = tuple(replica for replica in partition.isr if replica in living) or partition.isr
    return PartitionImage(leader, partition.leader_epoch + 1, isr, partition.replicas, partition.partition_epoch + 1)


def _find(image: ClusterImage, name_or_id: str | bytes) -> TopicOutcome:
    if isinstance(name_or_id, str):
        topic = image.topics.get(name_or_id)
        return topic or KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such topic")
    topic = image.topic_by_id(name_or_id)
    return topic or KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with this id")
