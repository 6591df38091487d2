"""Producer ids: taken from blocks of a thousand that the controller allocates (KIP-730).

A producer id is given out once in the life of the metadata store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ottla.broker.controller.controller_state import ControllerState, kafka_error
from ottla.cluster import znodes
from ottla.errors import ErrorCode, KafkaError
from ottla.ports import BadVersion, MetadataStore, StoreError


class ProducerIds:
    def __init__(
        self, store: MetadataStore, state: ControllerState, ask_controller: Callable[[], Awaitable[range]] | None = None
    ) -> None:
        """`ask_controller`: in a cluster, gets a block from the controller where that is another broker."""
        self._store = store
        self._state = state
        self._ask_controller = ask_controller
        self._block = range(0)
        self._lock = asyncio.Lock()

    def take(self) -> int | None:
        """A new producer id; None if the block is used up."""
        if not self._block:
            return None
        producer_id = self._block[0]
        self._block = self._block[1:]
        return producer_id

    async def next(self) -> int:
        """A new producer id, from a new block if need be. KafkaError if there is none at the moment."""
        async with self._lock:
            producer_id = self.take()
            if producer_id is None:
                self._block = await self.next_block()
                producer_id = self.take()
                assert producer_id is not None
            return producer_id

    async def next_block(self) -> range:
        if self._ask_controller is not None and not self._state.is_active:
            return await self._ask_controller()
        return await self.allocate_block()

    async def allocate_block(self) -> range:
        """As the controller: a block that no broker had before. KafkaError if the store does not take it."""
        try:
            while True:
                node = await self._store.get(znodes.PRODUCER_ID_BLOCK)
                assert node is not None
                term = self._state.active_term()
                changes, block = term.next_producer_ids(znodes.decode_producer_id_block(node.data), node.version)
                try:
                    await self._store.multi(changes)
                except BadVersion:
                    # Either another broker took this block, or another broker became the controller.
                    epoch = await self._store.get(znodes.CONTROLLER_EPOCH)
                    if epoch is None or epoch.version != self._state.active_term().epoch_version:
                        raise KafkaError(ErrorCode.NOT_CONTROLLER, "another broker is the controller now") from None
                    continue
                return block
        except StoreError as error:
            raise kafka_error(error) from error
