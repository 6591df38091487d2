"""KIP-612: how fast connections may come, for the broker, a listener, an address. In virtual time."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any, cast

import pytest

from ottla.broker.network.connection import Connection
from ottla.broker.network.socket_server import RATE_WAITING_MAX, ConnectionLimits, SocketServer
from ottla.metrics import Counters
from ottla.ports import Network, Part
from ottla.sim.kernel.loop import SimLoop


def test_qu06_who_keeps_to_the_delays_comes_at_the_rate() -> None:
    rate, now_ms = ConnectionLimits().new_rate(20), 0
    times = []
    for _ in range(2000):
        now_ms += rate.record(1, now_ms)
        times.append(now_ms / 1000)
    assert times[199] == 0.0, "ten seconds' worth at once"
    assert 20 * (times[-1] - times[999]) == pytest.approx(1000, rel=0.15)


@pytest.mark.parametrize("per_second", [0, 1])
def test_qu06_a_delay_is_a_second_at_most(per_second: int) -> None:
    rate = ConnectionLimits().new_rate(per_second)
    assert [rate.record(1, 0) for _ in range(20)][-1] == 1000


class Transport:
    """One that is told what the broker says, and ends at once when it is aborted."""

    def __init__(self, world: World, host: str) -> None:
        self.world, self.host = world, host
        self.protocol: Any = None
        self.written = b""
        self.answered_at: float | None = None
        self.closed_at: float | None = None

    def get_extra_info(self, name: str) -> object:
        return (self.host, 4711) if name == "peername" else None

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def write(self, data: bytes) -> None:
        self.written += data
        self.answered_at = self.world.now

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def abort(self) -> None:
        if self.closed_at is None:
            self.closed_at = self.world.now
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)


class World:
    """A server whose listeners are called by the test, and which answers each request with itself."""

    def __init__(self, limits: ConnectionLimits, ip_rates: dict[str, int] | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self.start = self.loop.time()
        self.factories: dict[int, Callable[[], Any]] = {}
        rates = ip_rates if ip_rates is not None else {}
        self.counters = Counters()
        self.server = SocketServer(self.loop, cast(Network, self), self.echo, limits, self.counters, rates.get)

    @property
    def now(self) -> float:
        return self.loop.time() - self.start

    def file_sender(self, transport: object) -> Any:
        raise AssertionError("no files here")

    async def listen(self, factory: Callable[[], Any], host: str, port: int, tls: object = None) -> Any:
        self.factories[port] = factory
        return self

    def close(self) -> None:
        pass

    @property
    def port(self) -> int:
        return len(self.factories)

    @staticmethod
    def echo(request: memoryview, connection: Connection) -> list[Part]:
        return [bytes(request)]

    def connect(self, port: int = 1, host: str = "10.0.0.1") -> Transport:
        """Somebody connects, and sends a request at once."""
        transport = Transport(self, host)
        transport.protocol = protocol = self.factories[port]()
        protocol.connection_made(transport)
        data = struct.pack(">i", 2) + b"hi"
        buffer = protocol.get_buffer(-1)
        buffer[: len(data)] = data
        protocol.buffer_updated(len(data))
        return transport


def play(
    case: Callable[[World], Awaitable[None]], limits: ConnectionLimits, ip_rates: dict[str, int] | None = None, **ports: Any
) -> None:
    async def main() -> None:
        world = World(limits, ip_rates)
        for name, port in (ports or {"PLAINTEXT": 1}).items():
            await world.server.listen(name, "", port)
        world.server.open()
        await case(world)
        world.server.close()

    loop = SimLoop()  # type: ignore[abstract]
    loop.run_until_complete(main())
    loop.close()


def test_qu06_who_comes_too_fast_waits_and_is_heard_in_order() -> None:
    async def case(world: World) -> None:
        clients = [world.connect() for _ in range(60)]
        assert [client.answered_at for client in clients[:50]] == [0.0] * 50
        assert all(client.answered_at is None for client in clients[50:])
        await asyncio.sleep(30)
        times = [client.answered_at for client in clients if client.answered_at is not None]
        assert len(times) == 60
        assert times == sorted(times)
        waited = [later - earlier for earlier, later in pairwise(times[50:])]
        assert all(0.15 < wait <= 1.0 for wait in waited), waited
        assert all(client.closed_at is None for client in clients)
        assert len(world.server) == 60
        assert world.counters.get("connections_delayed") == 10
        assert world.connect().answered_at == world.now

    play(case, ConnectionLimits(creation_rate=5))


def test_more_may_wait_for_their_turn_than_for_a_place() -> None:
    async def case(world: World) -> None:
        clients = [world.connect() for _ in range(10 + RATE_WAITING_MAX)]
        await asyncio.sleep(0.5)
        assert all(client.closed_at is None for client in clients)
        refused = world.connect() if len(world.server._waiting) == RATE_WAITING_MAX else None
        await asyncio.sleep(0)
        assert refused is None or refused.closed_at is not None

    play(case, ConnectionLimits(creation_rate=1, waiting_max=1))


def test_qu06_a_listener_has_a_rate_of_its_own_and_does_not_hold_up_the_others() -> None:
    async def case(world: World) -> None:
        slow = [world.connect(1) for _ in range(12)]
        assert [client.answered_at is None for client in slow] == [False] * 10 + [True] * 2
        others = [world.connect(2) for _ in range(80)]
        assert [client.answered_at for client in others] == [0.0] * 80
        await asyncio.sleep(5)
        assert all(client.answered_at is not None for client in slow)

    play(case, ConnectionLimits(creation_rate=1000, per_listener_creation_rate={"SLOW": 1}), SLOW=1, FAST=2)


def test_qu06_clients_do_not_use_up_the_rate_of_the_brokers_listener() -> None:
    async def case(world: World) -> None:
        clients = [world.connect(1) for _ in range(40)]
        assert clients[-1].answered_at is None
        brokers = [world.connect(2) for _ in range(10)]
        assert [broker.answered_at for broker in brokers] == [0.0] * 10
        await asyncio.sleep(0)

    play(case, ConnectionLimits(creation_rate=1, brokers_listener="BROKERS"), CLIENTS=1, BROKERS=2)


def test_a_rate_that_is_raised_lets_those_in_who_wait() -> None:
    async def case(world: World) -> None:
        clients = [world.connect() for _ in range(40)]
        assert sum(client.answered_at is None for client in clients) == 30
        world.server.limits_changed(ConnectionLimits())
        await asyncio.sleep(1.1)
        assert all(client.answered_at is not None for client in clients)

    play(case, ConnectionLimits(creation_rate=1))


def test_one_who_leaves_while_he_waits_holds_nobody_up() -> None:
    async def case(world: World) -> None:
        clients = [world.connect() for _ in range(13)]
        clients[10].abort()
        clients[11].abort()
        await asyncio.sleep(5)
        assert clients[10].answered_at is clients[11].answered_at is None
        assert clients[12].answered_at is not None
        assert len(world.server) == 11

    play(case, ConnectionLimits(creation_rate=1))


def test_both_a_place_and_its_turn_are_waited_for() -> None:
    async def case(world: World) -> None:
        clients = [world.connect() for _ in range(12)]
        assert len(world.server) == 4
        await asyncio.sleep(10)
        assert len(world.server) == 4
        for client in clients[:4]:
            client.abort()
        await asyncio.sleep(0)
        assert [client.answered_at is not None for client in clients] == [True] * 8 + [False] * 4

    play(case, ConnectionLimits(connections_max=4, creation_rate=1))


def test_qu06_an_address_that_comes_too_fast_is_not_heard_and_closed_after_the_delay() -> None:
    async def case(world: World) -> None:
        clients = [world.connect(host="10.0.0.7") for _ in range(21)]
        assert [client.answered_at for client in clients[:20]] == [0.0] * 20
        late = clients[20]
        assert world.connect(host="10.0.0.8").answered_at == 0.0
        assert late.answered_at is late.closed_at is None
        await asyncio.sleep(0.4)
        assert late.closed_at is None
        await asyncio.sleep(0.2)
        assert late.closed_at == pytest.approx(0.5)
        assert late.answered_at is None
        assert len(world.server) == 21
        assert world.counters.get("connections_refused") == 1
        await asyncio.sleep(20)
        world.server.sweep_idle()
        assert not world.server._ip_rates
        assert world.connect(host="10.0.0.7").answered_at == world.now

    play(case, ConnectionLimits(), {"10.0.0.7": 2})


def test_qu06_who_is_not_heard_for_his_address_counts_for_no_other_rate() -> None:
    async def case(world: World) -> None:
        for _ in range(200):
            world.connect(host="10.0.0.7")
        assert world.connect(host="10.0.0.8").answered_at == 0.0
        await asyncio.sleep(2)
        assert len(world.server) == 11

    play(case, ConnectionLimits(creation_rate=10), {"10.0.0.7": 1})
