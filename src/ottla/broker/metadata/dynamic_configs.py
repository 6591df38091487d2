"""Dynamic configs of topics, brokers, groups, client metrics, users, client ids and IP addresses, on every broker of a cluster.

Owns this broker's copy of what is under /config. Whoever changes configs, another broker or Kafka's tool on ZooKeeper, leaves a
notification under /config/changes; every broker reads the configs that it names. Changes are written by
`controller.cluster_configs`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from ottla.broker.metadata.change_notifications import ChangeNotifications, NotificationReader
from ottla.broker.metadata.client_configs import alter_client_config, load_client_config, load_client_configs
from ottla.broker.metadata.metadata_cache import MetadataCache
from ottla.broker.metadata.tree import (
    broker_configs,
    client_metrics_configs,
    each,
    group_configs,
    stored_configs,
    topic_config,
)
from ottla.cluster import znodes
from ottla.cluster.client_entities import ClientConfigs, Entity, entity_of, with_client_config
from ottla.ports import Delete, MetadataStore, NoNode

_NOTIFICATIONS_KEPT: Final = 1000
"""Every broker removes older ones: a broker that was disconnected reads everything anyway."""


class DynamicConfigs:
    def __init__(self, store: MetadataStore, cache: MetadataCache) -> None:
        """`cache` gets the configs for the image."""
        path, _, prefix = znodes.CONFIG_CHANGE.rpartition("/")
        self._store = store
        self._notifications = ChangeNotifications(store, path, prefix)
        self._reader = NotificationReader(store, "configs", [path], read_all=self._read_all, read_new=self._read_notified)
        self.topics: dict[str, dict[str, str]] = {}
        self.brokers: dict[str, dict[str, str]] = {}
        self.groups: dict[str, dict[str, str]] = {}
        self.client_metrics: dict[str, dict[str, str]] = {}
        self.clients: ClientConfigs = {}
        self._cache = cache
        self.on_topics: Callable[[dict[str, dict[str, str]]], None] = lambda topics: None
        """Called with the configs of the topics that changed."""
        self.on_brokers: Callable[[dict[str, dict[str, str]]], None] = lambda brokers: None
        """Called with the configs of all brokers when some may have changed."""
        self.on_clients: Callable[[ClientConfigs], None] = lambda clients: None
        """Called with the configs of all users, client ids and IP addresses when some may have changed."""

    async def start(self) -> None:
        await self._reader.start(self._load)

    async def stop(self) -> None:
        await self._reader.stop()

    async def _load(self) -> None:
        await self._notifications.skip()
        stored = await stored_configs(self._store)
        self.topics = stored.topics
        self._set_brokers(stored.brokers)
        await self._read_groups()
        await self._read_client_metrics()
        self._set_clients(await load_client_configs(self._store))

    async def refresh(self, topics: Iterable[str]) -> None:
        """Read the configs of these topics."""
        names = list(topics)
        configs = await each(names, lambda name: topic_config(self._store, name))
        self.topics.update(zip(names, configs, strict=True))

    async def _read_all(self) -> None:
        await self._notifications.skip()
        stored = await stored_configs(self._store)
        changed = {name: config for name, config in stored.topics.items() if self.topics.get(name) != config}
        self.topics = stored.topics
        if changed:
            self._topics_changed(changed)
        if stored.brokers != self.brokers:
            self._set_brokers(stored.brokers)
        await self._read_groups()
        await self._read_client_metrics()
        self._set_clients(await load_client_configs(self._store))

    async def _read_groups(self) -> None:
        groups = await group_configs(self._store)
        if groups != self.groups:
            self.groups = groups
            self._cache.configure_groups(groups)

    async def _read_client_metrics(self) -> None:
        configs = await client_metrics_configs(self._store)
        if configs != self.client_metrics:
            self.client_metrics = configs
            self._cache.configure_client_metrics(configs)

    async def _read_notified(self) -> None:
        names, fresh = await self._notifications.read()
        if fresh:
            nodes = await each([f"{znodes.CONFIG_CHANGES}/{name}" for name in fresh], self._store.get)
            entities = {znodes.decode_config_change(node.data) for node in nodes if node is not None}
            await self.read_entities([entity for entity in entities if entity is not None])
            self._notifications.seen(fresh[-1])
        if len(names) > 2 * _NOTIFICATIONS_KEPT:
            await each(names[:-_NOTIFICATIONS_KEPT], self._remove_notification)

    async def _remove_notification(self, name: str) -> None:
        try:
            await self._store.multi([Delete(f"{znodes.CONFIG_CHANGES}/{name}")])
        except NoNode:
            return

    async def read_entities(self, entities: Iterable[str]) -> None:
        """Read the configs of entities, named by their paths below /config."""
        topics: list[str] = []
        brokers = groups = client_metrics = False
        for entity in entities:
            kind, _, name = entity.partition("/")
            if kind == "topics":
                topics.append(name)
            elif kind == "brokers":
                brokers = True
            elif kind == "groups":
                groups = True
            elif kind == "client-metrics":
                client_metrics = True
            elif (client := entity_of(entity)) is not None:
                config = await load_client_config(self._store, entity)
                self._set_clients(with_client_config(self.clients, client, config))
        if topics:
            await self.refresh(topics)
            self._topics_changed({name: self.topics[name] for name in topics})
        if brokers:
            self._set_brokers(await broker_configs(self._store))
        if groups:
            await self._read_groups()
        if client_metrics:
            await self._read_client_metrics()

    async def alter_client(
        self, entity: Entity, alter: Callable[[Mapping[str, str]], dict[str, str]], *, validate_only: bool
    ) -> None:
        """On this broker the change holds when this returns, on the others when the notification has come."""
        config = await alter_client_config(self._store, entity, alter, validate_only=validate_only)
        if not validate_only:
            self._set_clients(with_client_config(self.clients, entity, config))

    def _topics_changed(self, configs: dict[str, dict[str, str]]) -> None:
        for name, config in configs.items():
            self._cache.configure_topic(name, config)
        self.on_topics(configs)

    def _set_brokers(self, configs: dict[str, dict[str, str]]) -> None:
        self.brokers = configs
        self._cache.configure_brokers(configs)
        self.on_brokers(configs)

    def _set_clients(self, clients: ClientConfigs) -> None:
        self.clients = clients
        self.on_clients(clients)
