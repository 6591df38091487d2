"""Idempotent producers on the wire (F63, I01-I03, I06)."""

from __future__ import annotations

import asyncio
from typing import Any

from ottla.errors import ErrorCode
from ottla.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.records.batch import scan_batches
from ottla.records.record import Record, read_records


def records_of(data: Any) -> list[Record]:
    return [record for batch in scan_batches(data.records)[0] for record in read_records(data.records, batch)]


async def new_producer_id(connection: Any) -> int:
    response = await connection.call(
        "init_producer_id", 4, InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    )
    assert (response.error_code, response.producer_epoch) == (0, 0)
    return int(response.producer_id)


def batch(stage: Any, producer_id: int, sequence: int, count: int = 1, epoch: int = 0) -> bytes:
    values = [b"%d" % (sequence + number) for number in range(count)]
    built: bytes = stage.batch(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    return built


def test_i01_i02_i03_duplicates_gaps_and_epochs(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await stage.connect()
        me = await new_producer_id(connection)
        for sequence in range(0, 14, 2):
            answer = await stage.produce(connection, batch(stage, me, sequence, 2))
            assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (0, sequence, -1)
        for sequence in range(4, 14, 2):
            again = await stage.produce(connection, batch(stage, me, sequence, 2))
            assert (again.error_code, again.base_offset, again.log_append_time_ms) == (0, sequence, -1)
        older = await stage.produce(connection, batch(stage, me, 2, 2))
        assert (older.error_code, older.base_offset) == (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1)
        gap = await stage.produce(connection, batch(stage, me, 15, 2))
        assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        late = await stage.produce(connection, batch(stage, me, 14, epoch=1))
        assert late.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert (await stage.produce(connection, batch(stage, me, 0, epoch=1))).base_offset == 14
        old = await stage.produce(connection, batch(stage, me, 14))
        assert old.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        data = await stage.fetch(connection, 0)
        assert [record.value for record in records_of(data)] == [b"%d" % number for number in [*range(14), 0]]

    play(case)


def test_i01_the_time_of_the_append_is_the_first_one(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic(message_timestamp_type="LogAppendTime")
        connection = await stage.connect()
        me = await new_producer_id(connection)
        first = await stage.produce(connection, batch(stage, me, 0))
        await asyncio.sleep(0.01)
        again = await stage.produce(connection, batch(stage, me, 0))
        assert (again.base_offset, again.log_append_time_ms) == (0, first.log_append_time_ms)
        assert first.log_append_time_ms > 0

    play(case)


def test_f29_requests_in_flight_that_follow_a_lost_one_are_refused_until_it_comes(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await stage.connect()
        me = await new_producer_id(connection)
        await stage.produce(connection, batch(stage, me, 0))
        in_flight = [stage.produce(connection, batch(stage, me, sequence)) for sequence in (2, 3, 4)]
        assert {answer.error_code for answer in await asyncio.gather(*in_flight)} == {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}
        for sequence in (1, 2, 3, 4):
            assert (await stage.produce(connection, batch(stage, me, sequence))).base_offset == sequence

    play(case)


def test_i06_a_silent_producer_is_forgotten_and_may_go_on(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await stage.connect()
        me = await new_producer_id(connection)
        await stage.produce(connection, batch(stage, me, 0))
        log = next(iter(stage.broker.partitions)).log
        async with asyncio.timeout(60):
            while len(log.producers):
                await asyncio.sleep(0.01)
        assert (await stage.produce(connection, batch(stage, me, 5))).base_offset == 1

    play(case, producer_id_expiration_ms="50", producer_id_expiration_check_interval_ms="10")


def test_describe_producers_tells_what_the_partition_knows(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic(partitions=2)
        connection = await stage.connect()
        me = await new_producer_id(connection)
        await stage.produce(connection, batch(stage, me, 0, 3), partition=1)
        request = DescribeProducersRequest(
            topics=[
                TopicRequest(name="t", partition_indexes=[0, 1, 2]),
                TopicRequest(name="none", partition_indexes=[0]),
            ]
        )
        response = await connection.call("describe_producers", 0, request)
        empty, known, absent = response.topics[0].partitions
        assert (empty.error_code, empty.active_producers) == (0, [])
        [producer] = known.active_producers
        assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (me, 0, 2)
        assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (-1, -1)
        assert producer.last_timestamp > 0
        assert absent.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert response.topics[1].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(case)
