"""One broker of several: its membership in the cluster, and the controller's work while it is the one in office (F59-F61).

Owns: the term of office, the controller's image, and the order of changes: one at a time, each written before anybody is told.
Never decides: the rules are `cluster`'s, the bids `election`'s, the way of orders `controller_channels`'.

1. Every write carries the check of /controller_epoch's version: after another took office nothing of this one is written (C02).
2. Whatever is written reaches the brokers as orders; the image they follow from is the one that was written.
3. If a write fails half-way, or the tree is not what the image says, the office is given up: the next term reads everything anew.
4. A topic is marked for deletion before its replicas are told to go, and its nodes are removed after: whoever takes over
   meanwhile goes on with it (C09).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from ottla.broker.controller_channels import ControllerChannels, Send
from ottla.broker.controller_host import ControllerHost, failure_of, to_its_end
from ottla.broker.dynamic_configs import DynamicConfigs
from ottla.broker.election import Election
from ottla.broker.identity import ensure_base_paths, find_cluster_id
from ottla.broker.inter_broker import PeerUnavailable
from ottla.broker.partition_requests import Reassignment, alter_reassignments, elect_leaders
from ottla.broker.topic_forwarding import create_request, outcomes_of
from ottla.broker.tree import Loaded, each, load_brokers, load_image, patiently
from ottla.cluster import znodes
from ottla.cluster.balance import unbalanced
from ottla.cluster.broker_changes import settled, with_brokers, with_offline, with_partitions
from ottla.cluster.controller import Controller, Decision, TopicOutcome
from ottla.cluster.image import BrokerImage, ClusterImage, Endpoint, PartitionImage, TopicImage
from ottla.cluster.orders import BrokerOrders, orders_between, stop_replica
from ottla.cluster.requests import ConfigAlteration, NewTopic
from ottla.cluster.settings import BrokerSettings
from ottla.cluster.topic_changes import delete_changes
from ottla.cluster.tree_changes import pieces, state_changes
from ottla.errors import ErrorCode, KafkaError
from ottla.ports import (
    BadVersion,
    Change,
    Check,
    Clock,
    Create,
    Delete,
    MetadataStore,
    NodeExists,
    NoNode,
    Random,
    SetData,
    StoreError,
)
from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.protocol.messages.stop_replica import StopReplicaTopicState

logger = logging.getLogger(__name__)

_DELIVERY_S: Final = 5.0
"""How long a reply waits for the brokers it concerns; one that hangs must not hold up clients for ever."""
_FIRST_BALANCE_S: Final = 5.0

CallController = Callable[[int, str, int, object], Awaitable[Any]]
"""Asks another broker (its id, api name, highest version, request); PeerUnavailable if it does not answer."""


class ClusterHost(ControllerHost):
    def __init__(
        self,
        store: MetadataStore,
        settings: BrokerSettings,
        broker_id: int,
        endpoints: Sequence[Endpoint],
        clock: Clock,
        random: Random,
        *,
        send: Send,
        call: CallController,
        local_image: Callable[[], ClusterImage],
        on_topic_config: Callable[[str, dict[str, str]], None],
        on_broker_configs: Callable[[dict[str, dict[str, str]]], None],
        on_group_configs: Callable[[dict[str, dict[str, str]]], None],
        on_refused: Callable[[str], None],
    ) -> None:
        """`local_image`: what this broker was told, as any other is. `on_refused`: this broker cannot go on."""
        super().__init__(store, settings, broker_id, endpoints, clock, random, lambda _: None)
        self.configs = DynamicConfigs(
            store, on_topics=self._topics_configured, on_brokers=self._brokers_configured, on_groups=on_group_configs
        )
        self.election = Election(
            store,
            broker_id,
            self._registration,
            clock,
            take_office=self._begin_term,
            resign=self._end_term,
            refused=on_refused,
            patience_s=settings.int("zookeeper.session.timeout.ms") / 1000 + 2,
        )
        self._static_settings = settings
        self._call = call
        self._local_image = local_image
        self._on_topic_config = on_topic_config
        self._on_broker_configs = on_broker_configs
        self._channels = ControllerChannels(send, self._answered, self._everything_for)
        self._cluster_id = ""
        self._delivery: dict[int, asyncio.Future[None]] = {}
        """Of the last orders given, by broker."""
        self._look = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._errands: set[asyncio.Task[None]] = set()

    # Membership

    @property
    def broker_epoch(self) -> int:
        return self.election.broker_epoch

    @property
    def controller_id(self) -> int:
        return self.election.controller_id

    @property
    def in_office(self) -> bool:
        return self._controller is not None

    async def start(self) -> None:
        """Register, and take office if nobody has it. StoreError if the cluster does not want this broker."""
        await patiently(lambda: ensure_base_paths(self._store))
        self._cluster_id = await patiently(lambda: find_cluster_id(self._store, self._random, None))
        await self.configs.start()
        self._brokers_configured(self.configs.brokers)
        for path in (znodes.BROKER_IDS, znodes.LOG_DIR_EVENTS, znodes.PREFERRED_ELECTION, znodes.REASSIGN_PARTITIONS):
            self._store.watch(path, lambda _: self._look.set())
        await self.election.start()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._govern()), loop.create_task(self._balance())]

    async def stop(self) -> None:
        """Leave office and stop watching. The registration goes with the session."""
        for task in [*self._tasks, *self._errands]:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self.election.stop()
        await self.configs.stop()

    def _registration(self) -> bytes:
        broker = BrokerImage(self._broker_id, -1, self.settings.optional_str("broker.rack"), self._endpoints)
        return znodes.encode_broker(broker, self._clock.now_ms())

    async def report_log_dir_failure(self) -> None:
        """Tell the controller that a data directory of this broker failed: it asks which replicas that takes."""
        data = znodes.encode_log_dir_event(self._broker_id)
        await self._store.multi([Create(f"{znodes.LOG_DIR_EVENTS}/log_dir_event_", data, sequential=True)])

    # A term of office

    async def _begin_term(self, controller: Controller) -> None:
        # Before anything is waited for: a session that ends meanwhile ends this term too.
        self._controller = controller
        async with self._lock:
            loaded = await load_image(self._store, self._cluster_id, self._broker_id, controller.epoch, self._random)
            if self._controller is not controller:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "the term ended before it began")
            doomed = await self._doomed_topics(loaded)
            image = settled(loaded.image, self.unclean_allowed)
            fence = Check(znodes.CONTROLLER_EPOCH, controller.epoch_version)
            created = {key for key in loaded.created if key[0] in image.topics}
            repairs = [change for change in loaded.repairs if _topic_of(change.path) not in doomed]
            if await self._store.get(znodes.FEATURE) is None:
                repairs.append(Create(znodes.FEATURE, znodes.NO_FEATURES))
            changes = [fence, *repairs, *state_changes(loaded.image, image, controller.epoch)]
            # What no broker has been told yet, least of all by this controller: everything, and that some topics are to go.
            self.image = ClusterImage(self._cluster_id, topics=doomed)
            await self._perform(Decision(changes, image), created=created)
        for topic in doomed.values():
            self._errand(self._finish_deletion([topic]))
        self._look.set()

    async def _doomed_topics(self, loaded: Loaded) -> dict[str, TopicImage]:
        """Topics that were being deleted when the former controller left; they are taken out of the image."""
        marked = await self._store.children(znodes.DELETE_TOPICS)
        doomed = {name: loaded.image.topics[name] for name in marked if name in loaded.image.topics}
        loaded.image = loaded.image.with_topics((), doomed)
        for name in marked:
            if name not in doomed:
                await self._write([*self._fence(), Delete(f"{znodes.DELETE_TOPICS}/{name}")])
        return doomed

    def _end_term(self) -> None:
        self._controller = None
        self._channels.close()
        self.image = ClusterImage("")

    async def _govern(self) -> None:
        """While in office: look what changed in the tree, whenever it may have."""
        while True:
            await self._look.wait()
            self._look.clear()
            if self._controller is None:
                continue
            try:
                await self._look_at_brokers()
                await self._look_at_log_dirs()
                await self._look_at_old_requests()
            except (StoreError, KafkaError) as error:
                logger.warning("the controller could not follow a change: %s", error)
            except Exception:
                logger.exception("the controller could not follow a change")
                await self.election.give_up_office()

    async def _look_at_brokers(self) -> None:
        async with self._lock:
            brokers = await load_brokers(self._store)
            if self._controller is None or brokers == dict(self.image.brokers):
                return
            known = self.image.brokers
            gone = [number for number in known if number not in brokers or brokers[number].epoch != known[number].epoch]
            if gone:
                logger.info("brokers that are gone: %s", ", ".join(map(str, gone)))
                # One that is back already had left all the same: what it did not fsync may be lost, so it starts from behind.
                await self._settle(with_brokers(self.image, {n: b for n, b in known.items() if n not in gone}))
            arrived = [number for number in brokers if number not in self.image.brokers]
            if arrived:
                logger.info("brokers that are new: %s", ", ".join(map(str, arrived)))
            await self._settle(with_brokers(self.image, brokers))

    async def _settle(self, image: ClusterImage, topics: Iterable[TopicImage] | None = None) -> None:
        """Write and tell what follows from an image in which somebody came or went."""
        await self._become(settled(image, self.unclean_allowed, topics))

    async def _perform(self, decision: Decision, created: Collection[tuple[str, int]] = ()) -> None:
        """Write, then tell."""
        before, controller = self.image, self._office()
        if not decision.empty:
            await self._write(decision.changes)
        if self._controller is not controller:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "another broker is the controller now")
        self.image = decision.image
        for number in before.brokers:
            if number not in decision.image.brokers:
                self._channels.forget(number)
        orders = orders_between(
            before,
            decision.image,
            controller_epoch=controller.epoch,
            listener=self.settings.listeners().inter_broker,
            created=created,
        )
        self._delivery = self._channels.give(orders)

    async def _write(self, changes: Sequence[Change]) -> None:
        done = 0
        try:
            for piece in pieces(changes, self._store.multi_bytes_max):
                try:
                    await self._store.multi(piece)
                except NodeExists:
                    await self._store.multi(await self._over_old_settings(piece))
                done += 1
        except StoreError as error:
            if done or isinstance(error, (BadVersion, NoNode)):
                logger.warning("the metadata are not what they were: %s", error)
                self._errand(self.election.give_up_office())
            raise

    async def _over_old_settings(self, changes: Sequence[Change]) -> list[Change]:
        """Settings may lie around from a topic that is gone, or were written before there was one: a new topic's replace them."""
        renewed: list[Change] = []
        for change in changes:
            old = isinstance(change, Create) and change.path.startswith(f"{znodes.CONFIG_TOPICS}/")
            if old and await self._store.get(change.path) is not None:
                assert isinstance(change, Create)
                renewed.append(SetData(change.path, change.data))
            else:
                renewed.append(change)
        return renewed

    def _office(self) -> Controller:
        if self._controller is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller")
        return self._controller

    def _errand(self, work: Any) -> None:
        """Something that goes on by itself."""
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(_quietly(work))
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    # Answers of brokers

    def _answered(self, broker: BrokerImage, api_name: str, request: Any, response: Any) -> None:
        if response.error_code == ErrorCode.STALE_CONTROLLER_EPOCH:
            self._errand(self.election.give_up_office())
        elif api_name == "leader_and_isr" and response.error_code == ErrorCode.NONE:
            failed: set[tuple[str, int]] = set()
            fine: set[tuple[str, int]] = set()
            for topic in response.topics:
                name = self.image.topic_names.get(bytes(topic.topic_id))
                for partition in topic.partition_errors if name is not None else ():
                    assert name is not None
                    if partition.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                        failed.add((name, partition.partition_index))
                    elif partition.error_code == ErrorCode.NONE:
                        fine.add((name, partition.partition_index))
            if failed or any(broker.id in self._partition(key).offline for key in fine):
                self._errand(self._replicas_offline(broker, failed, fine))

    def _partition(self, key: tuple[str, int]) -> PartitionImage:
        return self.image.topics[key[0]].partitions[key[1]]

    async def _replicas_offline(
        self, broker: BrokerImage, failed: Collection[tuple[str, int]], fine: Collection[tuple[str, int]]
    ) -> None:
        async with self._lock:
            known = self.image.brokers.get(broker.id)
            if self._controller is None or known is None or known.epoch != broker.epoch:
                return
            offline = {
                (topic.name, number)
                for topic in self.image.topics.values()
                for number, partition in enumerate(topic.partitions)
                if broker.id in partition.offline
            }
            after = (offline | set(failed)) - set(fine)
            if after != offline:
                logger.warning("broker %d has %d replicas in failed directories", broker.id, len(after))
                await self._settle(with_offline(self.image, broker.id, after))

    async def _look_at_log_dirs(self) -> None:
        names = await self._store.children(znodes.LOG_DIR_EVENTS)
        if not names:
            return
        paths = [f"{znodes.LOG_DIR_EVENTS}/{name}" for name in names]
        nodes = await each(paths, self._store.get)
        async with self._lock:
            for number in {znodes.decode_log_dir_event(node.data) for node in nodes if node is not None}:
                if number is not None:
                    # Told everything again, the broker says what it cannot do.
                    self._channels.give(self._everything_for(number))
            await self._write([*self._fence(), *(Delete(path) for path, node in zip(paths, nodes, strict=True) if node)])

    def _everything_for(self, number: int) -> list[BrokerOrders]:
        others = {other: each for other, each in self.image.brokers.items() if other != number}
        orders = orders_between(
            replace(self.image, brokers=others),
            self.image,
            controller_epoch=self._office().epoch,
            listener=self.settings.listeners().inter_broker,
        )
        return [order for order in orders if order.broker.id == number]

    async def _look_at_old_requests(self) -> None:
        """The ways to ask for a reassignment or for preferred leaders before there were requests for them."""
        node = await self._store.get(znodes.REASSIGN_PARTITIONS)
        if node is not None:
            wanted = znodes.decode_reassignment(node.data)
            asked = [Reassignment(topic, partition, target) for (topic, partition), target in wanted.items()]
            for error in await alter_reassignments(self, asked):
                if error is not None:
                    logger.warning("%s: %s", znodes.REASSIGN_PARTITIONS, error.detail)
            await self._write([*self._fence(), Delete(znodes.REASSIGN_PARTITIONS, node.version)])
        node = await self._store.get(znodes.PREFERRED_ELECTION)
        if node is not None:
            await elect_leaders(self, znodes.decode_preferred_election(node.data), unclean=False)
            await self._write([*self._fence(), Delete(znodes.PREFERRED_ELECTION, node.version)])

    async def _balance(self) -> None:
        pause = _FIRST_BALANCE_S
        while True:
            await asyncio.sleep(pause)
            pause = self.settings.int("leader.imbalance.check.interval.seconds")
            if self._controller is None or not self.settings.bool("auto.leader.rebalance.enable"):
                continue
            try:
                async with self._lock:
                    moved = unbalanced(self.image, self.settings.int("leader.imbalance.per.broker.percentage"))
                    if moved:
                        logger.info("%d partitions go back to their preferred leader", len(moved))
                        await self._become(with_partitions(self.image, moved))
            except (StoreError, KafkaError) as error:
                logger.warning("leaders could not be balanced: %s", error)

    # Requests of clients

    async def create_topics(
        self, asked: Sequence[NewTopic], *, validate_only: bool = False, forward: bool = True
    ) -> list[TopicOutcome]:
        """For each topic asked for, in order: the topic, or a KafkaError. Elsewhere than at the controller: asked of it."""
        if self._controller is None and forward:
            return await self._forward_topics(asked)
        outcomes = await super().create_topics(asked, validate_only=validate_only)
        await self._delivered(outcomes)
        return outcomes

    async def create_partitions(self, asked: Any, *, validate_only: bool = False) -> list[TopicOutcome]:
        outcomes = await super().create_partitions(asked, validate_only=validate_only)
        await self._delivered(outcomes)
        return outcomes

    async def _delivered(self, outcomes: Iterable[TopicOutcome]) -> None:
        """Until those who lead know it, and this broker too: then a client that hears of success finds it so."""
        leaders = {partition.leader for topic in outcomes if isinstance(topic, TopicImage) for partition in topic.partitions}
        waiting = [self._delivery[number] for number in {*leaders, self._broker_id} if leaders and number in self._delivery]
        if waiting:
            await asyncio.wait(waiting, timeout=_DELIVERY_S)

    async def _forward_topics(self, asked: Sequence[NewTopic]) -> list[TopicOutcome]:
        try:
            response = await self._ask_controller("create_topics", 7, create_request(asked))
        except PeerUnavailable as error:
            lost = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"the controller cannot be asked now: {error}")
            return [lost for _ in asked]
        return outcomes_of(asked, response, self._local_image())

    async def _ask_controller(self, api_name: str, version: int, request: object) -> Any:
        if self.controller_id < 0:
            raise PeerUnavailable("there is no controller at the moment")
        return await self._call(self.controller_id, api_name, version, request)

    async def delete_topics(self, asked: Sequence[str | bytes]) -> list[TopicOutcome]:
        return await self._delete_topics(asked)

    @to_its_end
    async def _delete_topics(self, asked: Sequence[str | bytes]) -> list[TopicOutcome]:
        async with self._lock:
            decision, outcomes = self._office().delete_topics(self.image, self.settings, asked)
            doomed = [topic for topic in outcomes if isinstance(topic, TopicImage)]
            if not doomed:
                return outcomes
            marks = [Create(f"{znodes.DELETE_TOPICS}/{topic.name}") for topic in doomed]
            try:
                await self._perform(Decision([*self._fence(), *marks], decision.image))
            except StoreError as error:
                failure = failure_of(error)
                return [outcome if isinstance(outcome, KafkaError) else failure for outcome in outcomes]
        await self._finish_deletion(doomed)
        return outcomes

    async def _finish_deletion(self, doomed: Sequence[TopicImage]) -> None:
        """When the replicas are gone from those who live (who does not will learn it at its return), the nodes go too."""
        holders = {replica for topic in doomed for partition in topic.partitions for replica in partition.replicas}
        waiting = [self._delivery[number] for number in holders if number in self._delivery]
        if waiting:
            await asyncio.wait(waiting, timeout=_DELIVERY_S)
        async with self._lock:
            if self._controller is None:
                return  # the next controller finds the mark
            for topic in doomed:
                present = await self._present(delete_changes(topic))
                await self._write([*self._fence(), *present, Delete(f"{znodes.DELETE_TOPICS}/{topic.name}")])

    async def _present(self, deletions: Sequence[Change]) -> list[Change]:
        """Without those that an earlier attempt has made already."""
        nodes = await each([change.path for change in deletions], self._store.get)
        return [change for change, node in zip(deletions, nodes, strict=True) if node is not None]

    async def alter_configs(self, asked: Sequence[ConfigAlteration], *, validate_only: bool = False) -> list[KafkaError | None]:
        """By any broker, in the tree: all others hear of it there."""
        return await self.configs.alter(self._local_image(), self.settings, asked, validate_only=validate_only)

    def _topics_configured(self, configs: dict[str, dict[str, str]]) -> None:
        for name, config in configs.items():
            self._on_topic_config(name, config)
        if self._controller is not None:
            self._errand(self._configure_topics(configs))

    async def _configure_topics(self, configs: dict[str, dict[str, str]]) -> None:
        async with self._lock:
            if self._controller is None:
                return
            image = self.image
            changed = [replace(image.topics[name], config=config) for name, config in configs.items() if name in image.topics]
            self.image = image.with_topics(changed)
            # An election that was not allowed may be now.
            await self._settle(self.image, [self.image.topics[topic.name] for topic in changed])

    def _brokers_configured(self, configs: dict[str, dict[str, str]]) -> None:
        own, default = configs.get(str(self._broker_id), {}), configs.get("", {})
        self.settings = self._static_settings.with_dynamic(own, default) if own or default else self._static_settings
        self._on_broker_configs(configs)
        if self._controller is not None:
            self._errand(self._configure_brokers(configs))

    async def _configure_brokers(self, configs: dict[str, dict[str, str]]) -> None:
        async with self._lock:
            if self._controller is not None:
                await self._settle(replace(self.image, broker_configs=configs))

    # Requests of brokers

    async def allocate_producer_id_block(self) -> range:
        if self._controller is not None:
            return await super().allocate_producer_id_block()
        request = AllocateProducerIdsRequest(broker_id=self._broker_id, broker_epoch=self.broker_epoch)
        try:
            response = await self._ask_controller("allocate_producer_ids", 0, request)
        except PeerUnavailable as error:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"no producer ids at the moment: {error}") from error
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"no producer ids: {ErrorCode(response.error_code).name}")
        return range(response.producer_id_start, response.producer_id_start + response.producer_id_len)

    async def producer_id_block_for(self, broker_id: int, broker_epoch: int) -> range:
        """For another broker, as controller."""
        self._check_life(broker_id, broker_epoch)
        try:
            return await super().allocate_producer_id_block()
        except StoreError as error:
            raise failure_of(error) from error

    def _check_life(self, broker_id: int, broker_epoch: int) -> None:
        self._office()
        broker = self.image.brokers.get(broker_id)
        if broker is None:
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"there is no broker {broker_id}")
        if broker.epoch != broker_epoch:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} has epoch {broker.epoch}, not {broker_epoch}")

    def finish_reassignments(self, names: Collection[str]) -> None:
        """Those of these topics whose target is in sync come to their end, in a moment."""
        self._errand(self._arrive(names))

    def tell(self, broker: BrokerImage, topics: Sequence[StopReplicaTopicState]) -> None:
        """An order to stop following, besides what follows from the image."""
        request = stop_replica(self.image, broker, self._office().epoch, topics)
        self._channels.give_one(broker, "stop_replica", request)

    async def _arrive(self, names: Collection[str]) -> None:
        """Reassignments whose target is in sync now come to their end."""
        async with self._lock:
            if self._controller is not None:
                await self._settle(self.image, [self.image.topics[name] for name in names if name in self.image.topics])


async def _quietly(work: Awaitable[None]) -> None:
    try:
        await work
    except (StoreError, KafkaError) as error:
        logger.warning("the controller could not follow a change: %s", error)
    except Exception:
        logger.exception("the controller could not follow a change")


def _topic_of(path: str) -> str:
    """The topic a node below /brokers/topics or /config/topics belongs to; empty elsewhere."""
    for parent in (znodes.TOPICS, znodes.CONFIG_TOPICS):
        if path.startswith(f"{parent}/"):
            return path[len(parent) + 1 :].partition("/")[0]
    return ""
