"""`ottla connections`: who is connected, from `/connections` of brokers."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from ottla.runtime.free_ports import free_port
from ottla.testing import Broker
from tests.kit.ottla_command import Ottla


@pytest.fixture(scope="module")
def watched() -> Iterator[tuple[Ottla, int]]:
    """A broker with metrics and one producer, and the port of its metrics."""
    port = free_port()
    with Broker({"metrics.listener": f"127.0.0.1:{port}", "broker.id": 5}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "shop"})
        ottla = Ottla(broker.bootstrap_servers)
        ottla.ok("topic", "create", "orders")
        producer.produce("orders", b"x" * 1000)
        assert producer.flush(60) == 0
        yield ottla, port


def test_each_connection_with_its_software(watched: tuple[Ottla, int]) -> None:
    ottla, _ = watched
    found = json.loads(ottla.ok("connections", "--interval", "0", "--json"))
    shop = [each for each in found if each["client_id"] == "shop"]
    assert {(each["broker"], each["address"], each["software_name"], each["principal"]) for each in shop} == {
        (5, "127.0.0.1", "confluent-kafka-python", "User:ANONYMOUS")
    }
    assert max(each["bytes_in"] for each in shop) > 1000
    assert all(each["requests_per_s"] > 0 for each in shop)
    lines = ottla.ok("connections", "--broker", "5", "--interval", "100ms").splitlines()
    assert lines[0].split() == [
        "BROKER", "ADDRESS", "CLIENT", "SOFTWARE", "PRINCIPAL", "LISTENER", "AGE", "IDLE", "REQ/S", "IN/S", "OUT/S",
    ]  # fmt: skip
    assert any("shop" in line for line in lines)


def test_connections_together(watched: tuple[Ottla, int]) -> None:
    ottla, port = watched
    words = ("connections", "--by", "client", "--metrics-url", f"127.0.0.1:{port}", "--interval", "0")
    (shop,) = [each for each in json.loads(ottla.ok(*words, "--json")) if each["client_id"] == "shop"]
    assert shop["connections"] >= 1
    assert shop["requests_per_s"] > 0
    assert ottla.ok(*words, "-o", "csv").startswith("client_id,principal,software_name,")
    assert ottla.ok(*words).split()[:5] == ["CLIENT-ID", "PRINCIPAL", "SOFTWARE-NAME", "SOFTWARE-VERSION", "CONNECTIONS"]


def test_what_cannot_be(ottla: Ottla, watched: tuple[Ottla, int]) -> None:
    off = ottla.fails("connections")
    assert "no broker lists its connections" in off
    assert "ottla serve --metrics HOST:PORT" in off
    assert json.loads(ottla.fails("connections", "--json"))["error"]["code"] == "NO_METRICS_LISTENER"
    mine, port = watched
    assert "broker 9 does not exist" in mine.fails("connections", "--broker", "9")
    assert "cannot be read" in mine.fails("connections", "--metrics-url", "127.0.0.1:1")
    assert "answers 404" in mine.fails("connections", "--metrics-url", f"http://127.0.0.1:{port}/nothing")
    assert "is not a duration" in mine.fails("connections", "--interval", "soon", code=2)
