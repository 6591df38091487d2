"""Settings of topics, brokers, groups, users and clients as the metadata tree has them, on every broker of a cluster.

Owns: this broker's view of what lies under /config, and writing there. Whoever changes settings, be it
another broker or Kafka's own tool on ZooKeeper, leaves a notice under /config/changes; every broker reads the settings the notice
names, all over again. Never: decides whether a change is allowed (`cluster.config_changes`).

A change and its notice are one write.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from ottla.broker.metadata.client_configs import alter_client_config, load_client_config, load_client_configs
from ottla.broker.metadata.notices import NoticeFollower
from ottla.broker.metadata.tree import broker_configs, each, group_configs, stored_configs, topic_config
from ottla.cluster import znodes
from ottla.cluster.client_entities import ClientConfigs, Entity, entity_of, with_client_config
from ottla.cluster.config_changes import plan_config
from ottla.cluster.image import ClusterImage
from ottla.cluster.requests import ConfigAlteration, ResourceType
from ottla.cluster.settings import BrokerSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.ports import (
    BadVersion,
    Change,
    Create,
    Delete,
    MetadataStore,
    Node,
    NodeExists,
    NoNode,
    SetData,
    StoreError,
)

logger = logging.getLogger(__name__)

_NOTICES_KEPT: Final = 1000
"""Older notices are removed by whoever sees them, beyond so many: a broker that was away reads everything anyway."""


class DynamicConfigs(NoticeFollower):
    what = "settings"

    def __init__(
        self,
        store: MetadataStore,
        *,
        on_topics: Callable[[dict[str, dict[str, str]]], None],
        on_brokers: Callable[[dict[str, dict[str, str]]], None],
        on_groups: Callable[[dict[str, dict[str, str]]], None],
    ) -> None:
        """`on_topics` is called with the settings of topics that changed, the others with those of all brokers, all groups."""
        path, _, prefix = znodes.CONFIG_CHANGE.rpartition("/")
        super().__init__(store, {path: prefix})
        self.topics: dict[str, dict[str, str]] = {}
        self.brokers: dict[str, dict[str, str]] = {}
        self.groups: dict[str, dict[str, str]] = {}
        self.clients: ClientConfigs = {}
        self._on_topics = on_topics
        self._on_brokers = on_brokers
        self._on_groups = on_groups

    async def _load(self) -> None:
        await self._pass_over()
        stored = await stored_configs(self._store)
        self.topics, self.brokers = stored.topics, stored.brokers
        await self._read_groups()
        self.clients = await load_client_configs(self._store)

    async def refresh(self, topics: Iterable[str]) -> None:
        """Read the settings of these topics again: of new ones, nobody sends a notice."""
        names = list(topics)
        configs = await each(names, lambda name: topic_config(self._store, name))
        self.topics.update(zip(names, configs, strict=True))

    async def _read_all(self) -> None:
        await self._pass_over()
        stored = await stored_configs(self._store)
        changed = {name: config for name, config in stored.topics.items() if self.topics.get(name) != config}
        self.topics = stored.topics
        if changed:
            self._on_topics(changed)
        if stored.brokers != self.brokers:
            self.brokers = stored.brokers
            self._on_brokers(self.brokers)
        await self._read_groups()
        self.clients = await load_client_configs(self._store)

    async def _read_groups(self) -> None:
        groups = await group_configs(self._store)
        if groups != self.groups:
            self.groups = groups
            self._on_groups(groups)

    async def _read_notices(self) -> None:
        names, fresh = await self._notices(znodes.CONFIG_CHANGES)
        if fresh:
            nodes = await each([f"{znodes.CONFIG_CHANGES}/{name}" for name in fresh], self._store.get)
            entities = {znodes.decode_config_change(node.data) for node in nodes if node is not None}
            await self._read_entities([entity for entity in entities if entity is not None])
            self._seen[znodes.CONFIG_CHANGES] = self._number(znodes.CONFIG_CHANGES, fresh[-1])
        if len(names) > 2 * _NOTICES_KEPT:
            await each(names[:-_NOTICES_KEPT], self._remove_notice)

    async def _remove_notice(self, name: str) -> None:
        try:
            await self._store.multi([Delete(f"{znodes.CONFIG_CHANGES}/{name}")])
        except NoNode:
            return

    async def _read_entities(self, entities: Iterable[str]) -> None:
        topics: list[str] = []
        brokers = groups = False
        for entity in entities:
            kind, _, name = entity.partition("/")
            if kind == "topics":
                topics.append(name)
            elif kind == "brokers":
                brokers = True
            elif kind == "groups":
                groups = True
            elif (one := entity_of(entity)) is not None:
                config = await load_client_config(self._store, entity)
                self.clients = with_client_config(self.clients, one, config)
        if topics:
            await self.refresh(topics)
            self._on_topics({name: self.topics[name] for name in topics})
        if brokers:
            self.brokers = await broker_configs(self._store)
            self._on_brokers(self.brokers)
        if groups:
            await self._read_groups()

    # Changing

    async def alter(
        self, image: ClusterImage, settings: BrokerSettings, asked: Sequence[ConfigAlteration], *, validate_only: bool
    ) -> list[KafkaError | None]:
        """For each resource, in order: None if its settings are written, or a KafkaError."""
        outcomes: list[KafkaError | None] = []
        seen: set[tuple[int, str]] = set()
        for alteration in asked:
            key = alteration.resource_type, alteration.resource_name
            try:
                if key in seen:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "a resource may stand in the request only once")
                seen.add(key)
                await self._alter(image, settings, alteration, validate_only=validate_only)
            except KafkaError as error:
                outcomes.append(error)
            except StoreError as error:
                logger.error("settings could not be written: %s", error)
                outcomes.append(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the settings could not be written"))
            else:
                outcomes.append(None)
        return outcomes

    async def alter_client(
        self, one: Entity, plan: Callable[[Mapping[str, str]], dict[str, str]], *, validate_only: bool
    ) -> None:
        """Here the change holds when this returns, on other brokers when the notice has come to them."""
        config = await alter_client_config(self._store, one, plan, validate_only=validate_only)
        if not validate_only:
            self.clients = with_client_config(self.clients, one, config)

    async def _alter(
        self, image: ClusterImage, settings: BrokerSettings, asked: ConfigAlteration, *, validate_only: bool
    ) -> None:
        """From the settings as they are in the tree: another broker may have changed them a moment ago."""
        path = _path(asked)
        entity = path.removeprefix("/config/")
        notice = Create(znodes.CONFIG_CHANGE, znodes.encode_config_change(entity), sequential=True)
        while True:
            node = await self._store.get(path)
            present = znodes.decode_config(path, node.data) if node is not None else {}
            config = plan_config(_with_config(image, asked, present), settings, asked)
            if validate_only:
                return
            try:
                await self._store.multi([*_write(asked, path, node, config), notice])
            except (BadVersion, NodeExists, NoNode):
                continue
            # Here the settings hold when the reply goes out, whenever the notice comes.
            await self._read_entities([entity])
            return


def _path(asked: ConfigAlteration) -> str:
    if asked.resource_type == ResourceType.TOPIC:
        return znodes.topic_config_path(asked.resource_name)
    if asked.resource_type == ResourceType.GROUP:
        return znodes.group_config_path(asked.resource_name)
    return znodes.broker_config_path(asked.resource_name)


def _write(asked: ConfigAlteration, path: str, node: Node | None, config: Mapping[str, str]) -> list[Change]:
    if asked.resource_type == ResourceType.GROUP and not config:
        # Without settings there is nothing to keep: group ids come and go without end.
        return [Delete(path, node.version)] if node is not None else []
    data = znodes.encode_config(config)
    return [SetData(path, data, node.version) if node is not None else Create(path, data)]


def _with_config(image: ClusterImage, asked: ConfigAlteration, config: dict[str, str]) -> ClusterImage:
    if asked.resource_type == ResourceType.GROUP:
        return image.with_group_config(asked.resource_name, config)
    if asked.resource_type != ResourceType.TOPIC:
        return image.with_broker_config(asked.resource_name, config)
    topic = image.topics.get(asked.resource_name)
    return image if topic is None else image.with_topics([replace(topic, config=config)])
