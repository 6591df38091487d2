"""Metrics that a real client pushes, on the metrics page (KIP-714)."""

from __future__ import annotations

import asyncio
from typing import Any

from ottla.cluster.requests import ConfigAlteration, ConfigChange, ResourceType
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from ottla.protocol.messages.push_telemetry import PushTelemetryRequest
from tests.broker.conftest import Play, Stage
from tests.broker.test_metrics import METRICS_ON, Told, told
from tests.kit.wait import until_async
from tests.unit.broker.telemetry.otlp_bytes import gauge, metrics_data, point


async def subscribe(stage: Stage, **config: str) -> None:
    changes = [ConfigChange(0, name.replace("_", "."), value) for name, value in config.items()]
    requested = ConfigAlteration(ResourceType.CLIENT_METRICS, "all", changes)
    assert await stage.broker.controller.config_requests.alter([requested]) == [None]


def of_clients(found: Told) -> dict[str, list[tuple[dict[str, str], float]]]:
    shown: dict[str, list[tuple[dict[str, str], float]]] = {}
    for (name, labels), value in found.items():
        if name.startswith("kafka_client_"):
            shown.setdefault(name, []).append((dict(labels), value))
    return shown


async def pushed(stage: Stage, name: str) -> tuple[dict[str, str], float]:
    """Labels and value of a metric, once a client has pushed one above 0."""

    async def look() -> Any:
        samples = of_clients(await told(stage)).get(name, ())
        return next((each for each in samples if each[1] > 0), None)

    found: tuple[dict[str, str], float] = await until_async(look, name, 120, every_s=0.1)
    return found


def produce_by_librdkafka(bootstrap: str, done: Any) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "client.id": "shop", "enable.metrics.push": True, "log_level": 0})
    while not done.is_set():
        producer.produce("t", b"x" * 100)
        producer.flush(10)
    producer.flush(10)


def test_librdkafka_pushes_and_its_values_appear(play: Play) -> None:
    import threading

    async def case(stage: Stage) -> None:
        await stage.topic("t")
        await subscribe(
            stage, metrics="*", interval_ms="200", match="client_id=sh.*,client_software_name=.*librdkafka|confluent-kafka.*"
        )
        done = threading.Event()
        loop = asyncio.get_running_loop()
        client = loop.run_in_executor(None, produce_by_librdkafka, f"127.0.0.1:{stage.port}", done)
        try:
            labels, _ = await pushed(stage, "kafka_client_producer_request_latency_avg")
        finally:
            done.set()
            await client
        assert labels["client_id"] == "shop"
        assert len(labels["client_instance_id"]) == 22
        assert "2." in labels["client_software_version"]

    play(case, **METRICS_ON)


def test_a_client_is_known_by_its_software_and_address(play: Play) -> None:
    async def case(stage: Stage) -> None:
        connection = await stage.connect()
        (seen,) = await until_async(lambda: list(stage.broker.server.connections()), "the broker has accepted it")
        await subscribe(
            stage,
            metrics="a",
            match=f"client_software_name=tes.,client_source_address=127\\.0\\.0\\.1,client_source_port={seen.client_port}",
        )
        instance_id = bytes(15) + b"\x07"
        ask = GetTelemetrySubscriptionsRequest(client_instance_id=instance_id)
        request = ApiVersionsRequest(client_software_name="test", client_software_version="9")
        assert (await connection.call("api_versions", 3, request)).error_code == 0
        answer = await connection.call("get_telemetry_subscriptions", 0, ask)
        assert answer.requested_metrics == ["a"]
        other = await stage.connect()
        assert (await other.call("get_telemetry_subscriptions", 0, ask)).requested_metrics == [], "another port"
        push = PushTelemetryRequest(
            client_instance_id=instance_id, subscription_id=answer.subscription_id, metrics=metrics_data(gauge("a\n", point(3)))
        )
        assert (await connection.call("push_telemetry", 0, push)).error_code == 0
        assert of_clients(await told(stage))["kafka_client_a_"][0][1] == 3

    play(case, **METRICS_ON)
