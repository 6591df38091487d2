"""Elects the controller (F60, C01, C04).

Owns this broker's part in the ephemeral node /controller, and when the broker registers. Never does a controller's work.

1. A term is claimed by one write: create /controller and raise /controller_epoch by one, from the value that was read. Only one
   broker can win, and each term has its own controller epoch.
2. The tree says who is the controller; watches and session events only say when to read it.
3. An expired session ends the term at once, before anything is read. Then the broker registers again, with a new broker epoch,
   and stands for election again.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol

from ottla.broker.controller.registration import BrokerRegistration
from ottla.broker.metadata.identity import ensure_base_paths
from ottla.broker.metadata.tree import retry_unavailable
from ottla.cluster import znodes
from ottla.cluster.controller_term import ControllerTerm
from ottla.errors import KafkaError
from ottla.ports import (
    BadVersion,
    Clock,
    Create,
    Delete,
    MetadataStore,
    NodeExists,
    NoNode,
    SessionEvent,
    SetData,
    StoreError,
)

logger = logging.getLogger(__name__)

NO_CONTROLLER: Final = -1
_RETRY_S: Final = 1.0


async def claim_term(store: MetadataStore, broker_id: int, now_ms: int) -> ControllerTerm:
    """Become the controller under the next controller epoch. NodeExists or BadVersion if another broker does."""
    node = await store.get(znodes.CONTROLLER_EPOCH)
    if node is None:
        raise NoNode(f"{znodes.CONTROLLER_EPOCH} is missing")
    epoch = znodes.decode_controller_epoch(node.data) + 1
    await store.multi(
        [
            Create(znodes.CONTROLLER, znodes.encode_controller(broker_id, now_ms), ephemeral=True),
            SetData(znodes.CONTROLLER_EPOCH, str(epoch).encode(), node.version),
        ]
    )
    return ControllerTerm(broker_id, epoch, node.version + 1)


class Terms(Protocol):
    """What the election tells the controller."""

    async def begin_term(self, term: ControllerTerm) -> None:
        """A term was claimed."""
        ...

    def end_term(self) -> None:
        """The term is lost."""
        ...


class Election:
    def __init__(self, store: MetadataStore, registration: BrokerRegistration, clock: Clock, terms: Terms) -> None:
        self.controller_id = NO_CONTROLLER
        self.connected = True
        """The store can be reached, and the session has not expired as far as is known."""
        self._store = store
        self._registration = registration
        self._broker_id = registration.broker_id
        self._clock = clock
        self._terms = terms
        self._is_controller = False
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Register (StoreError if the broker id is taken), then claim a term whenever there is no controller."""
        self._store.on_session(self._session_changed)
        self._store.watch(znodes.CONTROLLER, lambda _: self._changed.set())
        await retry_unavailable(self._read)
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        self._lose_term()

    async def resign(self) -> None:
        """End the term. The next one, of this broker or another, loads the tree again."""
        self._lose_term()
        try:
            node = await self._store.get(znodes.CONTROLLER)
            if node is not None and node.mine:
                await self._store.multi([Delete(znodes.CONTROLLER, node.version)])
        except StoreError as error:
            logger.warning("Could not resign as controller: %s", error)
        self._changed.set()

    async def _run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._read()
            except StoreError as error:
                logger.warning("Could not read /controller, retrying: %s", error)
                await asyncio.sleep(_RETRY_S)
                self._changed.set()
            except KafkaError as error:
                logger.warning("Could not begin a term as controller, retrying: %s", error.detail)
                await asyncio.sleep(_RETRY_S)
            except Exception:
                logger.exception("Failed to begin a term as controller, retrying")
                await asyncio.sleep(_RETRY_S)

    async def _read(self) -> None:
        if self._registration.epoch < 0:
            await self._registration.register(again=self._task is not None)
        await self._elect()

    def _session_changed(self, event: SessionEvent) -> None:
        self.connected = event is SessionEvent.CONNECTED
        if event is SessionEvent.EXPIRED:
            self._registration.expired()
            self.controller_id = NO_CONTROLLER
            self._lose_term()
        elif event is SessionEvent.CONNECTED:
            self._changed.set()

    async def _elect(self) -> None:
        """Read who is the controller, and claim a term if nobody is."""
        while True:
            node = await self._store.get(znodes.CONTROLLER)
            if node is None:
                self._lose_term()
                term = await self._claim()
                if term is None:
                    continue
                self.controller_id = self._broker_id
                self._is_controller = True
                logger.info("Broker %d is the controller now, controller epoch %d", self._broker_id, term.epoch)
                try:
                    await self._terms.begin_term(term)
                except BaseException:
                    await self.resign()
                    raise
                return
            self.controller_id = znodes.decode_controller(node.data)
            if not node.mine:
                self._lose_term()
            return

    async def _claim(self) -> ControllerTerm | None:
        """None if another broker was faster."""
        try:
            return await claim_term(self._store, self._broker_id, self._clock.now_ms())
        except (NodeExists, BadVersion):
            return None
        except NoNode:
            await ensure_base_paths(self._store)
            return None

    def _lose_term(self) -> None:
        if self._is_controller:
            self._is_controller = False
            logger.info("Broker %d is no longer the controller", self._broker_id)
            self._terms.end_term()
