"""Writes the controller's changes to the metadata store, then publishes the image that follows from them (F61).

Never decides what to change: the rules are `cluster`'s.

1. A change is written first, published second, answered third. So a reply means that the topic is usable.
2. Every write begins with a check of /controller_epoch: a controller that was replaced writes nothing (C02).
3. If the store refuses or fails, the image stays as it was.
4. If a large change is written in part, or the store differs from the image, `on_conflict` is called: the image is no longer
   what the store has.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from typing import Any, ParamSpec, Protocol, TypeVar

from ottla.broker.controller.controller_state import ControllerState, kafka_error
from ottla.cluster import znodes
from ottla.cluster.broker_changes import with_consecutive_epochs, with_elections
from ottla.cluster.controller_term import MetadataUpdate
from ottla.cluster.image import ClusterImage, TopicImage
from ottla.cluster.tree_changes import split_changes, state_changes
from ottla.errors import ErrorCode, KafkaError
from ottla.ports import BadVersion, Change, Create, MetadataStore, NodeExists, NoNode, SetData, StoreError

P = ParamSpec("P")
T = TypeVar("T")


Acknowledgement = asyncio.Future[bool]
"""Whether a broker has answered all control requests of one change. False: the broker cannot be reached at the moment."""


def shielded(change: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """A client that disconnects cancels its request, not the change: the image must show what the store has."""

    @functools.wraps(change)
    async def run(*arguments: P.args, **options: P.kwargs) -> T:
        task = asyncio.ensure_future(change(*arguments, **options))
        # Retrieve the exception of a task that nobody awaits any more.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(task)

    return run


class MetadataWriter:
    def __init__(
        self,
        store: MetadataStore,
        state: ControllerState,
        publisher: Publisher,
        *,
        on_conflict: Callable[[StoreError], None] = lambda _: None,
        on_commit: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._state = state
        self._publisher = publisher
        self._on_conflict = on_conflict
        self._on_commit = on_commit

    async def commit(self, update: MetadataUpdate, created: Collection[tuple[str, int]] = ()) -> Collection[Acknowledgement]:
        """Write and publish; the caller holds the lock. Returns the acknowledgements of the brokers that are told."""
        state = self._state
        before, term, began = state.image, state.active_term(), asyncio.get_running_loop().time()
        if not update.empty:
            await self.write(update.changes)
        await self._publisher.prepare(update.image)
        if state.term is not term:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "another broker is the controller now")
        state.image, state.image_term = update.image, term
        acknowledgements = self._publisher.publish(before, update.image, created)
        self._on_commit()
        if state.on_change is not None:
            state.on_change(before, update.image, began)
        return acknowledgements

    async def commit_image(self, image: ClusterImage) -> None:
        """Commit an image whose partitions have other leaders, replicas or in-sync replicas; the caller holds the lock."""
        state = self._state
        if image is not state.image:
            after, epoch = with_consecutive_epochs(state.image, image), state.active_term().epoch
            await self.commit(MetadataUpdate([*state.fence(), *state_changes(state.image, after, epoch)], after))

    async def elect(self, image: ClusterImage, topics: Iterable[TopicImage] | None = None) -> None:
        """Commit an image in which brokers or replicas came or went, with the leaders that follow; the caller holds the lock."""
        await self.commit_image(with_elections(image, self._state.unclean_allowed, topics))

    @shielded
    async def change(self, alter: Callable[[ClusterImage], tuple[ClusterImage, T]]) -> T:
        """Commit the image that `alter` makes of the present one, and return the result it gives. KafkaError if it cannot."""
        async with self._state.lock:
            after, result = alter(self._state.active_image())
            try:
                await self.commit_image(after)
            except StoreError as error:
                raise kafka_error(error) from error
            return result

    async def write(self, changes: Sequence[Change]) -> None:
        written = 0
        try:
            for part in split_changes(changes, self._store.multi_bytes_max):
                try:
                    await self._store.multi(part)
                except NodeExists:
                    await self._store.multi(await self._over_stale_configs(part))
                written += 1
        except StoreError as error:
            if written or isinstance(error, (BadVersion, NoNode)):
                self._on_conflict(error)
            raise

    async def _over_stale_configs(self, changes: Sequence[Change]) -> list[Change]:
        """A deleted topic, or a tool, may have left a config node: the config of the new topic replaces it."""
        replaced: list[Change] = []
        for change in changes:
            is_config = isinstance(change, Create) and change.path.startswith(f"{znodes.CONFIG_TOPICS}/")
            if is_config and await self._store.get(change.path) is not None:
                assert isinstance(change, Create)
                replaced.append(SetData(change.path, change.data))
            else:
                replaced.append(change)
        return replaced


class Publisher(Protocol):
    async def prepare(self, image: ClusterImage) -> None:
        """What has to happen after the write and before anybody sees the image."""
        ...

    def publish(
        self, before: ClusterImage, image: ClusterImage, created: Collection[tuple[str, int]]
    ) -> Collection[Acknowledgement]:
        """Tell the brokers; one acknowledgement for each broker that was told something. `created`: partitions that no broker
        knows yet, although `before` may have been empty (the start of a term)."""
        ...


class LocalPublisher:
    """Applies the image to the broker the controller runs in."""

    def __init__(
        self,
        state: ControllerState,
        on_image: Callable[[ClusterImage], None],
        before_image: Callable[[ClusterImage], Awaitable[None]] | None = None,
    ) -> None:
        self._state = state
        self.on_image = on_image
        self._before_image = before_image

    async def prepare(self, image: ClusterImage) -> None:
        if self._before_image is not None:
            await self._before_image(image)

    def publish(
        self, before: ClusterImage, image: ClusterImage, created: Collection[tuple[str, int]]
    ) -> Collection[Acknowledgement]:
        if image.broker_configs != before.broker_configs:
            self._state.settings = self._state.settings.with_dynamic(*image.dynamic_config(self._state.broker_id))
        self.on_image(image)
        return ()
