"""The parts that a broker of a cluster has beyond those of a broker alone, and their order of start and stop.

Connections to other brokers, the metadata that the controller sends, ISR changes, replica fetchers, and this broker's part in the
election of the controller.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Final

from ottla.broker.controller.cluster_controller import ClusterController
from ottla.broker.controller.controller_client import BrokerClient
from ottla.broker.metadata.dynamic_configs import DynamicConfigs
from ottla.broker.metadata.identity import check_addresses
from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.broker.metadata.metadata_cache import MetadataCache
from ottla.broker.metadata.tree import load_brokers, retry_unavailable
from ottla.broker.network.inter_broker import InterBroker, PeerUnavailable
from ottla.broker.network.inter_broker_security import inter_broker_security
from ottla.broker.replicas.checkpoints import Checkpoints
from ottla.broker.replicas.control_requests import ControlRequests
from ottla.broker.replicas.flusher import Flusher
from ottla.broker.replicas.isr_changes import IsrChanges
from ottla.broker.replicas.partitions import Partitions
from ottla.broker.replicas.replica_fetcher import ReplicaFetchers
from ottla.broker.replicas.replication_context import ReplicationContext
from ottla.cluster.image import ClusterImage, Endpoint
from ottla.errors import ErrorCode
from ottla.metrics import Counters
from ottla.ports import MetadataStore, SessionEvent, StoreError, World
from ottla.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from ottla.storage.data_dir import DataDir

logger = logging.getLogger(__name__)

_CONTROLLED_SHUTDOWN_VERSION_MAX: Final = 3
_REPORT_RETRY_S: Final = 1.0
_DISCONNECTED_MAX_S: Final = 2.0
"""How long a broker that is about to stop waits for a metadata store that is disconnected."""


class ClusterMember:
    fetchers: ReplicaFetchers
    control_requests: ControlRequests
    _partitions: Partitions
    _controller: ClusterController

    def __init__(
        self,
        metadata: LocalMetadata,
        cluster_id: str,
        store: MetadataStore,
        world: World,
        on_image: Callable[[ClusterImage], None],
        counters: Counters,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self._metadata = metadata
        self._store = store
        self._world = world
        self._listener = metadata.settings.listeners().inter_broker
        security = inter_broker_security(metadata.settings)
        self.inter_broker = InterBroker(metadata.broker_id, world.network, self._endpoint_of, security, tls)
        self.metadata_cache = MetadataCache(cluster_id, store, on_image)
        self.isr_changes = IsrChanges(metadata, self.inter_broker, counters)
        self._reports: list[asyncio.Task[None]] = []
        self._disconnected = asyncio.Event()
        """The session with the metadata store is not connected."""
        self.replication = ReplicationContext(
            monotonic_ms=lambda: int(world.clock.monotonic() * 1000),
            is_alive=lambda broker_id: broker_id in self.metadata_cache.image.brokers,
            propose=self.isr_changes.propose,
        )
        self.settings_changed()

    def replicate(
        self, partitions: Partitions, flusher: Flusher, checkpoints: Checkpoints, on_roles_changed: Callable[[], None]
    ) -> None:
        """Build the parts that work on partitions, which need `replication` for their part."""
        self._partitions = partitions
        self.fetchers = ReplicaFetchers(self._metadata, self.inter_broker, self._world.clock, flusher, checkpoints)
        self.control_requests = ControlRequests(self._metadata, self.metadata_cache, partitions, self.fetchers, on_roles_changed)

    def build_controller(self) -> ClusterController:
        """This broker's part in the cluster's controller."""
        metadata, world, cache = self._metadata, self._world, self.metadata_cache
        metadata.image = cache.image
        client = BrokerClient(metadata, self.inter_broker, self.control_requests.handle)
        configs = DynamicConfigs(self._store, cache)
        self._controller = controller = ClusterController(self._store, metadata, configs, client, world.clock, world.random)
        metadata.registration_epoch = lambda: controller.broker_epoch
        return controller

    async def join(self, on_refused: Callable[[str], None], *, check_advertised: bool) -> None:
        """Register this broker and take part in the election of the controller. StoreError if the store cannot be reached.

        `on_refused` is called if the cluster refuses to register this broker again later. `check_advertised`: whether to compare
        the advertised listeners with those of other brokers first.
        """
        controller, metadata = self._controller, self._metadata
        if check_advertised:
            expiry_s = controller.registration.expiry_s
            await retry_unavailable(
                lambda: check_addresses(self._store, metadata.broker_id, metadata.endpoints, self._world.clock, expiry_s)
            )
        await controller.start(on_refused)
        self.metadata_cache.begin(await retry_unavailable(lambda: load_brokers(self._store)), controller.controller_id)

    def start(self) -> None:
        self._store.on_session(self._session_changed)
        self.isr_changes.start(self._partitions)

    async def stop(self) -> None:
        for report in self._reports:
            report.cancel()
        await self.fetchers.close()
        await self.isr_changes.stop()

    def settings_changed(self) -> None:
        settings, replication = self._metadata.settings, self.replication
        replication.lag_time_max_ms = settings.int("replica.lag.time.max.ms")
        replication.leader_quota.bytes_per_second = settings.int("leader.replication.throttled.rate")
        replication.follower_quota.bytes_per_second = settings.int("follower.replication.throttled.rate")

    def _endpoint_of(self, broker_id: int) -> Endpoint | None:
        if broker_id == self._metadata.broker_id:
            endpoints = self._metadata.endpoints
            return next((endpoint for endpoint in endpoints if endpoint.listener == self._listener), None)
        broker = self.metadata_cache.image.brokers.get(broker_id)
        return broker.endpoint(self._listener) if broker is not None else None

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.CONNECTED:
            self._disconnected.clear()
            self.isr_changes.resume()
        else:
            self._disconnected.set()
            self.isr_changes.suspend()

    def directory_failed(self, data_dir: DataDir, error: OSError) -> None:
        """Report it to the controller, which elects other leaders for its partitions (L06)."""
        self._reports.append(asyncio.get_running_loop().create_task(self._report_directory_failure()))

    async def _report_directory_failure(self) -> None:
        while True:
            try:
                await self._controller.report_log_dir_failure()
                return
            except StoreError as error:
                logger.warning("Could not report the failed data directory to the controller, retrying: %s", error)
                await asyncio.sleep(_REPORT_RETRY_S)

    # Controlled shutdown

    async def controlled_shutdown(self) -> None:
        """Have the controller move the leaderships away, within the retries that the settings give (F58, C07)."""
        if not self._metadata.settings.bool("controlled.shutdown.enable"):
            return
        waits = [asyncio.ensure_future(work) for work in (self._move_leaderships(), self._disconnected_for(_DISCONNECTED_MAX_S))]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if not waits[0].done():
                # Nothing can be written, so no controller can move anything away.
                logger.warning("Stopping without controlled shutdown: the metadata store cannot be reached")
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _disconnected_for(self, seconds: float) -> None:
        while True:
            await self._disconnected.wait()
            await asyncio.sleep(seconds)
            if self._disconnected.is_set():
                return

    async def _move_leaderships(self) -> None:
        settings = self._metadata.settings
        for retries_left in range(settings.int("controlled.shutdown.max.retries"), -1, -1):
            remaining = await self._request_shutdown()
            if remaining == 0:
                logger.info("Controlled shutdown succeeded: all leaderships of this broker have moved")
                return
            if retries_left:
                await asyncio.sleep(settings.int("controlled.shutdown.retry.backoff.ms") / 1000)
        logger.warning("Controlled shutdown failed: stopping although the controller did not move all leaderships")

    async def _request_shutdown(self) -> int | None:
        """How many partitions this broker still leads; None without a response."""
        metadata = self._metadata
        controller_id = self.metadata_cache.image.controller_id
        if controller_id < 0:
            return None
        try:
            response: ControlledShutdownResponse = await self.inter_broker.call(
                controller_id,
                "controlled-shutdown",
                "controlled_shutdown",
                ControlledShutdownRequest(broker_id=metadata.broker_id, broker_epoch=metadata.broker_epoch),
                version_max=_CONTROLLED_SHUTDOWN_VERSION_MAX,
                timeout_ms=metadata.settings.int("controller.socket.timeout.ms"),
            )
        except PeerUnavailable as error:
            logger.info("Controlled shutdown: controller %d did not respond: %s", controller_id, error)
            return None
        if response.error_code:
            code = ErrorCode(response.error_code).name
            logger.info("Controlled shutdown: controller %d refused with %s", controller_id, code)
            return None
        return len(response.remaining_partitions)
