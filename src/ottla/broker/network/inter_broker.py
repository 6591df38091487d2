"""Connections from this broker to others, and calls on them.

Owns one connection for each broker and purpose (a fetcher, the controller's orders, markers …), so that a slow answer to one does
not hold up another. Addresses come from the image, or with the call: the controller knows brokers before the image does.

1. Calls of one purpose reach a broker in the order in which they were made, over one connection at a time.
2. A call is sent at most once. Whatever goes wrong is `PeerUnavailable`, and the caller decides whether to try again: it may have
   been performed.
3. The version is the highest that both sides have, up to the caller's limit.
4. After a failed attempt to connect the next one waits, longer each time, up to `_BACKOFF_MAX_MS`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from ottla.client.connection import ClientConnection
from ottla.cluster.endpoint import Endpoint
from ottla.errors import ErrorCode
from ottla.ports import Network
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.registry import API_BY_NAME

_BACKOFF_MIN_MS: Final = 50
_BACKOFF_MAX_MS: Final = 1000
_API_VERSIONS_VERSION: Final = 3
_TIMEOUT_MS: Final = 30_000

Request = object | Callable[[int], object]
"""A message, or what makes one for the version that is spoken."""


class PeerUnavailable(OSError):
    """Another broker cannot be reached, or did not answer in time: what was asked of it may or may not be done."""


class _Channel:
    __slots__ = ("connection", "endpoint", "failures", "lock", "next_attempt", "versions")

    def __init__(self) -> None:
        self.connection: ClientConnection | None = None
        self.endpoint: Endpoint | None = None
        self.versions: dict[int, tuple[int, int]] = {}
        self.lock = asyncio.Lock()
        self.failures = 0
        self.next_attempt = 0.0

    def drop(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()


class InterBroker:
    def __init__(self, broker_id: int, network: Network, address_of: Callable[[int], Endpoint | None]) -> None:
        self._client_id = f"broker-{broker_id}"
        self._network = network
        self._address_of = address_of
        self._channels: dict[tuple[int, str], _Channel] = {}
        self._closed = False

    async def call(
        self,
        broker_id: int,
        purpose: str,
        api_name: str,
        request: Request,
        *,
        version_max: int | None = None,
        timeout_ms: int = _TIMEOUT_MS,
        endpoint: Endpoint | None = None,
    ) -> Any:
        """The response of another broker (or of this one, over its own listener). PeerUnavailable if there is none."""
        channel = self._channels.get((broker_id, purpose))
        if channel is None:
            channel = self._channels[broker_id, purpose] = _Channel()
        connection: ClientConnection | None = None
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                connection = channel.connection
                if connection is None or connection.closed or (endpoint is not None and endpoint != channel.endpoint):
                    connection = await self._connect(channel, broker_id, endpoint)
                version = _version(channel, api_name, version_max)
                message = request(version) if callable(request) else request
                return await connection.call(api_name, version, message)
        except (TimeoutError, OSError) as error:
            if connection is not None and channel.connection is connection:
                # An answer that comes too late must not be taken for the next one's, nor hold it up.
                channel.drop()
            if isinstance(error, PeerUnavailable):
                raise
            why = f"no answer within {timeout_ms} ms" if isinstance(error, TimeoutError) else str(error)
            raise PeerUnavailable(f"broker {broker_id} cannot be asked ({api_name}): {why}") from error

    def forget(self, broker_id: int) -> None:
        """Close all connections to a broker: it is gone, or it is another now."""
        for key in [key for key in self._channels if key[0] == broker_id]:
            self._channels.pop(key).drop()

    def forget_purpose(self, broker_id: int, purpose: str) -> None:
        channel = self._channels.pop((broker_id, purpose), None)
        if channel is not None:
            channel.drop()

    def close(self) -> None:
        self._closed = True
        for channel in self._channels.values():
            channel.drop()
        self._channels.clear()

    async def _connect(self, channel: _Channel, broker_id: int, endpoint: Endpoint | None) -> ClientConnection:
        async with channel.lock:
            wanted = endpoint if endpoint is not None else self._address_of(broker_id)
            connection = channel.connection
            if connection is not None and not connection.closed and wanted in (None, channel.endpoint):
                return connection  # the call before this one has made it
            channel.drop()
            loop = asyncio.get_running_loop()
            if wanted != channel.endpoint:
                channel.failures, channel.next_attempt = 0, 0.0
            channel.endpoint = wanted
            pause = channel.next_attempt - loop.time()
            if pause > 0:
                await asyncio.sleep(pause)
            if wanted is None:
                self._failed(channel)
                raise PeerUnavailable(f"no address of broker {broker_id} is known")
            try:
                connection = await ClientConnection.open(self._network, wanted.host, wanted.port, client_id=self._client_id)
                channel.versions = await _versions_of(connection)
            except BaseException:
                self._failed(channel)
                if connection is not None:
                    connection.close()
                raise
            if self._closed:
                connection.close()
                raise PeerUnavailable("this broker is stopping")
            channel.failures, channel.next_attempt = 0, 0.0
            channel.connection = connection
            return connection

    @staticmethod
    def _failed(channel: _Channel) -> None:
        pause_ms = min(_BACKOFF_MIN_MS << min(channel.failures, 10), _BACKOFF_MAX_MS)
        channel.failures += 1
        channel.next_attempt = asyncio.get_running_loop().time() + pause_ms / 1000


async def _versions_of(connection: ClientConnection) -> dict[int, tuple[int, int]]:
    request = ApiVersionsRequest(client_software_name="ottla-broker", client_software_version="1")
    response = await connection.call("api_versions", _API_VERSIONS_VERSION, request)
    if response.error_code not in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION):
        raise PeerUnavailable(f"it does not tell its API versions: error {response.error_code}")
    return {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}


def _version(channel: _Channel, api_name: str, version_max: int | None) -> int:
    api = API_BY_NAME[api_name]
    low, high = channel.versions.get(api.key, (0, -1))
    version = min(high, api.max_version, version_max if version_max is not None else high)
    if version < max(low, api.min_version):
        raise PeerUnavailable(f"it does not serve {api_name} in a version this broker speaks")
    return version
