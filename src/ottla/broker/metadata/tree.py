"""Loads an image from the metadata tree, and finds the nodes that a controller would have written and that are missing.

Never writes. Many nodes are read at the same time: one after the other would take minutes in a large cluster.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, TypeVar

from ottla.cluster import znodes
from ottla.cluster.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from ottla.cluster.requests import check_topic_name
from ottla.cluster.topic_changes import first_state
from ottla.cluster.znodes import new_uuid
from ottla.errors import KafkaError
from ottla.ports import Change, Create, MetadataStore, Node, Random, SetData, StoreError, StoreUnavailable

logger = logging.getLogger(__name__)

_AT_ONCE: Final = 500
_TOPICS_AT_ONCE: Final = 50
_ATTEMPTS_MAX: Final = 5
_PAUSE_S: Final = 0.1

Configs = dict[str, dict[str, str]]
"""By name of the resource."""

A = TypeVar("A")
T = TypeVar("T")


@dataclass(slots=True)
class Loaded:
    image: ClusterImage
    repairs: list[Change] = field(default_factory=list)
    """Writes that add what older versions leave out or an unfinished creation did not write: ids, states, configs."""
    created: set[tuple[str, int]] = field(default_factory=set)
    """Partitions whose state is among the repairs: no broker knows of them yet."""


@dataclass(frozen=True, slots=True)
class StoredConfigs:
    """Configs in the store, for a broker that has no image yet."""

    brokers: dict[str, dict[str, str]]
    """As `ClusterImage.broker_configs`."""
    topics: dict[str, dict[str, str]]
    """By topic, also of topics that have none."""


async def each(items: Iterable[A], read: Callable[[A], Awaitable[T]], at_once: int = _AT_ONCE) -> list[T]:
    """The results of `read` for every item, in order, many at the same time."""
    found: list[T] = []
    rest = list(items)
    for start in range(0, len(rest), at_once):
        found += await asyncio.gather(*(read(item) for item in rest[start : start + at_once]))
    return found


async def retry_unavailable(work: Callable[[], Awaitable[T]]) -> T:
    """Retry work of a start while the store is unavailable, as when its session expires. The work must be repeatable."""
    for attempt in range(1, _ATTEMPTS_MAX):
        try:
            return await work()
        except StoreUnavailable:
            await asyncio.sleep(_PAUSE_S * attempt)
    return await work()


async def load_brokers(store: MetadataStore) -> dict[int, BrokerImage]:
    """The registered brokers, without registrations that cannot be parsed."""
    names = await store.children(znodes.BROKER_IDS)
    nodes = await each([f"{znodes.BROKER_IDS}/{name}" for name in names], store.get)
    brokers: dict[int, BrokerImage] = {}
    for name, node in zip(names, nodes, strict=True):
        try:
            if not (name.isascii() and name.isdecimal()):
                raise StoreError(f"{znodes.BROKER_IDS}/{name} is not a broker id")
            if node is not None:
                brokers[int(name)] = znodes.decode_broker(int(name), node.data, node.czxid)
        except StoreError as error:
            logger.error("Ignoring an invalid broker registration: %s", error)
    return brokers


async def load_image(
    store: MetadataStore,
    cluster_id: str,
    controller_id: int,
    controller_epoch: int,
    random: Random,
    known: tuple[Configs, Configs, Configs] | None = None,
) -> Loaded:
    """The whole tree, and what a controller with this epoch has to add to it. `known`: the configs of brokers, groups and client
    metrics to use if their nodes cannot be parsed."""
    brokers = await load_brokers(store)
    try:
        configs, groups = await broker_configs(store), await group_configs(store)
        client_metrics = await client_metrics_configs(store)
    except StoreUnavailable:
        raise
    except StoreError as error:
        if known is None:
            raise
        logger.error("Keeping the previous configs of brokers, groups and client metrics: %s", error)
        configs, groups, client_metrics = known
    image = ClusterImage(
        cluster_id, controller_id, brokers, broker_configs=configs, group_configs=groups, client_metrics=client_metrics
    )
    loaded = Loaded(image)
    names = await store.children(znodes.TOPICS)
    loaded.image = loaded.image.with_topics(await load_topics(store, names, controller_epoch, random, loaded))
    return loaded


async def load_topics(
    store: MetadataStore,
    names: Iterable[str],
    controller_epoch: int,
    random: Random,
    loaded: Loaded,
    known: Mapping[str, TopicImage] = MappingProxyType({}),
) -> list[TopicImage]:
    """The topics that exist and can be parsed. Of `known` ones, only new partitions are read."""

    async def load(name: str) -> TopicImage | None:
        try:
            return await _load_topic(store, name, controller_epoch, random, loaded, known.get(name))
        except StoreUnavailable:
            raise
        except (StoreError, KafkaError) as error:
            # One invalid topic must not prevent the cluster from having a controller.
            logger.error("Ignoring topic %s: %s", name, error)
            return None

    return [topic for topic in await each(names, load, _TOPICS_AT_ONCE) if topic is not None]


async def _load_topic(
    store: MetadataStore, name: str, controller_epoch: int, random: Random, loaded: Loaded, known: TopicImage | None
) -> TopicImage | None:
    node = await store.get(znodes.topic_path(name))
    if node is None:
        return None
    check_topic_name(name)
    stored = znodes.decode_topic(name, node.data)
    numbers = range(len(stored.replicas))
    for number in numbers:
        if number not in stored.replicas:
            raise StoreError(f"{znodes.topic_path(name)} has no partition {number}")
        if not stored.replicas[number] or len(set(stored.replicas[number])) < len(stored.replicas[number]):
            raise StoreError(f"{znodes.topic_path(name)} names no broker, or one twice, for partition {number}")
    if not numbers:
        raise StoreError(f"{znodes.topic_path(name)} has no partitions")
    added = numbers if known is None else numbers[len(known.partitions) :]
    states = await each([znodes.partition_state_path(name, number) for number in added], store.get)
    partitions = tuple(_partition(name, number, stored, state) for number, state in zip(added, states, strict=True))
    config_path = znodes.topic_config_path(name)
    config = await store.get(config_path) if known is None else None
    if known is not None:
        topic = replace(known, partitions=known.partitions + partitions)
    else:
        decoded = znodes.decode_config(config_path, config.data) if config is not None else {}
        topic = TopicImage(name, stored.topic_id or new_uuid(random), partitions, decoded)
    if stored.topic_id is None and added:
        data = znodes.encode_topic(topic.topic_id, topic.partitions)
        loaded.repairs.append(SetData(znodes.topic_path(name), data, node.version))
    if known is None and config is None:
        loaded.repairs.append(Create(config_path, znodes.encode_config({})))
    missing = [number for number, state in zip(added, states, strict=True) if state is None]
    if missing:
        loaded.repairs += await _missing_states(store, topic, missing, controller_epoch)
        loaded.created.update((name, number) for number in missing)
    return topic


def _partition(topic: str, number: int, stored: znodes.TopicNode, state: Node | None) -> PartitionImage:
    replicas = stored.replicas[number]
    if state is None:
        partition = first_state(replicas)
    else:
        partition = znodes.decode_partition_state(znodes.partition_state_path(topic, number), state.data, replicas, state.version)
    adding, removing = stored.adding.get(number, ()), stored.removing.get(number, ())
    return replace(partition, adding=adding, removing=removing) if adding or removing else partition


async def _missing_states(store: MetadataStore, topic: TopicImage, missing: Sequence[int], controller_epoch: int) -> list[Change]:
    changes: list[Change] = []
    if await store.get(znodes.partitions_path(topic.name)) is None:
        changes.append(Create(znodes.partitions_path(topic.name)))
    for number in missing:
        if await store.get(znodes.partition_path(topic.name, number)) is None:
            changes.append(Create(znodes.partition_path(topic.name, number)))
        state = znodes.encode_partition_state(topic.partitions[number], controller_epoch)
        changes.append(Create(znodes.partition_state_path(topic.name, number), state))
    return changes


async def broker_configs(store: MetadataStore) -> dict[str, dict[str, str]]:
    names = ["" if name == znodes.DEFAULT_ENTITY else name for name in await store.children(znodes.CONFIG_BROKERS)]
    return await _configs(store, {name: znodes.broker_config_path(name) for name in names})


async def group_configs(store: MetadataStore) -> dict[str, dict[str, str]]:
    groups = [znodes.text_of_node(name) for name in await store.children(znodes.CONFIG_GROUPS)]
    return await _configs(store, {group_id: znodes.group_config_path(group_id) for group_id in groups})


async def client_metrics_configs(store: MetadataStore) -> dict[str, dict[str, str]]:
    names = [znodes.text_of_node(name) for name in await store.children(znodes.CONFIG_CLIENT_METRICS)]
    return await _configs(store, {name: znodes.client_metrics_config_path(name) for name in names})


async def _configs(store: MetadataStore, paths: dict[str, str]) -> dict[str, dict[str, str]]:
    nodes = {name: await store.get(path) for name, path in paths.items()}
    return {name: znodes.decode_config(paths[name], node.data) for name, node in nodes.items() if node is not None}


async def topic_config(store: MetadataStore, name: str) -> dict[str, str]:
    path = znodes.topic_config_path(name)
    node = await store.get(path)
    return znodes.decode_config(path, node.data) if node is not None else {}


async def stored_configs(store: MetadataStore) -> StoredConfigs:
    names = await store.children(znodes.TOPICS)
    configs = await each(names, lambda name: topic_config(store, name))
    return StoredConfigs(await broker_configs(store), dict(zip(names, configs, strict=True)))
