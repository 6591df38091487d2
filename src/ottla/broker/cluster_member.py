"""What a broker of a cluster has beyond one that is alone: its connections to others, what it hears, whom it follows.

Owns the parts and their order: they begin when the broker serves, and end before its logs are closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.broker.controller.cluster_host import ClusterHost
from ottla.broker.metadata.metadata_cache import MetadataCache
from ottla.broker.network.inter_broker import InterBroker, PeerUnavailable
from ottla.broker.replicas.control_requests import ControllerOrders
from ottla.broker.replicas.isr_changes import IsrChanges
from ottla.broker.replicas.replica_fetcher import ReplicaFetchers
from ottla.broker.replicas.replication_context import Replication
from ottla.cluster.endpoint import Endpoint
from ottla.errors import ErrorCode
from ottla.ports import SessionEvent, StoreError
from ottla.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse

if TYPE_CHECKING:
    from ottla.broker.app import Broker
    from ottla.cluster.settings import BrokerSettings
    from ottla.storage.data_dir import DataDir

logger = logging.getLogger(__name__)

_CONTROLLED_SHUTDOWN_VERSION_MAX: Final = 3
_REPORT_AGAIN_S: Final = 1.0
_TOUCH_PATIENCE_S: Final = 2.0
"""How long a broker that is to stop waits for a store it has lost touch with."""


class ClusterMember:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        clock = broker.world.clock
        self._listener = broker.settings.listeners().inter_broker
        self.inter_broker = InterBroker(broker.broker_id, broker.world.network, self._address_of)
        self.metadata_cache = MetadataCache(broker.cluster_id, broker.store, broker.show)
        self.isr_changes = IsrChanges(broker)
        self.fetchers = ReplicaFetchers(broker)
        self.orders = ControllerOrders(broker, self.metadata_cache)
        self._reports: list[asyncio.Task[None]] = []
        self._out_of_touch = asyncio.Event()
        """The metadata store cannot be reached."""
        self.epoch_of_registration: Callable[[], int] = lambda: -1
        """Of whoever registers this broker, once that is known."""
        self.replication = Replication(
            monotonic_ms=lambda: int(clock.monotonic() * 1000),
            is_alive=lambda broker_id: broker_id in self.metadata_cache.image.brokers,
            propose=self.isr_changes.propose,
        )
        self.settings_changed(broker.settings)

    @property
    def broker_epoch(self) -> int:
        return self.epoch_of_registration()

    def start(self) -> None:
        self._broker.store.on_session(self._session_changed)
        self.isr_changes.start()

    async def stop(self) -> None:
        for report in self._reports:
            report.cancel()
        await self.fetchers.close()
        await self.isr_changes.stop()

    def close(self) -> None:
        self.inter_broker.close()

    def settings_changed(self, settings: BrokerSettings) -> None:
        replication = self.replication
        replication.lag_time_max_ms = settings.int("replica.lag.time.max.ms")
        replication.leader_quota.bytes_per_second = settings.int("leader.replication.throttled.rate")
        replication.follower_quota.bytes_per_second = settings.int("follower.replication.throttled.rate")

    def _address_of(self, broker_id: int) -> Endpoint | None:
        if broker_id == self._broker.broker_id:
            endpoints = self._broker.endpoints
            return next((endpoint for endpoint in endpoints if endpoint.listener == self._listener), None)
        broker = self.metadata_cache.image.brokers.get(broker_id)
        return broker.endpoint(self._listener) if broker is not None else None

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.CONNECTED:
            self._out_of_touch.clear()
            self.isr_changes.resume()
        else:
            self._out_of_touch.set()
            self.isr_changes.suspend()

    def directory_failed(self, data_dir: DataDir) -> None:
        """Have the controller find other leaders for the replicas in it (L06)."""
        controller = self._broker.controller
        assert isinstance(controller, ClusterHost)
        self._reports.append(asyncio.get_running_loop().create_task(self._report(controller)))

    async def _report(self, controller: ClusterHost) -> None:
        while True:
            try:
                await controller.report_log_dir_failure()
                return
            except StoreError as error:
                logger.warning("the controller cannot be told of the failed directory now: %s", error)
                await asyncio.sleep(_REPORT_AGAIN_S)

    # Leaving

    async def hand_over(self) -> None:
        """Before a stop: have the controller move the leaderships away, as often and as long as the settings say (F58, C07)."""
        if not self._broker.settings.bool("controlled.shutdown.enable"):
            return
        waits = [asyncio.ensure_future(work) for work in (self._hand_over(), self._out_of_touch_for(_TOUCH_PATIENCE_S))]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if not waits[0].done():
                # Nothing can be written, so no controller can move anything away.
                logger.warning("stopping without handing leaderships over: the metadata store cannot be reached")
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _out_of_touch_for(self, seconds: float) -> None:
        while True:
            await self._out_of_touch.wait()
            await asyncio.sleep(seconds)
            if self._out_of_touch.is_set():
                return

    async def _hand_over(self) -> None:
        settings = self._broker.settings
        tries = settings.int("controlled.shutdown.max.retries")
        for left in range(tries, -1, -1):
            remaining = await self._ask_to_leave()
            if remaining == 0:
                logger.info("the leaderships of this broker have moved away")
                return
            if left:
                await asyncio.sleep(settings.int("controlled.shutdown.retry.backoff.ms") / 1000)
        logger.warning("stopping although the controller did not move all leaderships away")

    async def _ask_to_leave(self) -> int | None:
        """How many partitions this broker still leads; None if nobody said."""
        broker = self._broker
        controller_id = self.metadata_cache.image.controller_id
        if controller_id < 0:
            return None
        try:
            response: ControlledShutdownResponse = await self.inter_broker.call(
                controller_id,
                "controlled-shutdown",
                "controlled_shutdown",
                ControlledShutdownRequest(broker_id=broker.broker_id, broker_epoch=broker.broker_epoch),
                version_max=_CONTROLLED_SHUTDOWN_VERSION_MAX,
                timeout_ms=broker.settings.int("controller.socket.timeout.ms"),
            )
        except PeerUnavailable as error:
            logger.info("the controller cannot be asked to take over: %s", error)
            return None
        if response.error_code:
            logger.info("the controller refuses to take over: %s", ErrorCode(response.error_code).name)
            return None
        return len(response.remaining_partitions)
