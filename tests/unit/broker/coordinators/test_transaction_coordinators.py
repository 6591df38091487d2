"""The host of transaction shards over a log whose commits lag behind: what is answered when, and what is written when (T06)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.coordinators.marker_delivery import MarkerDelivery
from ottla.broker.coordinators.marker_writer import MarkerWriter
from ottla.broker.coordinators.new_producer_ids import NewProducerIds
from ottla.broker.coordinators.reply import Reply
from ottla.broker.coordinators.shard_host import ShardHost
from ottla.broker.coordinators.transaction_coordinators import TransactionCoordinators
from ottla.broker.coordinators.transaction_shards import TRANSACTIONS_TOPIC, TransactionShards, transactions_topic
from ottla.broker.coordinators.transaction_timeouts import TransactionTimeouts
from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.broker.network.purgatory import Purgatory
from ottla.broker.replicas.commit_wait import CommitWait
from ottla.broker.replicas.partition import Partition
from ottla.cluster.image import PartitionImage, TopicImage
from ottla.cluster.settings import BrokerSettings
from ottla.coordinator.txn.transaction_metadata import State
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.records.validate import Rules
from ottla.storage.config import LogConfig
from ottla.types import TopicPartition
from tests.kit.storage import NOW_MS, MemoryDisk, open_dir

P0 = TopicPartition("p", 0)


class Replica:
    """A partition that this broker leads, with a real log in memory. Its appends fail, or wait for a follower, as told."""

    def __init__(self, broker: FakeBroker, topic_partition: TopicPartition) -> None:
        self._broker = broker
        data_dir = open_dir(MemoryDisk(), f"/{topic_partition}")
        data_dir.load(lambda topic: LogConfig(), NOW_MS)
        log = data_dir.create_log(topic_partition, bytes(16), LogConfig(), NOW_MS)
        self.partition = Partition(log, data_dir, 1, Rules(), 1, on_progress=broker.purgatory.wake, on_failure=lambda *_: None)
        self.partition.take_role(PartitionImage(1, 0, (1,), (1,), 0))

    def fail(self) -> None:
        """Refuse appends with NOT_ENOUGH_REPLICAS."""
        self.partition.replicas = (1, 2)
        self.partition.min_insync_replicas = 2

    def recover(self) -> None:
        self.partition.replicas = (1,)
        self.partition.min_insync_replicas = 1

    def lag(self) -> None:
        """Commit nothing until `replicate`."""
        self.partition.isr = (1, 2)

    def replicate(self) -> None:
        log = self.partition.log
        log.high_watermark = log.log_end_offset
        self._broker.purgatory.wake(self.partition.topic_partition)


class RecordingMarkerWriter(MarkerWriter):
    def __init__(self, broker: FakeBroker) -> None:
        groups: Any = None
        super().__init__(broker.partitions, groups, broker.purgatory, broker.clock)
        self._markers = broker.markers

    def write(
        self, topic_partition: TopicPartition, producer_id: int, producer_epoch: int, *, commit: bool, **more: Any
    ) -> CommitWait | None:
        wait = super().write(topic_partition, producer_id, producer_epoch, commit=commit, **more)
        self._markers.append((topic_partition, producer_id, producer_epoch, commit))
        return wait


class FakeBroker:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.clock: Any = SimpleNamespace(now_ms=lambda: int(loop.time() * 1000), monotonic=loop.time)
        self.purgatory = Purgatory(loop)
        self.markers: list[tuple[TopicPartition, int, int, bool]] = []
        self.made: dict[TopicPartition, Replica] = {}
        self.partitions: Any = SimpleNamespace(get=lambda key: self.replica(key).partition)
        self.controller: Any = SimpleNamespace(producer_ids=SimpleNamespace(take=lambda: 1000))
        led = (PartitionImage(1, 0, (1,), (1,), 0),)
        self.topics = {name: TopicImage(name, bytes(16), led, {}) for name in (TRANSACTIONS_TOPIC, "p")}
        self.image: Any = SimpleNamespace(topics=self.topics)
        self.metadata = LocalMetadata(BrokerSettings.parse({"log.dirs": "/nowhere"}), 1, self.image)  # type: ignore[arg-type]

    def replica(self, topic_partition: TopicPartition) -> Replica:
        if topic_partition not in self.made:
            self.made[topic_partition] = Replica(self, topic_partition)
        return self.made[topic_partition]

    @property
    def log(self) -> Replica:
        return self.replica(TopicPartition(TRANSACTIONS_TOPIC, 0))


class Stage:
    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.broker = FakeBroker(loop)
        broker = self.broker
        metadata = broker.metadata
        delivery = MarkerDelivery(metadata, RecordingMarkerWriter(broker), None, broker.clock)
        topic = transactions_topic(metadata, broker.partitions, lambda: broker.controller)
        shards = ShardHost(TransactionShards(metadata, delivery), topic, broker.partitions, broker.purgatory, broker.clock)
        producer_ids = NewProducerIds(lambda: broker.controller)
        timeouts = TransactionTimeouts(metadata, shards, producer_ids, broker.clock)
        self.host = TransactionCoordinators(shards, producer_ids, timeouts)
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
        log.lag()
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
        log, partition = stage.broker.log, stage.broker.replica(P0)
        log.lag()
        partition.lag()
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
        stage.broker.log.fail()
        assert code_of(stage.end) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert stage.state == State.ONGOING
        assert stage.broker.markers == []
        stage.broker.log.recover()
        assert stage.end().error_code == 0
        assert stage.state == State.COMPLETE_COMMIT

    on_stage(case)


def test_markers_and_the_end_are_tried_until_they_stand() -> None:
    async def case(stage: Stage) -> None:
        stage.init()
        stage.add()
        partition = stage.broker.replica(P0)
        partition.fail()
        assert stage.end().error_code == 0
        assert stage.state == State.PREPARE_COMMIT
        assert code_of(stage.add) == ErrorCode.CONCURRENT_TRANSACTIONS
        partition.recover()
        stage.broker.log.fail()
        while not stage.broker.markers:
            await asyncio.sleep(0.01)
        assert stage.state == State.PREPARE_COMMIT, "its end could not be written down"
        stage.broker.log.recover()
        while stage.state == State.PREPARE_COMMIT:
            await asyncio.sleep(0.01)
        assert stage.broker.markers == [(P0, 1000, 0, True)], "and not written again"

    on_stage(case)


def test_a_successor_pays_and_the_former_stops() -> None:
    async def case(stage: Stage) -> None:
        stage.init()
        stage.add()
        stage.broker.log.lag()
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
