"""Moves leaderships back to the preferred leaders (auto.leader.rebalance.enable)."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from ottla.broker.controller.controller_state import ControllerState
from ottla.broker.controller.metadata_writer import MetadataWriter
from ottla.cluster.balance import unbalanced
from ottla.cluster.broker_changes import with_partitions
from ottla.errors import KafkaError
from ottla.ports import StoreError

logger = logging.getLogger(__name__)

_FIRST_CHECK_S: Final = 5.0


class LeaderBalancer:
    def __init__(self, state: ControllerState, writer: MetadataWriter) -> None:
        self._state = state
        self._writer = writer

    async def run(self) -> None:
        pause_s = _FIRST_CHECK_S
        while True:
            await asyncio.sleep(pause_s)
            settings = self._state.settings
            pause_s = settings.int("leader.imbalance.check.interval.seconds")
            if self._state.is_active and settings.bool("auto.leader.rebalance.enable"):
                try:
                    await self._balance(settings.int("leader.imbalance.per.broker.percentage"))
                except (StoreError, KafkaError) as error:
                    logger.warning("Could not move leaderships to their preferred leaders: %s", error)

    async def _balance(self, percentage_max: int) -> None:
        async with self._state.lock:
            moved = unbalanced(self._state.image, percentage_max)
            if moved:
                logger.info("Moving %d partitions to their preferred leaders", len(moved))
                await self._writer.commit_image(with_partitions(self._state.image, moved))
