"""`Brokers`: what becomes of a call that is cancelled."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from ottla.client.brokers import Brokers
from ottla.client.connection import ClientConnection
from ottla.metrics import Counters
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.runtime.network import RealNetwork


@pytest.mark.parametrize("turns", range(4))
def test_a_cancellation_that_comes_with_the_answer_is_not_lost(turns: int) -> None:
    """An exporter that lost it ran on after Ctrl-C."""

    async def cancelled() -> None:
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()

        class Connection:
            def version_of(self, _api: object, _highest: int) -> int:
                return 0

            async def call(self, *_: Any) -> object:
                return await answer

        class Connected(Brokers):
            async def _connection(self, _address: object) -> ClientConnection:
                return cast(ClientConnection, Connection())

        brokers = Connected(RealNetwork(Counters()), [("127.0.0.1", 1)])
        call = asyncio.ensure_future(brokers.call_any("metadata", MetadataRequest()))
        for _ in range(5):
            await asyncio.sleep(0)
        answer.set_result("answer")
        for _ in range(turns):
            await asyncio.sleep(0)
        if call.cancel():
            with pytest.raises(asyncio.CancelledError):
                await call

    asyncio.run(cancelled())
