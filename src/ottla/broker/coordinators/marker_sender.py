"""Markers for partitions that other brokers lead, on their way (WriteTxnMarkers).

Owns what is to be sent to each broker: one request at a time, and all that comes meanwhile goes with the next one, so that a
thousand transactions cost a few requests. Never tries again by itself: it says what was not written, and the coordinator decides.

A request has one marker of a producer at most: Apache Kafka answers by producer id, in no order, and in one for each.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.broker.network.inter_broker import PeerUnavailable
from ottla.errors import ErrorCode
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from ottla.broker.app import Broker
    from ottla.coordinator.txn.markers import Marker

logger = logging.getLogger(__name__)

_MARKERS_MAX: Final = 1000
"""In one request."""

Answered = Callable[[Mapping[TopicPartition, int]], None]
"""Hears the error code of each partition."""


class _Errand(NamedTuple):
    marker: Marker
    coordinator_epoch: int
    partitions: Collection[TopicPartition]
    answered: Answered


class MarkerSender:
    def __init__(self, broker: Broker, loop: asyncio.AbstractEventLoop) -> None:
        self._broker = broker
        self._loop = loop
        self._waiting: dict[int, list[_Errand]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def send(
        self,
        leader: int,
        marker: Marker,
        coordinator_epoch: int,
        partitions: Collection[TopicPartition],
        answered: Answered,
    ) -> None:
        self._waiting.setdefault(leader, []).append(_Errand(marker, coordinator_epoch, partitions, answered))
        if leader not in self._tasks:
            self._tasks[leader] = self._loop.create_task(self._run(leader))

    def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()

    async def _run(self, leader: int) -> None:
        try:
            while waiting := self._waiting.get(leader):
                errands, self._waiting[leader] = _next(waiting)
                await self._send(leader, errands)
        finally:
            self._tasks.pop(leader, None)

    async def _send(self, leader: int, errands: dict[int, _Errand]) -> None:
        codes = {
            producer_id: dict.fromkeys(errand.partitions, int(ErrorCode.NETWORK_EXCEPTION))
            for producer_id, errand in errands.items()
        }
        try:
            response: WriteTxnMarkersResponse = await self._broker.inter_broker.call(
                leader,
                "markers",
                "write_txn_markers",
                WriteTxnMarkersRequest(markers=[_written(errand) for errand in errands.values()]),
                timeout_ms=self._broker.settings.int("request.timeout.ms") + 5_000,
            )
        except PeerUnavailable as error:
            logger.info("markers of transactions cannot be sent now: %s", error)
        else:
            for result in response.markers:
                found = codes.get(result.producer_id, {})
                for topic in result.topics:
                    for partition in topic.partitions:
                        key = TopicPartition(topic.name, partition.partition_index)
                        if key in found:
                            found[key] = partition.error_code
        for producer_id, errand in errands.items():
            errand.answered(codes[producer_id])


def _next(waiting: list[_Errand]) -> tuple[dict[int, _Errand], list[_Errand]]:
    """What goes with the next request, by producer id; and what has to wait for another one."""
    chosen: dict[int, _Errand] = {}
    rest: list[_Errand] = []
    for errand in waiting:
        if len(chosen) < _MARKERS_MAX and errand.marker.producer_id not in chosen:
            chosen[errand.marker.producer_id] = errand
        else:
            rest.append(errand)
    return chosen, rest


def _written(errand: _Errand) -> WritableTxnMarker:
    topics: dict[str, WritableTxnMarkerTopic] = {}
    for name, number in errand.partitions:
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = WritableTxnMarkerTopic(name=name, partition_indexes=[])
        topic.partition_indexes.append(number)
    marker = errand.marker
    return WritableTxnMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transaction_result=marker.commit,
        topics=list(topics.values()),
        coordinator_epoch=errand.coordinator_epoch,
        transaction_version=marker.transaction_version,
    )
