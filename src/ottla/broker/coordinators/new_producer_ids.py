"""Producer ids for transactional ids: from the block that the controller allocated to this broker.

Most are at hand. When the block is used up, a caller that may wait awaits the next block; one that may not tries again later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol


class ProducerIdBlock(Protocol):
    def take(self) -> int | None:
        """A new producer id, if one is at hand without waiting."""
        ...

    async def next(self) -> int: ...


class Controller(Protocol):
    @property
    def producer_ids(self) -> ProducerIdBlock: ...


class NoProducerId(Exception):
    """No producer id is at hand without waiting."""


class NewProducerIds:
    def __init__(self, controller: Callable[[], Controller]) -> None:
        self._controller = controller
        self._fetching: asyncio.Task[int] | None = None

    def close(self) -> None:
        if self._fetching is not None:
            self._fetching.cancel()

    def take(self) -> int:
        """A new producer id. NoProducerId if none is at hand."""
        producer_id = self._controller().producer_ids.take()
        if producer_id is None:
            raise NoProducerId
        return producer_id

    async def next(self) -> int:
        """A new producer id. KafkaError if the controller allocates no block."""
        return await self._controller().producer_ids.next()

    def fetch(self) -> None:
        """Have the next block fetched, so that a later `take` finds one."""
        if self._fetching is None or self._fetching.done():
            self._fetching = asyncio.get_running_loop().create_task(self.next())
            self._fetching.add_done_callback(lambda done: done.cancelled() or done.exception())
