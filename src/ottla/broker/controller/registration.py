"""The registration of this broker in the cluster: the ephemeral node /brokers/ids/N (F60, C01).

Each registration has its own broker epoch. It ends with the session; `Election` then registers the broker again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from ottla.broker.metadata.acl_follower import AclFollower
from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.cluster import znodes
from ottla.cluster.image import BrokerImage
from ottla.ports import Clock, Create, MetadataStore, NodeExists, StoreError

logger = logging.getLogger(__name__)

_POLL_S: Final = 0.25
_TICK_S: Final = 4
"""ZooKeeper expires a session at the first tick after its timeout. A tick takes three seconds by default."""


def encode_registration(metadata: LocalMetadata, now_ms: int) -> bytes:
    """The data of /brokers/ids/N."""
    rack = metadata.settings.optional_str("broker.rack")
    return znodes.encode_broker(BrokerImage(metadata.broker_id, -1, rack, metadata.endpoints), now_ms)


class BrokerRegistration:
    def __init__(self, store: MetadataStore, metadata: LocalMetadata, clock: Clock, acls: AclFollower | None) -> None:
        """`acls`, with an authorizer, registers its acknowledgements in the same write."""
        self.epoch = -1
        """The broker epoch, -1 while the broker is not registered."""
        self.broker_id = metadata.broker_id
        self.expiry_s = metadata.settings.int("zookeeper.session.timeout.ms") / 1000 + _TICK_S
        """How long the node of a previous registration may take to expire."""
        self.on_refused: Callable[[str], None] | None = None
        """Called if the broker cannot register again."""
        self._store = store
        self._metadata = metadata
        self._clock = clock
        self._acls = acls
        self._sessions = 0

    def expired(self) -> None:
        """The session expired, and the node with it."""
        self._sessions += 1
        self.epoch = -1

    async def register(self, *, again: bool) -> None:
        """StoreError if another broker has the id. `again`: the broker was registered before, and serves."""
        path = znodes.broker_path(self.broker_id)
        deadline = self._clock.monotonic() + self.expiry_s
        warned = False
        while True:
            session = self._sessions
            acls = self._acls.registration() if self._acls is not None else ()
            try:
                data = encode_registration(self._metadata, self._clock.now_ms())
                await self._store.multi([Create(path, data, ephemeral=True), *acls])
            except NodeExists:
                pass
            node = await self._store.get(path)
            if node is not None and node.mine and session == self._sessions:
                break
            if self._clock.monotonic() >= deadline:
                reason = f"another broker with broker.id={self.broker_id} is running"
                if again and self.on_refused is not None:
                    self.on_refused(reason)
                raise StoreError(reason)
            if not warned:
                warned = True
                logger.warning(
                    "Broker id %d is still registered. A registration of a previous run of this broker expires within %.0f s",
                    self.broker_id,
                    self.expiry_s,
                )
            await asyncio.sleep(_POLL_S)
        self.epoch = node.czxid
        if again and self._acls is not None:
            self._acls.registered_again()
        logger.info("Registered broker %d with broker epoch %d", self.broker_id, node.czxid)
