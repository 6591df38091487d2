"""A host without a loop: it appends to a list, replays, writes markers when told to, and compares with a reload at each step."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from ottla.coordinator.shard import CoordinatorRecord, Decision, Now, SetTimer, TimerKey
from ottla.coordinator.txn.pending_markers import Marker
from ottla.coordinator.txn.shard import TransactionConfig, TransactionShard
from ottla.coordinator.txn.transaction_metadata import TRANSITIONS, State, TransactionMetadata
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.types import TopicPartition

START_MS = 1_700_000_000_000


class TxnHost:
    def __init__(self, **config: Any) -> None:
        self.config = replace(TransactionConfig(), **config)
        self.shard = TransactionShard(self.config, 0)
        self.ms = 5_000
        self.now_ms = START_MS
        """Wall time; it passes with `ms`, and a test may set it."""
        self.log: list[CoordinatorRecord] = []
        self.timers: dict[TimerKey, int] = {}
        self.answers: dict[int, Any] = {}
        self.to_write: list[Marker] = []
        """Markers that were asked for."""
        self.written: list[tuple[TopicPartition, int, int, bool]] = []
        """Partition, producer id, epoch, commit."""
        self.auto_markers = True
        self.new_ids = itertools.count(1000)
        self._tokens = itertools.count(1)

    # What a host does

    def do(self, decision: Decision) -> Decision:
        for record in decision.records:
            before = {key: transaction.state for key, transaction in self.shard.transactions.items()}
            self.log.append(record)
            if record.message is None:
                self.shard.replay(record.key, record.value)
            else:
                self.shard.replay_message(record.message)
            for key, transaction in self.shard.transactions.items():
                was = before.get(key)
                assert was is None or was == transaction.state or transaction.state in TRANSITIONS[was]
        for timer in decision.timers:
            if isinstance(timer, SetTimer):
                self.timers[timer.key] = timer.due_ms
            else:
                self.timers.pop(timer.key, None)
        for token, response in decision.replies:
            assert isinstance(token, int)
            assert token not in self.answers, f"token {token} is answered twice"
            self.answers[token] = response
        self.check()
        for effect in decision.effects:
            assert isinstance(effect, Marker)
            self.to_write.append(effect)
        if self.auto_markers:
            self.write_markers()
        return decision

    def check(self) -> None:
        """The log alone gives the same durable state, and the same debts but for what has been paid of them."""
        loaded = TransactionShard(self.config, 0)
        for record in self.log:
            loaded.replay(record.key, record.value)
        assert loaded.transactions == self.shard.transactions
        owed = {marker.transactional_id for marker in self.shard.pending_markers}
        assert {marker.transactional_id for marker in loaded.pending_markers} == owed
        prepared = (State.PREPARE_COMMIT, State.PREPARE_ABORT)
        assert owed == {key for key, transaction in loaded.transactions.items() if transaction.state in prepared}

    def write_markers(self, failing: Iterable[TopicPartition] = ()) -> None:
        """Write what was asked for, except where that fails; then the shard is told, and asks again in time."""
        while self.to_write:
            marker = self.to_write.pop(0)
            good = [partition for partition in sorted(marker.partitions) if partition not in failing]
            self.written += [(partition, marker.producer_id, marker.producer_epoch, marker.commit) for partition in good]
            self.do(self.shard.markers_written(marker, good, self.now_ms))
            if len(good) < len(marker.partitions):
                self.do(self.shard.retry_markers(marker, self.now))

    def advance(self, ms: int) -> None:
        end_ms = self.ms + ms
        while True:
            due = [(at, key) for key, at in self.timers.items() if at <= end_ms]
            if not due:
                break
            at, key = min(due)
            del self.timers[key]
            self._pass(max(self.ms, at))
            self.do(self.shard.on_timer(key, self.now))
        self._pass(end_ms)

    def _pass(self, until_ms: int) -> None:
        self.now_ms += until_ms - self.ms
        self.ms = until_ms

    @property
    def now(self) -> Now:
        return Now(self.ms, self.now_ms)

    def reload(self) -> None:
        """Another broker takes over."""
        self.shard = TransactionShard(self.config, 0)
        self.timers.clear()
        self.to_write.clear()
        for record in self.log:
            self.shard.replay(record.key, record.value)
        self.do(self.shard.on_loaded(self.now))

    def compact(self) -> None:
        last = {record.key: at for at, record in enumerate(self.log)}
        self.log = [record for at, record in enumerate(self.log) if last[record.key] == at and record.value is not None]

    def time_out(self) -> list[str]:
        timed_out = [transaction.transactional_id for transaction in self.shard.timed_out(self.now_ms)]
        for transactional_id in timed_out:
            self.do(self.shard.abort_timed_out(transactional_id, self.new_id, self.now_ms))
        return timed_out

    def new_id(self) -> int:
        return next(self.new_ids)

    # What producers say: the answer, or the code of the refusal

    def _asked(self, question: Callable[[int], Decision]) -> Any:
        token = next(self._tokens)
        before = (dict(self.shard.transactions), len(self.log))
        try:
            decision = question(token)
        except KafkaError as error:
            assert (dict(self.shard.transactions), len(self.log)) == before, "refused, and yet changed"
            return error.code
        self.do(decision)
        answer = self.answers[token]
        code = answer if isinstance(answer, ErrorCode) else ErrorCode(answer.error_code)
        return answer if code == ErrorCode.NONE and not isinstance(answer, ErrorCode) else code

    def init(self, producer: tuple[int, int] | None = None, *, timeout_ms: int = 60_000, name: str = "t") -> Any:
        """(producer id, epoch), or a code."""
        producer_id, epoch = producer or (-1, -1)
        request = InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=timeout_ms, producer_id=producer_id, producer_epoch=epoch
        )
        answer = self._asked(lambda token: self.shard.init_producer_id(request, self.new_id, token, self.now_ms))
        return answer if isinstance(answer, ErrorCode) else (answer.producer_id, answer.producer_epoch)

    def add(self, producer: tuple[int, int], *partitions: int, version: int = 0, topic: str = "p", name: str = "t") -> ErrorCode:
        wanted = [TopicPartition(topic, partition) for partition in partitions]
        code = self._asked(
            lambda token: self.shard.add_partitions(name, producer[0], producer[1], wanted, version, token, self.now_ms)
        )
        assert isinstance(code, ErrorCode)
        return code

    def end(self, producer: tuple[int, int], *, commit: bool = True, version: int = 0, name: str = "t") -> Any:
        """NONE, or (producer id, epoch) of version 2, or the code of a refusal."""
        request = EndTxnRequest(transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], committed=commit)
        answer = self._asked(lambda token: self.shard.end_txn(request, version, self.new_id, token, self.now_ms))
        if isinstance(answer, ErrorCode):
            return answer
        return (answer.producer_id, answer.producer_epoch) if version else ErrorCode.NONE

    def verify(self, producer: tuple[int, int], *partitions: int, name: str = "t") -> Any:
        wanted = [TopicPartition("p", partition) for partition in partitions]
        try:
            return list(self.shard.verify_partitions(name, producer[0], producer[1], wanted).values())
        except KafkaError as error:
            return error.code

    def transaction(self, name: str = "t") -> TransactionMetadata:
        return self.shard.transactions[name]

    @property
    def state(self) -> State:
        return self.transaction().state

    def put(self, transaction: TransactionMetadata) -> None:
        """Have it stand in the log."""
        self.do(self.shard._write(transaction))


@pytest.fixture
def host() -> TxnHost:
    return TxnHost()


@pytest.fixture
def make_host() -> Callable[..., TxnHost]:
    return TxnHost
