"""Elections of partition leaders that no client requested: brokers joined or left, configs changed, leaders are unbalanced.

Works only while this broker is the active controller.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Final

from ottla.broker.controller.controller_state import ControllerState
from ottla.broker.controller.metadata_writer import MetadataWriter
from ottla.broker.metadata.tree import load_brokers
from ottla.cluster.broker_changes import with_brokers, with_partitions
from ottla.cluster.elections import unbalanced
from ottla.errors import KafkaError
from ottla.ports import MetadataStore, StoreError

logger = logging.getLogger(__name__)

_FIRST_BALANCE_S: Final = 5.0


class LeaderElections:
    def __init__(self, store: MetadataStore, state: ControllerState, writer: MetadataWriter) -> None:
        self._store = store
        self._state = state
        self._writer = writer

    async def read_brokers(self) -> None:
        """Brokers that join or leave the cluster, as their registrations under /brokers/ids show."""
        state = self._state
        async with state.lock:
            brokers = await load_brokers(self._store)
            known = state.image.brokers
            if not state.is_active or brokers == dict(known):
                return
            gone = [number for number in known if number not in brokers or brokers[number].epoch != known[number].epoch]
            if gone:
                logger.info("Brokers that left the cluster: %s", ", ".join(map(str, gone)))
                # A broker that has registered again may have lost records it had not flushed: it leaves the ISRs first.
                await self._writer.elect(with_brokers(state.image, {n: b for n, b in known.items() if n not in gone}))
            joined = [number for number in brokers if number not in state.image.brokers]
            if joined:
                logger.info("Brokers that joined the cluster: %s", ", ".join(map(str, joined)))
            await self._writer.elect(with_brokers(state.image, brokers))

    async def balance(self) -> None:
        """Move leaderships back to the preferred leaders (auto.leader.rebalance.enable), for as long as the broker runs."""
        state, pause_s = self._state, _FIRST_BALANCE_S
        while True:
            await asyncio.sleep(pause_s)
            pause_s = state.settings.int("leader.imbalance.check.interval.seconds")
            if not state.is_active or not state.settings.bool("auto.leader.rebalance.enable"):
                continue
            try:
                async with state.lock:
                    moved = unbalanced(state.image, state.settings.int("leader.imbalance.per.broker.percentage"))
                    if moved:
                        logger.info("Moving %d partitions to their preferred leaders", len(moved))
                        await self._writer.commit_image(with_partitions(state.image, moved))
            except (StoreError, KafkaError) as error:
                logger.warning("Could not move leaderships to their preferred leaders: %s", error)

    # Dynamic configs

    def topics_configured(self, configs: dict[str, dict[str, str]]) -> None:
        if self._state.is_active:
            self._state.spawn(self._configure_topics(configs))

    async def _configure_topics(self, configs: dict[str, dict[str, str]]) -> None:
        state = self._state
        async with state.lock:
            if not state.is_active:
                return
            topics = state.image.topics
            changed = [replace(topics[name], config=config) for name, config in configs.items() if name in topics]
            state.image = state.image.with_topics(changed)
            # unclean.leader.election.enable may have been set.
            await self._writer.elect(state.image, [state.image.topics[topic.name] for topic in changed])

    def brokers_configured(self, configs: dict[str, dict[str, str]]) -> None:
        if self._state.is_active:
            self._state.spawn(self._configure_brokers(configs))

    async def _configure_brokers(self, configs: dict[str, dict[str, str]]) -> None:
        async with self._state.lock:
            if self._state.is_active:
                await self._writer.elect(replace(self._state.image, broker_configs=configs))
