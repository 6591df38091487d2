"""What a broker does with telemetry: who may push what, and the values of what was pushed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Final

from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.broker.network.context import RequestContext
from ottla.broker.telemetry.client_metrics import ClientMetrics, MetricFamily
from ottla.broker.telemetry.instances import Client, ClientInstances, Instance
from ottla.broker.telemetry.otlp import Point, read_points
from ottla.cluster.znodes import new_uuid
from ottla.errors import ErrorCode, KafkaError, MalformedInput
from ottla.metrics import Counters
from ottla.ports import World
from ottla.records.compression import NONE, TooLarge, decompress

DECOMPRESSED_BYTES_MAX: Final = 8 << 20
POINTS_MAX: Final = 10_000
"""Of one push. Further ones are not read."""
_LET_OTHERS_RUN: Final = 100


class Telemetry:
    def __init__(self, metadata: LocalMetadata, world: World, counters: Counters) -> None:
        self._metadata = metadata
        self._world = world
        self._counters = counters
        self._instances = ClientInstances()
        self._values = ClientMetrics(on_left_out=lambda count: counters.add("telemetry_series_left_out", count))

    @property
    def bytes_max(self) -> int:
        return self._metadata.settings.int("telemetry.max.bytes")

    def new_instance_id(self) -> bytes:
        return new_uuid(self._world.random)

    def asks(self, instance_id: bytes, context: RequestContext) -> Instance:
        """What a client is subscribed to. KafkaError if it asks too soon."""
        return self._instances.asks(_client(instance_id, context), self._metadata.image.client_metrics, self._now_ms())

    def pushes(self, instance_id: bytes, context: RequestContext, subscription_id: int, *, terminating: bool) -> Instance:
        """The subscription by which a client pushes. KafkaError if it must not."""
        client, configs = _client(instance_id, context), self._metadata.image.client_metrics
        return self._instances.pushes(client, configs, self._now_ms(), subscription_id, terminating=terminating)

    async def take(self, instance: Instance, codec: int, data: bytes) -> None:
        """Read what a client has pushed. KafkaError INVALID_RECORD if it cannot be read."""
        self._counters.add("telemetry_pushes")
        if not instance.metrics:
            return
        try:
            points = await self._world.workers.run(partial(self._read, codec, data))
        except (MalformedInput, TooLarge) as error:
            self._counters.add("telemetry_pushes_invalid")
            raise KafkaError(ErrorCode.INVALID_RECORD, f"the metrics cannot be read: {error}") from None
        self._values.add(instance, points, self._now_ms())

    def families(self) -> Iterator[MetricFamily]:
        """What clients have pushed, for /metrics."""
        self._values.forget_silent(self._now_ms())
        return self._values.families()

    def instance_count(self) -> int:
        return len(self._instances)

    def _read(self, codec: int, data: bytes) -> list[Point]:
        """In a worker."""
        plain = data if codec == NONE else decompress(codec, memoryview(data), DECOMPRESSED_BYTES_MAX)
        points: list[Point] = []
        for point in islice(read_points(plain), POINTS_MAX):
            points.append(point)
            if len(points) % _LET_OTHERS_RUN == 0:
                self._world.workers.let_others_run()
        return points

    def _now_ms(self) -> float:
        return self._world.clock.monotonic() * 1000


def _client(instance_id: bytes, context: RequestContext) -> Client:
    session = context.session
    return Client(
        instance_id,
        context.client_id or "",
        session.software_name,
        session.software_version,
        session.client_host,
        session.client_port,
        context.connection_number,
    )
