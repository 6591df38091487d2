"""A broker with metadata only, and a client that sends it requests of any version through the codec.

The controller and the tree are the real ones (the tree in memory); there are no sockets, logs or partitions.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from types import SimpleNamespace
from typing import Any

from ottla.broker.controller.standalone_controller import StandaloneController
from ottla.broker.handlers import served
from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.cluster.image import ClusterImage, Endpoint, TopicImage
from ottla.cluster.requests import NewTopic
from ottla.cluster.settings import BrokerSettings
from ottla.sim.kernel.machine import SeededRandom
from ottla.sim.kernel.metadata_tree import MetadataTree
from ottla.sim.kernel.process import Process
from tests.kit.handlers import call_handler

ENDPOINTS = (Endpoint("PLAINTEXT", "127.0.0.1", 9092), Endpoint("OUTSIDE", "example.org", 443))


class FixedClock:
    def now_ms(self) -> int:
        return 1_700_000_000_000

    def monotonic(self) -> float:
        return 0.0


class MetadataBroker:
    """The collaborators of handlers that use metadata only."""

    def __init__(self, properties: Mapping[str, str], tree: MetadataTree | None = None, broker_id: int = 1) -> None:
        self.metadata = LocalMetadata(BrokerSettings.parse(properties), broker_id)
        self.metadata.endpoints = ENDPOINTS
        self.partitions: Any = SimpleNamespace(data_dirs=SimpleNamespace(offline_paths=list))
        self.groups: Any = None
        self.transactions: Any = None
        self.served = served(in_cluster=False)
        self.tree = tree or MetadataTree()
        self.store = self.tree.session(Process("broker"), random.Random(1))
        self.controller = StandaloneController(
            self.store,
            self.metadata,
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
        """Send a request and return the response, both encoded and decoded in this version."""
        self.metadata.settings = self.controller.state.settings
        parts = {name: getattr(self, name) for name in ("groups", "metadata", "partitions", "served", "transactions")}
        for name in ("acl_requests", "config_requests", "partition_requests", "producer_ids", "topic_requests"):
            parts[name] = getattr(self.controller, name)
        return await call_handler(parts, api_name, version, request, listener=listener)


def on_broker(test: Callable[[MetadataBroker], Awaitable[None]], properties: Mapping[str, str] | None = None) -> None:
    """Run a test on a started broker."""

    async def run() -> None:
        broker = MetadataBroker(properties or {})
        await broker.controller.start()
        await test(broker)

    asyncio.run(run())
