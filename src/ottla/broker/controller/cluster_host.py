"""One broker of several: its membership in the cluster, its terms as controller, and what is asked of it then (F59-F61).

Owns: registration and the beginning and end of a term. What is written and told is `office`'s, what others write `tree_events`',
the rules are `cluster`'s, the bids `election`'s, the way of orders `controller_channels`'.

1. A term begins with everything read anew and everybody told everything: what was left undone is done then (C09).
2. Whatever this broker is asked and only the controller can do, is asked of the controller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ottla.broker.controller.controller_channels import Send
from ottla.broker.controller.controller_host import failure_of
from ottla.broker.controller.election import Election
from ottla.broker.controller.topic_forwarding import create_request, outcomes_of
from ottla.broker.controller.tree_events import WatchingHost
from ottla.broker.metadata.acl_entities import AclEntities
from ottla.broker.metadata.dynamic_configs import DynamicConfigs
from ottla.broker.metadata.identity import ensure_base_paths, find_cluster_id
from ottla.broker.metadata.tree import load_image, patiently
from ottla.broker.network.inter_broker import PeerUnavailable
from ottla.cluster import znodes
from ottla.cluster.balance import unbalanced
from ottla.cluster.broker_changes import settled, with_partitions
from ottla.cluster.client_entities import ClientConfigs, Entity
from ottla.cluster.controller import Controller, Decision, TopicOutcome
from ottla.cluster.image import BrokerImage, ClusterImage, Endpoint
from ottla.cluster.requests import ConfigAlteration, NewTopic
from ottla.cluster.settings import BrokerSettings
from ottla.cluster.tree_changes import state_changes
from ottla.errors import ErrorCode, KafkaError
from ottla.ports import (
    Check,
    Clock,
    Create,
    MetadataStore,
    Random,
    StoreError,
)
from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest

logger = logging.getLogger(__name__)

_FIRST_BALANCE_S: Final = 5.0

CallController = Callable[[int, str, int, object], Awaitable[Any]]
"""Asks another broker (its id, api name, highest version, request); PeerUnavailable if it does not answer."""


class ClusterHost(WatchingHost):
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
        super().__init__(store, settings, broker_id, endpoints, clock, random, send=send)
        self.configs = DynamicConfigs(
            store, on_topics=self._topics_configured, on_brokers=self._brokers_configured, on_groups=on_group_configs
        )
        self.acl_entities = AclEntities(store)
        self.election = Election(
            store,
            broker_id,
            self._registration,
            clock,
            take_office=self._begin_term,
            resign=self._end_term,
            refused=on_refused,
            # ZooKeeper ends a session at the tick after its time, and ticks every three seconds if nobody tells it otherwise.
            patience_s=settings.int("zookeeper.session.timeout.ms") / 1000 + 4,
        )
        self._static_settings = settings
        self._call = call
        self._local_image = local_image
        self._on_topic_config = on_topic_config
        self._on_broker_configs = on_broker_configs
        self._cluster_id = ""
        self._tasks: list[asyncio.Task[None]] = []

    # Membership

    @property
    def broker_epoch(self) -> int:
        return self.election.broker_epoch

    @property
    def controller_id(self) -> int:
        return self.election.controller_id

    async def start(self) -> None:
        """Register, and take office if nobody has it. StoreError if the cluster does not want this broker."""
        await patiently(lambda: ensure_base_paths(self._store))
        self._cluster_id = await patiently(lambda: find_cluster_id(self._store, self._random, None))
        await self.configs.start()
        await self.acl_entities.start()
        self._brokers_configured(self.configs.brokers)
        self._watch_tree()
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
        await self.acl_entities.stop()

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
            known = self.configs.brokers, self.configs.groups
            loaded = await load_image(self._store, self._cluster_id, self._broker_id, controller.epoch, self._random, known)
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
            told = self._last_told()
        for topic in doomed.values():
            self._errand(self._finish_deletion([topic], told))
        self._look.set()

    async def _give_up(self) -> None:
        await self.election.give_up_office()

    def _end_term(self) -> None:
        self._controller = None
        self._stop_watching_topics()
        self._channels.close()
        self.image = ClusterImage("")

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
        return await super().create_topics(asked, validate_only=validate_only)

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

    async def alter_configs(self, asked: Sequence[ConfigAlteration], *, validate_only: bool = False) -> list[KafkaError | None]:
        """By any broker, in the tree: all others hear of it there."""
        return await self.configs.alter(self._local_image(), self.settings, asked, validate_only=validate_only)

    @property
    def client_configs(self) -> ClientConfigs:
        return self.configs.clients

    async def alter_client(
        self, one: Entity, plan: Callable[[Mapping[str, str]], dict[str, str]], *, validate_only: bool = False
    ) -> None:
        """By any broker, as other settings."""
        try:
            await self.configs.alter_client(one, plan, validate_only=validate_only)
        except StoreError as error:
            raise failure_of(error) from error

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


def _topic_of(path: str) -> str:
    """The topic a node below /brokers/topics or /config/topics belongs to; empty elsewhere."""
    for parent in (znodes.TOPICS, znodes.CONFIG_TOPICS):
        if path.startswith(f"{parent}/"):
            return path[len(parent) + 1 :].partition("/")[0]
    return ""
