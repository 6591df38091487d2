"""A `Pipeline` on a socket: `await connection.call("metadata", 12, MetadataRequest(...))`.

Owns one transport. A failure fails every call in flight with ConnectionError. Never reconnects.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from ottla.client.pipeline import Pipeline
from ottla.errors import MalformedInput
from ottla.ports import Network
from ottla.protocol.registry import API_BY_NAME, Api
from ottla.types import Buffer


class ClientConnection(asyncio.Protocol):
    def __init__(self, client_id: str | None = "ottla") -> None:
        self._pipeline = Pipeline(client_id)
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._transport: asyncio.Transport | None = None
        self._failure: BaseException | None = None
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @classmethod
    async def open(cls, network: Network, host: str, port: int, *, client_id: str | None = "ottla") -> ClientConnection:
        connection = cls(client_id)
        await network.connect(lambda: connection, host, port)
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
        return await self.send(api, version, request)

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
