"""Brokers that join or leave the cluster, as their registrations under /brokers/ids show."""

from __future__ import annotations

import logging

from ottla.broker.controller.controller_state import ControllerState
from ottla.broker.controller.metadata_writer import MetadataWriter
from ottla.broker.metadata.tree import load_brokers
from ottla.cluster.broker_changes import with_brokers
from ottla.ports import MetadataStore

logger = logging.getLogger(__name__)


class BrokerRegistrations:
    def __init__(self, store: MetadataStore, state: ControllerState, writer: MetadataWriter) -> None:
        self._store = store
        self._state = state
        self._writer = writer

    async def read(self) -> None:
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
