"""Metrics that real clients push, on the metrics page: Apache Kafka's own, and librdkafka (KIP-714)."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import pytest

from ottla.cluster.requests import ConfigAlteration, ConfigChange, ResourceType
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from ottla.protocol.messages.push_telemetry import PushTelemetryRequest
from tests.broker.conftest import Play, Stage
from tests.broker.test_metrics import METRICS_ON, Told, told
from tests.kit.peers import KAFKA_4, run_tool
from tests.kit.wait import until_async
from tests.unit.broker.telemetry.otlp_bytes import gauge, metrics_data, point

SUBSCRIPTION = "--alter", "--name", "all", "--metrics", "*", "--interval", "200"


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


@pytest.mark.java
@pytest.mark.slow
def test_apache_kafkas_producer_pushes_and_its_tools_manage_subscriptions(play: Play) -> None:
    async def case(stage: Stage) -> None:
        await stage.topic("t")
        bootstrap = "--bootstrap-server", f"127.0.0.1:{stage.port}"
        loop = asyncio.get_running_loop()

        async def tool(name: str, *words: str, check: bool = True) -> str:
            done = await loop.run_in_executor(None, functools.partial(run_tool, KAFKA_4, name, *words, check=check))
            return str(done.stdout)

        client_metrics = functools.partial(tool, "org.apache.kafka.tools.ClientMetricsCommand", *bootstrap)
        configs = functools.partial(tool, "kafka.admin.ConfigCommand", *bootstrap)
        assert "Altered client metrics config for all" in await client_metrics(*SUBSCRIPTION)
        assert (await client_metrics("--list")).strip() == "all"
        described = await configs("--describe", "--entity-type", "client-metrics")
        assert "interval.ms=200 sensitive=false synonyms={DYNAMIC_CLIENT_METRICS_CONFIG:interval.ms=200}" in described

        properties = ("--producer-props", f"bootstrap.servers=127.0.0.1:{stage.port}", "client.id=perf")
        words = ("--topic", "t", "--num-records", "4000", "--record-size", "10", "--throughput", "1000", *properties)
        producing = asyncio.create_task(tool("ProducerPerformance", *words))
        labels, value = await pushed(stage, "kafka_client_producer_record_send_total")
        await producing
        assert (labels["client_id"], labels["client_software_name"]) == ("perf", "apache-kafka-java")
        assert labels["client_software_version"] == KAFKA_4
        assert 0 < value <= 4000
        [(_, last)] = of_clients(await told(stage))["kafka_client_producer_record_send_total"]
        # Up to 4000: as it closes, Kafka's producer pushes before it sends what waits, or ends its thread before it pushes.
        assert value < last <= 4000

        assert "Deleted client metrics config for all" in await client_metrics("--delete", "--name", "all")
        assert (await client_metrics("--list")).strip() == ""

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
