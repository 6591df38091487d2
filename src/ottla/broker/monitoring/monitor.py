"""The metrics of one broker: what is measured from the start on, the listener, and the periodic work of measuring.

`broker.app` makes a Monitor if `metrics.listener` is set, gives `measuring` and `traffic` to the parts that count, and has the
other parts watched once they exist. /healthz and /readyz answer from the beginning of the start on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

from ottla import __version__
from ottla.broker.controller.controller_state import ControllerState
from ottla.broker.coordinators.group_coordinators import GroupCoordinators
from ottla.broker.coordinators.transaction_coordinators import TransactionCoordinators
from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.broker.monitoring.clients import certificate_families, quota_families, session_families, waiting_families
from ottla.broker.monitoring.connections import SAMPLE_S, ConnectionRates, connection_families, described
from ottla.broker.monitoring.controller import ControllerCollector
from ottla.broker.monitoring.coordinators import group_families, transaction_families
from ottla.broker.monitoring.endpoint import Endpoint
from ottla.broker.monitoring.loop_watch import LoopWatch
from ottla.broker.monitoring.process import process_families
from ottla.broker.monitoring.replicas import ReplicaCollector
from ottla.broker.monitoring.requests import request_families
from ottla.broker.monitoring.storage import StorageCollector
from ottla.broker.monitoring.telemetry import telemetry_families
from ottla.broker.monitoring.traffic import traffic_families
from ottla.broker.monitoring.zookeeper import MeasuredStore
from ottla.broker.network.listener_tls import TlsOfListeners
from ottla.broker.network.listeners import cannot_listen
from ottla.broker.network.measuring import Measuring
from ottla.broker.network.purgatory import Purgatory
from ottla.broker.network.socket_server import SocketServer
from ottla.broker.replicas.cleaner import Cleaner
from ottla.broker.replicas.flusher import Flusher
from ottla.broker.replicas.partitions import Partitions
from ottla.broker.replicas.replica_fetcher import ReplicaFetchers
from ottla.broker.replicas.traffic import Traffic
from ottla.broker.telemetry.telemetry import Telemetry
from ottla.metrics import Counters
from ottla.metrics.family import Collector, Family, family, single
from ottla.metrics.histogram import ROTATION_S, Histogram
from ottla.metrics.table import EVENTS, METRICS
from ottla.ports import MetadataStore, World
from ottla.records import compiled
from ottla.replication.fetch_session import FetchSessionCache
from ottla.runtime.http_server import HttpServer
from ottla.security.quotas import Quotas


class Monitor:
    def __init__(self, world: World, counters: Counters, state: Callable[[], int], not_ready: Callable[[], str | None]) -> None:
        """`state`: Kafka's number of the broker's state. `not_ready`: why it does not serve, None if it does."""
        self._world = world
        self._counters = counters
        self._state = state
        self.measuring = Measuring(world.clock.monotonic)
        self.traffic = Traffic()
        self._histograms: list[Histogram] = []
        """Of other parts, to be rotated too."""
        self.address = ""
        """host:port that is bound."""
        self._loop_watch = LoopWatch(asyncio.get_running_loop(), world.clock.monotonic, time.thread_time)
        self._described: Callable[[], list[dict[str, Any]]] = list
        self._rates: ConnectionRates | None = None
        self._storage: StorageCollector | None = None
        self._endpoint = Endpoint(world.clock.monotonic, not_ready, self._connections)
        self._http = HttpServer(world.network, self._endpoint.answer)
        self._periodic: list[asyncio.Task[None]] = []
        self.collect(process_families)
        self.collect(self._own_families)
        self.collect(self._events)
        self.collect(lambda: request_families(self.measuring, self._loop_watch))

    def collect(self, collector: Collector) -> None:
        self._endpoint.collectors.append(collector)

    async def start(self, host: str, port: int) -> None:
        """StartupError if it cannot listen."""
        try:
            bound = await self._http.listen(host, port)
        except OSError as error:
            raise cannot_listen(f"metrics.listener={host}:{port}", error) from error
        self.address = f"[{host}]:{bound}" if ":" in host else f"{host}:{bound}"
        self._loop_watch.start()
        loop = asyncio.get_running_loop()
        self._periodic = [loop.create_task(self._rotate()), loop.create_task(self._sample())]

    def stop(self) -> None:
        for task in self._periodic:
            task.cancel()
        self._loop_watch.stop()
        self._http.close()

    def measured(self, store: MetadataStore) -> MetadataStore:
        """ZooKeeper, with its requests timed."""
        measured = MeasuredStore(store, self._world.clock.monotonic)
        self._histograms.append(measured.took_s)
        self.collect(measured.families)
        return measured

    def watch_identity(self, broker_id: int, cluster_id: str) -> None:
        info = (__version__, broker_id, cluster_id, str(compiled()).lower())
        self.collect(lambda: [family(METRICS["ottla_info"], [(info, 1)])])

    def watch_clients(
        self,
        server: SocketServer,
        purgatory: Purgatory,
        sessions: FetchSessionCache,
        quotas: Quotas,
        tls: TlsOfListeners | None,
    ) -> None:
        self._described = lambda: described(server, purgatory)
        self._rates = rates = ConnectionRates(server)
        rates.sample(server.loop.time())
        self.collect(lambda: connection_families(server, rates))
        self.collect(lambda: waiting_families(server))
        self.collect(lambda: session_families(sessions))
        self.collect(lambda: quota_families(quotas, self._world.clock.monotonic() * 1000))
        if tls is not None:
            self.collect(lambda: certificate_families(tls))

    async def watch_replicas(
        self,
        metadata: LocalMetadata,
        partitions: Partitions,
        flusher: Flusher,
        cleaner: Cleaner,
        fetchers: ReplicaFetchers | None,
    ) -> None:
        self.collect(lambda: traffic_families(self.traffic, partitions))
        self.collect(ReplicaCollector(metadata, partitions, self._world.clock, fetchers))
        self._storage = StorageCollector(self._world, partitions, flusher, cleaner)
        await self._storage.look()
        self.collect(self._storage)
        self._histograms.append(flusher.took_s)

    def watch_controller(self, state: ControllerState) -> None:
        collector = ControllerCollector(state)
        self._histograms += [collector.took_s, collector.waited_s]
        self.collect(collector)

    def watch_coordinators(self, groups: GroupCoordinators, transactions: TransactionCoordinators) -> None:
        self.collect(lambda: group_families(groups))
        self.collect(lambda: transaction_families(transactions, self._world.clock))

    def watch_telemetry(self, telemetry: Telemetry) -> None:
        self.collect(lambda: telemetry_families(telemetry))

    def _connections(self) -> list[dict[str, Any]]:
        return self._described()

    def _own_families(self) -> Iterator[Family]:
        watch = self._loop_watch
        idle = round(watch.idle_share(), 4)
        yield single(METRICS["kafka_server_kafkaserver_brokerstate"], self._state())
        yield single(METRICS["kafka_network_socketserver_networkprocessoravgidle_percent"], idle)
        yield single(METRICS["kafka_network_socketserver_networkprocessoravgidlepercent"], idle)
        yield single(METRICS["kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"], idle)
        yield single(METRICS["ottla_loop_busy_seconds_total"], round(watch.cpu_s(), 3))
        yield single(METRICS["ottla_loop_stall_seconds_max"], round(watch.stall_s_max, 4))
        yield single(METRICS["ottla_scrape_seconds"], round(self._endpoint.last_scrape_s, 4))

    def _events(self) -> Iterator[Family]:
        for name, metric in EVENTS.items():
            yield single(metric, self._counters.get(name))

    async def _rotate(self) -> None:
        while True:
            await asyncio.sleep(ROTATION_S)
            for statistics in self.measuring.by_name.values():
                for each in statistics.histograms():
                    each.rotate()
            for each in (self._loop_watch.lateness_s, *self._histograms):
                each.rotate()

    async def _sample(self) -> None:
        while True:
            await asyncio.sleep(SAMPLE_S)
            if self._rates is not None:
                self._rates.sample(asyncio.get_running_loop().time())
            if self._storage is not None:
                await self._storage.look()
