"""Registers the broker in a cluster and elects the controller (F60, C01, C04).

Owns the ephemeral nodes /brokers/ids/N and /controller, as far as they are this broker's. Never does a controller's work.

1. A term is claimed by one write: create /controller and raise /controller_epoch by one, from the value that was read. Only one
   broker can win, and each term has its own controller epoch.
2. The tree says who is the controller; watches and session events only say when to read it.
3. An expired session ends the term at once, before anything is read. Then the broker registers again, with a new broker epoch,
   and stands for election again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from ottla.broker.metadata.identity import ensure_base_paths
from ottla.broker.metadata.tree import retry_unavailable
from ottla.cluster import znodes
from ottla.cluster.controller_term import ControllerTerm
from ottla.cluster.image import BrokerImage, Endpoint
from ottla.cluster.settings import BrokerSettings
from ottla.errors import KafkaError
from ottla.ports import (
    BadVersion,
    Change,
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
_POLL_S: Final = 0.25
_RETRY_S: Final = 1.0


def encode_registration(broker_id: int, settings: BrokerSettings, endpoints: Sequence[Endpoint], now_ms: int) -> bytes:
    """The data of /brokers/ids/N."""
    return znodes.encode_broker(BrokerImage(broker_id, -1, settings.optional_str("broker.rack"), tuple(endpoints)), now_ms)


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


class Election:
    def __init__(
        self,
        store: MetadataStore,
        broker_id: int,
        registration: Callable[[], bytes],
        clock: Clock,
        *,
        begin_term: Callable[[ControllerTerm], Awaitable[None]],
        end_term: Callable[[], None],
        refused: Callable[[str], None],
        expiry_s: float,
        also_register: Callable[[], Sequence[Change]] = tuple,
        registered_again: Callable[[], None] = lambda: None,
    ) -> None:
        """`also_register`: changes to write together with the registration. `registered_again` is called when the broker has
        registered after its session expired.

        `begin_term` is awaited after a term was claimed, `end_term` called when it is lost. `refused` is called if the broker
        cannot register again. `expiry_s`: how long the node of the previous registration may take to expire."""
        self.broker_epoch = -1
        self.controller_id = NO_CONTROLLER
        self.connected = True
        """The store can be reached, and the session has not expired as far as is known."""
        self._store = store
        self._broker_id = broker_id
        self._registration = registration
        self._clock = clock
        self._begin_term = begin_term
        self._end_term = end_term
        self._refused = refused
        self.expiry_s = expiry_s
        self._also_register = also_register
        self._registered_again = registered_again
        self._is_controller = False
        self._sessions = 0
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
        if self.broker_epoch < 0:
            await self._register()
        await self._elect()

    def _session_changed(self, event: SessionEvent) -> None:
        self.connected = event is SessionEvent.CONNECTED
        if event is SessionEvent.EXPIRED:
            self._sessions += 1
            self.broker_epoch = -1
            self.controller_id = NO_CONTROLLER
            self._lose_term()
        elif event is SessionEvent.CONNECTED:
            self._changed.set()

    async def _register(self) -> None:
        path = znodes.broker_path(self._broker_id)
        deadline = self._clock.monotonic() + self.expiry_s
        warned = False
        while True:
            session = self._sessions
            try:
                await self._store.multi([Create(path, self._registration(), ephemeral=True), *self._also_register()])
            except NodeExists:
                pass
            node = await self._store.get(path)
            if node is not None and node.mine and session == self._sessions:
                break
            if self._clock.monotonic() >= deadline:
                reason = f"another broker with broker.id={self._broker_id} is running"
                if self._task is not None:
                    self._refused(reason)
                raise StoreError(reason)
            if not warned:
                warned = True
                logger.warning(
                    "Broker id %d is still registered. A registration of a previous run of this broker expires within %.0f s",
                    self._broker_id,
                    self.expiry_s,
                )
            await asyncio.sleep(_POLL_S)
        self.broker_epoch = node.czxid
        if self._task is not None:
            self._registered_again()
        logger.info("Registered broker %d with broker epoch %d", self._broker_id, node.czxid)

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
                    await self._begin_term(term)
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
            self._end_term()
