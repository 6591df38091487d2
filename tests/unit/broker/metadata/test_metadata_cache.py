"""What a broker of several knows of the others: which transactions all of them can do (F64)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from ottla.broker.handlers import api_versions
from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.broker.metadata.metadata_cache import MetadataCache
from ottla.cluster import znodes
from ottla.cluster.image import BrokerImage, ClusterImage, Endpoint
from ottla.cluster.settings import BrokerSettings
from ottla.ports import Node, StoreError
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from ottla.security.principal import Session


class Registrations:
    """The nodes below /brokers/ids, and who reads them."""

    def __init__(self) -> None:
        self.brokers: dict[int, BrokerImage] = {}
        self.reads: list[str] = []
        self.is_away = False
        self.topic_configs: dict[str, dict[str, str]] = {}

    def register(self, number: int, transaction_version: int, port: int = 9092) -> None:
        endpoints = (Endpoint("PLAINTEXT", "h", port),)
        self.brokers[number] = BrokerImage(number, number, None, endpoints, transaction_version)

    async def get(self, path: str) -> Node | None:
        self.reads.append(path)
        if self.is_away:
            raise StoreError("away")
        name = path.rpartition("/")[2]
        if path == znodes.topic_config_path(name):
            config = self.topic_configs.get(name)
            return None if config is None else Node(znodes.encode_config(config), 0, 0)
        broker = self.brokers.get(int(path.rpartition("/")[2]))
        return None if broker is None else Node(znodes.encode_broker(broker, 0), 0, broker.epoch)


class World:
    def __init__(self) -> None:
        self.store: Any = Registrations()
        self.image = ClusterImage("c")
        self.cache = MetadataCache("c", self.store, self._show)  # type: ignore[arg-type]

    def _show(self, image: ClusterImage) -> None:
        self.image = image

    def told(self, *numbers: int) -> None:
        """By the controller: these brokers live."""
        live = [
            UpdateMetadataBroker(
                id=number,
                endpoints=[
                    UpdateMetadataEndpoint(
                        port=self.store.brokers[number].endpoints[0].port, host="h", listener="PLAINTEXT", security_protocol=0
                    )
                ],
            )
            for number in numbers
        ]
        asyncio.run(self.cache.update(UpdateMetadataRequest(controller_id=1, live_brokers=live)))

    @property
    def features(self) -> tuple[int, list[tuple[str, int]]]:
        """What clients hear: the epoch, and what is finalised."""
        context: Any = SimpleNamespace(version=4, session=Session("", ""))
        request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
        answer = api_versions.handle({}, LocalMetadata(BrokerSettings.parse({}), 1, self.image), request, context)
        return answer.finalized_features_epoch, [(each.name, each.max_version_level) for each in answer.finalized_features]


SECOND = (0, [("transaction.version", 2)])
FIRST: tuple[int, list[Any]] = (1, [])


def test_transactions_are_of_the_generation_that_all_brokers_can_do() -> None:
    world = World()
    for number in (1, 2):
        world.store.register(number, 2)
    world.cache.begin(dict(world.store.brokers), 1)
    assert world.features == SECOND
    world.told(1, 2)
    assert world.store.reads == [], "it knows them already"
    world.store.register(3, 0)
    world.told(1, 2, 3)
    assert world.features == FIRST, "clients that have heard of the second believe a later epoch"
    world.told(1, 2, 3)
    assert world.store.reads == ["/brokers/ids/3"], "once"
    world.told(1, 2)
    assert world.features == SECOND
    world.store.register(3, 2)
    world.told(1, 2, 3)
    assert world.features == SECOND, "the next of that number is another"
    world.store.register(3, 0, port=9999)
    world.told(1, 2, 3)
    assert world.features == FIRST, "also if it was not away in between, but lives elsewhere"


def test_a_broker_nobody_can_read_of_can_do_little_for_now() -> None:
    world = World()
    for number in (1, 2):
        world.store.register(number, 2)
    world.cache.begin({1: world.store.brokers[1]}, 1)
    world.store.is_away = True
    world.told(1, 2)
    assert world.features == FIRST
    world.store.is_away = False
    world.told(1, 2)
    assert world.features == SECOND


def test_a_word_of_a_topic_that_was_deleted_does_not_touch_another_of_its_name() -> None:
    """It was held up on its way, sent again, and heard; then the topic was made again (C10)."""

    async def test(cache: MetadataCache) -> None:
        former, now = b"f" * 16, b"n" * 16
        await cache.update(_picture(former, leader=1))
        await cache.update(_picture(former, leader=-2))
        assert "t" not in cache.image.topics
        await cache.update(_picture(now, leader=1))
        for late in (_picture(former, leader=-2), _picture(former, leader=1)):
            await cache.update(late)
            assert cache.image.topics["t"].topic_id == now
        await cache.update(_picture(former, leader=1), whole=True)
        assert cache.image.topics["t"].topic_id == former, "who tells everything is right"

    asyncio.run(test(World().cache))


def _picture(topic_id: bytes, leader: int) -> UpdateMetadataRequest:
    state = UpdateMetadataPartitionState(partition_index=0, leader=leader, leader_epoch=min(leader, 0), isr=[1], replicas=[1])
    topic = UpdateMetadataTopicState(topic_name="t", topic_id=topic_id, partition_states=[state])
    return UpdateMetadataRequest(controller_id=1, topic_states=[topic])


def test_a_topic_has_its_own_settings_not_those_of_a_former_one_of_its_name() -> None:
    """A broker hears twice that a topic is gone, or looks at settings gone with it, or hears nothing of it (seed 61319 of
    late mail: it kept that there are none); the next of that name has others."""

    async def test(cache: MetadataCache, configs: dict[str, dict[str, str]]) -> None:
        first, second, third = b"1" * 16, b"2" * 16, b"3" * 16
        configs["t"] = {"cleanup.policy": "compact"}
        await cache.update(_picture(first, leader=1))
        assert cache.image.topics["t"].config == {"cleanup.policy": "compact"}
        del configs["t"]
        for _ in range(2):
            await cache.update(_picture(first, leader=-2))
        cache.configure_topic("t", {})
        configs["t"] = {"retention.ms": "-1"}
        assert await cache.topic_config("t", second) == {"retention.ms": "-1"}, "an order to lead it comes first"
        await cache.update(_picture(second, leader=1))
        assert cache.image.topics["t"].config == {"retention.ms": "-1"}
        configs["t"] = {"retention.ms": "7"}
        assert await cache.topic_config("t", second) == {"retention.ms": "-1"}, "known: changes come as notices"
        assert await cache.topic_config("t", third) == {"retention.ms": "7"}
        await cache.update(_picture(third, leader=1))
        assert cache.image.topics["t"].config == {"retention.ms": "7"}

    world = World()
    asyncio.run(test(world.cache, world.store.topic_configs))
