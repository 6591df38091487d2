"""The controller in office: performs what `cluster.controller` decides, on the metadata store.

Owns: this broker's registration, its term as controller, the current image, and the order of changes: one at a time, each one
written before it is shown. Never decides anything about topics or settings itself.

Invariants:
1. A change is written to the store first; then `on_image` is called with the new image; then the caller hears of it. So a reply
   means that the topic is usable.
2. If the store refuses or fails, the image stays as it was and the caller gets a KafkaError.
3. A producer id is given out once in the life of the store.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ParamSpec, TypeVar

from ottla.cluster import znodes
from ottla.cluster.controller import Controller, Decision, TopicOutcome
from ottla.cluster.image import BrokerImage, ClusterImage, Endpoint, PartitionImage, TopicImage
from ottla.cluster.requests import ConfigAlteration, FoundTopic, NewPartitions, NewTopic
from ottla.cluster.settings import BrokerSettings, SettingsError
from ottla.cluster.topic_changes import first_state
from ottla.cluster.uuids import new_uuid, uuid_text
from ottla.errors import ErrorCode, KafkaError
from ottla.ports import (
    BadVersion,
    Change,
    Check,
    Clock,
    Create,
    MetadataStore,
    NodeExists,
    Random,
    SetData,
    StoreError,
    StoreUnavailable,
)

log = logging.getLogger(__name__)


P = ParamSpec("P")
T = TypeVar("T")


def _to_its_end(change: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """A client that goes away ends its request, not the change: what the store has, the image must show."""

    @functools.wraps(change)
    async def run(*arguments: P.args, **options: P.kwargs) -> T:
        return await asyncio.shield(asyncio.ensure_future(change(*arguments, **options)))

    return run


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this broker is, as its store and its data directories agree."""

    broker_id: int
    cluster_id: str


async def resolve_identity(
    store: MetadataStore,
    settings: BrokerSettings,
    random: Random,
    stored_broker_id: int | None = None,
    stored_cluster_id: str | None = None,
) -> Identity:
    """The broker's number and the cluster's id: from the settings, from meta.properties (`stored_*`), else made now and kept.

    A SettingsError says where two of them disagree: data must not be opened under another broker's name or in another cluster.
    """
    await ensure_base_paths(store)
    problems: list[str] = []
    cluster_id = await _cluster_id(store, random, stored_cluster_id)
    if stored_cluster_id is not None and stored_cluster_id != cluster_id:
        problems.append(
            f"the data directories belong to the cluster {stored_cluster_id}, but the metadata to the cluster {cluster_id}; "
            f"they do not belong together"
        )
    broker_id = settings.broker_id()
    if stored_broker_id is not None:
        if broker_id not in (-1, stored_broker_id):
            problems.append(
                f"broker.id={broker_id}, but the data directories belong to broker {stored_broker_id} (meta.properties); "
                f"set broker.id={stored_broker_id}, or use other directories"
            )
        broker_id = stored_broker_id
    if problems:
        raise SettingsError(problems)
    if broker_id < 0:
        broker_id = await _generate_broker_id(store, settings)
    return Identity(broker_id, cluster_id)


async def ensure_base_paths(store: MetadataStore) -> None:
    missing = [path for path in znodes.BASE_PATHS if await store.get(path) is None]
    changes: list[Change] = [Create(path) for path in missing]
    if await store.get(znodes.CONTROLLER_EPOCH) is None:
        changes.append(Create(znodes.CONTROLLER_EPOCH, b"0"))
    if changes:
        await store.multi(changes)


async def _cluster_id(store: MetadataStore, random: Random, stored: str | None) -> str:
    node = await store.get(znodes.CLUSTER_ID)
    if node is None:
        cluster_id = stored or uuid_text(new_uuid(random))
        try:
            await store.multi([Create(znodes.CLUSTER_ID, znodes.encode_cluster_id(cluster_id))])
            return cluster_id
        except NodeExists:
            node = await store.get(znodes.CLUSTER_ID)
            assert node is not None
    return znodes.decode_cluster_id(node.data)


async def _broker_configs(store: MetadataStore) -> dict[str, dict[str, str]]:
    configs: dict[str, dict[str, str]] = {}
    for name in await store.children(znodes.CONFIG_BROKERS):
        key = "" if name == znodes.DEFAULT_ENTITY else name
        path = znodes.broker_config_path(key)
        node = await store.get(path)
        if node is not None:
            configs[key] = znodes.decode_config(path, node.data)
    return configs


@dataclass(frozen=True, slots=True)
class StoredConfigs:
    """Settings as the store has them, for those who need them before there is an image."""

    brokers: dict[str, dict[str, str]]
    """As `ClusterImage.broker_configs`."""
    topics: dict[str, dict[str, str]]
    """Of every topic the store knows."""


async def stored_configs(store: MetadataStore) -> StoredConfigs:
    topics: dict[str, dict[str, str]] = {}
    for name in await store.children(znodes.TOPICS):
        path = znodes.topic_config_path(name)
        node = await store.get(path)
        topics[name] = znodes.decode_config(path, node.data) if node is not None else {}
    return StoredConfigs(await _broker_configs(store), topics)


async def _generate_broker_id(store: MetadataStore, settings: BrokerSettings) -> int:
    """The node's version counts how often it was written: a number nobody else gets."""
    while True:
        node = await store.get(znodes.BROKER_SEQUENCE)
        assert node is not None
        try:
            await store.multi([SetData(znodes.BROKER_SEQUENCE, b"", node.version)])
        except BadVersion:
            continue
        return settings.int("reserved.broker.max.id") + node.version + 1


class ControllerHost:
    """Registers the broker, takes office, answers requests for change. `start` first; then everything else."""

    def __init__(
        self,
        store: MetadataStore,
        settings: BrokerSettings,
        broker_id: int,
        endpoints: Sequence[Endpoint],
        clock: Clock,
        random: Random,
        on_image: Callable[[ClusterImage], None],
        before_image: Callable[[ClusterImage], Awaitable[None]] | None = None,
    ) -> None:
        """`before_image` may take its time with what a new image needs before it can be shown; no other change comes between."""
        self.settings = settings
        """With the dynamic settings of the current image."""
        self.image = ClusterImage("")
        self._store = store
        self._broker_id = broker_id
        self._endpoints = tuple(endpoints)
        self._clock = clock
        self._random = random
        self._on_image = on_image
        self._before_image = before_image
        self._controller: Controller | None = None
        self._lock = asyncio.Lock()
        self._producer_ids: range = range(0)

    async def start(self) -> None:
        """Register, take office, load the image, take the lead of this broker's partitions, and show the image."""
        await ensure_base_paths(self._store)
        cluster_id = await _cluster_id(self._store, self._random, None)
        await self._register()
        self._controller = await self._take_office()
        image = await self._load(cluster_id)
        image = await self._repair(image)
        await self._perform(self._controller.take_leadership(image))

    async def _register(self) -> None:
        broker = BrokerImage(self._broker_id, -1, self.settings.optional_str("broker.rack"), self._endpoints)
        data = znodes.encode_broker(broker, self._clock.now_ms())
        try:
            await self._store.multi([Create(znodes.broker_path(self._broker_id), data, ephemeral=True)])
        except NodeExists:
            raise StoreError(f"another broker with the number {self._broker_id} is running") from None

    async def _take_office(self) -> Controller:
        node = await self._store.get(znodes.CONTROLLER_EPOCH)
        assert node is not None
        epoch = int(node.data) + 1
        data = znodes.encode_controller(self._broker_id, self._clock.now_ms())
        await self._store.multi(
            [
                Create(znodes.CONTROLLER, data, ephemeral=True),
                SetData(znodes.CONTROLLER_EPOCH, str(epoch).encode(), node.version),
            ]
        )
        return Controller(self._broker_id, epoch, node.version + 1)

    async def _load(self, cluster_id: str) -> ClusterImage:
        store = self._store
        brokers: dict[int, BrokerImage] = {}
        for name in await store.children(znodes.BROKER_IDS):
            node = await store.get(znodes.broker_path(int(name)))
            if node is not None:
                brokers[int(name)] = znodes.decode_broker(int(name), node.data, node.czxid)
        configs = await _broker_configs(store)
        image = ClusterImage(cluster_id, self._broker_id, brokers, broker_configs=configs)
        return image.with_topics([await self._load_topic(name) for name in await store.children(znodes.TOPICS)])

    async def _load_topic(self, name: str) -> TopicImage:
        node = await self._store.get(znodes.topic_path(name))
        assert node is not None
        topic = znodes.decode_topic(name, node.data)
        partitions: list[PartitionImage] = []
        for number in range(len(topic.replicas)):
            replicas = topic.replicas.get(number)
            if replicas is None:
                raise StoreError(f"{znodes.topic_path(name)} lacks partition {number}")
            path = znodes.partition_state_path(name, number)
            state = await self._store.get(path)
            if state is None:
                # -1: no such node yet. `_repair` makes it.
                partitions.append(replace(first_state(replicas), partition_epoch=-1))
            else:
                partitions.append(znodes.decode_partition_state(path, state.data, replicas, state.version))
        config_path = znodes.topic_config_path(name)
        config = await self._store.get(config_path)
        return TopicImage(
            name,
            topic.topic_id or new_uuid(self._random),
            tuple(partitions),
            znodes.decode_config(config_path, config.data) if config is not None else {},
        )

    async def _repair(self, image: ClusterImage) -> ClusterImage:
        """Nodes that older versions leave out or a half-finished creation left behind: ids, states, settings."""
        controller = self._controller
        assert controller is not None
        changes: list[Change] = [Check(znodes.CONTROLLER_EPOCH, controller.epoch_version)]
        repaired: list[TopicImage] = []
        for topic in image.topics.values():
            node = await self._store.get(znodes.topic_path(topic.name))
            assert node is not None
            if znodes.decode_topic(topic.name, node.data).topic_id is None:
                data = znodes.encode_topic(topic.topic_id, topic.partitions)
                changes.append(SetData(znodes.topic_path(topic.name), data, node.version))
            if await self._store.get(znodes.topic_config_path(topic.name)) is None:
                changes.append(Create(znodes.topic_config_path(topic.name), znodes.encode_config({})))
            if any(partition.partition_epoch < 0 for partition in topic.partitions):
                changes += await self._missing_states(topic, controller.epoch)
                partitions = tuple(replace(part, partition_epoch=max(0, part.partition_epoch)) for part in topic.partitions)
                repaired.append(replace(topic, partitions=partitions))
        if len(changes) > 1:
            await self._store.multi(changes)
        return image.with_topics(repaired)

    async def _missing_states(self, topic: TopicImage, controller_epoch: int) -> list[Change]:
        changes: list[Change] = []
        if await self._store.get(znodes.partitions_path(topic.name)) is None:
            changes.append(Create(znodes.partitions_path(topic.name)))
        for number, partition in enumerate(topic.partitions):
            if partition.partition_epoch >= 0:
                continue
            if await self._store.get(znodes.partition_path(topic.name, number)) is None:
                changes.append(Create(znodes.partition_path(topic.name, number)))
            state = znodes.encode_partition_state(partition, controller_epoch)
            changes.append(Create(znodes.partition_state_path(topic.name, number), state))
        return changes

    async def _perform(self, decision: Decision) -> None:
        """Write, then show. A store that fails leaves everything as it was."""
        if not decision.empty:
            await self._store.multi(decision.changes)
        if self._before_image is not None:
            await self._before_image(decision.image)
        self._show(decision.image)

    def _show(self, image: ClusterImage) -> None:
        if image.broker_configs != self.image.broker_configs:
            self.settings = self.settings.with_dynamic(*image.dynamic_config(self._broker_id))
            for warning in self.settings.warnings:
                log.warning("%s", warning)
        self.image = image
        self._on_image(image)

    @_to_its_end
    async def create_topics(self, asked: Sequence[NewTopic], *, validate_only: bool = False) -> list[TopicOutcome]:
        """For each topic asked for, in order: the topic, usable now, or a KafkaError."""
        async with self._lock:
            decision, outcomes = self._office().create_topics(self.image, self.settings, asked, self._random)
            return outcomes if validate_only else await self._perform_for(decision, outcomes)

    @_to_its_end
    async def delete_topics(self, asked: Sequence[str | bytes]) -> list[TopicOutcome]:
        """For each topic, by name or id, in order: the topic that is gone now, or a KafkaError."""
        async with self._lock:
            decision, outcomes = self._office().delete_topics(self.image, self.settings, asked)
            return await self._perform_for(decision, outcomes)

    @_to_its_end
    async def create_partitions(self, asked: Sequence[NewPartitions], *, validate_only: bool = False) -> list[TopicOutcome]:
        async with self._lock:
            decision, outcomes = self._office().create_partitions(self.image, asked)
            return outcomes if validate_only else await self._perform_for(decision, outcomes)

    @_to_its_end
    async def alter_configs(self, asked: Sequence[ConfigAlteration], *, validate_only: bool = False) -> list[KafkaError | None]:
        """For each resource, in order: None if its settings hold now, or a KafkaError."""
        async with self._lock:
            decision, outcomes = self._office().alter_configs(self.image, self.settings, asked)
            if validate_only or decision.empty:
                return outcomes
            try:
                await self._perform(decision)
            except StoreError as error:
                failure = _failure(error)
                return [outcome or failure for outcome in outcomes]
            return outcomes

    async def _perform_for(self, decision: Decision, outcomes: list[TopicOutcome]) -> list[TopicOutcome]:
        if decision.empty:
            return outcomes
        try:
            await self._perform(decision)
        except StoreError as error:
            failure = _failure(error)
            return [outcome if isinstance(outcome, KafkaError) else failure for outcome in outcomes]
        return outcomes

    async def allocate_producer_id_block(self) -> range:
        """A thousand producer ids that nobody had or will have."""
        while True:
            node = await self._store.get(znodes.PRODUCER_ID_BLOCK)
            assert node is not None
            changes, block = self._office().next_producer_ids(znodes.decode_producer_id_block(node.data), node.version)
            try:
                await self._store.multi(changes)
            except BadVersion:
                # Another broker took this block, or another controller is in office: then reading again shows it.
                epoch = await self._store.get(znodes.CONTROLLER_EPOCH)
                if epoch is None or epoch.version != self._office().epoch_version:
                    raise KafkaError(ErrorCode.NOT_CONTROLLER, "another broker is the controller now") from None
                continue
            return block

    def take_producer_id(self) -> int | None:
        """A fresh producer id, if one is at hand without waiting."""
        if not self._producer_ids:
            return None
        producer_id = self._producer_ids[0]
        self._producer_ids = self._producer_ids[1:]
        return producer_id

    async def next_producer_id(self) -> int:
        """A fresh producer id. A KafkaError if the store gives none now."""
        async with self._lock:
            producer_id = self.take_producer_id()
            if producer_id is None:
                try:
                    self._producer_ids = await self.allocate_producer_id_block()
                except StoreError as error:
                    raise _failure(error) from error
                producer_id = self.take_producer_id()
                assert producer_id is not None
            return producer_id

    async def adopt_topics(self, found: Iterable[FoundTopic]) -> list[str]:
        """Enter the topics that lie in the data directories of a store that is new. Returns what the user should know.

        Done once in the life of a store, and marked there in the same write: what lies around later without being in the tree is
        the rest of a deleted topic, not a find.
        """
        async with self._lock:
            if await self._store.get(znodes.ADOPTED) is not None:
                return []
            adoption = self._office().adopt(self.image, found, self._random)
            await self._perform(adoption.decision)
            return adoption.warnings

    def _office(self) -> Controller:
        assert self._controller is not None, "start first"
        return self._controller


def _failure(error: StoreError) -> KafkaError:
    """What a client hears of a store that did not take a change."""
    log.error("a change of the metadata failed: %s", error)
    if isinstance(error, BadVersion):
        return KafkaError(ErrorCode.NOT_CONTROLLER, "another broker is the controller now")
    if isinstance(error, StoreUnavailable):
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the metadata could not be written; the change may or may not hold")
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the metadata could not be changed: {error}")
