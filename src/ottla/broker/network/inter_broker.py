"""Requests from this broker to others.

Owns one connection per broker and purpose (fetcher, control requests, markers, …), so that a slow response to one does not delay
another. Addresses come from the image, or with the call: the controller knows brokers before the image does.

1. Requests of one purpose reach a broker in the order of the calls, over one connection at a time.
2. A request is sent at most once. Every failure is `PeerUnavailable`, and the caller decides whether to retry: the request may
   have been carried out.
3. The version is the highest that both brokers support, up to the caller's limit.
4. After a failed attempt to connect there is a backoff, which grows up to `_BACKOFF_MAX_MS`.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Any, Final

from ottla.client.connection import ClientConnection
from ottla.client.login import LoginRefused
from ottla.client.security import PLAINTEXT, ClientSecurity
from ottla.cluster.image import Endpoint
from ottla.errors import ErrorCode
from ottla.ports import Network
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.registry import API_BY_NAME

logger = logging.getLogger(__name__)

_BACKOFF_MIN_MS: Final = 50
_BACKOFF_MAX_MS: Final = 1000
_API_VERSIONS_VERSION: Final = 3
_TIMEOUT_MS: Final = 30_000

Request = object | Callable[[int], object]
"""A message, or a function that makes one for the negotiated version."""


class PeerUnavailable(OSError):
    """Another broker could not be reached, or did not answer in time. It may have carried out the request."""


class _Channel:
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
    def __init__(
        self,
        broker_id: int,
        network: Network,
        address_of: Callable[[int], Endpoint | None],
        security: ClientSecurity = PLAINTEXT,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        """`security`: how this broker logs in at others. `tls`: the context for a new connection, if the inter-broker listener
        has TLS."""
        self._security = security
        self._client_id = f"broker-{broker_id}"
        self._network = network
        self._address_of = address_of
        self._tls = tls
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
        """The response of a broker (also of this one, over its own listener). PeerUnavailable if there is none."""
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
        except (TimeoutError, OSError, LoginRefused) as error:
            if connection is not None and channel.connection is connection:
                # A late response must not be taken for that of the next request, nor delay it.
                channel.drop()
            if isinstance(error, PeerUnavailable):
                raise
            why = f"no response within {timeout_ms} ms" if isinstance(error, TimeoutError) else str(error)
            if isinstance(error, (LoginRefused, ssl.SSLError)):
                self._warn_of_refusal(broker_id, channel, error)
            raise PeerUnavailable(f"{api_name} request to broker {broker_id} failed: {why}") from error

    def forget(self, broker_id: int) -> None:
        """Close all connections to a broker that is gone or has restarted."""
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
                return connection  # opened by the call before this one
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
                raise PeerUnavailable(f"the address of broker {broker_id} is unknown")
            try:
                tls = self._tls() if self._tls is not None else None
                connection = await ClientConnection.open(
                    self._network, wanted.host, wanted.port, client_id=self._client_id, security=self._security, tls=tls
                )
                channel.versions = connection.versions or await _versions_of(connection)
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

    def _warn_of_refusal(self, broker_id: int, channel: _Channel, error: LoginRefused | ssl.SSLError) -> None:
        """Log it once for each broker and purpose, until a connection succeeds: attempts repeat every second."""
        if channel.failures != 1:
            return
        if isinstance(error, LoginRefused):
            logger.error(
                "Broker %d at %s refuses the login of this broker with %s: %s. Check sasl.mechanism.inter.broker.protocol and "
                "sasl.jaas.config of the inter-broker listener",
                broker_id,
                channel.endpoint,
                self._security.mechanism,
                error.detail,
            )
        else:
            logger.error(
                "TLS with broker %d at %s failed: %s. Check the ssl.* settings of the inter-broker listener on both",
                broker_id,
                channel.endpoint,
                getattr(error, "verify_message", None) or error.reason or error,
            )

    @staticmethod
    def _failed(channel: _Channel) -> None:
        pause_ms = min(_BACKOFF_MIN_MS << min(channel.failures, 10), _BACKOFF_MAX_MS)
        channel.failures += 1
        channel.next_attempt = asyncio.get_running_loop().time() + pause_ms / 1000


async def _versions_of(connection: ClientConnection) -> dict[int, tuple[int, int]]:
    request = ApiVersionsRequest(client_software_name="ottla-broker", client_software_version="1")
    response = await connection.call("api_versions", _API_VERSIONS_VERSION, request)
    if response.error_code not in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION):
        raise PeerUnavailable(f"its ApiVersions response has error {response.error_code}")
    return {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}


def _version(channel: _Channel, api_name: str, version_max: int | None) -> int:
    api = API_BY_NAME[api_name]
    low, high = channel.versions.get(api.key, (0, -1))
    version = min(high, api.max_version, version_max if version_max is not None else high)
    if version < max(low, api.min_version):
        raise PeerUnavailable(f"it supports no version of {api_name} that this broker supports")
    return version
