"""A broker with nothing but its metadata, and a client that asks it in any version, through the real codec.

The controller and the tree are the real ones (the tree in memory); there are no sockets, logs or partitions.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.controller.standalone_controller import StandaloneController
from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.broker.network.context import RequestContext
from ottla.broker.network.handler import bind
from ottla.cluster.image import ClusterImage, Endpoint, TopicImage
from ottla.cluster.requests import NewTopic
from ottla.cluster.settings import BrokerSettings
from ottla.errors import KafkaError
from ottla.protocol.registry import API_BY_NAME
from ottla.sim.kernel.machine import SeededRandom
from ottla.sim.kernel.metadata import MetadataTree
from ottla.sim.kernel.process import Process
from ottla.wire.codec import decode, encode

ENDPOINTS = (Endpoint("PLAINTEXT", "127.0.0.1", 9092), Endpoint("OUTSIDE", "example.org", 443))


class FixedClock:
    def now_ms(self) -> int:
        return 1_700_000_000_000

    def monotonic(self) -> float:
        return 0.0


class MetadataBroker:
    """What the handlers of this folder know of a broker."""

    def __init__(self, properties: Mapping[str, str], tree: MetadataTree | None = None, broker_id: int = 1) -> None:
        self.metadata = LocalMetadata(BrokerSettings.parse(properties), broker_id)
        self.partitions: Any = SimpleNamespace(offline_paths=list)
        self.groups: Any = None
        self.transactions: Any = None
        self.tree = tree or MetadataTree()
        self.store = self.tree.session(Process("broker"), random.Random(1))
        self.controller = StandaloneController(
            self.store,
            self.metadata.settings,
            broker_id,
            ENDPOINTS,
            FixedClock(),
            SeededRandom(random.Random(5)),
            self._apply,
        )

    @property
    def broker_id(self) -> int:
        return self.metadata.broker_id

    @property
    def image(self) -> ClusterImage:
        return self.metadata.image

    @property
    def settings(self) -> BrokerSettings:
        return self.controller.state.settings

    def _apply(self, image: ClusterImage) -> None:
        self.metadata.image = image

    async def create(self, *topics: NewTopic) -> list[TopicImage]:
        outcomes = await self.controller.topic_requests.create(topics)
        assert all(isinstance(outcome, TopicImage) for outcome in outcomes), outcomes
        return [outcome for outcome in outcomes if isinstance(outcome, TopicImage)]

    async def ask(self, api_name: str, version: int, request: object, listener: str = "PLAINTEXT") -> Any:
        """What a client reads as the reply to its request, both through the codec of the version."""
        api = API_BY_NAME[api_name]
        handler = import_module(f"ottla.broker.handlers.{api_name}")
        assert handler.VERSIONS[0] <= version <= handler.VERSIONS[1]
        read = decode(api.request, version, encode(request, version))
        context = RequestContext(self, version, api.key, "test", listener, "127.0.0.1", None)  # type: ignore[arg-type]
        self.metadata.settings = self.controller.state.settings
        parts = {name: getattr(self, name) for name in ("groups", "metadata", "partitions", "transactions")}
        for name in ("config_requests", "partition_requests", "producer_ids", "topic_requests"):
            parts[name] = getattr(self.controller, name)
        try:
            response = bind(handler.handle, parts)(read, context)
            if not isinstance(response, api.response):
                response = await response
        except KafkaError as error:
            refuse = getattr(handler, "refuse", None)
            response = refuse(read, error) if refuse else api.response(error_code=error.code)
        return decode(api.response, version, encode(response, version))


def on_broker(test: Callable[[MetadataBroker], Awaitable[None]], properties: Mapping[str, str] | None = None) -> None:
    """Run a test on a started broker."""

    async def run() -> None:
        broker = MetadataBroker(properties or {})
        await broker.controller.start()
        await test(broker)

    asyncio.run(run())


def every_version(api_name: str) -> pytest.MarkDecorator:
    first, last = import_module(f"ottla.broker.handlers.{api_name}").VERSIONS
    return pytest.mark.parametrize("version", range(first, last + 1))
