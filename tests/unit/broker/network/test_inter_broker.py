"""Calls between brokers: versions agreed, order kept, at most one sending, a new connection after a failure."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ottla.broker.network.inter_broker import InterBroker, PeerUnavailable
from ottla.cluster.image import Endpoint
from ottla.metrics import Counters
from ottla.protocol.headers import decode_request_header, encode_response
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from ottla.protocol.registry import API_BY_KEY, API_BY_NAME
from ottla.runtime.network import RealNetwork
from ottla.wire.codec import decoder

SHUTDOWN = API_BY_NAME["controlled_shutdown"]


class Peer(asyncio.Protocol):
    """Answers ApiVersions, and ControlledShutdown with what it was asked; keeps silent if told so."""

    connections = 0
    silent = False
    seen: list[tuple[int, int]]

    def __init__(self) -> None:
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        Peer.connections += 1
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= 4 and len(self._data) >= 4 + struct.unpack(">i", self._data[:4])[0]:
            size = struct.unpack(">i", self._data[:4])[0]
            frame, self._data = memoryview(self._data[4 : 4 + size]), self._data[4 + size :]
            self._answer(frame)

    def _answer(self, frame: memoryview) -> None:
        header, position = decode_request_header(frame)
        api = API_BY_KEY[header.api_key]
        response: Any
        if api.name == "api_versions":
            response = ApiVersionsResponse(api_keys=[ApiVersion(api_key=SHUTDOWN.key, min_version=1, max_version=2)])
        else:
            request, _ = decoder(api.request, header.api_version)(frame, position)
            Peer.seen.append((header.api_version, request.broker_id))
            if Peer.silent:
                return
            response = ControlledShutdownResponse(error_code=request.broker_id)
        for part in encode_response(api, header.api_version, header.correlation_id, response):
            self._transport.write(part)  # type: ignore[arg-type]


def play(case: Callable[[InterBroker, dict[int, Endpoint]], Awaitable[None]]) -> None:
    async def scene() -> None:
        Peer.connections, Peer.silent, Peer.seen = 0, False, []
        network = RealNetwork(Counters())
        listener = await network.listen(Peer, "127.0.0.1", 0)
        addresses = {7: Endpoint("PLAINTEXT", "127.0.0.1", listener.port)}
        inter_broker = InterBroker(1, network, addresses.get)
        try:
            await asyncio.wait_for(case(inter_broker, addresses), 60)
        finally:
            inter_broker.close()
            listener.close()

    asyncio.run(scene())


async def ask(inter_broker: InterBroker, number: int, **options: Any) -> int:
    response = await inter_broker.call(7, "test", "controlled_shutdown", ControlledShutdownRequest(broker_id=number), **options)
    return int(response.error_code)


def test_the_highest_version_of_both_is_spoken_and_the_request_may_depend_on_it() -> None:
    async def case(inter_broker: InterBroker, addresses: dict[int, Endpoint]) -> None:
        assert await ask(inter_broker, 3) == 3
        assert await ask(inter_broker, 4, version_max=1) == 4

        def request(version: int) -> ControlledShutdownRequest:
            return ControlledShutdownRequest(broker_id=version * 10)

        response = await inter_broker.call(7, "test", "controlled_shutdown", request)
        assert response.error_code == 20
        assert Peer.seen == [(2, 3), (1, 4), (2, 20)]
        with pytest.raises(PeerUnavailable):
            await ask(inter_broker, 5, version_max=0)

    play(case)


def test_calls_of_one_purpose_are_sent_in_order_over_one_connection() -> None:
    async def case(inter_broker: InterBroker, addresses: dict[int, Endpoint]) -> None:
        answers = await asyncio.gather(*(ask(inter_broker, number) for number in range(20)))
        assert answers == list(range(20))
        assert [number for _, number in Peer.seen] == list(range(20))
        assert Peer.connections == 1
        await inter_broker.call(7, "another", "controlled_shutdown", ControlledShutdownRequest(broker_id=1))
        assert Peer.connections == 2

    play(case)


def test_an_answer_that_does_not_come_is_not_waited_for_and_not_mistaken_for_the_next() -> None:
    async def case(inter_broker: InterBroker, addresses: dict[int, Endpoint]) -> None:
        assert await ask(inter_broker, 1) == 1
        Peer.silent = True
        with pytest.raises(PeerUnavailable):
            await ask(inter_broker, 2, timeout_ms=1000)
        Peer.silent = False
        assert await ask(inter_broker, 3) == 3
        assert [number for _, number in Peer.seen] == [1, 2, 3], "nothing is sent twice"
        assert Peer.connections == 2

    play(case)


def test_a_broker_that_moved_is_asked_at_its_new_address() -> None:
    async def case(inter_broker: InterBroker, addresses: dict[int, Endpoint]) -> None:
        with pytest.raises(PeerUnavailable):
            await inter_broker.call(8, "test", "controlled_shutdown", ControlledShutdownRequest(), timeout_ms=5000)
        here = addresses.pop(7)
        addresses[7] = Endpoint("PLAINTEXT", "127.0.0.1", 1)
        with pytest.raises(PeerUnavailable):
            await ask(inter_broker, 1)
        assert await ask(inter_broker, 2, endpoint=here) == 2

    play(case)
