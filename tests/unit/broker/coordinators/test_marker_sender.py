"""Markers on their way to another broker, whose answers come in whatever order it likes (T06)."""

from __future__ import annotations

import asyncio
from typing import Any

from ottla.broker.coordinators.marker_sender import MarkerSender
from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.broker.network.inter_broker import PeerUnavailable
from ottla.cluster.settings import BrokerSettings
from ottla.coordinator.txn.pending_markers import Marker
from ottla.errors import ErrorCode
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.types import TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Peer:
    """Answers as Apache Kafka does: one result for each producer id, ordered by it."""

    def __init__(self) -> None:
        self.requests: list[WriteTxnMarkersRequest] = []
        self.refused: set[tuple[int, int]] = set()
        self.is_away = False

    async def call(self, broker_id: int, purpose: str, api_name: str, request: Any, **more: Any) -> WriteTxnMarkersResponse:
        await asyncio.sleep(0)
        self.requests.append(request)
        if self.is_away:
            raise PeerUnavailable("away")
        asked = {
            marker.producer_id: [(topic.name, index) for topic in marker.topics for index in topic.partition_indexes]
            for marker in request.markers
        }
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(
                                    partition_index=index,
                                    error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER if (producer_id, index) in self.refused else 0,
                                )
                            ],
                        )
                        for name, index in partitions
                    ],
                )
                for producer_id, partitions in sorted(asked.items())
            ]
        )


def marker(producer_id: int, epoch: int = 0) -> Marker:
    return Marker(f"tx-{producer_id}", producer_id, epoch, True, 0, frozenset({P0, P1}))


def heard_of(peer: Peer, *errands: tuple[int, list[TopicPartition]]) -> list[tuple[int, dict[TopicPartition, int]]]:
    async def play() -> list[tuple[int, dict[TopicPartition, int]]]:
        sender = MarkerSender(peer, LocalMetadata(BrokerSettings.parse({"log.dirs": "/nowhere"})))  # type: ignore[arg-type]
        heard: list[tuple[int, dict[TopicPartition, int]]] = []
        for producer_id, partitions in errands:
            sender.send(
                2,
                marker(producer_id),
                5,
                partitions,
                lambda codes, producer_id=producer_id: heard.append((producer_id, dict(codes))),  # type: ignore[misc]
            )
        async with asyncio.timeout(60):
            while len(heard) < len(errands):
                await asyncio.sleep(0)
        sender.close()
        return heard

    return asyncio.run(play())


def test_an_answer_belongs_to_its_producer_wherever_it_stands() -> None:
    peer = Peer()
    peer.refused = {(3, 0), (7, 1)}
    found = dict(heard_of(peer, (7, [P0, P1]), (5, [P0]), (3, [P0, P1])))
    refused = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert found == {7: {P0: 0, P1: refused}, 5: {P0: 0}, 3: {P0: refused, P1: 0}}
    assert len(peer.requests) == 1


def test_two_markers_of_one_producer_go_one_after_the_other() -> None:
    peer = Peer()
    peer.refused = {(7, 1)}
    found = heard_of(peer, (7, [P0]), (5, [P0]), (7, [P1]))
    assert sorted(found, key=str) == sorted(
        [(7, {P0: 0}), (5, {P0: 0}), (7, {P1: int(ErrorCode.NOT_LEADER_OR_FOLLOWER)})], key=str
    )
    assert [[each.producer_id for each in request.markers] for request in peer.requests] == [[7, 5], [7]]


def test_who_cannot_be_asked_has_written_nothing() -> None:
    peer = Peer()
    peer.is_away = True
    assert heard_of(peer, (7, [P0])) == [(7, {P0: int(ErrorCode.NETWORK_EXCEPTION)})]
