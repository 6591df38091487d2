"""Work for a worker that is waited for to its end, also by a task that is cancelled meanwhile.

A thread cannot be called back. Whoever waits for one holds a turn, or the files it works on: nobody else's before it is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from ottla.ports import Workers

T = TypeVar("T")


async def run_whole(workers: Workers, work: Callable[[], T]) -> T:
    working = asyncio.ensure_future(workers.run(work))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait([working])
        if not working.cancelled():
            working.exception()  # nobody else will look at it
        raise
