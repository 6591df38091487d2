"""This broker's place in the cluster: its registration, and its bids for the office of controller (F60, C01, C04).

Owns: the ephemeral nodes /brokers/ids/N and /controller, as far as they are this broker's. Never does a controller's work.

1. The office is taken by one write: create /controller and raise /controller_epoch by one, from the value that was read. Two can
   not win, and the epoch grows by exactly one for each change.
2. What happens is looked up in the tree, one look at a time; watches and the session only say when to look.
3. A session that is over ends the office at once, before anything is looked up; then the broker registers anew, as a new life
   with a new epoch, and bids again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from ottla.broker.metadata.tree import patiently
from ottla.cluster import znodes
from ottla.cluster.controller import Controller
from ottla.errors import KafkaError
from ottla.ports import BadVersion, Clock, Create, Delete, MetadataStore, NodeExists, SessionEvent, SetData, StoreError

logger = logging.getLogger(__name__)

NOBODY: Final = -1
_LOOK_S: Final = 0.25
_AGAIN_S: Final = 1.0


class Election:
    def __init__(
        self,
        store: MetadataStore,
        broker_id: int,
        registration: Callable[[], bytes],
        clock: Clock,
        *,
        take_office: Callable[[Controller], Awaitable[None]],
        resign: Callable[[], None],
        refused: Callable[[str], None],
        patience_s: float,
    ) -> None:
        """`take_office` is awaited after a bid that won, `resign` called when the office is lost. `refused`: the broker cannot go
        on. `patience_s`: how long the node of a former life may take to vanish."""
        self.broker_epoch = -1
        self.controller_id = NOBODY
        self.connected = True
        """In touch with the store, under a session that lives for all we know."""
        self._store = store
        self._broker_id = broker_id
        self._registration = registration
        self._clock = clock
        self._take_office = take_office
        self._resign = resign
        self._refused = refused
        self.patience_s = patience_s
        self._in_office = False
        self._sessions = 0
        self._look = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Register (StoreError if the number is taken), then bid whenever the office is free."""
        self._store.on_session(self._session_changed)
        self._store.watch(znodes.CONTROLLER, lambda _: self._look.set())
        await patiently(self._look_up)
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        self._leave_office()

    async def give_up_office(self) -> None:
        """Let another one (or this broker, with a fresh view) take over."""
        self._leave_office()
        try:
            node = await self._store.get(znodes.CONTROLLER)
            if node is not None and node.mine:
                await self._store.multi([Delete(znodes.CONTROLLER, node.version)])
        except StoreError as error:
            logger.warning("the office of controller could not be given up: %s", error)
        self._look.set()

    async def _run(self) -> None:
        while True:
            await self._look.wait()
            self._look.clear()
            try:
                await self._look_up()
            except StoreError as error:
                logger.warning("the cluster's state could not be looked up: %s", error)
                await asyncio.sleep(_AGAIN_S)
                self._look.set()
            except KafkaError as error:
                logger.warning("the office of controller could not be taken: %s", error.detail)
                await asyncio.sleep(_AGAIN_S)
            except Exception:
                logger.exception("the office of controller could not be taken")
                await asyncio.sleep(_AGAIN_S)

    async def _look_up(self) -> None:
        if self.broker_epoch < 0:
            await self._register()
        await self._settle()

    def _session_changed(self, event: SessionEvent) -> None:
        self.connected = event is SessionEvent.CONNECTED
        if event is SessionEvent.EXPIRED:
            self._sessions += 1
            self.broker_epoch = -1
            self.controller_id = NOBODY
            self._leave_office()
        elif event is SessionEvent.CONNECTED:
            self._look.set()

    async def _register(self) -> None:
        path = znodes.broker_path(self._broker_id)
        deadline = self._clock.monotonic() + self.patience_s
        warned = False
        while True:
            session = self._sessions
            try:
                await self._store.multi([Create(path, self._registration(), ephemeral=True)])
            except NodeExists:
                pass
            node = await self._store.get(path)
            if node is not None and node.mine and session == self._sessions:
                break
            if self._clock.monotonic() >= deadline:
                reason = f"another broker with the number {self._broker_id} is running (broker.id)"
                if self._task is not None:
                    self._refused(reason)
                raise StoreError(reason)
            if not warned:
                warned = True
                logger.warning(
                    "the number %d is still registered; if that was this broker's former life, its session ends within %.0f s",
                    self._broker_id,
                    self.patience_s,
                )
            await asyncio.sleep(_LOOK_S)
        self.broker_epoch = node.czxid
        logger.info("registered as broker %d with epoch %d", self._broker_id, node.czxid)

    async def _settle(self) -> None:
        """Look who is in office, and bid if nobody is."""
        while True:
            node = await self._store.get(znodes.CONTROLLER)
            if node is None:
                self._leave_office()
                term = await self._bid()
                if term is None:
                    continue
                self.controller_id = self._broker_id
                self._in_office = True
                logger.info("broker %d is the controller, epoch %d", self._broker_id, term.epoch)
                try:
                    await self._take_office(term)
                except BaseException:
                    await self.give_up_office()
                    raise
                return
            self.controller_id = znodes.decode_controller(node.data)
            if not node.mine:
                self._leave_office()
            return

    async def _bid(self) -> Controller | None:
        node = await self._store.get(znodes.CONTROLLER_EPOCH)
        if node is None:
            try:
                await self._store.multi([Create(znodes.CONTROLLER_EPOCH, b"0")])
            except NodeExists:
                pass
            return None
        epoch = znodes.decode_controller_epoch(node.data) + 1
        data = znodes.encode_controller(self._broker_id, self._clock.now_ms())
        try:
            await self._store.multi(
                [
                    Create(znodes.CONTROLLER, data, ephemeral=True),
                    SetData(znodes.CONTROLLER_EPOCH, str(epoch).encode(), node.version),
                ]
            )
        except (NodeExists, BadVersion):
            return None
        return Controller(self._broker_id, epoch, node.version + 1)

    def _leave_office(self) -> None:
        if self._in_office:
            self._in_office = False
            logger.info("broker %d is no longer the controller", self._broker_id)
            self._resign()
