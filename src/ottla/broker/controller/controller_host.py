"""The controller in office: performs what `cluster.controller` decides, on the metadata store.

Owns: this broker's registration, its term as controller, the current image, and the order of changes: one at a time, each one
written before it is shown. Never decides anything about topics or settings itself.

Invariants:
1. A change is written to the store first; then `on_image` is called with the new image; then the caller hears of it. So a reply
   means that the topic is usable.
2. If the store refuses or fails, the image stays as it was and the caller gets a KafkaError.
3. A producer id is given out once in the life of the store.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from ottla.broker.metadata.client_configs import alter_client_config, load_client_configs
from ottla.broker.metadata.identity import ensure_base_paths, find_cluster_id
from ottla.broker.metadata.tree import load_image
from ottla.cluster import znodes
from ottla.cluster.broker_changes import renumbered
from ottla.cluster.client_entities import ClientConfigs, Entity, with_client_config
from ottla.cluster.controller import Controller, Decision, TopicOutcome
from ottla.cluster.image import BrokerImage, ClusterImage, Endpoint, TopicImage
from ottla.cluster.requests import ConfigAlteration, FoundTopic, NewPartitions, NewTopic
from ottla.cluster.settings import BrokerSettings, TopicSettings
from ottla.cluster.tree_changes import state_changes
from ottla.errors import ErrorCode, KafkaError
from ottla.ports import (
    BadVersion,
    Change,
    Check,
    Clock,
    Create,
    MetadataStore,
    NodeExists,
    Random,
    SetData,
    StoreError,
    StoreUnavailable,
)

logger = logging.getLogger(__name__)


P = ParamSpec("P")
T = TypeVar("T")


def to_its_end(change: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """A client that goes away ends its request, not the change: what the store has, the image must show."""

    @functools.wraps(change)
    async def run(*arguments: P.args, **options: P.kwargs) -> T:
        task = asyncio.ensure_future(change(*arguments, **options))
        # If nobody waits any more, nobody is left to hear of a failure either.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(task)

    return run


class ControllerHost:
    """Registers the broker, takes office, answers requests for change. `start` first; then everything else."""

    def __init__(
        self,
        store: MetadataStore,
        settings: BrokerSettings,
        broker_id: int,
        endpoints: Sequence[Endpoint],
        clock: Clock,
        random: Random,
        on_image: Callable[[ClusterImage], None],
        before_image: Callable[[ClusterImage], Awaitable[None]] | None = None,
    ) -> None:
        """`before_image` may take its time with what a new image needs before it can be shown; no other change comes between."""
        self.settings = settings
        """With the dynamic settings of the current image."""
        self.image = ClusterImage("")
        self._client_configs: ClientConfigs = {}
        self._store = store
        self._broker_id = broker_id
        self._endpoints = tuple(endpoints)
        self._clock = clock
        self._random = random
        self._on_image = on_image
        self._before_image = before_image
        self._controller: Controller | None = None
        self._lock = asyncio.Lock()
        self._producer_ids: range = range(0)

    async def start(self) -> None:
        """Register, take office, load the image, take the lead of this broker's partitions, and show the image."""
        await ensure_base_paths(self._store)
        cluster_id = await find_cluster_id(self._store, self._random, None)
        await self._register()
        controller = self._controller = await self._take_office()
        loaded = await load_image(self._store, cluster_id, self._broker_id, controller.epoch, self._random)
        self._client_configs = await load_client_configs(self._store)
        if loaded.repairs:
            await self._store.multi([Check(znodes.CONTROLLER_EPOCH, controller.epoch_version), *loaded.repairs])
        await self._perform(controller.take_leadership(loaded.image))

    async def _register(self) -> None:
        broker = BrokerImage(self._broker_id, -1, self.settings.optional_str("broker.rack"), self._endpoints)
        data = znodes.encode_broker(broker, self._clock.now_ms())
        try:
            await self._store.multi([Create(znodes.broker_path(self._broker_id), data, ephemeral=True)])
        except NodeExists:
            raise StoreError(f"another broker with the number {self._broker_id} is running") from None

    async def _take_office(self) -> Controller:
        node = await self._store.get(znodes.CONTROLLER_EPOCH)
        assert node is not None
        epoch = int(node.data) + 1
        data = znodes.encode_controller(self._broker_id, self._clock.now_ms())
        await self._store.multi(
            [
                Create(znodes.CONTROLLER, data, ephemeral=True),
                SetData(znodes.CONTROLLER_EPOCH, str(epoch).encode(), node.version),
            ]
        )
        return Controller(self._broker_id, epoch, node.version + 1)

    async def _perform(self, decision: Decision) -> None:
        """Write, then show. A store that fails leaves everything as it was."""
        if not decision.empty:
            await self._store.multi(decision.changes)
        if self._before_image is not None:
            await self._before_image(decision.image)
        self._show(decision.image)

    def _show(self, image: ClusterImage) -> None:
        if image.broker_configs != self.image.broker_configs:
            self.settings = self.settings.with_dynamic(*image.dynamic_config(self._broker_id))
        self.image = image
        self._on_image(image)

    @to_its_end
    async def change(self, plan: Callable[[ClusterImage], tuple[ClusterImage, T]]) -> T:
        """Have `plan` say what the image should become, and write and show it. KafkaError if that cannot be."""
        async with self._lock:
            self._office()
            after, outcome = plan(self.image)
            try:
                await self._become(after)
            except StoreError as error:
                raise failure_of(error) from error
            return outcome

    async def _become(self, image: ClusterImage) -> None:
        """Write and show an image whose partitions have other leaders, replicas or in-sync replicas."""
        if image is not self.image:
            after, controller = renumbered(self.image, image), self._office()
            await self._perform(Decision([*self._fence(), *state_changes(self.image, after, controller.epoch)], after))

    def _fence(self) -> list[Change]:
        return [Check(znodes.CONTROLLER_EPOCH, self._office().epoch_version)]

    def image_in_office(self) -> ClusterImage:
        """The controller's own picture; a KafkaError elsewhere."""
        self._office()
        return self.image

    @property
    def client_configs(self) -> ClientConfigs:
        """What is set for users, client ids and addresses."""
        return self._client_configs

    def unclean_allowed(self, topic: TopicImage) -> bool:
        return TopicSettings.resolve(self.settings, topic.config).bool("unclean.leader.election.enable")

    async def create_topics(
        self, asked: Sequence[NewTopic], *, validate_only: bool = False, forward: bool = True
    ) -> list[TopicOutcome]:
        """For each topic asked for, in order: the topic, usable now, or a KafkaError. `forward`: where this broker is not the
        controller, ask the one that is."""

        def decide(controller: Controller) -> tuple[Decision, list[TopicOutcome]]:
            return controller.create_topics(self.image, self.settings, asked, self._random)

        return await self._change_topics(decide, validate_only=validate_only)

    async def delete_topics(self, asked: Sequence[str | bytes]) -> list[TopicOutcome]:
        """For each topic, by name or id, in order: the topic that is gone now, or a KafkaError."""
        return await self._change_topics(lambda controller: controller.delete_topics(self.image, self.settings, asked))

    async def create_partitions(self, asked: Sequence[NewPartitions], *, validate_only: bool = False) -> list[TopicOutcome]:
        return await self._change_topics(
            lambda controller: controller.create_partitions(self.image, asked), validate_only=validate_only
        )

    @to_its_end
    async def _change_topics(
        self, decide: Callable[[Controller], tuple[Decision, list[TopicOutcome]]], *, validate_only: bool = False
    ) -> list[TopicOutcome]:
        async with self._lock:
            decision, outcomes = decide(self._office())
            if validate_only or decision.empty:
                return outcomes
            try:
                await self._perform(decision)
            except StoreError as error:
                return failed_outcomes(outcomes, error)
            told = self._last_told()
        await self._heard_by_all(told)
        return outcomes

    def _last_told(self) -> Collection[asyncio.Future[bool]]:
        """Who has still to hear of what was performed last. Asked before the lock is given back: the next change tells others."""
        return ()

    async def _heard_by_all(self, told: Collection[asyncio.Future[bool]]) -> None:
        """Until a client that hears of success finds it so wherever it looks."""

    @to_its_end
    async def alter_configs(self, asked: Sequence[ConfigAlteration], *, validate_only: bool = False) -> list[KafkaError | None]:
        """For each resource, in order: None if its settings hold now, or a KafkaError."""
        async with self._lock:
            decision, outcomes = self._office().alter_configs(self.image, self.settings, asked)
            if validate_only or decision.empty:
                return outcomes
            try:
                await self._perform(decision)
            except StoreError as error:
                failure = failure_of(error)
                return [outcome or failure for outcome in outcomes]
            return outcomes

    @to_its_end
    async def alter_client(
        self, one: Entity, plan: Callable[[Mapping[str, str]], dict[str, str]], *, validate_only: bool = False
    ) -> None:
        """What is set for a user, a client id or an address becomes what `plan` makes of it. KafkaError if it cannot."""
        async with self._lock:
            try:
                config = await alter_client_config(self._store, one, plan, validate_only=validate_only)
            except StoreError as error:
                raise failure_of(error) from error
            if not validate_only:
                self._client_configs = with_client_config(self._client_configs, one, config)

    async def allocate_producer_id_block(self) -> range:
        """A thousand producer ids that nobody had or will have."""
        while True:
            node = await self._store.get(znodes.PRODUCER_ID_BLOCK)
            assert node is not None
            changes, block = self._office().next_producer_ids(znodes.decode_producer_id_block(node.data), node.version)
            try:
                await self._store.multi(changes)
            except BadVersion:
                # Another broker took this block, or another controller is in office: then reading again shows it.
                epoch = await self._store.get(znodes.CONTROLLER_EPOCH)
                if epoch is None or epoch.version != self._office().epoch_version:
                    raise KafkaError(ErrorCode.NOT_CONTROLLER, "another broker is the controller now") from None
                continue
            return block

    def take_producer_id(self) -> int | None:
        """A fresh producer id, if one is at hand without waiting."""
        if not self._producer_ids:
            return None
        producer_id = self._producer_ids[0]
        self._producer_ids = self._producer_ids[1:]
        return producer_id

    async def next_producer_id(self) -> int:
        """A fresh producer id. A KafkaError if the store gives none now."""
        async with self._lock:
            producer_id = self.take_producer_id()
            if producer_id is None:
                try:
                    self._producer_ids = await self.allocate_producer_id_block()
                except StoreError as error:
                    raise failure_of(error) from error
                producer_id = self.take_producer_id()
                assert producer_id is not None
            return producer_id

    async def adopt_topics(self, found: Iterable[FoundTopic]) -> list[str]:
        """Enter the topics that lie in the data directories of a store that is new. Returns what the user should know.

        Done once in the life of a store, and marked there in the same write: what lies around later without being in the tree is
        the rest of a deleted topic, not a find.
        """
        async with self._lock:
            if await self._store.get(znodes.ADOPTED) is not None:
                return []
            adoption = self._office().adopt(self.image, found, self._random)
            await self._perform(adoption.decision)
            return adoption.warnings

    def _office(self) -> Controller:
        assert self._controller is not None, "start first"
        return self._controller


def failed_outcomes(outcomes: Iterable[TopicOutcome], error: StoreError) -> list[TopicOutcome]:
    """Of a request whose changes could not be written."""
    failure = failure_of(error)
    return [outcome if isinstance(outcome, KafkaError) else failure for outcome in outcomes]


def failure_of(error: StoreError) -> KafkaError:
    """What a client hears of a store that did not take a change."""
    logger.error("a change of the metadata failed: %s", error)
    if isinstance(error, BadVersion):
        return KafkaError(ErrorCode.NOT_CONTROLLER, "another broker is the controller now")
    if isinstance(error, NodeExists):
        return KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, "the topic exists already, or is being deleted")
    if isinstance(error, StoreUnavailable):
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the metadata could not be written; the change may or may not hold")
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the metadata could not be changed: {error}")
