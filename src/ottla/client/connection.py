"""A `Pipeline` on a socket: `await connection.call("metadata", 12, MetadataRequest(...))`.

Owns one transport. A failure fails every call in flight with ConnectionError. Never reconnects. With SASL, `open` logs in, and
`call` repeats the login before the session that the broker granted ends (KIP-368); requests wait meanwhile, and keep their order.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from typing import Any, cast

from ottla.client.login import BLOCKING, authenticate_version, dialogue, new_mechanism, renewal_s
from ottla.client.pipeline import Pipeline
from ottla.client.security import PLAINTEXT, ClientSecurity
from ottla.errors import ErrorCode, MalformedInput
from ottla.ports import Network
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.registry import API_BY_NAME, Api
from ottla.types import Buffer

_API_VERSIONS_VERSION = 3


class ClientConnection(asyncio.Protocol):
    def __init__(self, client_id: str | None = "ottla") -> None:
        self._pipeline = Pipeline(client_id)
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._transport: asyncio.Transport | None = None
        self._failure: BaseException | None = None
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.versions: dict[int, tuple[int, int]] = {}
        """The API versions of the broker. Known after a login or `negotiate`."""
        self._security = PLAINTEXT
        self._host = ""
        self._renew_at = float("inf")
        self._renewal: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        network: Network,
        host: str,
        port: int,
        *,
        client_id: str | None = "ottla",
        security: ClientSecurity = PLAINTEXT,
        tls: ssl.SSLContext | None = None,
    ) -> ClientConnection:
        """OSError if there is no connection, LoginRefused if the broker refuses the login."""
        connection = cls(client_id)
        await network.connect(lambda: connection, host, port, tls)
        if security.authenticates:
            connection._security, connection._host = security, host
            try:
                await connection._log_in(first=True)
            except BaseException:
                connection.close()
                raise
        return connection

    @property
    def closed(self) -> bool:
        return self._failure is not None

    def send(self, api: Api | str, version: int, request: object) -> asyncio.Future[Any]:
        """Send a request; the future is the response. Several may be in flight."""
        api = API_BY_NAME[api] if isinstance(api, str) else api
        if self._failure is not None or self._transport is None:
            raise ConnectionResetError("the connection is closed") from self._failure
        correlation_id, parts = self._pipeline.request(api, version, request)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._calls[correlation_id] = future
        self._transport.writelines(cast(list[Buffer], parts))
        return future

    async def call(self, api: Api | str, version: int, request: object) -> Any:
        if asyncio.get_running_loop().time() >= self._renew_at:
            await self._renew()
        return await self.send(api, version, request)

    async def negotiate(self) -> None:
        """Ask the broker for its API versions, unless the login did."""
        if not self.versions:
            self.versions = await self._api_versions()

    def version_of(self, api: Api, max_version: int) -> int | None:
        """The highest version that both sides support, at most `max_version`. None if there is none."""
        lowest, highest = self.versions.get(api.key, (0, -1))
        version = min(api.max_version, max_version, highest)
        return version if version >= max(lowest, api.min_version) else None

    def tell(self, api: Api | str, version: int, request: object) -> None:
        """Send a request that gets no reply (Produce with acks=0)."""
        api = API_BY_NAME[api] if isinstance(api, str) else api
        if self._failure is not None or self._transport is None:
            raise ConnectionResetError("the connection is closed") from self._failure
        _, parts = self._pipeline.request(api, version, request, expect_reply=False)
        self._transport.writelines(cast(list[Buffer], parts))

    async def wait_closed(self) -> None:
        """Wait until either side has closed the connection."""
        await asyncio.shield(self._lost)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    # The login

    async def _renew(self) -> None:
        """One login for all calls that wait. A cancelled call leaves it running for the others."""
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.get_running_loop().create_task(self._renew_or_close())
        await asyncio.shield(self._renewal)

    async def _renew_or_close(self) -> None:
        try:
            await self._log_in(first=False)
        except BaseException as error:
            self._fail(ConnectionResetError(f"re-authentication failed: {error}"))
            self.close()
            raise ConnectionResetError(f"re-authentication failed: {error}") from error

    async def _log_in(self, *, first: bool) -> None:
        security = self._security
        if first:
            self.versions = await self._api_versions()
        blocking = security.mechanism in BLOCKING
        if blocking:
            mechanism = await asyncio.to_thread(new_mechanism, security, self._host)
        else:
            mechanism = new_mechanism(security, self._host)
        steps = dialogue(security.mechanism, mechanism, authenticate_version(self.versions))
        answer: Any = None
        try:
            while True:
                name, version, request = steps.send(answer)
                answer = await self.send(name, version, request)
        except StopIteration as end:
            lifetime_ms: int = end.value
        now = asyncio.get_running_loop().time()
        self._renew_at = now + renewal_s(lifetime_ms, random.random()) if lifetime_ms > 0 else float("inf")

    async def _api_versions(self) -> dict[int, tuple[int, int]]:
        request = ApiVersionsRequest(client_software_name="ottla", client_software_version="1")
        answer = await self.send("api_versions", _API_VERSIONS_VERSION, request)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            answer = await self.send("api_versions", 0, ApiVersionsRequest())
        if answer.error_code:
            raise ConnectionResetError(f"its ApiVersions response has error {answer.error_code}")
        return {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}

    # The transport's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            responses = self._pipeline.receive(data)
        except MalformedInput as error:
            self._fail(ConnectionResetError(f"the peer sent {error}"))
            assert self._transport is not None
            self._transport.abort()
            return
        for correlation_id, response in responses:
            future = self._calls.pop(correlation_id)
            if not future.done():
                future.set_result(response)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(exc or ConnectionResetError("the peer closed the connection"))
        if not self._lost.done():
            self._lost.set_result(None)

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
        calls, self._calls = self._calls, {}
        for future in calls.values():
            if not future.done():
                future.set_exception(ConnectionResetError(str(error)))
