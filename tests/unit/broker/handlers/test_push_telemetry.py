from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from ottla.broker.telemetry import telemetry as module
from ottla.errors import ErrorCode
from ottla.records.compression import CODEC_NAMES, compress
from tests.kit.admin import MetadataBroker, on_broker
from tests.kit.telemetry import TelemetryBroker
from tests.unit.broker.telemetry.otlp_bytes import gauge, metrics_data, point

DATA = metrics_data(gauge("org.apache.kafka.consumer.lag", point(17.0)))


def subscribed(test: Callable[[TelemetryBroker, bytes, int], Awaitable[None]], **properties: str) -> None:
    """A client that is subscribed to all metrics: its instance id and subscription id."""

    async def run(broker: MetadataBroker) -> None:
        telemetry = TelemetryBroker(broker)
        await telemetry.subscribe("all", metrics="*", interval_ms="1000")
        answer = await telemetry.get()
        await test(telemetry, answer.client_instance_id, answer.subscription_id)

    on_broker(run, properties)


@pytest.mark.parametrize("codec", range(len(CODEC_NAMES)), ids=CODEC_NAMES)
def test_what_is_pushed_is_shown(codec: int) -> None:
    async def test(telemetry: TelemetryBroker, instance_id: bytes, number: int) -> None:
        data = bytes(compress(codec, DATA, None)) if codec else DATA
        assert await telemetry.push(instance_id, number, data, compression_type=codec) == 0
        assert telemetry.shown() == {"kafka_client_consumer_lag": [17.0]}
        assert telemetry.counters.get("telemetry_pushes") == 1
        telemetry.now_ms = 60_001
        assert telemetry.shown() == {}

    subscribed(test)


def test_errors_are_those_of_kafka() -> None:
    async def test(telemetry: TelemetryBroker, instance_id: bytes, number: int) -> None:
        push = telemetry.push
        assert await push(bytes(16), number, DATA) == ErrorCode.INVALID_REQUEST
        assert await push(instance_id, number + 1, DATA) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        assert await push(instance_id, number, DATA) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        telemetry.now_ms = 1000
        assert await push(instance_id, number, DATA, compression_type=5) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        telemetry.now_ms = 2000
        assert await push(instance_id, number, bytes(501)) == ErrorCode.TELEMETRY_TOO_LARGE
        telemetry.now_ms = 3000
        assert await push(instance_id, number, b"") == 0
        assert telemetry.shown() == {}
        assert await push(instance_id, number, DATA, terminating=True) == 0, "at once"
        telemetry.now_ms = 4000
        assert await push(instance_id, number, DATA) == ErrorCode.INVALID_REQUEST

    subscribed(test, **{"telemetry.max.bytes": "500"})


@pytest.mark.parametrize(("codec", "data"), [(0, b"\x0a\x7f"), (1, b"no gzip"), (2, b"\xff"), (3, b"no lz4"), (4, b"no zstd")])
def test_what_cannot_be_read_is_refused_and_counted(codec: int, data: bytes) -> None:
    async def test(telemetry: TelemetryBroker, instance_id: bytes, number: int) -> None:
        assert await telemetry.push(instance_id, number, data, compression_type=codec) == ErrorCode.INVALID_RECORD
        assert telemetry.counters.get("telemetry_pushes_invalid") == 1

    subscribed(test)


def test_a_bomb_is_refused_before_it_is_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DECOMPRESSED_BYTES_MAX", 1000)

    async def test(telemetry: TelemetryBroker, instance_id: bytes, number: int) -> None:
        bomb = bytes(compress(4, bytes(100_000), None))
        assert await telemetry.push(instance_id, number, bomb, compression_type=4) == ErrorCode.INVALID_RECORD

    subscribed(test)


def test_the_points_of_one_push_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POINTS_MAX", 2)

    async def test(telemetry: TelemetryBroker, instance_id: bytes, number: int) -> None:
        data = metrics_data(*(gauge(f"m{each}", point(1)) for each in range(5)))
        assert await telemetry.push(instance_id, number, data) == 0
        assert len(telemetry.shown()) == 2

    subscribed(test)


def test_nothing_is_kept_of_a_client_that_nobody_subscribed() -> None:
    async def test(broker: MetadataBroker) -> None:
        telemetry = TelemetryBroker(broker)
        answer = await telemetry.get()
        assert await telemetry.push(answer.client_instance_id, answer.subscription_id, DATA) == 0
        assert telemetry.shown() == {}

    on_broker(test)
