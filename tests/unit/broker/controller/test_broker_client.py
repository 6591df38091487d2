"""Requests to brokers: the own broker is called directly, others over the inter-broker listener (F61)."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from ottla.broker.controller.controller_client import BrokerClient
from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.cluster.image import BrokerImage, Endpoint
from ottla.cluster.settings import BrokerSettings
from ottla.protocol.messages.stop_replica import StopReplicaRequest
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest
from ottla.wire.codec import encode


class Peers:
    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    async def call(self, broker_id: int, purpose: str, api_name: str, request: Any, **options: Any) -> str:
        self.calls.append((broker_id, purpose, api_name, request, options))
        return "remote"


async def handle(version: int, request: object) -> str:
    return f"local, version {version}"


def broker(number: int) -> BrokerImage:
    return BrokerImage(number, 10 + number, None, (Endpoint("INSIDE", f"host{number}", 9093), Endpoint("OUTSIDE", "out", 9092)))


def test_the_own_broker_is_called_directly_and_others_at_their_inter_broker_endpoint() -> None:
    peers = Peers()
    settings = BrokerSettings.parse(
        {
            "listeners": "INSIDE://:9093,OUTSIDE://:9092",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
            "inter.broker.listener.name": "INSIDE",
            "controller.socket.timeout.ms": "1234",
        }
    )
    client = BrokerClient(LocalMetadata(settings, 1), cast(Any, peers), handle)
    stop = StopReplicaRequest()
    assert asyncio.run(client.send(broker(1), "stop_replica", 4, stop)) == "local, version 4"
    assert asyncio.run(client.send(broker(2), "stop_replica", 4, stop)) == "remote"
    endpoint = Endpoint("INSIDE", "host2", 9093)
    options = {"version_max": 4, "timeout_ms": 1234, "endpoint": endpoint}
    assert peers.calls.pop() == (2, "control", "stop_replica", stop, options)
    # UpdateMetadata is encoded in the version that the connection agrees on, once for all brokers.
    update = UpdateMetadataRequest(controller_id=1, controller_epoch=2, broker_epoch=12)
    asyncio.run(client.send(broker(2), "update_metadata", 8, update))
    _, _, _, encoded, _ = peers.calls.pop()
    assert encoded(8).body == encode(update, 8)
    asyncio.run(client.call(3, "allocate_producer_ids", 0, "request"))
    assert peers.calls == [(3, "requests", "allocate_producer_ids", "request", {"version_max": 0})]
