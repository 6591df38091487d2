"""Changes of in-sync replicas on their way to the controller (AlterPartition, KIP-497).

Owns the proposals that no controller has answered yet, and the rhythm in which leaders look for followers that do not keep up.
What a proposal means is `replication.leader`'s; this asks, again if need be, and brings the answer.

1. One request at a time; what comes meanwhile goes with the next one.
2. A partition has at most one proposal here. If it was replaced by another epoch meanwhile, its answer is ignored.
3. While the session with the metadata store is in doubt nothing is sent: this broker may be fenced already (R15).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from ottla.broker.network.inter_broker import PeerUnavailable
from ottla.broker.replicas import leading
from ottla.errors import ErrorCode
from ottla.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)
from ottla.replication.leader import IsrProposal
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from ottla.broker.app import Broker
    from ottla.broker.replicas.partition import Partition

logger = logging.getLogger(__name__)

_VERSION_MAX: Final = 3
_BROKER_EPOCHS_FROM: Final = 3
_RETRY_MS: Final = 50
_RETRY_MAX_MS: Final = 1000


class IsrChanges:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._proposals: dict[Partition, IsrProposal] = {}
        self._news = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._suspended = False

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._send_all()), loop.create_task(self._shrink_all())]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    def propose(self, partition: Partition, proposal: IsrProposal) -> None:
        logger.info(
            "%s: ISR %s is to become %s",
            partition.topic_partition,
            ",".join(map(str, partition.isr)),
            ",".join(map(str, proposal.isr)),
        )
        self._proposals[partition] = proposal
        self._news.set()

    def suspend(self) -> None:
        self._suspended = True

    def resume(self) -> None:
        self._suspended = False
        self._news.set()

    async def _shrink_all(self) -> None:
        while True:
            await asyncio.sleep(max(self._broker.cluster.replication.lag_time_max_ms / 2, 1) / 1000)
            for partition in list(self._broker.partitions):
                if partition.leadership is not None:
                    leading.shrink_isr(partition)

    async def _send_all(self) -> None:
        failures = 0
        while True:
            await self._news.wait()
            self._news.clear()
            while self._proposals and not self._suspended:
                asked = dict(self._proposals)
                self._proposals.clear()
                again = await self._ask(asked)
                for partition, proposal in again.items():
                    self._proposals.setdefault(partition, proposal)
                failures = failures + 1 if again else 0
                if again:
                    await asyncio.sleep(min(_RETRY_MS << min(failures, 8), _RETRY_MAX_MS) / 1000)

    async def _ask(self, asked: dict[Partition, IsrProposal]) -> dict[Partition, IsrProposal]:
        """Returns what has to be asked again."""
        broker = self._broker
        asked = {
            partition: proposal
            for partition, proposal in asked.items()
            if partition.leadership is not None and partition.leadership.pending is proposal
        }
        controller_id = broker.image.controller_id
        if not asked:
            return {}
        if controller_id < 0:
            return asked
        try:
            response: AlterPartitionResponse = await broker.inter_broker.call(
                controller_id,
                "controller",
                "alter_partition",
                lambda version: _request(broker.broker_id, broker.broker_epoch, asked, version),
                version_max=_VERSION_MAX,
                timeout_ms=broker.settings.int("controller.socket.timeout.ms"),
            )
        except PeerUnavailable as error:
            logger.info("the controller, broker %d, does not hear of changed in-sync replicas: %s", controller_id, error)
            return asked
        if response.error_code:
            logger.info(
                "the controller, broker %d, refuses changes of in-sync replicas: %s",
                controller_id,
                ErrorCode(response.error_code).name,
            )
            return asked
        return _answered(asked, response)


def _request(broker_id: int, broker_epoch: int, asked: dict[Partition, IsrProposal], version: int) -> AlterPartitionRequest:
    topics: dict[str, RequestTopicData] = {}
    for partition, proposal in asked.items():
        name, number = partition.topic_partition
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = RequestTopicData(topic_name=name, topic_id=partition.topic_id, partitions=[])
        data = RequestPartitionData(
            partition_index=number, leader_epoch=proposal.leader_epoch, partition_epoch=proposal.partition_epoch
        )
        if version >= _BROKER_EPOCHS_FROM:
            # Of a replica that was restarted since it fetched: the controller knows better, and refuses it (C06).
            data.new_isr_with_epochs = [
                BrokerState(broker_id=replica, broker_epoch=epoch)
                for replica, epoch in zip(proposal.isr, proposal.broker_epochs, strict=True)
            ]
        else:
            data.new_isr = list(proposal.isr)
        topic.partitions.append(data)
    return AlterPartitionRequest(broker_id=broker_id, broker_epoch=broker_epoch, topics=list(topics.values()))


def _answered(asked: dict[Partition, IsrProposal], response: AlterPartitionResponse) -> dict[Partition, IsrProposal]:
    by_key = {(partition.topic_id, partition.topic_partition.partition): partition for partition in asked}
    by_name = {partition.topic_partition: partition for partition in asked}
    again = dict(asked)
    for topic in response.topics:
        for data in topic.partitions:
            partition = by_key.get((bytes(topic.topic_id), data.partition_index))
            if partition is None:
                partition = by_name.get(TopicPartition(topic.topic_name, data.partition_index))
            if partition is None:
                continue
            proposal = again.pop(partition, None)
            if proposal is None:
                continue
            if data.error_code:
                if leading.isr_refused(partition, proposal, ErrorCode(data.error_code)):
                    again[partition] = proposal
                logger.info(
                    "%s: the controller refuses another ISR: %s", partition.topic_partition, ErrorCode(data.error_code).name
                )
            elif leading.isr_confirmed(partition, proposal, tuple(data.isr), data.leader_epoch, data.partition_epoch):
                logger.info("%s: ISR is %s", partition.topic_partition, ",".join(map(str, data.isr)))
    return again
