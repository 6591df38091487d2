"""One connection to each broker of a cluster, opened when it is needed.

1. A call is sent once. `BrokerFailed` says which broker did not answer, and why; the caller decides what it means.
2. A connection on which a call failed or timed out is closed. The next call opens another.
3. The version is the highest that both sides support, up to the caller's limit. `Unsupported` if there is none.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ottla.client.channel import reason_of
from ottla.client.connection import ClientConnection
from ottla.client.login import LoginRefused
from ottla.client.security import PLAINTEXT, ClientSecurity
from ottla.client.tls import client_context
from ottla.errors import KafkaError
from ottla.ports import Network
from ottla.protocol.registry import API_BY_NAME

Address = tuple[str, int]
Request = object | Callable[[int], object]
"""A message, or a function that builds one for the negotiated version."""

Versions = tuple[int, int]
ANY_VERSION: Final[Versions] = (0, 1 << 15)
_CONNECT_TIMEOUT_S: Final = 10.0


class BrokerFailed(Exception):
    """A broker did not answer."""


class Unsupported(BrokerFailed):
    """The broker does not have this API, or only in other versions."""


class Ask(NamedTuple):
    """A request to one broker."""

    broker_id: int
    api_name: str
    request: Request
    versions: Versions = ANY_VERSION


class Brokers:
    def __init__(
        self,
        network: Network,
        servers: Sequence[Address],
        security: ClientSecurity = PLAINTEXT,
        *,
        client_id: str = "ottla",
        timeout_s: float = 30.0,
    ) -> None:
        """InvalidOption if `security` names a store that cannot be read."""
        self._network = network
        self._servers = tuple(servers)
        self._security = security
        self._tls = client_context(security.tls) if security.encrypted else None
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._addresses: dict[int, Address] = {}
        self._connecting: dict[Address, asyncio.Task[ClientConnection]] = {}

    def __str__(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self._servers)

    def learn(self, addresses: Mapping[int, Address]) -> None:
        """Set the brokers of the cluster. Connections to others are closed."""
        self._addresses = dict(addresses)
        known = {*self._servers, *addresses.values()}
        for address in [address for address in self._connecting if address not in known]:
            self._close(address)

    async def call(self, broker_id: int, api_name: str, request: Request, *, versions: Versions = ANY_VERSION) -> Any:
        """Send a request to one broker, in a version of this range."""
        address = self._addresses.get(broker_id)
        if address is None:
            raise BrokerFailed(f"broker {broker_id} is unknown")
        try:
            return await self._exchange(address, api_name, request, versions)
        except Unsupported:
            raise
        except BrokerFailed as failure:
            raise BrokerFailed(f"broker {broker_id} at {failure}") from None

    async def ask_all(self, asked: Iterable[Ask], failures: list[str]) -> list[tuple[Ask, Any]]:
        """Send all requests at once. Returns those that were answered; adds one line to `failures` for each broker that was not
        heard. A broker without the API is passed over."""
        asks = list(asked)
        answers = await asyncio.gather(*(self.call(*ask[:3], versions=ask.versions) for ask in asks), return_exceptions=True)
        answered = []
        for ask, answer in zip(asks, answers, strict=True):
            if not isinstance(answer, BaseException):
                answered.append((ask, answer))
            elif not isinstance(answer, BrokerFailed):
                raise answer
            elif not isinstance(answer, Unsupported) and str(answer) not in failures:
                failures.append(str(answer))
        return answered

    async def supports(self, broker_id: int, api_name: str, version: int) -> bool:
        """Whether a broker has this version or a later one. False too if it does not answer."""
        address = self._addresses.get(broker_id)
        if address is None:
            return False
        try:
            connection = await self._connection(address)
        except (OSError, KafkaError):
            return False
        return connection.versions.get(API_BY_NAME[api_name].key, (0, -1))[1] >= version

    async def call_any(self, api_name: str, request: Request, *, versions: Versions = ANY_VERSION) -> Any:
        """Send a request to the first broker that answers."""
        failures = []
        for address in dict.fromkeys((*self._addresses.values(), *self._servers)):
            try:
                return await self._exchange(address, api_name, request, versions)
            except Unsupported:
                raise
            except BrokerFailed as failure:
                failures.append(str(failure))
        raise BrokerFailed("; ".join(failures))

    def close(self) -> None:
        for address in list(self._connecting):
            self._close(address)

    async def _exchange(self, address: Address, api_name: str, request: Request, versions: Versions) -> Any:
        api = API_BY_NAME[api_name]
        where = "{}:{}".format(*address)
        try:
            connection = await self._connection(address)
            version = connection.version_of(api, versions[1])
            if version is None or version < versions[0]:
                raise Unsupported(f"{where} does not support {api_name}")
            message = request(version) if callable(request) else request
            return await asyncio.wait_for(connection.call(api, version, message), self._timeout_s)
        except LoginRefused as refused:
            self._close(address)
            raise BrokerFailed(f"{where}: login refused: {refused.detail}") from None
        except (OSError, KafkaError) as error:
            self._close(address)
            raise BrokerFailed(f"{where}: {_reason(error)}") from None

    async def _connection(self, address: Address) -> ClientConnection:
        task = self._connecting.get(address)
        if task is not None and task.done() and (task.cancelled() or task.exception() or task.result().closed):
            task = None
        if task is None:
            task = self._connecting[address] = asyncio.get_running_loop().create_task(self._open(address))
        # Several calls may wait for one connection: that one gives up must not end it for the others.
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            # Another call failed on this address and closed it: that must not cancel those who wait.
            raise ConnectionAbortedError("the connection was closed while it was opened") from None

    async def _open(self, address: Address) -> ClientConnection:
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            connection = await ClientConnection.open(
                self._network, *address, client_id=self._client_id, security=self._security, tls=self._tls
            )
            try:
                await connection.negotiate()
            except BaseException:
                connection.close()
                raise
            return connection

    def _close(self, address: Address) -> None:
        task = self._connecting.pop(address, None)
        if task is None:
            return
        if not task.done():
            task.cancel()
            return
        with contextlib.suppress(asyncio.CancelledError, Exception):
            task.result().close()


def _reason(error: Exception) -> str:
    if isinstance(error, KafkaError):
        return str(error)
    return reason_of(error)
