"""What a controller of several brokers does with a decision: it is written, then told (F61).

Owns: the controller's image, the write under its epoch, the orders that follow from it, and what brokers answer to them.
Never decides: the rules are `cluster`'s. Never looks at the tree: `tree_events` does. Never takes office: `cluster_host` does.

1. Every write carries the check of /controller_epoch's version: after another took office nothing of this one is written (C02).
2. Whatever is written reaches the brokers as orders; the image they follow from is the one that was written.
3. A client is answered when every broker has heard the orders that follow from what it asked for, be there others meanwhile; who
   cannot be reached is not waited for, and nobody for ever.
4. If a write fails half-way, or the tree is not what the image says, the office is given up: the next term reads everything anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from ottla.broker.controller.controller_channels import ControllerChannels, Heard, Send
from ottla.broker.controller.controller_host import ControllerHost
from ottla.cluster import znodes
from ottla.cluster.broker_changes import settled, with_offline
from ottla.cluster.controller import Controller, Decision
from ottla.cluster.image import BrokerImage, ClusterImage, Endpoint, PartitionImage, TopicImage
from ottla.cluster.orders import BrokerOrders, orders_between, stop_replica
from ottla.cluster.settings import BrokerSettings
from ottla.cluster.tree_changes import pieces
from ottla.errors import ErrorCode, KafkaError
from ottla.ports import (
    BadVersion,
    Change,
    Clock,
    Create,
    MetadataStore,
    NodeExists,
    NoNode,
    Random,
    SetData,
    StoreError,
)
from ottla.protocol.messages.stop_replica import StopReplicaTopicState

logger = logging.getLogger(__name__)

HEARD_S: Final = 10.0
"""How long a reply waits for brokers that are in touch and do not answer: one that hangs must not hold up clients for ever."""


class OfficeHost(ControllerHost):
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
    ) -> None:
        super().__init__(store, settings, broker_id, endpoints, clock, random, lambda _: None)
        self._channels = ControllerChannels(send, self._answered, self._everything_for)
        self._told: dict[int, Heard] = {}
        """Whether the last orders were heard, by broker."""
        self._errands: set[asyncio.Task[None]] = set()

    @property
    def in_office(self) -> bool:
        return self._controller is not None

    def _office(self) -> Controller:
        if self._controller is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller")
        return self._controller

    async def _give_up(self) -> None:
        """Let another one, or this one with a fresh view, be the controller."""
        raise NotImplementedError

    # Writing and telling

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
        self._told = self._channels.give(orders)

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
                logger.warning("others have changed the metadata, which the controller reads anew: %s", error)
                self._errand(self._give_up())
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

    def _last_told(self) -> Collection[Heard]:
        return self._told.values()

    async def _heard_by_all(self, told: Collection[Heard]) -> None:
        if told:
            await asyncio.wait(told, timeout=HEARD_S)

    def _everything_for(self, number: int) -> list[BrokerOrders]:
        others = {other: each for other, each in self.image.brokers.items() if other != number}
        orders = orders_between(
            replace(self.image, brokers=others),
            self.image,
            controller_epoch=self._office().epoch,
            listener=self.settings.listeners().inter_broker,
        )
        return [order for order in orders if order.broker.id == number]

    def tell(self, broker: BrokerImage, topics: Sequence[StopReplicaTopicState]) -> None:
        """An order to stop following, besides what follows from the image."""
        request = stop_replica(self.image, broker, self._office().epoch, topics)
        self._channels.give_one(broker, "stop_replica", request)

    def _errand(self, work: Any) -> None:
        """Something that goes on by itself."""
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(_quietly(work))
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    # Answers of brokers

    def _answered(self, broker: BrokerImage, api_name: str, response: Any) -> None:
        if response.error_code == ErrorCode.STALE_CONTROLLER_EPOCH:
            self._errand(self._give_up())
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


async def _quietly(work: Awaitable[None]) -> None:
    try:
        await work
    except (StoreError, KafkaError) as error:
        logger.warning("the controller could not follow a change: %s", error)
    except Exception:
        logger.exception("the controller could not follow a change")
