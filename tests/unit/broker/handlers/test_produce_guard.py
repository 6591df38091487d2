"""The first write of a transaction, while markers of the one before come in (T10, KIP-890)."""

from __future__ import annotations

import asyncio
from typing import Any

from ottla.broker.coordinators.transaction_verifier import RefusalsLater
from ottla.broker.handlers import produce_txn
from ottla.errors import ErrorCode, KafkaError
from ottla.types import TopicPartition

KEY = TopicPartition("t", 0)
PRODUCER_ID = 7


class Guarded:
    """A partition as far as guards go, with markers that come at will."""

    topic_partition = KEY

    def __init__(self) -> None:
        self.guards: dict[int, object] = {}

    def start_verification(self, producer_id: int) -> object:
        return self.guards.setdefault(producer_id, object())

    def end_verification(self, producer_id: int, guard: object, *, keep: bool) -> bool:
        holds = self.guards.get(producer_id) is guard
        if holds and not keep:
            del self.guards[producer_id]
        return holds

    def marker(self) -> None:
        self.guards.pop(PRODUCER_ID, None)


def ask_guarded(markers: list[bool], last: dict[TopicPartition, KafkaError]) -> tuple[dict[TopicPartition, KafkaError], int]:
    """What comes out if a marker comes during the first questions, and how often was asked."""
    partition: Any = Guarded()
    asked = 0

    async def answer() -> dict[TopicPartition, KafkaError]:
        nonlocal asked
        await asyncio.sleep(0)
        if asked < len(markers) and markers[asked]:
            partition.marker()
        asked += 1
        return last if asked >= len(markers) else {}

    def ask(about: list[TopicPartition]) -> RefusalsLater:
        assert about == [KEY]
        return answer

    refusals = asyncio.run(produce_txn._guarded(ask, answer, [partition], PRODUCER_ID))
    return dict(refusals), asked


def test_an_answer_without_a_marker_counts() -> None:
    assert ask_guarded([False], {}) == ({}, 1)


def test_a_marker_meanwhile_has_it_asked_again() -> None:
    assert ask_guarded([True, False], {}) == ({}, 2)


def test_what_is_over_is_refused_by_the_second_answer() -> None:
    refusal = KafkaError(ErrorCode.TRANSACTION_ABORTABLE)
    assert ask_guarded([True, False], {KEY: refusal}) == ({KEY: refusal}, 2)


def test_markers_without_end_end_in_a_refusal() -> None:
    refusals, asked = ask_guarded([True] * 100, {})
    assert refusals[KEY].code == ErrorCode.INVALID_TXN_STATE
    assert asked == produce_txn._ATTEMPTS_MAX
