"""Work in worker threads, waited for to its end, also by a task that is cancelled meanwhile.

A thread cannot be cancelled. Its caller holds the files it works on, and must not release them before it has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

from ottla.ports import Workers
from ottla.storage.data_dir import DataDir

T = TypeVar("T")


async def run_to_end(workers: Workers, work: Callable[[], T]) -> T:
    working = asyncio.ensure_future(workers.run(work))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait([working])
        if not working.cancelled():
            working.exception()  # retrieved: nobody else does
        raise


async def cancel_all(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Returns when they have ended."""
    cancelled = list(tasks)
    for task in cancelled:
        task.cancel()
    await asyncio.gather(*cancelled, return_exceptions=True)


class DiskWork:
    """Work on files of a data directory. An OSError takes the directory offline."""

    def __init__(self, workers: Workers, directory_failed: Callable[[DataDir, OSError], None]) -> None:
        self.workers = workers
        self.directory_failed = directory_failed

    async def run(self, data_dir: DataDir, work: Callable[[], object]) -> bool:
        """True if the work succeeded and the directory is online."""
        try:
            await run_to_end(self.workers, work)
        except OSError as error:
            self.directory_failed(data_dir, error)
            return False
        return data_dir.online
