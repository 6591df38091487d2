"""The host of transaction shards over a log whose commits lag behind: what is answered when, and what is written when (T06)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.coordinators.marker_writer import MarkerWriter
from ottla.broker.coordinators.reply import Reply
from ottla.broker.coordinators.transaction_coordinators import TRANSACTIONS_TOPIC, TransactionCoordinators
from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.broker.network.purgatory import Purgatory
from ottla.cluster.image import PartitionImage, TopicImage
from ottla.cluster.settings import BrokerSettings
from ottla.coordinator.txn.transaction_metadata import State
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.types import TopicPartition

P0 = TopicPartition("p", 0)


class FakeLog:
    def __init__(self) -> None:
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.high_watermark = 0


class FakePartition:
    def __init__(self, broker: FakeBroker, topic_partition: TopicPartition) -> None:
        self.broker = broker
        self.topic_partition = topic_partition
        self.log = FakeLog()
        self.rules = SimpleNamespace(max_message_bytes=1_000_000)
        self.leader_epoch = self.leading_since_epoch = 0
        self.failure: ErrorCode | None = None
        self.lags = False
        """Whether the followers are to be waited for."""

    def _written(self) -> Any:
        if self.failure is not None:
            raise KafkaError(self.failure)
        self.log.log_end_offset += 1
        if not self.lags:
            self.log.high_watermark = self.log.log_end_offset
        return SimpleNamespace(last_offset=self.log.log_end_offset - 1)

    def append_own(self, records: Any, now_ms: int, **more: Any) -> Any:
        return self._written()

    def append_marker(self, producer_id: int, producer_epoch: int, *, commit: bool, **more: Any) -> Any:
        info = self._written()
        self.broker.markers.append((self.topic_partition, producer_id, producer_epoch, commit))
        return info

    def check_leader(self) -> None:
        if self.leader_epoch != 0:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def awaits(self, acks: int, end_offset: int) -> bool:
        return self.log.high_watermark < end_offset

    def replicate(self) -> None:
        self.log.high_watermark = self.log.log_end_offset
        self.broker.purgatory.wake(self.topic_partition)


class FakeBroker:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.clock: Any = SimpleNamespace(now_ms=lambda: int(loop.time() * 1000), monotonic=loop.time)
        self.purgatory = Purgatory(loop)
        self.markers: list[tuple[TopicPartition, int, int, bool]] = []
        self.made: dict[TopicPartition, FakePartition] = {}
        self.partitions: Any = SimpleNamespace(get=self.partition)
        self.controller: Any = SimpleNamespace(producer_ids=SimpleNamespace(take=lambda: 1000))
        led = (PartitionImage(1, 0, (1,), (1,), 0),)
        self.topics = {name: TopicImage(name, bytes(16), led, {}) for name in (TRANSACTIONS_TOPIC, "p")}
        self.image: Any = SimpleNamespace(topics=self.topics)
        self.metadata = LocalMetadata(BrokerSettings.parse({"log.dirs": "/nowhere"}), 1, self.image)  # type: ignore[arg-type]

    def partition(self, topic_partition: TopicPartition) -> FakePartition:
        return self.made.setdefault(topic_partition, FakePartition(self, topic_partition))

    @property
    def log(self) -> FakePartition:
        return self.partition(TopicPartition(TRANSACTIONS_TOPIC, 0))


class Stage:
    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.broker = FakeBroker(loop)
        broker = self.broker
        groups: Any = None
        self.host = TransactionCoordinators(
            broker.metadata,
            broker.partitions,
            broker.purgatory,
            lambda: broker.controller,
            broker.clock,
            broker.clock,
            MarkerWriter(broker.partitions, groups, broker.clock),
            None,
        )
        self.host.apply(broker.image)

    def init(self) -> Any:
        reply: Reply[Any] = Reply()
        request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000)
        return self.host.ask("t", reply, lambda shard, ids, now_ms: shard.init_producer_id(request, ids, reply, now_ms))

    def add(self, epoch: int = 0) -> Any:
        reply: Reply[Any] = Reply()
        return self.host.ask(
            "t", reply, lambda shard, ids, now_ms: shard.add_partitions("t", 1000, epoch, [P0], 0, reply, now_ms)
        )

    def end(self, epoch: int = 0) -> Any:
        reply: Reply[Any] = Reply()
        request = EndTxnRequest(transactional_id="t", producer_id=1000, producer_epoch=epoch, committed=True)
        return self.host.ask("t", reply, lambda shard, ids, now_ms: shard.end_txn(request, 0, ids, reply, now_ms))

    @property
    def state(self) -> State:
        return self.host.shards.find("t")[1].transactions["t"].state


def on_stage(case: Callable[[Stage], Awaitable[None]]) -> None:
    async def main() -> None:
        stage = Stage()
        try:
            await asyncio.wait_for(case(stage), 60)
        finally:
            stage.host.close()
            stage.broker.purgatory.close()

    asyncio.run(main())


def code_of(refused: Callable[[], Any]) -> ErrorCode:
    try:
        refused()
    except KafkaError as error:
        return error.code
    raise AssertionError("it was not refused")


def test_what_is_committed_at_once_is_answered_at_once() -> None:
    async def case(stage: Stage) -> None:
        assert (stage.init().producer_id, stage.add(), stage.end().error_code) == (1000, ErrorCode.NONE, 0)
        assert stage.broker.markers == [(P0, 1000, 0, True)]
        assert stage.state == State.COMPLETE_COMMIT

    on_stage(case)


def test_nothing_is_answered_before_it_is_committed() -> None:
    async def case(stage: Stage) -> None:
        log = stage.broker.log
        log.lags = True
        first = stage.init()
        assert isinstance(first, asyncio.Future)
        log.replicate()
        assert (await first).producer_id == 1000
        added = stage.add()
        again = stage.add()
        assert not added.done()
        assert not again.done(), "it writes nothing, and yet rests on what may be lost"
        log.replicate()
        assert (await added, await again) == (ErrorCode.NONE, ErrorCode.NONE)

    on_stage(case)


def test_markers_are_written_once_the_decision_is_committed_and_the_end_once_they_are() -> None:
    async def case(stage: Stage) -> None:
        stage.init()
        stage.add()
        log, partition = stage.broker.log, stage.broker.partition(P0)
        log.lags = partition.lags = True
        ended = stage.end()
        assert stage.broker.markers == [], "the decision may yet be lost"
        log.replicate()
        assert (await ended).error_code == 0
        assert stage.broker.markers == [(P0, 1000, 0, True)]
        assert stage.state == State.PREPARE_COMMIT, "the marker may yet be lost"
        partition.replicate()
        assert stage.state == State.COMPLETE_COMMIT

    on_stage(case)


def test_a_decision_that_cannot_be_appended_has_not_been_made() -> None:
    async def case(stage: Stage) -> None:
        stage.init()
        stage.add()
        stage.broker.log.failure = ErrorCode.NOT_ENOUGH_REPLICAS
        assert code_of(stage.end) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert stage.state == State.ONGOING
        assert stage.broker.markers == []
        stage.broker.log.failure = None
        assert stage.end().error_code == 0
        assert stage.state == State.COMPLETE_COMMIT

    on_stage(case)


def test_markers_and_the_end_are_tried_until_they_stand() -> None:
    async def case(stage: Stage) -> None:
        stage.init()
        stage.add()
        partition = stage.broker.partition(P0)
        partition.failure = ErrorCode.KAFKA_STORAGE_ERROR
        assert stage.end().error_code == 0
        assert stage.state == State.PREPARE_COMMIT
        assert code_of(stage.add) == ErrorCode.CONCURRENT_TRANSACTIONS
        partition.failure = None
        stage.broker.log.failure = ErrorCode.NOT_ENOUGH_REPLICAS
        while not stage.broker.markers:
            await asyncio.sleep(0.01)
        assert stage.state == State.PREPARE_COMMIT, "its end could not be written down"
        stage.broker.log.failure = None
        while stage.state == State.PREPARE_COMMIT:
            await asyncio.sleep(0.01)
        assert stage.broker.markers == [(P0, 1000, 0, True)], "and not written again"

    on_stage(case)


def test_a_successor_pays_and_the_former_stops() -> None:
    async def case(stage: Stage) -> None:
        stage.init()
        stage.add()
        stage.broker.log.lags = True
        ended = stage.end()
        lost = TopicImage(TRANSACTIONS_TOPIC, bytes(16), (PartitionImage(2, 1, (2,), (1, 2), 1),), {})
        stage.broker.image.topics[TRANSACTIONS_TOPIC] = lost
        stage.host.apply(stage.broker.image)
        stage.broker.log.replicate()
        with pytest.raises(KafkaError) as refused:
            await ended
        assert refused.value.code == ErrorCode.NOT_COORDINATOR
        assert stage.broker.markers == []
        assert code_of(stage.init) == ErrorCode.NOT_COORDINATOR

    on_stage(case)
