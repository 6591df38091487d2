"""The controllers of several brokers on one tree in memory, for tests. Brokers answer every control request without an error."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, cast

from ottla.broker.controller.cluster_controller import ClusterController
from ottla.broker.metadata.dynamic_configs import DynamicConfigs
from ottla.broker.network.inter_broker import PeerUnavailable
from ottla.cluster.image import BrokerImage, ClusterImage, Endpoint, TopicImage
from ottla.cluster.requests import NewTopic
from ottla.cluster.settings import BrokerSettings
from ottla.ports import Change
from ottla.protocol.registry import API_BY_NAME
from ottla.runtime.clock import SystemClock
from ottla.sim.kernel.machine import SeededRandom
from ottla.sim.kernel.metadata_tree import MetadataTree
from ottla.sim.kernel.process import Process
from tests.kit.wait import until_async


class World:
    """One tree. A broker answers every control request without an error, unless it is deaf."""

    def __init__(self, properties: Mapping[str, str] | None = None) -> None:
        self.properties = {"zookeeper.connect": "tree", "zookeeper.session.timeout.ms": "100", **(properties or {})}
        self.tree = MetadataTree()
        self.members: dict[int, Member] = {}
        self.requests: list[tuple[int, str, Any]] = []
        self.deaf: set[int] = set()

    async def send(self, broker: BrokerImage, api_name: str, version: int, request: object) -> object:
        if broker.id in self.deaf:
            raise PeerUnavailable("deaf")
        assert version <= API_BY_NAME[api_name].max_version
        self.requests.append((broker.id, api_name, request))
        return API_BY_NAME[api_name].response()

    async def call(self, broker_id: int, api_name: str, version: int, request: Any) -> object:
        controller = self.members[broker_id].controller
        assert api_name == "allocate_producer_ids"
        block = await controller.broker_requests.allocate_producer_ids(request.broker_id, request.broker_epoch)
        return API_BY_NAME[api_name].response(producer_id_start=block[0], producer_id_len=len(block))

    async def add(self, *numbers: int) -> list[Member]:
        members = [Member(self, number) for number in numbers]
        self.members.update({member.number: member for member in members})
        await asyncio.gather(*(member.controller.start(member.refused.append) for member in members))
        return members

    def active(self) -> Member:
        (member,) = [member for member in self.members.values() if member.controller.state.is_active]
        return member

    def state(self, topic: str, partition: int = 0) -> dict[str, Any]:
        node = self.tree.get(f"/brokers/topics/{topic}/partitions/{partition}/state")
        assert node is not None
        found: dict[str, Any] = json.loads(node.data)
        return found

    def write(self, *changes: Change) -> None:
        """Write to the tree as a client that is not a broker."""
        self.tree.multi(changes, object())

    def epoch(self) -> int:
        node = self.tree.get("/controller_epoch")
        assert node is not None
        return int(node.data)

    async def close(self) -> None:
        for member in self.members.values():
            await member.controller.stop()


class Metadata:
    """What a broker knows; its image is that of the active controller."""

    def __init__(self, world: World, number: int) -> None:
        self.broker_id = number
        self.settings = BrokerSettings.parse(world.properties)
        self.endpoints = (Endpoint("PLAINTEXT", f"host{number}", 9092),)
        self.authorizer = self.settings.new_authorizer()
        self._world = world

    @property
    def broker_epoch(self) -> int:
        return self._world.members[self.broker_id].controller.broker_epoch

    @property
    def image(self) -> ClusterImage:
        return self._world.active().controller.state.image


class Member:
    def __init__(self, world: World, number: int) -> None:
        self.number = number
        self.store = world.tree.session(Process(f"broker-{number}"), random.Random(number))
        self.configs: dict[str, dict[str, str]] = {}
        self.refused: list[str] = []
        metadata = Metadata(world, number)
        self.authorizer = metadata.authorizer
        self.controller = ClusterController(
            self.store,
            cast(Any, metadata),
            DynamicConfigs(self.store, cast(Any, self)),
            cast(Any, world),
            SystemClock(),
            SeededRandom(random.Random(number)),
        )

    def configure_topic(self, name: str, config: dict[str, str]) -> None:
        self.configs[name] = config

    def configure_brokers(self, configs: object) -> None: ...

    def configure_groups(self, configs: object) -> None: ...

    def configure_client_metrics(self, configs: object) -> None: ...


def in_world(test: Callable[[World], Awaitable[None]], properties: Mapping[str, str] | None = None) -> None:
    async def run() -> None:
        world = World(properties)
        try:
            await asyncio.wait_for(test(world), 120)
        finally:
            await world.close()

    asyncio.run(run())


until = partial(until_async, ignoring=(AssertionError, ValueError, KeyError), every_s=0.001)
"""Wait for a condition that may fail while brokers still change."""


async def make(world: World, name: str, *replicas: tuple[int, ...]) -> TopicImage:
    (topic,) = await world.active().controller.topic_requests.create([NewTopic(name, assignments=list(enumerate(replicas)))])
    assert isinstance(topic, TopicImage), topic
    return topic


async def all_here(world: World, *numbers: int) -> None:
    await until(lambda: set(world.active().controller.state.image.brokers) == set(numbers))
