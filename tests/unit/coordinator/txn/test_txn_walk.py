"""Random walks: producers of both generations, zombies, time, failing markers, failovers, compaction.

At each step the host compares the shard with one loaded from its log. Here, besides: what a marker says is what was decided, a
partition hears the end of each transaction that touched it, epochs never go back, and in the end all is settled.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ottla.coordinator.txn.transaction_metadata import IDLE, State
from ottla.errors import ErrorCode
from ottla.types import TopicPartition

NAMES = ("a", "b")


class Walk:
    def __init__(self, host: Any, seed: int) -> None:
        self.host = host
        self.random = random.Random(seed)
        self.producers: dict[str, list[tuple[int, int]]] = {name: [] for name in NAMES}
        """All that were ever given out; the last is the newest."""
        self.versions = {name: self.random.choice((0, 2)) for name in NAMES}
        self.decided: dict[tuple[int, int], bool] = {}
        """Producer id and epoch of a marker -> commit."""
        self.highest: dict[int, int] = {}
        self.refusals = 0
        host.auto_markers = False

    def step(self) -> None:
        name = self.random.choice(NAMES)
        action: Callable[[str], None] = self.random.choice(
            [
                self.init,
                self.go_on,
                self.add,
                self.add,
                self.add,
                self.end,
                self.end,
                self.markers,
                self.markers,
                self.pass_time,
                self.fail_over,
            ]
        )
        action(name)
        self.host.check()
        for transaction in self.host.shard.transactions.values():
            highest = self.highest.get(transaction.producer_id, -1)
            assert transaction.producer_epoch >= highest
            self.highest[transaction.producer_id] = transaction.producer_epoch
        for marker in self.host.shard.pending_markers:
            decided = self.decided.setdefault((marker.producer_id, marker.producer_epoch), marker.commit)
            if self.versions[marker.transactional_id] == 2:
                assert decided == marker.commit, "committed and aborted"

    def producer(self, name: str) -> tuple[int, int] | None:
        known = self.producers[name]
        if not known:
            return None
        return known[-1] if self.random.random() < 0.8 else self.random.choice(known)

    def init(self, name: str) -> None:
        answer = self.host.init(name=name, timeout_ms=5000)
        if isinstance(answer, tuple):
            self.producers[name].append(answer)
        else:
            assert answer == ErrorCode.CONCURRENT_TRANSACTIONS

    def go_on(self, name: str) -> None:
        producer = self.producer(name)
        if producer is not None:
            answer = self.host.init(producer, name=name, timeout_ms=5000)
            if isinstance(answer, tuple):
                self.producers[name].append(answer)
            else:
                assert answer in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.PRODUCER_FENCED)

    def add(self, name: str) -> None:
        producer = self.producer(name)
        if producer is None:
            return
        before = self.host.shard.transactions.get(name)
        code = self.host.add(producer, self.random.randrange(4), version=self.versions[name], name=name)
        if code == ErrorCode.NONE:
            assert (before.producer_id, before.producer_epoch) == producer, "a zombie has added"
            assert self.host.transaction(name).state == State.ONGOING
        else:
            self.refusals += 1

    def end(self, name: str) -> None:
        producer = self.producer(name)
        if producer is None:
            return
        commit = self.random.random() < 0.6
        before = self.host.shard.transactions.get(name)
        answer = self.host.end(producer, commit=commit, version=self.versions[name], name=name)
        after = self.host.shard.transactions.get(name)
        if isinstance(answer, tuple):
            self.producers[name].append(answer)
        if after != before:
            assert (before.producer_id, before.producer_epoch) == producer, "a zombie has ended it"
            assert after.state == (State.PREPARE_COMMIT if commit else State.PREPARE_ABORT)

    def markers(self, name: str) -> None:
        failing = {TopicPartition("p", number) for number in range(4) if self.random.random() < 0.2}
        before = len(self.host.written)
        self.host.write_markers(failing)
        for partition, producer_id, epoch, commit in self.host.written[before:]:
            assert partition not in failing
            assert self.decided[producer_id, epoch] == commit or 0 in self.versions.values()
        self.host.advance(100)

    def pass_time(self, name: str) -> None:
        self.host.advance(self.random.choice((1, 1000, 6000)))
        self.host.time_out()

    def fail_over(self, name: str) -> None:
        if self.random.random() < 0.5:
            self.host.compact()
        self.host.reload()


@pytest.mark.parametrize("seed", range(40))
def test_walk(make_host: Callable[..., Any], seed: int) -> None:
    walk = Walk(make_host(), seed)
    for _ in range(150):
        walk.step()
    walk.host.auto_markers = True
    walk.host.reload()
    walk.host.advance(10_000)
    walk.host.time_out()
    assert not walk.host.shard.pending_markers
    assert all(transaction.state in IDLE for transaction in walk.host.shard.transactions.values())
    assert walk.refusals


def test_a_walk_at_the_end_of_the_epochs(make_host: Callable[..., Any]) -> None:
    """Every epoch of one producer id, and beyond: no epoch twice, no id twice."""
    host = make_host()
    producer = host.init()
    host.put(replace(host.transaction(), producer_epoch=32760))
    host.log[:] = host.log[-1:]
    producer = (producer[0], 32760)
    seen = {producer}
    for number in range(20):
        assert host.add(producer, 0, version=2) == ErrorCode.NONE
        producer = host.end(producer, commit=number % 3 != 0, version=2)
        assert producer not in seen
        seen.add(producer)
        if number % 4 == 0:
            host.reload()
    assert {producer_id for producer_id, _ in seen} == {1000, 1001}
    assert max(epoch for _, epoch in seen) == 32766
