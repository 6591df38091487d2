"""All listeners and connections of a broker: who may connect, who has been silent too long.

Owns the limits (`max.connections`, `max.connections.per.ip`, per listener) and the order of last use. Reads and writes no bytes.

Connections stand in the order of their last use, so that one periodic sweep finds the idle ones at the front and stops at the
first that is not: no timer per connection or request.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ottla.broker.connection import Connection
from ottla.broker.dispatch import PendingReply
from ottla.broker.log_limit import LogLimit
from ottla.broker.request_memory import RequestMemory
from ottla.metrics import Counters
from ottla.ports import FileSender, Listener, Network, Part

logger = logging.getLogger(__name__)

Dispatch = Callable[[memoryview, Connection], list[Part] | PendingReply | None]

STALLED_S = 10
"""How long half a request may rest while others wait for memory."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    connections_max: int = 2**31 - 1
    per_host_max: int = 2**31 - 1
    per_host_overrides: Mapping[str, int] = field(default_factory=dict)
    idle_ms_max: int = 600_000
    request_bytes_max: int = 100 << 20
    held_bytes_max: int = -1


@dataclass(slots=True, eq=False)
class ListenerLimits:
    """One listener: its name, how many connections it may have, how many it has."""

    name: str
    connections_max: int = 2**31 - 1
    connections: int = 0


class SocketServer:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        network: Network,
        dispatch: Dispatch,
        limits: ConnectionLimits,
        counters: Counters,
    ) -> None:
        self.loop = loop
        self.memory = RequestMemory(limits.held_bytes_max)
        self.dispatch = dispatch
        self.limits = limits
        self.request_bytes_max = limits.request_bytes_max
        self.file_sender: Callable[[asyncio.Transport], FileSender] = network.file_sender
        self._network = network
        self._counters = counters
        self._lines = LogLimit(logger, loop.time)
        self._by_use: OrderedDict[Connection, None] = OrderedDict()
        self._by_host: dict[str, int] = {}
        self._listeners: list[Listener] = []
        self._opened = False
        self._early: list[Connection] = []
        """Came before the broker was ready: they wait."""
        self._closing = False

    def __len__(self) -> int:
        return len(self._by_use)

    async def listen(self, name: str, host: str, port: int, *, connections_max: int = 2**31 - 1) -> int:
        """Open a listener; returns the port bound. OSError if that cannot be."""
        listener_limits = ListenerLimits(name, connections_max)
        listener = await self._network.listen(lambda: Connection(self, listener_limits), host, port)
        self._listeners.append(listener)
        return listener.port

    def open(self) -> None:
        """Let requests in: of connections to come, and of those that came since the listeners were bound."""
        self._opened = True
        early, self._early = self._early, []
        for connection in early:
            connection.begin()

    def stop_listening(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()

    def close(self) -> None:
        self._closing = True
        self.stop_listening()
        for connection in list(self._by_use):
            connection.close()

    # Called by connections

    def admit(self, connection: Connection) -> bool:
        host, listener = connection.client_host, connection.limits
        here = self._by_host.get(host, 0)
        per_host_max = self.limits.per_host_overrides.get(host, self.limits.per_host_max)
        if self._closing:
            return False
        if here >= per_host_max:
            return self._refuse(f"{host} already has {here} connections, max.connections.per.ip allows no more")
        if len(self._by_use) >= self.limits.connections_max:
            return self._refuse(f"there are {len(self._by_use)} connections, max.connections allows no more ({host})")
        if listener.connections >= listener.connections_max:
            return self._refuse(f"listener {listener.name} has {listener.connections} connections and allows no more ({host})")
        self._by_host[host] = here + 1
        listener.connections += 1
        connection.last_used = self.loop.time()
        self._by_use[connection] = None
        self._counters.add("connections_accepted")
        if not self._opened:
            connection.hold()
            self._early.append(connection)
        return True

    def forget(self, connection: Connection) -> None:
        if connection not in self._by_use:
            return
        del self._by_use[connection]
        connection.limits.connections -= 1
        left = self._by_host[connection.client_host] - 1
        if left:
            self._by_host[connection.client_host] = left
        else:
            del self._by_host[connection.client_host]

    def used(self, connection: Connection) -> None:
        connection.last_used = self.loop.time()
        self._by_use.move_to_end(connection)

    def malformed(self, connection: Connection, reason: str) -> None:
        self._counters.add("connections_closed_malformed")
        self._lines.warn("closed a connection", f"{connection.client_host} on {connection.listener_name} sent {reason}")

    def failed(self, connection: Connection, error: BaseException) -> None:
        self._counters.add("connections_closed_failed")
        self._lines.warn("closed a connection", f"{connection.client_host}: its reply could not be completed: {error}")

    def sweep_idle(self) -> int:
        """Close the connections that have been silent too long; returns how many."""
        closed = 0
        now = self.loop.time()
        oldest_allowed = now - self.limits.idle_ms_max / 1000
        if self.memory.exhausted:
            # Others wait for the memory of frames that do not grow.
            for connection in [each for each in self._by_use if each.holds_memory and now - each.last_used > STALLED_S]:
                self.malformed(connection, f"half a request, and nothing more for {STALLED_S} s while memory is short")
                connection.close()
        for connection in list(self._by_use):
            if connection.last_used >= oldest_allowed:
                break
            if not connection.idle:
                # We owe it an answer: it is we who are silent.
                self.used(connection)
                continue
            connection.close()
            closed += 1
        if closed:
            self._counters.add("connections_closed_idle", closed)
            logger.info("closed %d connections that were idle for more than %d ms", closed, self.limits.idle_ms_max)
        return closed

    def _refuse(self, reason: str) -> bool:
        self._counters.add("connections_refused")
        self._lines.warn("refused a connection", reason)
        return False
