"""The committed offsets of a group: of a coordinator that moves, and of a partition that fails."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from ottla.cli import connection
from ottla.cli.connection import Connection
from ottla.cli.copying.transfer import Committed, committed_offsets
from ottla.cli.failure import Failure


class MovingCoordinator:
    """A consumer whose group's coordinator has just moved, and the connection that makes it."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals
        self.closed = False

    def consumer(self, **_: Any) -> MovingCoordinator:
        return self

    def committed(self, places: list[TopicPartition], _timeout_s: float) -> list[TopicPartition]:
        if self.refusals:
            self.refusals -= 1
            raise KafkaException(KafkaError(KafkaError.NOT_COORDINATOR))
        return [TopicPartition(place.topic, place.partition, 7) for place in places]

    def close(self) -> None:
        self.closed = True


def test_committed_offsets_are_asked_for_again_while_the_coordinator_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_MOVING_PAUSE_S", 0.001)
    moving = MovingCoordinator(refusals=3)
    found = committed_offsets(cast(Connection, moving), "g", [("t", 1)])
    assert (found, moving.refusals, moving.closed) == ({("t", 1): Committed(7)}, 0, True)


class FailingPartition(MovingCoordinator):
    def committed(self, places: list[TopicPartition], _timeout_s: float) -> list[Any]:
        error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
        return [
            SimpleNamespace(topic=each.topic, partition=each.partition, offset=-1001, metadata=None, error=error)
            for each in places
        ]


def test_a_partition_that_fails_is_not_one_without_a_commit() -> None:
    """Its records would be copied a second time."""
    with pytest.raises(Failure, match="partition 1 of t"):
        committed_offsets(cast(Connection, FailingPartition(0)), "g", [("t", 1)])
