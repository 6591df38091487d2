"""The controller of a broker that is alone: every start begins a new term of this broker.

Holds the parts and starts them. What differs from a cluster: the image is applied to this broker only, configs need no
notification, and topics are deleted in one write.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from ottla.broker.controller.acl_requests import AclRequests
from ottla.broker.controller.controller_state import ControllerState
from ottla.broker.controller.election import claim_term
from ottla.broker.controller.metadata_writer import LocalPublisher, MetadataWriter
from ottla.broker.controller.partition_requests import PartitionRequests
from ottla.broker.controller.producer_ids import ProducerIds
from ottla.broker.controller.registration import encode_registration
from ottla.broker.controller.standalone_configs import StandaloneConfigs
from ottla.broker.controller.topic_requests import TopicRequests
from ottla.broker.metadata.identity import ensure_base_paths, find_cluster_id
from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.broker.metadata.tree import load_image
from ottla.cluster import znodes
from ottla.cluster.image import ClusterImage
from ottla.cluster.requests import FoundTopic
from ottla.ports import Clock, Create, MetadataStore, NodeExists, Random, StoreError


class StandaloneController:
    broker_requests = None
    """There are no other brokers to answer."""

    def __init__(
        self,
        store: MetadataStore,
        metadata: LocalMetadata,
        clock: Clock,
        random: Random,
        on_image: Callable[[ClusterImage], None],
        before_image: Callable[[ClusterImage], Awaitable[None]] | None = None,
    ) -> None:
        """`before_image` prepares what an image needs before `on_image` applies it; no other change comes in between."""
        self._store = store
        self._metadata = metadata
        self._clock = clock
        self._random = random
        self.state = ControllerState(metadata.broker_id, metadata.settings)
        self._writer = MetadataWriter(store, self.state, LocalPublisher(self.state, on_image, before_image))
        self.topic_requests = TopicRequests(self.state, self._writer, random)
        self.partition_requests = PartitionRequests(self.state, self._writer)
        self.config_requests = StandaloneConfigs(store, self.state, self._writer)
        self.producer_ids = ProducerIds(store, self.state)
        self.acl_requests: AclRequests | None = None
        if metadata.authorizer is not None:
            self.acl_requests = AclRequests(store, metadata.authorizer, metadata.broker_id, clock)

    async def start(self) -> None:
        """Register the broker, begin a term, load the image, elect this broker leader of its partitions, apply the image."""
        store, state = self._store, self.state
        await ensure_base_paths(store)
        cluster_id = await find_cluster_id(store, self._random, None)
        await self._register()
        term = state.term = await claim_term(store, state.broker_id, self._clock.now_ms())
        loaded = await load_image(store, cluster_id, state.broker_id, term.epoch, self._random)
        await self.config_requests.load()
        if self.acl_requests is not None:
            await self.acl_requests.load()
        if loaded.repairs:
            await store.multi([term.fence, *loaded.repairs])
        await self._writer.commit(term.take_leadership(loaded.image))

    async def _register(self) -> None:
        broker_id = self.state.broker_id
        data = encode_registration(self._metadata, self._clock.now_ms())
        try:
            await self._store.multi([Create(znodes.broker_path(broker_id), data, ephemeral=True)])
        except NodeExists:
            raise StoreError(f"another broker with broker.id={broker_id} is running") from None

    async def adopt_topics(self, found: Iterable[FoundTopic]) -> list[str]:
        """Enter the topics found in the data directories into a new store. Returns warnings for the operator.

        This happens once in the life of a store, and the same write marks it as done: a directory that is found later without
        being in the store belongs to a deleted topic.
        """
        async with self.state.lock:
            if await self._store.get(znodes.ADOPTED) is not None:
                return []
            adoption = self.state.active_term().adopt(self.state.image, found, self._random)
            await self._writer.commit(adoption.update)
            return adoption.warnings
