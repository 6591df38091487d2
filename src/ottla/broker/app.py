"""A whole broker, alone or in a cluster (`zookeeper.connect`): builds the parts, starts them in order, stops them in reverse.

Start: lock the data directories, open the metadata store, load the logs (with the stored topic settings), bind the listeners,
start the controller, apply the first image, and then let requests in: a client never meets a broker that is half started. In a
cluster the controller may be another broker, the image comes from it (`cluster_member`), and a stop begins with a controlled
shutdown.
Stop: no more requests, cancel those that wait, end the periodic work, resign as controller, flush the logs, and mark the shutdown
as clean.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Mapping
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.broker.clock_watch import ClockWatch
from ottla.broker.controller.standalone_configs import ConfigRequests
from ottla.broker.controller.standalone_controller import StandaloneController
from ottla.broker.coordinators.group_coordinators import GroupCoordinators
from ottla.broker.coordinators.group_shards import GroupShards, offsets_topic
from ottla.broker.coordinators.marker_delivery import MarkerDelivery
from ottla.broker.coordinators.marker_writer import MarkerWriter
from ottla.broker.coordinators.new_producer_ids import NewProducerIds
from ottla.broker.coordinators.shard_host import ShardHost
from ottla.broker.coordinators.transaction_coordinators import TransactionCoordinators
from ottla.broker.coordinators.transaction_shards import TransactionShards, transactions_topic
from ottla.broker.coordinators.transaction_timeouts import TransactionTimeouts
from ottla.broker.coordinators.transaction_verifier import TransactionVerifier
from ottla.broker.handlers import served
from ottla.broker.handlers.produce_replies import ProduceReplies
from ottla.broker.metadata.delegation_tokens import DelegationTokens
from ottla.broker.metadata.identity import find_login_secret, resolve_identity
from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.broker.metadata.open_store import open_embedded, open_zookeeper
from ottla.broker.metadata.tree import retry_unavailable, stored_configs
from ottla.broker.network.dispatch import Authorize, Dispatcher
from ottla.broker.network.handler import Handler
from ottla.broker.network.listeners import bind_listeners, connection_limits, quota_windows, tls_of_listeners
from ottla.broker.network.metering import IDLE_MS, Metering
from ottla.broker.network.purgatory import Purgatory
from ottla.broker.network.socket_server import Login, SocketServer
from ottla.broker.replicas.checkpoints import Checkpoints
from ottla.broker.replicas.cleaner import Cleaner
from ottla.broker.replicas.compactor import Compactor
from ottla.broker.replicas.data_dirs import DataDirs
from ottla.broker.replicas.disk_work import DiskWork
from ottla.broker.replicas.fetch_read import FetchSource
from ottla.broker.replicas.flusher import Flusher
from ottla.broker.replicas.housekeeping import Housekeeping
from ottla.broker.replicas.index_rebuilder import IndexRebuilder
from ottla.broker.replicas.large_batches import LargeBatches
from ottla.broker.replicas.logs_to_clean import LogsToClean
from ottla.broker.replicas.partitions import Partitions
from ottla.broker.replicas.replica_logs import ReplicaLogs
from ottla.broker.replicas.replica_moves import ReplicaMoves
from ottla.broker.replicas.replication_context import ALONE
from ottla.broker.replicas.scrubber import Scrubber
from ottla.broker.replicas.topic_config import TopicConfigs, stored_log_configs
from ottla.broker.startup_error import StartupError
from ottla.broker.telemetry.telemetry import Telemetry
from ottla.cluster.client_entities import ClientConfigs, connection_rate_of, limits_of
from ottla.cluster.image import ClusterImage, Endpoint
from ottla.cluster.settings import BrokerSettings, SettingsError, host_and_port
from ottla.cluster.settings.broker import fixed_security_configs
from ottla.metrics import Counters
from ottla.ports import MetadataStore, StoreError, World
from ottla.replication.fetch_session import FetchSessionCache
from ottla.replication.leader import RACK_AWARE
from ottla.security.quotas import Quotas
from ottla.storage.data_dir import DataDir
from ottla.storage.log import Log
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from ottla.broker.authorization.guard import Guard
    from ottla.broker.cluster_member import ClusterMember
    from ottla.broker.controller.cluster_controller import ClusterController
    from ottla.broker.coordinators.marker_sender import MarkerSender
    from ottla.broker.monitoring.monitor import Monitor
    from ottla.broker.network.listener_tls import TlsOfListeners

__all__ = ["Broker", "StartupError", "serve"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

IDLE_TICK_MS = 5000
CERTIFICATES_TICK_MS = 86_400_000


class BrokerState(IntEnum):
    """Kafka's numbers."""

    STARTING = 1
    RUNNING = 3
    STOPPING = 6


class Broker:
    controller: StandaloneController | ClusterController
    cluster: ClusterMember
    """Only in a cluster."""

    def __init__(
        self,
        settings: BrokerSettings,
        world: World,
        *,
        store: MetadataStore | None = None,
        counters: Counters | None = None,
    ) -> None:
        self.metadata = LocalMetadata(settings)
        self.world = world
        self.counters = counters if counters is not None else Counters()
        self.clock_watch = ClockWatch(world.clock)
        """The time by which data may be deleted."""
        self.is_in_cluster = self.metadata.in_cluster
        self.cluster_id = ""
        self.bound_ports: dict[str, int] = {}
        """By listener name."""
        self.tls: TlsOfListeners | None = None
        self.fetch_sessions = FetchSessionCache(settings.int("max.incremental.fetch.session.cache.slots"), world.random)
        self.large_batches = LargeBatches(world)
        self.quotas = Quotas(quota_windows(settings))
        self.telemetry = Telemetry(self.metadata, world, self.counters)
        self.failure: str | None = None
        """Why the broker stopped by itself."""
        self._given_store = store
        self._guard: Guard | None = None
        """Only with an authorizer."""
        self._data_dirs = DataDirs(settings, world)
        self._data_dirs.on_last_failed = self._fail
        self._first_image_prepared = False
        self._stop_asked = asyncio.Event()
        self._serving = False
        self._stopping = False
        self.monitor: Monitor | None = None
        """Only with `metrics.listener`."""
        self._make_store_durable: Callable[[], Awaitable[None]] | None = None
        """Awaited before anybody hears of what was written during the start."""
        self._undo: list[Callable[[], object]] = []
        self._clean = False

    @property
    def broker_id(self) -> int:
        return self.metadata.broker_id

    @property
    def settings(self) -> BrokerSettings:
        return self.metadata.settings

    @property
    def image(self) -> ClusterImage:
        return self.metadata.image

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        return self.metadata.endpoints

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{endpoint.host}:{endpoint.port}" for endpoint in self.endpoints)

    async def start(self) -> None:
        """Returns when the broker serves. StartupError, with everything undone, if it cannot."""
        try:
            await self._start()
        except BaseException as error:
            await self._unwind(clean=False)
            if isinstance(error, StoreError):
                raise StartupError(str(error)) from error
            raise

    def state(self) -> BrokerState:
        if self._stopping:
            return BrokerState.STOPPING
        return BrokerState.RUNNING if self._serving else BrokerState.STARTING

    def not_ready(self) -> str | None:
        """Why this broker does not serve all that is its own; None if it does."""
        if self._stopping:
            return "the broker is stopping"
        if not self._serving:
            return "the broker is starting"
        if self.is_in_cluster and self.metadata.broker_epoch < 0:
            return "the broker is not registered in ZooKeeper"
        loading = self.groups.shards.loading() + self.transactions.shards.loading()
        return f"loading {', '.join(str(each) for each in loading)}" if loading else None

    async def stop(self) -> None:
        self._stopping = True
        if self.is_in_cluster and self._serving and self.failure is None:
            await self.cluster.controlled_shutdown()
        await self._unwind(clean=True)

    def ask_to_stop(self) -> None:
        self._stop_asked.set()

    def reload_files(self) -> None:
        """Use the TLS stores under the same names if they are new."""
        if self.tls is not None:
            self.tls.apply(self.settings)

    async def stop_asked(self) -> None:
        """Returns when this broker is to stop, on request or because it failed (then `failure` says why)."""
        await self._stop_asked.wait()

    # Starting

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        settings, world = self.settings, self.world
        for warning in settings.warnings:
            logger.warning("%s", warning)
        self._data_dirs.open()
        self._undo.append(lambda: self._data_dirs.close(clean=self._clean))
        await self._start_monitor()
        self.store = await self._open_store()
        self._undo.append(self.store.close)
        await self._find_identity()
        await self._add_first_users()
        leftovers = await self._load_logs()

        self.purgatory = Purgatory(loop)
        self._undo.append(self.purgatory.close)
        if self.is_in_cluster:
            # Imported here: a broker alone starts without it.
            from ottla.broker.cluster_member import ClusterMember

            tls = self.tls.get(settings.listeners().inter_broker) if self.tls is not None else None
            self.cluster = ClusterMember(
                self.metadata,
                self.cluster_id,
                self.store,
                world,
                self._show,
                self.counters,
                tls.client if tls is not None else None,
            )
            self._undo.append(self.cluster.inter_broker.close)
        self._build_replicas()
        for data_dir, log in leftovers:
            self.partitions.logs.remove_leftover(data_dir, log)
        parts: dict[str, object] = {}
        """For the handlers. Complete before the server lets requests in."""
        self.dispatcher = dispatcher = Dispatcher(
            served(in_cluster=self.is_in_cluster),
            parts,
            loop,
            metering=Metering(self.quotas, world.clock, self.counters),
            authorize=self._around_handlers(),
            measuring=self.monitor.measuring if self.monitor is not None else None,
        )
        self.server = SocketServer(
            loop, world.network, dispatcher.dispatch, connection_limits(settings), self.counters, descriptors=world.descriptors
        )
        self._undo.append(self.server.close)
        self._build_coordinators()
        self.tokens = DelegationTokens(self.store, settings, world.clock, world.random)
        self._undo.append(self.tokens.stop)
        await self.tokens.start()
        logins = await self._logins(dispatcher)
        self.bound_ports, self.metadata.endpoints = await bind_listeners(self.server, settings, logins, self.tls)
        if self.is_in_cluster:
            await self._join_cluster()
        else:
            await self._start_controller()
            self.partitions.retire_strays()
        self._start_periodic_work()
        self._undo.append(self.moves.stop)
        self.moves.resume()
        if self.is_in_cluster:
            self.cluster.start()
            self._undo.append(self.cluster.stop)
        parts.update(self._parts())
        if self.monitor is not None:
            await self._watch(self.monitor)
        self.server.open()
        self._serving = True

    async def _start_monitor(self) -> None:
        listener = self.settings.str("metrics.listener")
        if not listener:
            return
        # Imported here: a broker without metrics starts without it.
        from ottla.broker.monitoring.monitor import Monitor

        self.monitor = Monitor(self.world, self.counters, self.state, self.not_ready)
        self._undo.append(self.monitor.stop)
        await self.monitor.start(*host_and_port(listener))

    async def _watch(self, monitor: Monitor) -> None:
        monitor.watch_identity(self.broker_id, self.cluster_id)
        monitor.watch_clients(self.server, self.purgatory, self.fetch_sessions, self.quotas, self.tls)
        fetchers = self.cluster.fetchers if self.is_in_cluster else None
        await monitor.watch_replicas(self.metadata, self.partitions, self.flusher, self.cleaner, fetchers)
        monitor.watch_controller(self.controller.state)
        monitor.watch_coordinators(self.groups, self.transactions)
        monitor.watch_telemetry(self.telemetry)

    async def _logins(self, dispatcher: Dispatcher) -> dict[str, Login]:
        """How clients log in, by SASL listener."""
        if not any(endpoint.security_protocol.startswith("SASL_") for endpoint in self.settings.listeners().bind):
            return {}
        # Imported here: a broker without SASL starts without it.
        from ottla.broker.network.sasl_listeners import LoginSources, SaslListeners

        secret = await self._from_store(lambda: find_login_secret(self.store, self.world.random))
        world = self.world
        sources = LoginSources(
            world.clock,
            world.random,
            world.workers,
            lambda: self.controller.config_requests.clients,
            secret,
            self.tokens.scram_identity,
        )
        listeners = SaslListeners(self.settings, dispatcher, sources)
        self._undo.append(listeners.stop)
        await listeners.start()
        return listeners.logins

    def _around_handlers(self) -> Authorize | None:
        """What is put around each handler: its authorization, and in a cluster what refuses changes while the store is away."""
        authorize = self._authorize()
        if not self.is_in_cluster:
            return authorize
        from ottla.broker.metadata.store_outage import StoreOutage

        outage = StoreOutage(self.store, self.world.clock, lambda: self.image.controller_id == self.broker_id)

        def around(handler: Handler, handle: Callable[[Any, Any], Any], parts: Mapping[str, Any]) -> Callable[[Any, Any], Any]:
            guarded = outage.guarded(handler.api.name, handle)
            return authorize(handler, guarded, parts) if authorize is not None else guarded

        return around

    def _authorize(self) -> Authorize | None:
        """What puts the authorization of its API around each handler; None without an authorizer."""
        authorizer = self.metadata.authorizer
        if authorizer is None:
            return None
        # Imported here: a broker without an authorizer starts without it.
        from ottla.broker.authorization import authorized
        from ottla.broker.authorization.guard import Guard

        self._guard = guard = Guard(authorizer, self.metadata)
        return partial(authorized, guard)

    async def _open_store(self) -> MetadataStore:
        if self._given_store is not None:
            return self._given_store
        if self.is_in_cluster:
            store = await open_zookeeper(self.settings)
            return self.monitor.measured(store) if self.monitor is not None else store
        store, self._make_store_durable = open_embedded(self.settings, self.world.disk, self._data_dirs.failed_paths)
        return store

    async def _from_store(self, work: Callable[[], Awaitable[T]]) -> T:
        """In a cluster the session with the store may expire while the broker starts: try again."""
        return await (retry_unavailable(work) if self.is_in_cluster else work())

    async def _find_identity(self) -> None:
        """The broker id and the cluster id, on which settings, metadata store and data directories must agree."""
        stored = self._data_dirs.stored_identity()
        try:
            broker_id, cluster_id = await self._from_store(
                lambda: resolve_identity(self.store, self.settings, self.world.random, *stored)
            )
        except SettingsError as error:
            raise StartupError(str(error)) from error
        self.metadata.broker_id, self.cluster_id = broker_id, cluster_id
        self._data_dirs.set_identity(broker_id, cluster_id)
        self._data_dirs.write_identity(also_new=self.is_in_cluster)

    async def _add_first_users(self) -> None:
        path = self.settings.optional_str("ottla.bootstrap.users.file")
        if path:
            from ottla.broker.metadata.bootstrap_users import add_bootstrap_users

            await self._from_store(lambda: add_bootstrap_users(self.store, path))

    async def _load_logs(self) -> list[tuple[DataDir, Log]]:
        stored = await self._from_store(lambda: stored_configs(self.store))
        own, default = stored.brokers.get(str(self.broker_id), {}), stored.brokers.get("", {})
        _refuse_fixed_security(own, default)
        settings = self.settings.with_dynamic(own, default) if own or default else self.settings
        self.tls = tls_of_listeners(settings, self.world.clock.now_ms, in_cluster=self.is_in_cluster)
        return await self._data_dirs.load(stored_log_configs(settings, stored.topics))

    def _build_replicas(self) -> None:
        metadata, world = self.metadata, self.world
        disk_work = DiskWork(world.workers, self._data_dirs.fail)
        self.flusher = Flusher(world.clock, disk_work)
        self.partitions = partitions = Partitions(
            self.broker_id,
            ReplicaLogs(self._data_dirs, world),
            TopicConfigs(self.settings, self._settings_changed),
            self.flusher,
            on_progress=self.purgatory.wake,
            replication=self.cluster.replication if self.is_in_cluster else ALONE,
            traffic=self.monitor.traffic if self.monitor is not None else None,
        )
        if self.is_in_cluster:
            self._data_dirs.on_failed.append(self.cluster.directory_failed)
        self.checkpoints = Checkpoints(partitions, world.disk, disk_work)
        self.index_rebuilder = IndexRebuilder(disk_work, self.purgatory)
        self.moves = ReplicaMoves(partitions, metadata, world, self.checkpoints)
        self.housekeeping = Housekeeping(partitions, metadata, world, self.clock_watch)
        self.scrubber = Scrubber(partitions, world.workers, self.counters)
        self.cleaner = Cleaner(
            LogsToClean(partitions, self.moves, self.clock_watch, self.counters),
            Compactor(metadata, world, self.clock_watch, self.counters),
            metadata,
            self.checkpoints,
        )
        if self.is_in_cluster:
            self.cluster.replicate(partitions, self.flusher, self.checkpoints, self.roles_changed)

    def _fetch_source(self) -> FetchSource:
        settings = self.settings
        selects_replicas = self.is_in_cluster and settings.optional_str("replica.selector.class") == RACK_AWARE
        bytes_max = settings.int("fetch.max.bytes")
        return FetchSource(self.partitions, self.metadata, self.index_rebuilder, bytes_max, selects_replicas)

    def _build_coordinators(self) -> None:
        metadata, partitions, purgatory, clock = self.metadata, self.partitions, self.purgatory, self.world.clock
        topic = offsets_topic(metadata, partitions, lambda: self.controller)
        kind = GroupShards(metadata, topic)
        shards = ShardHost(kind, topic, partitions, purgatory, clock)
        self.groups = GroupCoordinators(metadata, kind, shards, self.world.random, self.clock_watch)
        if self._guard is not None:
            self.groups.may_describe = self._guard.may_describe
        self._undo.append(self.groups.close)
        self.marker_writer = MarkerWriter(partitions, self.groups, purgatory, clock)
        self._build_transactions()

    def _build_transactions(self) -> None:
        metadata, partitions, clock = self.metadata, self.partitions, self.world.clock
        inter_broker = self.cluster.inter_broker if self.is_in_cluster else None
        sender: MarkerSender | None = None
        if inter_broker is not None:
            from ottla.broker.coordinators.marker_sender import MarkerSender

            sender = MarkerSender(inter_broker, metadata)
        self.marker_delivery = delivery = MarkerDelivery(metadata, self.marker_writer, sender, clock)
        self._undo.append(delivery.close)
        topic = transactions_topic(metadata, partitions, lambda: self.controller)
        shards = ShardHost(TransactionShards(metadata, delivery), topic, partitions, self.purgatory, clock)
        producer_ids = NewProducerIds(lambda: self.controller)
        timeouts = TransactionTimeouts(metadata, shards, producer_ids, self.clock_watch)
        self.transactions = TransactionCoordinators(shards, producer_ids, timeouts)
        self._undo.append(self.transactions.close)
        self.verifier = TransactionVerifier(self.transactions, metadata, inter_broker)

    def _start_periodic_work(self) -> None:
        idle_ms = self.settings.int("connections.max.idle.ms")
        self.housekeeping.start(self.flusher, self.checkpoints)
        if idle_ms >= 0:
            self.housekeeping.every(max(10, min(idle_ms // 4, IDLE_TICK_MS)), self._close_idle_connections)
        if self.tls is not None:
            self.housekeeping.every(CERTIFICATES_TICK_MS, self._warn_of_expiring_certificates, first_ms=0)
        if self.tokens.enabled:
            self.housekeeping.every(self.settings.int("delegation.token.expiry.check.interval.ms"), self.tokens.remove_expired)
        self.cleaner.start()
        self.scrubber.configure(self.settings.int("log.scrub.bytes.per.second"))
        self.scrubber.start()
        self._undo += [
            self.index_rebuilder.stop,
            self.flusher.stop,
            self.housekeeping.stop,
            self.cleaner.stop,
            self.scrubber.stop,
        ]

    async def _warn_of_expiring_certificates(self) -> None:
        if self.tls is not None:
            self.tls.warn_of_expiry()

    async def _close_idle_connections(self) -> None:
        self.server.sweep_idle()
        if self.quotas.any and self.quotas.forget_idle(self.world.clock.monotonic() * 1000, IDLE_MS):
            self.server.forget_headers()

    def _parts(self) -> dict[str, object]:
        """The collaborators that handlers name as parameters."""
        parts: dict[str, object] = {
            "acl_requests": self.controller.acl_requests,
            "clock": self.world.clock,
            "config_requests": self._config_requests(),
            "disk": self.world.disk,
            "fetch_sessions": self.fetch_sessions,
            "fetch_source": self._fetch_source(),
            "groups": self.groups,
            "large_batches": self.large_batches,
            "marker_writer": self.marker_writer,
            "metadata": self.metadata,
            "moves": self.moves,
            "partition_requests": self.controller.partition_requests,
            "partitions": self.partitions,
            "produce_replies": ProduceReplies(self.partitions, self.purgatory, self.metadata),
            "producer_ids": self.controller.producer_ids,
            "purgatory": self.purgatory,
            "served": served(in_cluster=self.is_in_cluster),
            "telemetry": self.telemetry,
            "tokens": self.tokens,
            "topic_requests": self.controller.topic_requests,
            "transactions": self.transactions,
            "verifier": self.verifier,
        }
        if self.is_in_cluster:
            parts["broker_requests"] = self.controller.broker_requests
            parts["control_requests"] = self.cluster.control_requests
        return parts

    def _config_requests(self) -> ConfigRequests:
        requests = self.controller.config_requests
        if self.tls is None:
            return requests
        from ottla.broker.controller.checked_configs import CheckedConfigs

        return CheckedConfigs(requests, self.metadata, self.tls, self.world.random)

    async def _start_controller(self) -> None:
        """Start the controller of a broker that has no cluster."""
        world = self.world
        self.controller = controller = StandaloneController(
            self.store, self.metadata, world.clock, world.random, self._apply, self._prepare
        )
        controller.config_requests.on_clients = self._clients_configured
        await controller.start()
        self.server.ip_rate = self._connection_rate_of
        for warning in await controller.adopt_topics(self._data_dirs.found_topics()):
            logger.warning("%s", warning)
        if self._make_store_durable is not None:
            await self._make_store_durable()

    async def _join_cluster(self) -> None:
        self.controller = controller = self.cluster.build_controller()
        self._undo.append(controller.stop)
        controller.dynamic_configs.on_clients = self._clients_configured
        await self.cluster.join(self._fail, check_advertised=self._given_store is None)
        self.server.ip_rate = self._connection_rate_of

    def _connection_rate_of(self, host: str) -> int | None:
        return connection_rate_of(self.controller.config_requests.clients, host)

    def _clients_configured(self, configs: ClientConfigs) -> None:
        """Apply the quotas of users and client ids."""
        if self.quotas.configure(limits_of(configs)):
            self.dispatcher.forget_routes()
            self.server.forget_headers()

    # Following the image

    async def _prepare(self, image: ClusterImage) -> None:
        """For a broker alone: before `_apply`."""
        if not self._first_image_prepared:
            self._first_image_prepared = True
            self._data_dirs.check_for_missing_logs(image)
            self._data_dirs.write_identity(also_new=True)
        await self.partitions.prepare(image)

    def _apply(self, image: ClusterImage) -> None:
        """For a broker alone: the controller has changed the image."""
        self.metadata.image = image
        self.partitions.apply(image)
        self.groups.apply(image)
        self.transactions.apply(image)

    def _show(self, image: ClusterImage) -> None:
        """In a cluster: the controller has sent another image. Roles come in LeaderAndIsr and StopReplica requests."""
        self.metadata.image = image
        self.partitions.update_image(image)
        self.roles_changed()

    def roles_changed(self) -> None:
        """In a cluster: coordinators move with the leadership of their partitions."""
        image = self.image
        self.groups.apply(image, self._led(self.groups.shards.topic.name))
        self.transactions.apply(image, self._led(self.transactions.shards.topic.name))

    def _led(self, topic_name: str) -> dict[int, int]:
        """The leader epochs of the partitions of a topic that this broker leads."""
        topic = self.image.topics.get(topic_name)
        led: dict[int, int] = {}
        for number in range(len(topic.partitions) if topic is not None else 0):
            partition = self.partitions.find(TopicPartition(topic_name, number))
            if partition is not None and partition.is_leader and not partition.is_offline:
                led[number] = partition.leader_epoch
        return led

    def _settings_changed(self, settings: BrokerSettings) -> None:
        """Apply dynamic broker settings. Topics have theirs already."""
        self.metadata.settings = settings
        self.server.limits_changed(connection_limits(settings))
        if self.tls is not None:
            self.tls.apply(settings)
        self.groups.settings_changed(settings)
        self.transactions.settings_changed(settings)
        self.cleaner.settings_changed()
        self.scrubber.configure(settings.int("log.scrub.bytes.per.second"))
        if self.is_in_cluster:
            self.cluster.settings_changed()
        for warning in settings.warnings:
            logger.warning("%s", warning)

    # Stopping

    def _fail(self, reason: str) -> None:
        """Stop because of a failure, which `serve` returns."""
        if self.failure is None:
            self.failure = reason
        self._stop_asked.set()

    async def _unwind(self, *, clean: bool) -> None:
        self._clean = clean and self.failure is None
        while self._undo:
            undo = self._undo.pop()
            try:
                result = undo()
                if asyncio.iscoroutine(result):
                    await result
            except Exception:
                logger.exception("Error during shutdown")


def _refuse_fixed_security(*overrides: Mapping[str, str]) -> None:
    """StartupError if the metadata has security settings of this broker that would be ignored."""
    names = [name for each in overrides for name in fixed_security_configs(each)]
    if names:
        raise StartupError(
            f"the metadata has dynamic configs of this broker that Ottla takes from server.properties only: {', '.join(names)}; "
            f"write them there, and delete them with Kafka's tools (kafka-configs --zookeeper)"
        )


async def serve(
    settings: BrokerSettings,
    world: World,
    *,
    counters: Counters | None = None,
    on_ready: Callable[[Broker], None] | None = None,
    on_hangup: Callable[[], None] | None = None,
) -> str | None:
    """Run one broker until SIGTERM, SIGINT or a failure, which is returned. SIGHUP calls `on_hangup`, and reloads files."""
    broker = Broker(settings, world, counters=counters)
    loop = asyncio.get_running_loop()
    starting = asyncio.ensure_future(broker.start())

    def stop() -> None:
        logger.info("Stopping the broker")
        broker.ask_to_stop()
        starting.cancel()

    def hang_up() -> None:
        if on_hangup is not None:
            on_hangup()
        broker.reload_files()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    loop.add_signal_handler(signal.SIGHUP, hang_up)
    try:
        await starting
        if on_ready is not None:
            on_ready(broker)
        await broker.stop_asked()
    except asyncio.CancelledError:
        if not starting.cancelled():
            raise
    finally:
        await broker.stop()
    if broker.failure is None:
        logger.info("Broker stopped")
    return broker.failure
