"""The telemetry of a broker with metadata only, and the requests of one client."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ottla.broker.telemetry.telemetry import Telemetry
from ottla.cluster.requests import ConfigAlteration, ConfigChange, ConfigOperation, ResourceType
from ottla.metrics import Counters
from ottla.ports import World
from ottla.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from ottla.protocol.messages.push_telemetry import PushTelemetryRequest
from ottla.sim.kernel.machine import SeededRandom
from tests.kit.admin import MetadataBroker
from tests.kit.handlers import call_handler


class _Workers:
    async def run(self, work: Any) -> Any:
        return work()

    def let_others_run(self) -> None: ...


class TelemetryBroker:
    """`now_ms` is the time of its clock."""

    def __init__(self, broker: MetadataBroker) -> None:
        import random

        self.broker = broker
        self.now_ms = 0.0
        self.counters = Counters()
        clock: Any = SimpleNamespace(monotonic=lambda: self.now_ms / 1000)
        nothing: Any = None
        world = World(clock, SeededRandom(random.Random(3)), nothing, _Workers(), nothing)
        self.telemetry = Telemetry(broker.metadata, world, self.counters)

    async def subscribe(self, name: str, **config: str) -> None:
        changes = [ConfigChange(ConfigOperation.SET, key.replace("_", "."), value) for key, value in config.items()]
        requested = ConfigAlteration(ResourceType.CLIENT_METRICS, name, changes)
        assert await self.broker.controller.config_requests.alter([requested]) == [None]

    async def get(self, instance_id: bytes = bytes(16)) -> Any:
        request = GetTelemetrySubscriptionsRequest(client_instance_id=instance_id)
        return await call_handler({"telemetry": self.telemetry}, "get_telemetry_subscriptions", 0, request)

    async def push(self, instance_id: bytes, subscription_id: int, metrics: bytes, **fields: Any) -> int:
        """The error code."""
        request = PushTelemetryRequest(client_instance_id=instance_id, subscription_id=subscription_id, metrics=metrics, **fields)
        answer = await call_handler({"telemetry": self.telemetry}, "push_telemetry", 0, request)
        return int(answer.error_code)

    def shown(self) -> dict[str, list[float]]:
        return {family.name: [value for _, value in family.samples] for family in self.telemetry.families()}
