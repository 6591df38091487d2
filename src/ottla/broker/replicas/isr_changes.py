"""Sends ISR changes to the controller (AlterPartition, KIP-497), and looks for lagging followers.

Owns the proposals that the controller has not answered yet. `replication.leader` makes them and applies the result.

1. One request at a time; proposals that come meanwhile go with the next one.
2. A partition has at most one proposal. The result of a proposal of an older epoch is ignored.
3. Nothing is sent while the session with the metadata store is not connected: this broker may be fenced already (R15).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.broker.network.inter_broker import InterBroker, PeerUnavailable
from ottla.broker.replicas import leading
from ottla.broker.replicas.disk_work import cancel_all
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.partitions import Partitions
from ottla.errors import ErrorCode
from ottla.metrics import Counters
from ottla.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
)
from ottla.replication.leader import IsrProposal
from ottla.types import TopicPartition

logger = logging.getLogger(__name__)

_VERSION_MAX: Final = 3
_BROKER_EPOCHS_FROM: Final = 3
_RETRY_MS: Final = 50
_RETRY_MAX_MS: Final = 1000


class IsrChanges:
    def __init__(self, metadata: LocalMetadata, inter_broker: InterBroker, counters: Counters) -> None:
        self._metadata = metadata
        self._inter_broker = inter_broker
        self._counters = counters
        self._proposals: dict[Partition, IsrProposal] = {}
        self._news = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._suspended = False

    def start(self, partitions: Partitions) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._send_all()), loop.create_task(self._shrink_all(partitions))]

    async def stop(self) -> None:
        await cancel_all(self._tasks)
        self._tasks.clear()

    def propose(self, partition: Partition, proposal: IsrProposal) -> None:
        logger.info(
            "%s ISR of %s from %s to %s%s",
            "Expanding" if len(proposal.isr) > len(partition.isr) else "Shrinking",
            partition.topic_partition,
            list(partition.isr),
            list(proposal.isr),
            _lag(partition, proposal),
        )
        self._proposals[partition] = proposal
        self._news.set()

    def suspend(self) -> None:
        self._suspended = True

    def resume(self) -> None:
        self._suspended = False
        self._news.set()

    async def _shrink_all(self, partitions: Partitions) -> None:
        while True:
            await asyncio.sleep(max(self._metadata.settings.int("replica.lag.time.max.ms") / 2, 1) / 1000)
            for partition in list(partitions):
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
        """Returns the proposals to send again."""
        metadata = self._metadata
        asked = {
            partition: proposal
            for partition, proposal in asked.items()
            if partition.leadership is not None and partition.leadership.pending is proposal
        }
        controller_id = metadata.image.controller_id
        if not asked:
            return {}
        if controller_id < 0:
            return asked
        try:
            response: AlterPartitionResponse = await self._inter_broker.call(
                controller_id,
                "controller",
                "alter_partition",
                lambda version: _request(metadata.broker_id, metadata.broker_epoch, asked, version),
                version_max=_VERSION_MAX,
                timeout_ms=metadata.settings.int("controller.socket.timeout.ms"),
            )
        except PeerUnavailable as error:
            logger.info("Could not send ISR changes to controller %d, retrying: %s", controller_id, error)
            return asked
        if response.error_code:
            logger.info(
                "Controller %d refused ISR changes, retrying: %s",
                controller_id,
                ErrorCode(response.error_code).name,
            )
            return asked
        return self._answered(asked, response)

    def _answered(self, asked: dict[Partition, IsrProposal], response: AlterPartitionResponse) -> dict[Partition, IsrProposal]:
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
                if proposal is not None and not self._applied(partition, proposal, data):
                    again[partition] = proposal
        return again

    def _applied(self, partition: Partition, proposal: IsrProposal, data: ResponsePartitionData) -> bool:
        """Apply the controller's answer. False: send the proposal again."""
        if data.error_code:
            self._counters.add("isr_updates_failed")
            error = ErrorCode(data.error_code)
            again = leading.isr_refused(partition, proposal, error)
            then = "sending it again" if again else "dropping it"
            logger.info("Controller refused the ISR change of %s: %s; %s", partition.topic_partition, error.name, then)
            return not again
        before = len(partition.isr)
        if leading.isr_confirmed(partition, proposal, tuple(data.isr), data.leader_epoch, data.partition_epoch):
            if len(data.isr) > before:
                self._counters.add("isr_expands")
            else:
                self._counters.add("isr_shrinks")
            logger.info("ISR of %s is now %s", partition.topic_partition, list(data.isr))
        return True


def _lag(partition: Partition, proposal: IsrProposal) -> str:
    """Why brokers leave the ISR, for the log."""
    assert partition.leadership is not None
    now_ms = partition.replication.monotonic_ms()
    reasons: list[str] = []
    for broker_id in partition.isr:
        follower = partition.leadership.followers.get(broker_id)
        if broker_id in proposal.isr or follower is None:
            continue
        caught_up_ms = follower.caught_up_ms
        lagged = f"lagged for {now_ms - caught_up_ms:,} ms" if caught_up_ms is not None else "has not caught up"
        reasons.append(f"broker {broker_id} {lagged}")
    return f": {', '.join(reasons)}" if reasons else ""


def _request(broker_id: int, broker_epoch: int, asked: dict[Partition, IsrProposal], version: int) -> AlterPartitionRequest:
    topics: dict[str, RequestTopicData] = {}
    for partition, proposal in asked.items():
        name, number = partition.topic_partition
        topic = topics.setdefault(name, RequestTopicData(topic_name=name, topic_id=partition.topic_id))
        data = RequestPartitionData(
            partition_index=number, leader_epoch=proposal.leader_epoch, partition_epoch=proposal.partition_epoch
        )
        if version >= _BROKER_EPOCHS_FROM:
            # A replica that restarted since it fetched has another epoch by now: the controller refuses it (C06).
            data.new_isr_with_epochs = [
                BrokerState(broker_id=replica, broker_epoch=epoch)
                for replica, epoch in zip(proposal.isr, proposal.broker_epochs, strict=True)
            ]
        else:
            data.new_isr = list(proposal.isr)
        topic.partitions.append(data)
    return AlterPartitionRequest(broker_id=broker_id, broker_epoch=broker_epoch, topics=list(topics.values()))
