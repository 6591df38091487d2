"""The network between the processes of a run, in memory.

Owns: who listens where, which connections are open, how long bytes take, which hosts do not reach each other, and what is held
up on its way. The two ends of a connection are in `transport`.
Never: delivers anything to, or takes anything from, a dead process.
"""

from __future__ import annotations

import asyncio
import errno
import random
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from ottla.ports import ServerTls
from ottla.sim.kernel.process import Process
from ottla.sim.kernel.transport import SimFileSender, SimTransport

FIRST_EPHEMERAL_PORT: Final = 40_000
CONNECT_S_MAX: Final = 10.0
"""How long a connection attempt to an unreachable host lasts."""


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """Delays and sizes of a network."""

    latency_s_min: float = 0.0001
    latency_s_max: float = 0.002
    spike_chance: float = 0.0
    spike_s_max: float = 0.5
    window_bytes: int = 256 * 1024
    crumbs_chance: float = 0.2
    """Chance that a connection delivers its bytes in small pieces."""


class SimNetwork:
    """The network between all processes of a run."""

    def __init__(self, rng: random.Random, settings: NetworkSettings | None = None) -> None:
        self.rng = rng
        self.settings = settings or NetworkSettings()
        self._listeners: dict[int, SimListener] = {}
        self._ports = FIRST_EPHEMERAL_PORT
        self.last_arrival_s = 0.0
        """When everything that was sent until now has arrived, except what is cut or held."""
        self.transports: list[SimTransport] = []
        self._blocked: dict[tuple[str, str], list[tuple[SimTransport, SimTransport, Callable[..., None], tuple[Any, ...]]]] = {}
        """(source, target) hosts that are cut, and what waits to be sent."""
        self.authenticate: Callable[[asyncio.BaseProtocol, str], None] | None = None
        """Called with the protocol of an accepted connection and the client's host: says who the client is, as a TLS handshake
        would. None: nobody knows."""

    def view(self, process: Process, host: str = "127.0.0.1") -> NetworkView:
        process.at_death.append(lambda: self._process_died(process))
        return NetworkView(self, process, host)

    def next_port(self) -> int:
        self._ports += 1
        return self._ports

    def latency_s(self) -> float:
        settings, rng = self.settings, self.rng
        latency = settings.latency_s_min + rng.random() * (settings.latency_s_max - settings.latency_s_min)
        if settings.spike_chance and rng.random() < settings.spike_chance:
            latency += rng.random() * settings.spike_s_max
        return latency

    def bind(self, listener: SimListener) -> None:
        if listener.port in self._listeners:
            raise OSError(errno.EADDRINUSE, f"port {listener.port} is in use")
        self._listeners[listener.port] = listener

    def unbind(self, listener: SimListener) -> None:
        if self._listeners.get(listener.port) is listener:
            del self._listeners[listener.port]

    def listener(self, port: int) -> SimListener | None:
        found = self._listeners.get(port)
        return found if found is not None and found.process.alive else None

    def cut_one(self) -> str | None:
        """Reset one open connection, chosen by the seed; both ends notice. Returns its name."""
        open_ones = [t for t in self.transports if t.client_side and not t.lost and t.process.alive]
        if not open_ones:
            return None
        chosen = open_ones[self.rng.randrange(len(open_ones))]
        chosen.reset()
        assert chosen.peer is not None
        chosen.peer.reset()
        return chosen.name

    # -- partitions

    def block(self, source: str, target: str) -> None:
        """Cut one direction between two hosts. What is on its way already arrives."""
        self._blocked.setdefault((source, target), [])

    def unblock(self, source: str, target: str) -> None:
        """End a cut. What waited is sent, in order, as TCP retransmits it."""
        for transport, peer, callback, arguments in self._blocked.pop((source, target), []):
            transport.later(peer, callback, *arguments)

    def heal(self) -> None:
        for source, target in list(self._blocked):
            self.unblock(source, target)

    def hold_requests(self, source: str, target: str, api_key: int | None = None) -> list[SimTransport]:
        """Hold what one host sends another on connections that are open now, until `release`.

        By then the sender may have given up, closed the connection, and sent it again on another one. `api_key`: hold each
        connection from the first such request on.
        """
        held = [t for t in self.transports if t.host == source and t.peer is not None and t.peer.host == target and t.client_side]
        for transport in held:
            transport.held = transport.held or []
            transport.held_from = api_key
        return held

    def release(self, transports: list[SimTransport]) -> None:
        """Deliver what `hold_requests` has held, in its order."""
        for transport in transports:
            held, transport.held = transport.held or [], None
            for peer, callback, arguments in held:
                transport.later(peer, callback, *arguments)

    @property
    def blocked(self) -> list[tuple[str, str]]:
        return list(self._blocked)

    def hold(
        self, transport: SimTransport, peer: SimTransport, callback: Callable[..., None], arguments: tuple[Any, ...]
    ) -> bool:
        held = self._blocked.get((transport.host, peer.host))
        if held is None:
            return False
        held.append((transport, peer, callback, arguments))
        return True

    def is_open(self, one: str, other: str) -> bool:
        """Whether a connection can be made: neither direction is cut."""
        return (one, other) not in self._blocked and (other, one) not in self._blocked

    def forget(self, transport: SimTransport) -> None:
        if transport in self.transports:
            self.transports.remove(transport)

    def _process_died(self, process: Process) -> None:
        for listener in [x for x in self._listeners.values() if x.process is process]:
            self.unbind(listener)
        for transport in [t for t in self.transports if t.process is process]:
            transport.owner_died()


class NetworkView:
    """`ports.Network` for one process."""

    def __init__(self, network: SimNetwork, process: Process, host: str) -> None:
        self._network = network
        self._process = process
        self._host = host

    async def listen(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, tls: ServerTls | None = None
    ) -> SimListener:
        """TLS is not simulated."""
        self._process.check()
        listener = SimListener(self._network, self._process, factory, port or self._network.next_port(), self._host)
        self._network.bind(listener)
        return listener

    async def connect(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> asyncio.Transport:
        self._process.check()
        network = self._network
        await asyncio.sleep(network.latency_s())
        listener = network.listener(port)
        waited_s = 0.0
        while listener is not None and not network.is_open(self._host, listener.host):
            if waited_s >= CONNECT_S_MAX:
                raise TimeoutError(errno.ETIMEDOUT, f"port {port} does not answer")
            waited_s += 1.0
            await asyncio.sleep(1.0)
            listener = network.listener(port)
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens on port {port}")
        here, there = (self._host, network.next_port()), ("127.0.0.1", port)
        client = SimTransport(network, self._process, factory(), here, there, client_side=True, host=self._host)
        server = SimTransport(network, listener.process, None, there, here, client_side=False, host=listener.host)
        client.peer, server.peer = server, client
        network.transports += [client, server]
        loop = asyncio.get_running_loop()
        loop.call_soon(server.accept, listener, context=server.context)
        client.start()
        await asyncio.sleep(0)  # as in asyncio: connection_made is called before the caller goes on
        return client

    def file_sender(self, transport: asyncio.Transport) -> SimFileSender:
        assert isinstance(transport, SimTransport)
        return transport.file_sender()


class SimListener:
    def __init__(
        self, network: SimNetwork, process: Process, factory: Callable[[], asyncio.BaseProtocol], port: int, host: str
    ) -> None:
        self._network = network
        self._port = port
        self.host = host
        self.process = process
        self.factory = factory

    @property
    def port(self) -> int:
        return self._port

    def pause(self) -> None:
        raise AssertionError("descriptors are not limited here")

    def resume(self) -> None:
        raise AssertionError("descriptors are not limited here")

    def close(self) -> None:
        self._network.unbind(self)
