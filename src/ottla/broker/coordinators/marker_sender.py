"""Sending markers to the brokers that lead their partitions (WriteTxnMarkers).

Owns one queue for each broker. One request is in flight at a time; the next one takes all markers that arrived meanwhile, so that
a thousand transactions cost a few requests. Never retries: it reports the error of each partition and the coordinator decides.

A request has at most one marker of a producer: Apache Kafka answers by producer id, in no order, with one result for each.
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
    from ottla.broker.metadata.local_metadata import LocalMetadata
    from ottla.broker.network.inter_broker import InterBroker
    from ottla.coordinator.txn.pending_markers import Marker

logger = logging.getLogger(__name__)

_MARKERS_MAX: Final = 1000
"""Limit for the markers of one request."""

OnAnswer = Callable[[Mapping[TopicPartition, int]], None]
"""Called with the error code of each partition."""


class _Queued(NamedTuple):
    marker: Marker
    coordinator_epoch: int
    partitions: Collection[TopicPartition]
    on_answer: OnAnswer


class MarkerSender:
    def __init__(self, inter_broker: InterBroker, metadata: LocalMetadata) -> None:
        self._inter_broker = inter_broker
        self._metadata = metadata
        self._waiting: dict[int, list[_Queued]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def send(
        self,
        leader: int,
        marker: Marker,
        coordinator_epoch: int,
        partitions: Collection[TopicPartition],
        on_answer: OnAnswer,
    ) -> None:
        self._waiting.setdefault(leader, []).append(_Queued(marker, coordinator_epoch, partitions, on_answer))
        if leader not in self._tasks:
            self._tasks[leader] = asyncio.get_running_loop().create_task(self._run(leader))

    def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()

    async def _run(self, leader: int) -> None:
        try:
            while waiting := self._waiting.get(leader):
                markers, self._waiting[leader] = _next(waiting)
                await self._send(leader, markers)
        finally:
            self._tasks.pop(leader, None)

    async def _send(self, leader: int, markers: dict[int, _Queued]) -> None:
        codes = {
            producer_id: dict.fromkeys(queued.partitions, int(ErrorCode.NETWORK_EXCEPTION))
            for producer_id, queued in markers.items()
        }
        try:
            response: WriteTxnMarkersResponse = await self._inter_broker.call(
                leader,
                "markers",
                "write_txn_markers",
                WriteTxnMarkersRequest(markers=[_encoded(queued) for queued in markers.values()]),
                timeout_ms=self._metadata.settings.int("request.timeout.ms") + 5_000,
            )
        except PeerUnavailable as error:
            logger.info("Cannot send transaction markers to broker %d, the coordinator retries: %s", leader, error)
        else:
            for result in response.markers:
                found = codes.get(result.producer_id, {})
                for topic in result.topics:
                    for partition in topic.partitions:
                        key = TopicPartition(topic.name, partition.partition_index)
                        if key in found:
                            found[key] = partition.error_code
        for producer_id, queued in markers.items():
            queued.on_answer(codes[producer_id])


def _next(waiting: list[_Queued]) -> tuple[dict[int, _Queued], list[_Queued]]:
    """The markers of the next request, by producer id, and those that have to wait for another one."""
    chosen: dict[int, _Queued] = {}
    rest: list[_Queued] = []
    for queued in waiting:
        if len(chosen) < _MARKERS_MAX and queued.marker.producer_id not in chosen:
            chosen[queued.marker.producer_id] = queued
        else:
            rest.append(queued)
    return chosen, rest


def _encoded(queued: _Queued) -> WritableTxnMarker:
    topics: dict[str, WritableTxnMarkerTopic] = {}
    for name, number in queued.partitions:
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = WritableTxnMarkerTopic(name=name, partition_indexes=[])
        topic.partition_indexes.append(number)
    marker = queued.marker
    return WritableTxnMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transaction_result=marker.commit,
        topics=list(topics.values()),
        coordinator_epoch=queued.coordinator_epoch,
        transaction_version=marker.transaction_version,
    )
