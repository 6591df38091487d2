"""All listeners and connections of a broker: who may connect, who has been silent too long.

Owns the limits (`max.connections`, also of single listeners, `max.connections.per.ip`) and the order of last use. Reads and
writes no bytes.

Whoever comes when all places are taken waits for one, as many at a time as the kernel would hold (`socket.listen.backlog.size`),
and is heard when somebody else has gone; more are refused. One address that has too many is refused at once. Where brokers have a
listener of their own, `max.connections` keeps none of them out: somebody else, the longest silent one, has to go.

Connections stand in the order of their last use, so that one periodic sweep finds the idle ones at the front and stops at the
first that is not: no timer per connection or request.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import cast

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
    per_listener_max: Mapping[str, int] = field(default_factory=dict)
    waiting_max: int = 50
    brokers_listener: str | None = None
    """The listener that `max.connections` does not close: that of the brokers, where clients have another."""
    idle_ms_max: int = 600_000
    request_bytes_max: int = 100 << 20
    held_bytes_max: int = -1


@dataclass(slots=True, eq=False)
class ListenerUse:
    """One listener: its name, and how many connections it has."""

    name: str
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
        self._waiting: dict[Connection, None] = {}
        """Came when there was no place: they wait too, and do not count."""
        self._closing = False

    def __len__(self) -> int:
        return len(self._by_use)

    async def listen(self, name: str, host: str, port: int) -> int:
        """Open a listener; returns the port bound. OSError if that cannot be."""
        use = ListenerUse(name)
        listener = await self._network.listen(lambda: cast(asyncio.BaseProtocol, Connection(self, use)), host, port)
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
        for connection in [*self._by_use, *self._waiting]:
            connection.close()

    def limits_changed(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._let_in()

    # Called by connections

    def admit(self, connection: Connection) -> bool:
        host, listener = connection.client_host, connection.listener
        if self._closing:
            return False
        if self._host_is_full(host):
            return False
        if not self._has_place(listener):
            if len(self._waiting) >= self.limits.waiting_max:
                return self._refuse(f"{len(self._by_use)} connections are here and others wait: no more from {host}")
            self._lines.warn(
                "a connection waits",
                f"{host} on {listener.name}: {listener.connections} connections are there and {len(self._by_use)} in all, "
                f"max.connections allows no more",
            )
            connection.hold()
            self._waiting[connection] = None
            return True
        self._take_in(connection)
        if not self._opened:
            connection.hold()
            self._early.append(connection)
        return True

    def _host_is_full(self, host: str) -> bool:
        here = self._by_host.get(host, 0)
        if here < self.limits.per_host_overrides.get(host, self.limits.per_host_max):
            return False
        self._refuse(f"{host} already has {here} connections, max.connections.per.ip allows no more")
        return True

    def _has_place(self, listener: ListenerUse) -> bool:
        limits = self.limits
        here_max = limits.per_listener_max.get(listener.name)
        if here_max is not None and listener.connections >= here_max:
            return False
        return len(self._by_use) < limits.connections_max or listener.name == limits.brokers_listener

    def _take_in(self, connection: Connection) -> None:
        if len(self._by_use) >= self.limits.connections_max:
            for other in self._by_use:
                if other.listener is not connection.listener:
                    self._lines.warn("closed a connection", f"{other.client_host} makes room for a broker (max.connections)")
                    other.close()
                    break
        host = connection.client_host
        self._by_host[host] = self._by_host.get(host, 0) + 1
        connection.listener.connections += 1
        connection.last_used = self.loop.time()
        self._by_use[connection] = None
        self._counters.add("connections_accepted")

    def _let_in(self) -> None:
        """Those who wait and for whom there is a place now, in the order in which they came."""
        for connection in [each for each in self._waiting if not self._closing]:
            if not self._has_place(connection.listener):
                continue
            del self._waiting[connection]
            if self._host_is_full(connection.client_host):
                connection.close()
                continue
            self._take_in(connection)
            if self._opened:
                connection.begin()
            else:
                self._early.append(connection)

    def forget(self, connection: Connection) -> None:
        self._waiting.pop(connection, None)
        if connection not in self._by_use:
            return
        del self._by_use[connection]
        connection.listener.connections -= 1
        left = self._by_host[connection.client_host] - 1
        if left:
            self._by_host[connection.client_host] = left
        else:
            del self._by_host[connection.client_host]
        if self._waiting:
            self._let_in()

    def used(self, connection: Connection) -> None:
        connection.last_used = self.loop.time()
        try:
            self._by_use.move_to_end(connection)
        except KeyError:
            assert connection in self._waiting

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
