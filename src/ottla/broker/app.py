"""A whole broker, alone or one of a cluster (`zookeeper.connect`): builds everything, starts it in order, stops it in reverse.

Start: data directories locked, the metadata store, the logs recovered (their topics' settings say how), listeners bound, the
controller, the first image, and last of all requests are let in. So whoever gets an answer gets it from a complete broker.
In a cluster the controller is perhaps elsewhere, the image is what it tells (`cluster_member`), and a clean stop begins with
handing the leaderships over.
Stop: no more requests, those that wait are let go, housekeeping ends, the controller steps down, the logs are flushed, and the
mark of a clean shutdown is written.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, TypeVar

from ottla.broker.clock_watch import ClockWatch
from ottla.broker.controller.controller_host import ControllerHost
from ottla.broker.coordinators.group_coordinators import GroupCoordinators
from ottla.broker.coordinators.marker_writer import MarkerWriter
from ottla.broker.coordinators.transaction_coordinators import TransactionCoordinators
from ottla.broker.coordinators.transaction_verifier import TransactionVerifier
from ottla.broker.handlers import served
from ottla.broker.metadata.identity import check_addresses, resolve_identity
from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.broker.metadata.tree import load_brokers, patiently, stored_configs
from ottla.broker.network.dispatch import Dispatcher
from ottla.broker.network.purgatory import Purgatory
from ottla.broker.network.socket_server import ConnectionLimits, SocketServer
from ottla.broker.replicas.housekeeping import Housekeeping
from ottla.broker.replicas.large_batches import LargeBatches
from ottla.broker.replicas.partitions import Partitions
from ottla.broker.replicas.replica_moves import ReplicaMoves
from ottla.broker.replicas.replication_context import ALONE
from ottla.broker.replicas.topic_config import log_config_of
from ottla.cluster.client_entities import connection_rate_of
from ottla.cluster.image import BrokerImage, ClusterImage, Endpoint
from ottla.cluster.requests import FoundTopic
from ottla.cluster.settings import BrokerSettings, SettingsError, TopicSettings
from ottla.cluster.settings.broker import connection_overrides
from ottla.metrics import Counters
from ottla.ports import MetadataStore, StoreError, World
from ottla.replication.closest import RACK_AWARE
from ottla.replication.fetch_session import FetchSessionCache
from ottla.storage.config import LogConfig
from ottla.storage.data_dir import DataDir, DataDirRefused, settle_duplicates
from ottla.storage.log import Log
from ottla.storage.names import META_PROPERTIES, parse_partition_dir
from ottla.storage.segment_cache import SegmentCache
from ottla.types import ZERO_UUID, TopicPartition

if TYPE_CHECKING:
    from ottla.broker.cluster_member import ClusterMember
    from ottla.broker.metadata.metadata_cache import MetadataCache
    from ottla.broker.network.inter_broker import InterBroker
    from ottla.broker.replicas.replica_fetcher import ReplicaFetchers

logger = logging.getLogger(__name__)

T = TypeVar("T")
_NOTICES_MAX = 20


class StartupError(Exception):
    """Why a broker cannot start, in one sentence for the person who started it."""


class Broker:
    server: SocketServer
    partitions: Partitions
    housekeeping: Housekeeping
    moves: ReplicaMoves
    purgatory: Purgatory
    controller: ControllerHost
    coordinators: GroupCoordinators
    transactions: TransactionCoordinators
    store: MetadataStore
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
        """The time by which anything may be thrown away."""
        self.is_in_cluster = settings.optional_str("zookeeper.connect") is not None
        self.selects_replicas = self.is_in_cluster and settings.optional_str("replica.selector.class") == RACK_AWARE
        """Consumers are sent to followers in their rack (KIP-392)."""
        self.cluster_id = ""
        self.endpoints: tuple[Endpoint, ...] = ()
        """What clients are told, with the real ports."""
        self.bound_ports: dict[str, int] = {}
        """By listener name."""
        self.fetch_sessions = FetchSessionCache(settings.int("max.incremental.fetch.session.cache.slots"), world.random)
        self.fetch_bytes_max = settings.int("fetch.max.bytes")
        self.large_batches = LargeBatches(world)
        self.failure: str | None = None
        """Why the broker stopped by itself."""
        self._given_store = store
        self._first_image_prepared = False
        self._data_dirs: list[DataDir] = []
        self._failed_paths: list[str] = []
        self._stop_asked = asyncio.Event()
        self._serving = False
        self._settle: Callable[[], Awaitable[None]] | None = None
        """To be waited for before anybody hears of what was written since the start."""
        self._undo: list[Callable[[], object]] = []

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
    def broker_epoch(self) -> int:
        """Which life of this broker this is, as its registration in the cluster counts; -1 if it is alone."""
        return self.cluster.broker_epoch if self.is_in_cluster else -1

    @property
    def inter_broker(self) -> InterBroker:
        return self.cluster.inter_broker

    @property
    def fetchers(self) -> ReplicaFetchers:
        return self.cluster.fetchers

    @property
    def metadata_cache(self) -> MetadataCache:
        return self.cluster.metadata_cache

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{endpoint.host}:{endpoint.port}" for endpoint in self.endpoints)

    async def start(self) -> None:
        """Serve when this returns; StartupError, with nothing left behind, if that cannot be."""
        try:
            await self._start()
        except BaseException:
            await self._unwind(clean=False)
            raise

    async def stop(self) -> None:
        if self.is_in_cluster and self._serving and self.failure is None:
            await self.cluster.hand_over()
        await self._unwind(clean=True)

    def ask_to_stop(self) -> None:
        self._stop_asked.set()

    async def stop_asked(self) -> None:
        """Until somebody wants this broker to stop, be it the broker itself (then `failure` says why)."""
        await self._stop_asked.wait()

    # Starting

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        settings, world = self.settings, self.world
        for warning in settings.warnings:
            logger.warning("%s", warning)
        self._open_data_dirs()
        self._undo.append(self._close_data_dirs)
        self.store = await self._open_store()
        self._undo.append(self.store.close)
        await self._find_identity()
        leftovers = await self._load_logs()

        self.purgatory = Purgatory(loop)
        self._undo.append(self.purgatory.close)
        if self.is_in_cluster:
            # Imported here: a broker that is alone starts without it.
            from ottla.broker.cluster_member import ClusterMember

            self.cluster = ClusterMember(self)
            self._undo.append(self.cluster.close)
        self.partitions = Partitions(
            self.broker_id,
            settings,
            self._data_dirs,
            world.clock,
            on_progress=self.purgatory.wake,
            on_last_directory_failed=self._fail,
            on_settings=self._settings_changed,
            failed_paths=self._failed_paths,
            replication=self.cluster.replication if self.is_in_cluster else ALONE,
            on_directory_failed=self.cluster.directory_failed if self.is_in_cluster else None,
            flush_now=lambda partition: self.housekeeping.flush_now(partition),
        )
        # Before anything is appended: a transaction that is ended at once may want its markers flushed.
        self.housekeeping = Housekeeping(self)
        self.partitions.remove_leftovers(leftovers)
        parts: dict[str, object] = {}
        """For the handlers. Complete before the server lets requests in."""
        dispatcher = Dispatcher(served(in_cluster=self.is_in_cluster), parts, loop)
        self.server = SocketServer(loop, world.network, dispatcher.dispatch, _limits(settings), self.counters)
        self._undo.append(self.server.close)
        inter_broker = self.cluster.inter_broker if self.is_in_cluster else None
        self.groups = GroupCoordinators(
            self.metadata, self.partitions, self.purgatory, lambda: self.controller, world, self.clock_watch
        )
        self._undo.append(self.groups.close)
        self.marker_writer = MarkerWriter(self.partitions, self.groups, world.clock)
        self.transactions = TransactionCoordinators(
            self.metadata,
            self.partitions,
            self.purgatory,
            lambda: self.controller,
            world.clock,
            self.clock_watch,
            self.marker_writer,
            inter_broker,
        )
        self._undo.append(self.transactions.close)
        self.verifier = TransactionVerifier(self.transactions, self.metadata, inter_broker)
        await self._listen()
        if self.is_in_cluster:
            await self._join_cluster()
        else:
            await self._start_controller()
            self.partitions.set_strays_aside()
        self.housekeeping.start()
        self._undo.append(self.housekeeping.stop)
        self.moves = ReplicaMoves(self)
        self._undo.append(self.moves.stop)
        self.moves.resume()
        if self.is_in_cluster:
            self.cluster.start()
            self._undo.append(self.cluster.stop)
        parts.update(self._parts())
        self.server.open()
        self._serving = True

    def _parts(self) -> dict[str, object]:
        """The collaborators that handlers name as parameters."""
        parts: dict[str, object] = {
            "broker": self,
            "clock": self.world.clock,
            "controller": self.controller,
            "disk": self.world.disk,
            "fetch_sessions": self.fetch_sessions,
            "groups": self.groups,
            "large_batches": self.large_batches,
            "marker_writer": self.marker_writer,
            "metadata": self.metadata,
            "moves": self.moves,
            "partitions": self.partitions,
            "purgatory": self.purgatory,
            "served": served(in_cluster=self.is_in_cluster),
            "transactions": self.transactions,
            "verifier": self.verifier,
        }
        if self.is_in_cluster:
            parts["control_requests"] = self.cluster.orders
        return parts

    async def _load_logs(self) -> list[tuple[DataDir, Log]]:
        """Open the logs of all directories. Returns copies that a finished move left behind."""
        config_of = await self._stored_log_configs()
        now_ms = self.world.clock.now_ms()
        await asyncio.gather(*(self._load(data_dir, config_of, now_ms) for data_dir in self._data_dirs if data_dir.online))
        broken = [data_dir for data_dir in self._data_dirs if not data_dir.online]
        if broken and len(broken) == len(self._data_dirs):
            raise StartupError(f"the data directory {broken[0].path} cannot be used: {broken[0].error}")
        for data_dir in broken:
            logger.error("data directory %s is offline: %s", data_dir.path, data_dir.error)
        try:
            return settle_duplicates(self._data_dirs)
        except DataDirRefused as error:
            raise StartupError(str(error)) from error

    async def _stored_log_configs(self) -> Callable[[str], LogConfig]:
        """How to open a topic's logs. Of one that the store does not know, found in the directory of another broker, nobody can
        say whether it was compacted: gaps in it are taken for what compaction leaves."""
        try:
            stored = await self._from_store(lambda: stored_configs(self.store))
        except StoreError as error:
            raise StartupError(str(error)) from error
        own, default = stored.brokers.get(str(self.broker_id), {}), stored.brokers.get("", {})
        settings = self.settings.with_dynamic(own, default) if own or default else self.settings
        unknown = replace(log_config_of(TopicSettings.resolve(settings, {})), cleanup_policy=frozenset({"compact", "delete"}))

        @cache
        def config_of(topic: str) -> LogConfig:
            overrides = stored.topics.get(topic)
            return unknown if overrides is None else log_config_of(TopicSettings.resolve(settings, overrides))

        return config_of

    async def _load(self, data_dir: DataDir, config_of: Callable[[str], LogConfig], now_ms: int) -> None:
        """In workers: recovery after a crash takes its time, and a signal should be heard meanwhile."""
        run = self.world.workers.run
        try:
            loading = await run(partial(data_dir.start_loading, config_of, now_ms))
            threads = min(self.settings.int("num.recovery.threads.per.data.dir"), max(len(loading), 1))
            work = asyncio.gather(*(run(loading.work) for _ in range(threads)), return_exceptions=True)
            try:
                outcomes = await asyncio.shield(work)
            except asyncio.CancelledError:
                # Nobody may write in the directory once its lock is given back.
                loading.given_up = True
                await work
                raise
            for outcome in outcomes:
                if outcome is not None:
                    raise outcome
            logs = data_dir.loaded(loading)
        except OSError as error:
            data_dir.mark_offline(error)
            return
        _tell(loading.notices)
        if logs:
            logger.info(
                "%s: %d partitions, %s",
                data_dir.path,
                len(logs),
                "closed cleanly" if data_dir.was_clean else "recovered",
            )

    def _open_data_dirs(self) -> None:
        settings, world = self.settings, self.world
        cache = SegmentCache()
        wanted = settings.broker_id()
        problems: list[str] = []
        _check_nesting(settings.log_dirs())
        for path in settings.log_dirs():
            try:
                data_dir = DataDir.open(world.disk, path, wanted if wanted >= 0 else None, None, world.random, cache)
            except BlockingIOError as error:
                others = [data_dir.path for data_dir in self._data_dirs]
                self._close_data_dirs()
                raise StartupError(_who_has(path, others)) from error
            except DataDirRefused as error:
                self._close_data_dirs()
                raise StartupError(str(error)) from error
            except OSError as error:
                why = "no permission" if isinstance(error, PermissionError) else error.strerror or str(error)
                problems.append(f"the data directory {path} cannot be used: {why}")
                self._failed_paths.append(path)
            else:
                self._data_dirs.append(data_dir)
        if not self._data_dirs:
            raise StartupError("; ".join(problems) or "log.dirs names no directory")
        for problem in problems:
            logger.error("%s; its partitions are offline", problem)

    async def _open_store(self) -> MetadataStore:
        if self._given_store is not None:
            return self._given_store
        connect = self.settings.optional_str("zookeeper.connect")
        if connect is not None:
            return await self._open_zookeeper(connect)
        from ottla.broker.metadata.metadata_place import metadata_place
        from ottla.runtime.embedded_store import FILE_NAME, EmbeddedStore

        settings = self.settings
        try:
            place = metadata_place(
                self.world.disk, FILE_NAME, settings.log_dirs(), self._failed_paths, settings.optional_str("metadata.log.dir")
            )
            store = EmbeddedStore.open(f"{place}/{FILE_NAME}", settled=False)
        except StoreError as error:
            raise StartupError(str(error)) from error
        self._settle = store.settle
        return store

    async def _from_store(self, work: Callable[[], Awaitable[T]]) -> T:
        """In a cluster the session with the store may end while the broker starts; that is no reason to end too."""
        return await (patiently(work) if self.is_in_cluster else work())

    async def _find_identity(self) -> None:
        """The broker's number and the cluster's id, on which settings, metadata and data directories must agree."""
        broker_ids = {
            data_dir.broker_id for data_dir in self._data_dirs if data_dir.broker_id is not None and not data_dir.is_new
        }
        cluster_ids = {data_dir.cluster_id for data_dir in self._data_dirs if data_dir.cluster_id is not None}
        if len(broker_ids) > 1 or len(cluster_ids) > 1:
            raise StartupError("the data directories belong to different brokers: their meta.properties do not agree")
        try:
            identity = await self._from_store(
                lambda: resolve_identity(
                    self.store,
                    self.settings,
                    self.world.random,
                    next(iter(broker_ids), None),
                    next(iter(cluster_ids), None),
                )
            )
        except (SettingsError, StoreError) as error:
            raise StartupError(str(error)) from error
        self.metadata.broker_id, self.cluster_id = identity.broker_id, identity.cluster_id
        for data_dir in self._data_dirs:
            data_dir.broker_id, data_dir.cluster_id = identity.broker_id, identity.cluster_id
            if self.is_in_cluster or not data_dir.is_new:
                self._write_identity(data_dir)

    def _write_identity(self, data_dir: DataDir) -> None:
        try:
            data_dir.write_identity()
        except OSError as error:
            data_dir.mark_offline(error)

    async def _listen(self) -> None:
        listeners = self.settings.listeners()
        for endpoint in listeners.bind:
            try:
                port = await self.server.listen(endpoint.listener, endpoint.host, endpoint.port)
            except OSError as error:
                raise StartupError(f"cannot listen on {endpoint}: {_why_not(error)}") from error
            self.bound_ports[endpoint.listener] = port
        self.endpoints = listeners.resolve(self.bound_ports, os.uname().nodename)

    async def _start_controller(self) -> None:
        world = self.world
        self.controller = ControllerHost(
            self.store,
            self.settings,
            self.broker_id,
            self.endpoints,
            world.clock,
            world.random,
            self._apply,
            self._prepare,
        )
        try:
            await self.controller.start()
            self.server.ip_rate = self._connection_rate_of
            for warning in await self.controller.adopt_topics(self._found_topics()):
                logger.warning("%s", warning)
            if self._settle is not None:
                await self._settle()
        except StoreError as error:
            raise StartupError(str(error)) from error

    async def _prepare(self, image: ClusterImage) -> None:
        if not self._first_image_prepared:
            self._first_image_prepared = True
            self._miss_logs(image)
            for data_dir in self._data_dirs:
                self._write_identity(data_dir)
        await self.partitions.prepare(image, self.world.workers)

    def _miss_logs(self, image: ClusterImage) -> None:
        """At the start, alone: partitions that lie nowhere would begin empty. StartupError where a disk may not be mounted."""
        if self.partitions.offline_paths():
            return  # there they are
        missing = [
            f"{name}-{number}"
            for name, topic in image.topics.items()
            for number in range(len(topic.partitions))
            if not any((name, number) in data_dir.logs for data_dir in self._data_dirs)
        ]
        if not missing:
            return
        what = f"partition {missing[0]} is in none of log.dirs"
        if len(missing) > 1:
            what = f"{len(missing)} partitions, {missing[0]} among them, are in none of log.dirs"
        for data_dir in self._data_dirs:
            if data_dir.is_new:
                raise StartupError(
                    f"{data_dir.path} has no {META_PROPERTIES}, and {what}: is its disk mounted? If their "
                    f"records are gone for good: echo version=0 > {data_dir.path}/{META_PROPERTIES}, and they start empty"
                )
        logger.warning("%s: they start empty", what)

    def _connection_rate_of(self, host: str) -> int | None:
        return connection_rate_of(self.controller.client_configs, host)

    async def _open_zookeeper(self, connect: str) -> MetadataStore:
        from ottla.runtime.zookeeper_store import ZooKeeperStore

        session_ms = self.settings.int("zookeeper.session.timeout.ms")
        connection_ms = self.settings.value("zookeeper.connection.timeout.ms")
        # What follows may take as long as that: in Kafka's own server.properties 18 s.
        logger.info("connecting to ZooKeeper at %s", connect)
        try:
            return await ZooKeeperStore.open(
                connect,
                session_timeout_ms=session_ms,
                connection_timeout_ms=connection_ms if isinstance(connection_ms, int) else session_ms,
            )
        except StoreError as error:
            raise StartupError(str(error)) from error

    async def _join_cluster(self) -> None:
        from ottla.broker.controller.cluster_host import ClusterHost
        from ottla.cluster.orders import UpdateMetadataEncodings
        from ottla.protocol.messages.update_metadata import UpdateMetadataRequest

        member, world = self.cluster, self.world
        self.metadata.image = member.metadata_cache.image
        listener = self.settings.listeners().inter_broker
        encodings = UpdateMetadataEncodings()

        async def send(broker: BrokerImage, api_name: str, version: int, request: object) -> object:
            if broker.id == self.broker_id:
                return await member.orders.obey(version, request)
            if isinstance(request, UpdateMetadataRequest):
                request = partial(encodings.encoded, request)
            timeout_ms = self.settings.int("controller.socket.timeout.ms")
            return await member.inter_broker.call(
                broker.id,
                "orders",
                api_name,
                request,
                version_max=version,
                timeout_ms=timeout_ms,
                endpoint=broker.endpoint(listener),
            )

        async def call(broker_id: int, api_name: str, version: int, request: object) -> object:
            return await member.inter_broker.call(broker_id, "requests", api_name, request, version_max=version)

        self.controller = host = ClusterHost(
            self.store,
            self.settings,
            self.broker_id,
            self.endpoints,
            world.clock,
            world.random,
            send=send,
            call=call,
            local_image=lambda: self.image,
            on_topic_config=member.metadata_cache.configure_topic,
            on_broker_configs=member.metadata_cache.configure_brokers,
            on_group_configs=member.metadata_cache.configure_groups,
            on_refused=self._fail,
        )
        member.epoch_of_registration = lambda: host.broker_epoch
        self._undo.append(host.stop)
        try:
            if self._given_store is None:
                await self._from_store(
                    lambda: check_addresses(self.store, self.broker_id, self.endpoints, world.clock, host.election.patience_s)
                )
            await host.start()
            self.server.ip_rate = self._connection_rate_of
            brokers = await self._from_store(lambda: load_brokers(self.store))
            member.metadata_cache.begin(brokers, host.controller_id)
        except StoreError as error:
            raise StartupError(str(error)) from error

    def show(self, image: ClusterImage) -> None:
        """In a cluster: what the controller tells has changed."""
        self.metadata.image = image
        self.partitions.show(image)
        self.roles_changed()

    def roles_changed(self) -> None:
        """In a cluster: partitions of this broker have other roles. GroupCoordinators move with theirs."""
        image = self.image
        self.groups.apply(image, self._led(self.groups.shards.topic.name))
        self.transactions.apply(image, self._led(self.transactions.shards.topic.name))

    def _led(self, topic_name: str) -> dict[int, int]:
        """The partitions of a topic that this broker leads, with their epochs."""
        topic = self.image.topics.get(topic_name)
        led: dict[int, int] = {}
        for number in range(len(topic.partitions) if topic is not None else 0):
            partition = self.partitions.find(TopicPartition(topic_name, number))
            if partition is not None and partition.is_leader and not partition.is_offline:
                led[number] = partition.leader_epoch
        return led

    def _apply(self, image: ClusterImage) -> None:
        self.metadata.image = image
        self.partitions.apply(image)
        self.groups.apply(image)
        self.transactions.apply(image)

    def _found_topics(self) -> list[FoundTopic]:
        """The topics whose partitions lie in the data directories."""
        found: dict[str, tuple[bytes | None, set[int]]] = {}
        for data_dir in self._data_dirs:
            for key, log in data_dir.logs.items():
                topic_id = None if log.topic_id == ZERO_UUID else log.topic_id
                known_id, partitions = found.get(key.topic, (topic_id, set()))
                found[key.topic] = (known_id or topic_id, partitions | {key.partition})
        return [FoundTopic(name, topic_id, frozenset(partitions)) for name, (topic_id, partitions) in found.items()]

    def _settings_changed(self, settings: BrokerSettings) -> None:
        """Dynamic settings: topics have theirs already, this is what the broker itself uses."""
        self.metadata.settings = settings
        self.server.limits_changed(_limits(settings))
        self.groups.settings_changed(settings)
        self.transactions.settings_changed(settings)
        self.housekeeping.cleaner.settings_changed()
        if self.is_in_cluster:
            self.cluster.settings_changed(settings)
        for warning in settings.warnings:
            logger.warning("%s", warning)

    # Stopping

    def _fail(self, reason: str) -> None:
        """Stop by itself. Whoever runs the broker says why, in the last line (`serve` returns it)."""
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
                logger.exception("while stopping")

    _clean = False

    def _close_data_dirs(self) -> None:
        for data_dir in self._data_dirs:
            try:
                data_dir.close(clean=self._clean)
            except OSError as error:
                logger.error("data directory %s could not be closed cleanly: %s", data_dir.path, error)
        self._data_dirs.clear()


def _tell(notices: list[str]) -> None:
    """What was found amiss in a data directory. After a crash it may be a line for each of thousands of partitions."""
    for notice in notices[:_NOTICES_MAX]:
        logger.warning("%s", notice)
    if len(notices) > _NOTICES_MAX:
        logger.warning("and %d more partitions likewise", len(notices) - _NOTICES_MAX)


def _limits(settings: BrokerSettings) -> ConnectionLimits:
    idle_ms = settings.int("connections.max.idle.ms")
    listeners = settings.listeners()
    return ConnectionLimits(
        connections_max=settings.int("max.connections"),
        per_host_max=settings.int("max.connections.per.ip"),
        per_host_overrides=connection_overrides(settings.str("max.connections.per.ip.overrides"))[0],
        per_listener_max=settings.of_listeners("max.connections"),
        waiting_max=settings.int("socket.listen.backlog.size"),
        creation_rate=settings.int("max.connection.creation.rate"),
        per_listener_creation_rate=settings.of_listeners("max.connection.creation.rate"),
        brokers_listener=listeners.inter_broker if len(listeners.bind) > 1 else None,
        idle_ms_max=idle_ms if idle_ms >= 0 else 1 << 62,
        request_bytes_max=settings.int("socket.request.max.bytes"),
        held_bytes_max=settings.int("queued.max.request.bytes"),
    )


def _check_nesting(paths: Sequence[str]) -> None:
    """StartupError where one of log.dirs would be taken for a partition of another: it could be deleted as one."""
    known = {os.path.normpath(path): path for path in paths}
    for path in paths:
        above, name = os.path.split(os.path.normpath(path))
        if above in known and parse_partition_dir(name) is not None:
            raise StartupError(f"log.dirs: {path} lies in {known[above]}, where its name is that of a partition; give it another")


def _who_has(path: str, others: Sequence[str]) -> str:
    """Why the lock of a data directory cannot be had, while those of others of log.dirs are."""
    for other in others:
        if os.path.realpath(path) == os.path.realpath(other):
            return f"log.dirs names a directory twice: {path} is {other}"
    return f"the data directory {path} is in use by another process"


def _why_not(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "another program uses that port"
    if error.errno == errno.EACCES:
        return "no permission for that port"
    if error.errno == errno.EADDRNOTAVAIL:
        return "this machine does not have that address"
    return error.strerror or str(error)


async def serve(
    settings: BrokerSettings, world: World, *, counters: Counters | None = None, on_ready: Callable[[Broker], None] | None = None
) -> str | None:
    """Run one broker until SIGTERM or SIGINT, or until it has to give up: then the result says why."""
    broker = Broker(settings, world, counters=counters)
    loop = asyncio.get_running_loop()
    starting = asyncio.ensure_future(broker.start())

    def stop() -> None:
        logger.info("stopping")
        broker.ask_to_stop()
        starting.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
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
        logger.info("stopped")
    return broker.failure
