"""How brokers learn of an image that the controller has written.

A broker that is alone applies it (`LocalPublisher`). The controller of a cluster sends control requests
(`control_request_sender`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Protocol

from ottla.broker.controller.controller_state import ControllerState
from ottla.cluster.image import ClusterImage

Acknowledgement = asyncio.Future[bool]
"""Whether a broker has answered all control requests of one change. False: the broker cannot be reached at the moment."""


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
