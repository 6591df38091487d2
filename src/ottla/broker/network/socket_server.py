"""The listeners and connections of a broker, and their limits.

Owns `max.connections` and `max.connection.creation.rate`, also per listener, `max.connections.per.ip`, the creation rates of
addresses, and `connections.max.idle.ms`. Reads and writes no bytes.

- At `max.connections` a new connection waits until another closes; up to `socket.listen.backlog.size` wait, more are refused. If
  brokers have a listener of their own, its connections are always accepted, and the longest idle connection of another listener
  is closed for them.
- At `max.connections.per.ip` a new connection of the address is refused.
- Above the creation rate of the broker or a listener, new connections wait in order; none is refused for that.
- If another connection would take a file descriptor that is kept for logs and checkpoints, all listeners pause until descriptors
  are free again: new connections wait in the system's queue.
- Above the creation rate of its address, a connection is not served, and is closed after the time it should have waited.

Connections are kept in the order of last use: a periodic sweep closes the idle ones at the front, without a timer per connection.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, cast

from ottla.broker.network.connection import Connection
from ottla.broker.network.dispatch import PendingReply
from ottla.broker.network.peer import Peer
from ottla.broker.network.request_memory import RequestMemory
from ottla.metrics import Counters
from ottla.ports import Descriptors, FileSender, Listener, Network, Part, UnlimitedDescriptors
from ottla.security.principal import Principal
from ottla.security.quotas import QuotaWindows, RateQuota

logger = logging.getLogger(__name__)

Dispatch = Callable[[memoryview, Connection], list[Part] | PendingReply | None]
Login = Callable[[Connection], Dispatch]

UNLIMITED: Final = 2**31 - 1
USE_S: Final = 0.01
"""Precision of the time of last use: a use within it does not change the order."""
TICK_S: Final = 0.001
"""Precision of timers."""
RATE_WAITING_MAX: Final = 1024
LINES_MAX: Final = 10
WINDOW_S: Final = 10.0
LOGIN_S: Final = 10
"""How long a client may take to log in while others wait for a place."""
FULL_S: Final = 0.05
"""How often paused listeners look for a free descriptor."""
STALLED_S: Final = 10
"""How long an incomplete request may make no progress while others wait for memory."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    connections_max: int = 2**31 - 1
    per_host_max: int = 2**31 - 1
    per_host_overrides: Mapping[str, int] = field(default_factory=dict)
    per_listener_max: Mapping[str, int] = field(default_factory=dict)
    waiting_max: int = 50
    """Connections that may wait at `max.connections`. For a creation rate RATE_WAITING_MAX may wait."""
    brokers_listener: str | None = None
    """The inter-broker listener, if clients have another: `max.connections` does not apply to it."""
    creation_rate: int = UNLIMITED
    """New connections per second."""
    per_listener_creation_rate: Mapping[str, int] = field(default_factory=dict)
    """A listener without a rate of its own has the rate of the broker, also the inter-broker listener."""
    windows: QuotaWindows = field(default_factory=QuotaWindows)
    """Of creation rates, as of quotas."""
    idle_ms_max: int = 600_000
    request_bytes_max: int = 100 << 20
    held_bytes_max: int = -1

    def rate_of(self, listener: str) -> int:
        """New connections per second on one listener."""
        return self.per_listener_creation_rate.get(listener, self.creation_rate)

    def new_rate(self, per_second: int) -> RateQuota:
        """Delays a connection by one sample at most (KIP-612)."""
        return RateQuota(per_second, self.windows.samples, self.windows.sample_ms, self.windows.sample_ms)


@dataclass(slots=True, eq=False)
class ListenerUse:
    """One listener: its name, number of connections, and creation rate."""

    name: str
    security_protocol: str = "PLAINTEXT"
    login: Login | None = None
    """What takes the frames of a new connection until its client is authenticated; None: without SASL."""
    principal_of: Callable[[bytes | None], Principal] | None = None
    """Of a client certificate; None: the listener is not an SSL listener. ValueError: the connection is closed."""
    connections: int = 0
    accepted: int = 0
    """Connections since the start, those that are open and those that were closed."""
    expired: int = 0
    """Connections that were closed because their client did not authenticate again in time."""
    rate: RateQuota = field(default_factory=lambda: ConnectionLimits().new_rate(UNLIMITED))
    next: Connection | None = None
    """The first waiting connection, which is counted in the rate and waits until `next_at`; others wait behind it."""
    next_at: float = 0.0


class ServedTls:
    """`ports.ServerTls` of one listener."""

    def __init__(self, server: SocketServer, listener: ListenerUse, context: Callable[[], ssl.SSLContext]) -> None:
        self._server = server
        self._listener = listener
        self.context = context

    def admits(self, host: str) -> bool:
        return self._server.may_connect(host)

    def failed(self, host: str, port: int, reason: str) -> None:
        self._server.tls_failed(Peer(host, port, self._listener.name, None), reason)


class LogLimit:
    """Logs up to `LINES_MAX` lines of a kind per window, and then how many it suppressed: clients can cause a flood of them."""

    def __init__(self, logger: logging.Logger, monotonic: Callable[[], float]) -> None:
        self._logger = logger
        self._monotonic = monotonic
        self._windows: dict[str, tuple[float, int]] = {}

    def warn(self, kind: str, message: str, of: object = "") -> None:
        """`of`: what the line begins with, such as the client."""
        now = self._monotonic()
        start, count = self._windows.get(kind, (now, 0))
        if now - start >= WINDOW_S:
            if count > LINES_MAX:
                self._logger.warning("%s: suppressed %d more lines in %.0f s", kind, count - LINES_MAX, now - start)
            start, count = now, 0
        count += 1
        self._windows[kind] = (start, count)
        if count <= LINES_MAX:
            self._logger.warning("%s: %s%s", kind, of, message)


class SocketServer:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        network: Network,
        dispatch: Dispatch,
        limits: ConnectionLimits,
        counters: Counters,
        ip_rate: Callable[[str], int | None] = lambda host: None,
        descriptors: Descriptors | None = None,
    ) -> None:
        """`ip_rate`: the creation rate of an address, None without a limit."""
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
        self._descriptors: Descriptors = descriptors if descriptors is not None else UnlimitedDescriptors()
        self._paused: asyncio.TimerHandle | None = None
        """Resumes the listeners; None: they accept connections."""
        self._opened = False
        self._came = 0
        self._early: list[Connection] = []
        """Accepted before the broker is ready: they are served from `open` on."""
        self._waiting: dict[Connection, None] = {}
        """Waiting for `max.connections` or a creation rate: not counted yet."""
        self._closing = False
        self._rate = limits.new_rate(limits.creation_rate)
        self.ip_rate = ip_rate
        self._ip_rates: dict[str, RateQuota] = {}
        self._uses: list[ListenerUse] = []
        self._turn: asyncio.TimerHandle | None = None
        """For the next waiting connection that a creation rate admits."""
        self._punished: dict[Connection, asyncio.TimerHandle] = {}
        """Connections above the rate of their address: not served, closed by the timer."""

    def __len__(self) -> int:
        return len(self._by_use)

    async def listen(
        self,
        name: str,
        host: str,
        port: int,
        *,
        security_protocol: str = "PLAINTEXT",
        login: Login | None = None,
        context: Callable[[], ssl.SSLContext] | None = None,
        principal_of: Callable[[bytes | None], Principal] | None = None,
    ) -> int:
        """Open a listener, with TLS if there is a context. Returns the bound port, OSError if that fails."""
        use = ListenerUse(name, security_protocol, login, principal_of, rate=self.limits.new_rate(self.limits.rate_of(name)))
        self._uses.append(use)
        tls = ServedTls(self, use, context) if context is not None else None
        listener = await self._network.listen(lambda: cast(asyncio.BaseProtocol, Connection(self, use)), host, port, tls)
        self._listeners.append(listener)
        return listener.port

    @property
    def listeners(self) -> list[ListenerUse]:
        return self._uses

    def connections(self) -> list[Connection]:
        """The open connections. The one that has been idle for longest is first."""
        return list(self._by_use)

    def open(self) -> None:
        """Start to serve requests, also of connections accepted since the listeners were bound."""
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
        if self._turn is not None:
            self._turn.cancel()
        if self._paused is not None:
            self._paused.cancel()
        for connection in [*self._by_use, *self._waiting, *self._punished]:
            connection.close()

    def forget_headers(self) -> None:
        """Look up the routes and quotas of every connection again."""
        for connection in self._by_use:
            connection.header_cache = None

    def limits_changed(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._rate.limit = float(limits.creation_rate)
        for use in self._uses:
            use.rate.limit = float(limits.rate_of(use.name))
        self._let_in()

    # Called by connections

    def admit(self, connection: Connection) -> bool:
        host, listener = connection.client_host, connection.listener
        self._came += 1
        connection.number = self._came
        if self._closing:
            return False
        self._keep_descriptors()
        if self._host_is_full(host):
            return False
        has_place = self._has_place(listener)
        if len(self._waiting) >= (RATE_WAITING_MAX if has_place else self.limits.waiting_max):
            return self._refuse(
                f"{host}: {len(self._by_use)} connections are open and {len(self._waiting)} wait (max.connections)"
            )
        if not has_place:
            self._lines.warn(
                "Connection waits",
                f"{host} on {listener.name}: {listener.connections} connections are open on the listener, "
                f"{len(self._by_use)} in all (max.connections)",
            )
        connection.hold()
        self._waiting[connection] = None
        self._let_in()
        return True

    def _keep_descriptors(self) -> None:
        """Pause the listeners if the next connection would take a descriptor that is kept for files."""
        if self._paused is not None or self._closing or not self._descriptors.full():
            return
        self._counters.add("listeners_paused")
        self._lines.warn(
            "Accepting no connections",
            f"{len(self._by_use)} are open, and {self._descriptors.kept()} of {self._descriptors.limit()} file descriptors are "
            f"kept for logs; new connections wait until others close. Raise the limit: ulimit -n, LimitNOFILE= of systemd",
        )
        for listener in self._listeners:
            listener.pause()
        self._paused = self.loop.call_later(FULL_S, self._resume_listeners)

    def _resume_listeners(self) -> None:
        self._paused = None
        if self._descriptors.full():
            self._paused = self.loop.call_later(FULL_S, self._resume_listeners)
            return
        for listener in self._listeners:
            listener.resume()

    def _host_is_full(self, host: str) -> bool:
        here = self._by_host.get(host, 0)
        if here < self.limits.per_host_overrides.get(host, self.limits.per_host_max):
            return False
        self._refuse(f"{host} has {here} connections already (max.connections.per.ip)")
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
                    self._lines.warn("Closed connection", ", to make room for a broker (max.connections)", other.peer())
                    other.close()
                    break
        host = connection.client_host
        self._by_host[host] = self._by_host.get(host, 0) + 1
        connection.listener.connections += 1
        connection.last_used = connection.since = self.loop.time()
        connection.listener.accepted += 1
        self._by_use[connection] = None
        self._counters.add("connections_accepted")

    def _let_in(self) -> None:
        """Accept the waiting connections that the limits admit now, per listener in the order of arrival."""
        if self._closing:
            return
        now = self.loop.time()
        held_up: set[str] = set()
        for connection in list(self._waiting):
            listener, host = connection.listener, connection.client_host
            if listener.name in held_up or connection not in self._waiting:
                continue
            if self._comes_at(connection, now) > now + TICK_S or not self._has_place(listener):
                held_up.add(listener.name)
                continue
            del self._waiting[connection]
            listener.next = None
            if self._host_is_full(host):
                connection.close()
            elif not self._punish(connection, now):
                self._take_in(connection)
                if self._opened:
                    connection.begin()
                else:
                    self._early.append(connection)
        self._set_turn(now)

    def _comes_at(self, connection: Connection, now: float) -> float:
        """When the first waiting connection of a listener may be accepted. It counts for the rates from its turn on."""
        listener = connection.listener
        if listener.next is not connection:
            now_ms = now * 1000
            delay_ms = listener.rate.record(1, now_ms)
            if listener.name != self.limits.brokers_listener:
                delay_ms = max(delay_ms, self._rate.record(1, now_ms))
            if delay_ms > 0:
                self._counters.add("connections_delayed")
            listener.next, listener.next_at = connection, now + delay_ms / 1000
        return listener.next_at

    def _punish(self, connection: Connection, now: float) -> bool:
        """Whether its address is above its rate. The connection then counts for no rate, and is closed after the delay."""
        host, listener = connection.client_host, connection.listener
        allowed = self.ip_rate(host)
        if allowed is None:
            return False
        now_ms = now * 1000
        rate = self._ip_rates.get(host)
        if rate is None:
            rate = self._ip_rates[host] = self.limits.new_rate(allowed)
        rate.limit = float(allowed)
        delay_ms = rate.record(1, now_ms)
        if delay_ms <= 0:
            return False
        rate.take_back(1, now_ms)
        listener.rate.take_back(1, now_ms)
        if listener.name != self.limits.brokers_listener:
            self._rate.take_back(1, now_ms)
        self._refuse(f"{host} connects faster than its connection_creation_rate={allowed}")
        self._punished[connection] = self.loop.call_later(delay_ms / 1000, connection.close)
        return True

    def _set_turn(self, now: float) -> None:
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        times = [use.next_at for use in self._uses if use.next is not None and use.next_at > now + TICK_S]
        if times:
            self._turn = self.loop.call_at(min(times), self._let_in)

    def forget(self, connection: Connection) -> None:
        if connection in self._waiting:
            del self._waiting[connection]
            if connection.listener.next is connection:
                connection.listener.next = None
                self._let_in()
            return
        punished = self._punished.pop(connection, None)
        if punished is not None:
            punished.cancel()
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
        now = self.loop.time()
        if now - connection.last_used < USE_S:
            return
        connection.last_used = now
        try:
            self._by_use.move_to_end(connection)
        except KeyError:
            assert connection in self._waiting or connection in self._punished

    def malformed(self, connection: Connection, reason: str) -> None:
        self._counters.add("connections_closed_malformed")
        self._lines.warn("Closed connection", f": {reason}", connection.peer())

    def login_failed(self, connection: Connection, reason: str) -> None:
        self._counters.add("logins_failed")
        self._lines.warn("Failed authentication", f": {reason}", connection.peer())

    def failed(self, connection: Connection, error: BaseException) -> None:
        self._counters.add("connections_closed_failed")
        self._lines.warn("Closed connection", f": could not send its response: {error}", connection.peer())

    def may_connect(self, host: str) -> bool:
        """Whether a TLS handshake with an address is worth it; `admit` decides afterwards."""
        self._keep_descriptors()
        return not self._closing and not self._host_is_full(host)

    def tls_failed(self, client: Peer, reason: str) -> None:
        self._counters.add("tls_handshakes_failed")
        self._lines.warn("Closed connection", f": {reason}", client)

    def sweep_idle(self) -> int:
        """Close the connections that are idle for `connections.max.idle.ms`. Returns how many."""
        closed = 0
        now = self.loop.time()
        oldest_allowed = now - self.limits.idle_ms_max / 1000
        window_ms = self.limits.windows.samples * self.limits.windows.sample_ms
        for host, rate in list(self._ip_rates.items()):
            if now * 1000 - rate.last_used_ms >= window_ms:
                del self._ip_rates[host]
        if self.memory.exhausted:
            # Others wait for the memory of incomplete requests.
            for connection in [each for each in self._by_use if each.holds_memory and now - each.last_used > STALLED_S]:
                self.malformed(
                    connection,
                    f"an incomplete request, and nothing for {STALLED_S} s while others wait (queued.max.request.bytes)",
                )
                connection.close()
        if self._waiting or self.memory.exhausted:
            # Others wait for the places or the memory of clients that do not log in.
            for connection in [each for each in self._by_use if 0 < each.login_since < now - LOGIN_S]:
                self.malformed(connection, f"not authenticated after {LOGIN_S} s while others wait (max.connections)")
                connection.close()
        for connection in list(self._by_use):
            if connection.last_used >= oldest_allowed:
                break
            if not connection.idle:
                # It waits for a response of this broker. If other requests follow, nothing is read from it meanwhile.
                connection.look_for_end()
                self.used(connection)
                continue
            connection.close()
            closed += 1
        if closed:
            self._counters.add("connections_closed_idle", closed)
            logger.info("Closed %d connections that were idle for more than %d ms", closed, self.limits.idle_ms_max)
        return closed

    def _refuse(self, reason: str) -> bool:
        self._counters.add("connections_refused")
        self._lines.warn("Refused connection", reason)
        return False
