"""How a wait for a commit ends: one test for each letter of `commit_wait`'s list."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from ottla.broker.network.purgatory import Purgatory
from ottla.broker.replicas.commit_wait import CommitWait, wait_for_commits
from ottla.broker.replicas.partition import ACKS_ALL
from ottla.errors import ErrorCode, KafkaError
from ottla.types import TopicPartition

ORDERS = TopicPartition("orders", 3)
END_OFFSET = 10


class FakePartition:
    def __init__(self) -> None:
        self.topic_partition = ORDERS
        self.leading_since_epoch = 5
        self.is_under_min_isr = False
        self.high_watermark = 0
        self.held_offset: int | None = 0
        self.refusal: KafkaError | None = None

    def check_leader(self) -> None:
        if self.refusal is not None:
            raise self.refusal

    def awaits(self, acks: int, end_offset: int) -> bool:
        if acks == ACKS_ALL:
            return self.high_watermark < end_offset
        return self.held_offset is not None and self.held_offset < end_offset


class FakePartitions:
    def __init__(self, partition: FakePartition) -> None:
        self.here: FakePartition | KafkaError = partition

    def get(self, key: TopicPartition) -> FakePartition:
        assert key == ORDERS
        if isinstance(self.here, KafkaError):
            raise self.here
        return self.here


class Stage:
    def __init__(self) -> None:
        self.partition = FakePartition()
        self.partitions = FakePartitions(self.partition)

    def wait(self, acks: int = ACKS_ALL, **options: Any) -> CommitWait:
        wait = CommitWait(self.partitions, self.partition, END_OFFSET, acks, **options)  # type: ignore[arg-type]
        assert not wait.try_complete()
        assert not wait.done
        return wait


def code_of(wait: CommitWait) -> ErrorCode:
    assert wait.done
    return wait.error.code if wait.error is not None else ErrorCode.NONE


def test_a_the_topic_was_deleted() -> None:
    stage = Stage()
    wait = stage.wait()
    stage.partitions.here = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert wait.try_complete()
    assert code_of(wait) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_another_replica_of_the_same_name_took_its_place() -> None:
    stage = Stage()
    wait = stage.wait()
    stage.partitions.here = FakePartition()
    stage.partition.high_watermark = END_OFFSET
    assert wait.try_complete()
    assert code_of(wait) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_b_the_data_directory_went_offline() -> None:
    stage = Stage()
    wait = stage.wait()
    stage.partition.refusal = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    assert wait.try_complete()
    assert code_of(wait) == ErrorCode.KAFKA_STORAGE_ERROR


def test_c_another_broker_became_leader() -> None:
    stage = Stage()
    wait = stage.wait()
    stage.partition.refusal = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert wait.try_complete()
    assert code_of(wait) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_c_the_broker_leads_again_after_another_leader() -> None:
    stage = Stage()
    wait = stage.wait()
    stage.partition.leading_since_epoch = 7
    stage.partition.high_watermark = END_OFFSET
    assert wait.try_complete()
    assert code_of(wait) == ErrorCode.NOT_LEADER_OR_FOLLOWER, "the records before the high watermark may be others"


def test_d_the_isr_shrank_below_the_minimum() -> None:
    stage = Stage()
    produce, marker = stage.wait(ends_under_min_isr=True), stage.wait()
    stage.partition.is_under_min_isr = True
    assert produce.try_complete()
    assert code_of(produce) == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert not marker.try_complete(), "only where the caller asks for it"


def test_e_the_high_watermark_passed_the_records() -> None:
    stage = Stage()
    wait = stage.wait()
    stage.partition.high_watermark = END_OFFSET - 1
    assert not wait.try_complete()
    stage.partition.high_watermark = END_OFFSET
    assert wait.try_complete()
    assert code_of(wait) == ErrorCode.NONE


def test_e_with_acks_1_the_flush_ended() -> None:
    stage = Stage()
    wait = stage.wait(acks=1)
    stage.partition.held_offset = None
    assert wait.try_complete()
    assert code_of(wait) == ErrorCode.NONE


def test_the_first_end_stands() -> None:
    stage = Stage()
    wait = stage.wait()
    stage.partition.high_watermark = END_OFFSET
    assert wait.try_complete()
    stage.partition.refusal = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert wait.try_complete()
    wait.expire()
    assert code_of(wait) == ErrorCode.NONE


def in_purgatory(case: Callable[[Stage, Purgatory], Awaitable[None]]) -> None:
    async def main() -> None:
        purgatory = Purgatory(asyncio.get_running_loop())
        await asyncio.wait_for(case(Stage(), purgatory), 60)
        assert len(purgatory) == 0

    asyncio.run(main())


def test_all_waits_of_a_request_are_answered_together() -> None:
    async def case(stage: Stage, purgatory: Purgatory) -> None:
        other = Stage()
        waits = [stage.wait(), other.wait()]
        answered = wait_for_commits(purgatory, waits, 60_000, lambda: [code_of(wait) for wait in waits])
        stage.partition.high_watermark = END_OFFSET
        purgatory.wake(ORDERS)
        assert not answered.done()
        other.partition.refusal = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        purgatory.wake(ORDERS)
        assert await answered == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]

    in_purgatory(case)


def test_f_the_timeout_passed() -> None:
    async def case(stage: Stage, purgatory: Purgatory) -> None:
        other = Stage()
        waits = [stage.wait(), other.wait()]
        other.partition.high_watermark = END_OFFSET
        answered = wait_for_commits(purgatory, waits, 1, lambda: [code_of(wait) for wait in waits])
        assert await answered == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE], "what is committed is said to be"

    in_purgatory(case)


def test_g_the_broker_stops() -> None:
    async def case(stage: Stage, purgatory: Purgatory) -> None:
        wait = stage.wait()
        answered = wait_for_commits(purgatory, [wait], 60_000, lambda: code_of(wait))
        purgatory.close()
        assert answered.cancelled()
        assert not wait.done

    in_purgatory(case)
