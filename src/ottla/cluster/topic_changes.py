"""Creates, extends and deletes topics: a request and an image give changes of the tree, or a KafkaError (W05). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from ottla.cluster import znodes
from ottla.cluster.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from ottla.cluster.placement import place
from ottla.cluster.requests import NOT_GIVEN, NewPartitions, NewTopic, check_topic_name, collision_key
from ottla.cluster.settings import BrokerSettings, topic_config_problems
from ottla.errors import ErrorCode, KafkaError
from ottla.ports import Change, Create, Delete, Random, SetData

PARTITIONS_PER_REQUEST_MAX: Final = 10_000
"""As in Kafka: no single request can fill the memory."""


def check_total(partitions: int) -> None:
    """Called before the replicas of a request are assigned: for too many that alone would take minutes."""
    if partitions > PARTITIONS_PER_REQUEST_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"a request may create at most {PARTITIONS_PER_REQUEST_MAX} partitions, not {partitions}",
        )


def partitions_asked(new: NewTopic, settings: BrokerSettings) -> int:
    if new.assignments:
        return len(new.assignments)
    return settings.int("num.partitions") if new.partition_count == NOT_GIVEN else max(new.partition_count, 0)


def new_topic(
    image: ClusterImage,
    settings: BrokerSettings,
    topic_id: bytes,
    new: NewTopic,
    random: Random,
    by_collision_key: Mapping[str, str],
) -> TopicImage:
    """The new topic, or a KafkaError. `by_collision_key`: the names in use, also in this request."""
    check_topic_name(new.name)
    if new.name == "__cluster_metadata":
        raise KafkaError(ErrorCode.INVALID_REQUEST, "__cluster_metadata is reserved for KRaft controllers")
    if new.name in image.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {new.name} exists already")
    if other := by_collision_key.get(collision_key(new.name)):
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"topic name {new.name} collides with {other}: metric names do not distinguish '.' and '_'",
        )
    problems = topic_config_problems(new.config, settings)
    if problems:
        raise KafkaError(ErrorCode.INVALID_CONFIG, "; ".join(problems))
    placed = _assigned(image, new) if new.assignments else _placed(image, settings, new, random)
    config = {name: value.strip() for name, value in new.config.items() if value is not None}
    return TopicImage(new.name, topic_id, tuple(first_state(replicas) for replicas in placed), config)


def _placed(image: ClusterImage, settings: BrokerSettings, new: NewTopic, random: Random) -> Sequence[tuple[int, ...]]:
    replication_factor, count = new.replication_factor, new.partition_count
    if replication_factor == NOT_GIVEN:
        replication_factor = settings.int("default.replication.factor")
    if count == NOT_GIVEN:
        count = settings.int("num.partitions")
    if replication_factor < 1:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor} is not allowed; allowed: 1 or more, or -1 for the broker's default",
        )
    if count < 1:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"{count} partitions are not allowed; allowed: 1 or more, or -1 for the broker's default",
        )
    _check_factor(image, replication_factor)
    brokers = {broker.id: broker.rack for broker in image.placement_candidates.values()}
    return place(brokers, count, replication_factor, start=random.below(len(brokers)), shift=random.below(len(brokers)))


def _check_factor(image: ClusterImage, replication_factor: int) -> None:
    alive = len(image.placement_candidates)
    if replication_factor > alive:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor} is larger than the number of brokers: the cluster has {alive} "
            f"{'broker' if alive == 1 else 'brokers'}",
        )


def _assigned(image: ClusterImage, new: NewTopic) -> Sequence[tuple[int, ...]]:
    if new.replication_factor != NOT_GIVEN:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the replication factor must be -1 if replicas are assigned")
    if new.partition_count != NOT_GIVEN:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the number of partitions must be -1 if replicas are assigned")
    by_partition: dict[int, tuple[int, ...]] = {}
    for partition, replicas in new.assignments:
        if partition in by_partition:
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"partition {partition} is assigned twice")
        by_partition[partition] = replicas
    if set(by_partition) != set(range(len(by_partition))):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "the assigned partitions must be consecutive from 0")
    placed = [by_partition[partition] for partition in range(len(by_partition))]
    _check_assignments(image.placement_candidates, placed, first_partition=0, replication_factor=len(placed[0]))
    return placed


def _check_assignments(
    brokers: Mapping[int, BrokerImage], placed: Sequence[tuple[int, ...]], first_partition: int, replication_factor: int
) -> None:
    for partition, replicas in enumerate(placed, start=first_partition):
        wrong = None
        if not replicas:
            wrong = "has no broker"
        elif len(set(replicas)) < len(replicas):
            wrong = f"names a broker twice: {list(replicas)}"
        elif unknown := [broker for broker in replicas if broker not in brokers]:
            wrong = f"names brokers that are not in the cluster: {unknown}"
        elif len(replicas) != replication_factor:
            wrong = f"has {len(replicas)} replicas, others have {replication_factor}"
        if wrong is not None:
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"the assignment of partition {partition} {wrong}")


def first_state(replicas: tuple[int, ...]) -> PartitionImage:
    """A new partition: all replicas are in the ISR, and the first one leads."""
    return PartitionImage(replicas[0], 0, replicas, replicas)


def create_changes(topic: TopicImage, controller_epoch: int) -> list[Change]:
    changes: list[Change] = [
        Create(znodes.topic_config_path(topic.name), znodes.encode_config(topic.config)),
        Create(znodes.topic_path(topic.name), znodes.encode_topic(topic.topic_id, topic.partitions)),
        Create(znodes.partitions_path(topic.name)),
    ]
    return changes + _partition_changes(topic, 0, controller_epoch)


def _partition_changes(topic: TopicImage, first: int, controller_epoch: int) -> list[Change]:
    changes: list[Change] = []
    for number in range(first, len(topic.partitions)):
        state = znodes.encode_partition_state(topic.partitions[number], controller_epoch)
        changes.append(Create(znodes.partition_path(topic.name, number)))
        changes.append(Create(znodes.partition_state_path(topic.name, number), state))
    return changes


def delete_changes(topic: TopicImage) -> list[Change]:
    changes: list[Change] = []
    for number in range(len(topic.partitions)):
        changes.append(Delete(znodes.partition_state_path(topic.name, number)))
        changes.append(Delete(znodes.partition_path(topic.name, number)))
    changes.append(Delete(znodes.partitions_path(topic.name)))
    changes.append(Delete(znodes.topic_path(topic.name)))
    changes.append(Delete(znodes.topic_config_path(topic.name)))
    return changes


def extended_topic(image: ClusterImage, asked: NewPartitions) -> TopicImage:
    """The topic with its added partitions, or a KafkaError."""
    topic = image.topics.get(asked.topic)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {asked.topic} does not exist")
    present = len(topic.partitions)
    if asked.count == present:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"topic {topic.name} has {present} partitions already")
    if asked.count < present:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {topic.name} has {present} partitions; the number cannot be reduced to {asked.count}",
        )
    added = asked.count - present
    replication_factor = len(topic.partitions[0].replicas)
    if asked.assignments is not None:
        if len(asked.assignments) != added:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{added} partitions are added, but {len(asked.assignments)} are assigned",
            )
        placed = [tuple(replicas) for replicas in asked.assignments]
        _check_assignments(image.placement_candidates, placed, present, replication_factor)
    else:
        _check_factor(image, replication_factor)
        placed = _continue_placement(image, topic, added, replication_factor)
    return replace(topic, partitions=topic.partitions + tuple(first_state(replicas) for replicas in placed))


def _continue_placement(image: ClusterImage, topic: TopicImage, added: int, factor: int) -> list[tuple[int, ...]]:
    """Continue the round-robin where the topic began, as Kafka does."""
    first = topic.partitions[0].replicas[0]
    ids = sorted(image.placement_candidates)
    start = next((index for index, broker in enumerate(ids) if broker >= first), 0)
    racks = {broker.id: broker.rack for broker in image.placement_candidates.values()}
    return place(racks, added, factor, start=start, shift=start, first_partition=len(topic.partitions))


def grow_changes(before: TopicImage, after: TopicImage, controller_epoch: int) -> list[Change]:
    grown = SetData(znodes.topic_path(after.name), znodes.encode_topic(after.topic_id, after.partitions))
    return [grown, *_partition_changes(after, len(before.partitions), controller_epoch)]
