"""The end of a registry."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, cast

from ottla.registry.service import Registry
from ottla.registry.state import State


class LosesACancellation:
    """A log reader whose first cancellation is lost, and the workers and the membership that a registry needs beside it."""

    url = "http://127.0.0.1:8081"

    async def run(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    async def end(self) -> int:
        return 0

    async def reach(self, offset: int, timeout_s: float) -> None:
        await asyncio.sleep(0)

    async def leave(self) -> None: ...

    async def close(self) -> None: ...


def test_it_ends_though_its_reader_loses_a_cancellation() -> None:
    """A registry whose owner and broker were killed at the same time ran on."""

    async def play() -> None:
        part = cast(Any, LosesACancellation())
        registry = Registry(State(), part, part, part, cluster_id="c", group_id="g")
        await registry.start(part, 1.0)
        await asyncio.sleep(0)
        await asyncio.wait_for(registry.close(), 30)

    asyncio.run(play())
