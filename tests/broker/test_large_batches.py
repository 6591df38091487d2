"""Batches that unpack to megabytes: nobody else waits for them, order is kept, a bomb costs its bound (F23, F87)."""

from __future__ import annotations

import asyncio
import dataclasses
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from ottla.broker.replicas import large_batches
from ottla.errors import ErrorCode
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.produce import PartitionProduceData
from ottla.records.batch import RECORDS_AT, batch_crc_ok, read_batch_header, scan_batches, write_header
from ottla.records.compression import GZIP, LZ4, SNAPPY, ZSTD
from ottla.records.record import build_batch, read_records
from ottla.storage.names import LOG

T = TypeVar("T")
MIB = 1 << 20


class HeldWorkers:
    """The workers of a broker, who begin when they are let."""

    def __init__(self, broker: Any) -> None:
        self._workers = broker.world.workers
        self.asked = asyncio.Event()
        self.let = asyncio.Event()
        self.busy_max = self._busy = 0
        broker.large_batches._world = dataclasses.replace(broker.world, workers=self)

    async def run(self, work: Callable[[], T]) -> T:
        self.asked.set()
        self._busy += 1
        self.busy_max = max(self.busy_max, self._busy)
        try:
            await self.let.wait()
            done: T = await self._workers.run(work)
            return done
        finally:
            self._busy -= 1

    def let_others_run(self) -> None:
        self._workers.let_others_run()


def values_of(data: Any) -> list[bytes | None]:
    batches, _ = scan_batches(data.records or b"")
    return [record.value for batch in batches for record in read_records(data.records, batch)]


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_f23_others_are_served_while_a_large_batch_is_unpacked_and_order_is_kept(play: Any, codec: int) -> None:
    async def case(stage: Any) -> None:
        await stage.topic(partitions=2)
        workers = HeldWorkers(stage.broker)
        one, other = await stage.connect(), await stage.connect()
        large = stage.batch(bytes(5 * MIB), codec=codec)
        assert len(large) < MIB
        request = stage.produce_request(large)
        request.topic_data[0].partition_data.append(PartitionProduceData(index=1, records=stage.batch(b"small")))
        waiting = one.send("produce", 9, request)
        behind = one.send("produce", 9, stage.produce_request(stage.batch(b"behind")))
        await workers.asked.wait()
        assert (await stage.produce(other, stage.batch(b"other"))).base_offset == 0
        assert values_of(await stage.fetch(other, 0)) == [b"other"]
        assert not waiting.done()
        assert not behind.done()
        workers.let.set()
        answers = (await waiting).responses[0].partition_responses
        assert sorted((each.index, each.error_code, each.base_offset) for each in answers) == [(0, 0, 1), (1, 0, 0)]
        assert (await behind).responses[0].partition_responses[0].base_offset == 2
        found = await stage.fetch(other, 1)
        assert values_of(found) == [bytes(5 * MIB), b"behind"]
        assert bytes(found.records[RECORDS_AT : len(large)]) == large[RECORDS_AT:], "as it was sent"

    play(case)


def test_f87_a_bomb_that_says_it_is_small_is_refused_and_the_next_waits_for_its_turn(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        workers = HeldWorkers(stage.broker)
        bomb = as_if_small(stage.batch(bytes(40 * MIB), codec=GZIP))
        assert len(bomb) < 64 << 10
        loud, quiet = await stage.connect(), await stage.connect()
        waiting = loud.send("produce", 9, stage.produce_request(bomb))
        quiet.tell("produce", 9, stage.produce_request(bomb, acks=0))
        await workers.asked.wait()
        workers.let.set()
        answer = (await waiting).responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (ErrorCode.MESSAGE_TOO_LARGE, -1)
        await quiet.wait_closed()
        assert workers.busy_max == 1
        assert stage.broker.large_batches.waiting_bytes == 0
        assert (await stage.fetch(loud, 0)).high_watermark == 0

    play(case)


def test_f87_what_waits_to_be_unpacked_is_bounded_and_who_leaves_makes_room(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        workers = HeldWorkers(stage.broker)
        large = stage.batch(bytes(5 * MIB), codec=GZIP)
        monkeypatch.setattr(large_batches, "WAITING_BYTES_MAX", len(large) + 10)
        gone, one, other = await stage.connect(), await stage.connect(), await stage.connect()
        gone.tell("produce", 9, stage.produce_request(large))
        await workers.asked.wait()
        assert (await stage.produce(one, large)).error_code == ErrorCode.REQUEST_TIMED_OUT
        gone.close()
        workers.let.set()
        while stage.broker.large_batches.waiting_bytes:
            await asyncio.sleep(0.01)
        answer = await stage.produce(other, large)
        assert answer.error_code == 0
        assert (await stage.fetch(one, 0)).high_watermark == answer.base_offset + 1

    play(case)


def as_if_small(batch: bytes) -> bytes:
    """The same, with a length behind the gzip data that is not theirs."""
    lying = bytearray(batch)
    lying[-4:] = (100).to_bytes(4, "little")
    info = read_batch_header(lying, 0)
    write_header(lying, info)
    assert batch_crc_ok(lying, read_batch_header(lying, 0))
    with pytest.raises(zlib.error):
        zlib.decompress(lying[RECORDS_AT:], 31)
    return bytes(lying)


def test_t10_a_transaction_that_ends_while_its_records_are_unpacked_gets_none_of_them(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        one, other = await stage.connect(), await stage.connect()
        await one.call("find_coordinator", 4, FindCoordinatorRequest(key_type=1, coordinator_keys=["tx"]))
        init = await one.call("init_producer_id", 4, InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000))
        assert init.error_code == 0
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="tx",
            v3_and_below_producer_id=init.producer_id,
            v3_and_below_producer_epoch=init.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
        )
        added = await one.call("add_partitions_to_txn", 3, request)
        assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
        workers = HeldWorkers(stage.broker)
        large = stage.batch(
            bytes(5 * MIB),
            codec=GZIP,
            producer_id=init.producer_id,
            producer_epoch=init.producer_epoch,
            base_sequence=0,
            transactional=True,
        )
        produce = stage.produce_request(large)
        produce.transactional_id = "tx"
        waiting = one.send("produce", 9, produce)
        await workers.asked.wait()
        end = EndTxnRequest(
            transactional_id="tx", producer_id=init.producer_id, producer_epoch=init.producer_epoch, committed=False
        )
        assert (await other.call("end_txn", 3, end)).error_code == 0
        partition = next(iter(stage.broker.partitions))
        while partition.log.log_end_offset == 0:  # the marker
            await asyncio.sleep(0.01)
        workers.let.set()
        answer = (await waiting).responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.INVALID_TXN_STATE
        assert partition.log.log_end_offset == 1
        assert partition.log.last_stable_offset == 1

    play(case)


async def look_up(connection: Any, *timestamps: int) -> list[tuple[int, int, int]]:
    """(error, offset, timestamp) of each; the n-th in the n-th partition."""
    partitions = [ListOffsetsPartition(partition_index=at, timestamp=each) for at, each in enumerate(timestamps)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=partitions)])
    response = await connection.call("list_offsets", 7, request)
    answers = response.topics[0].partitions
    assert [answer.partition_index for answer in answers] == list(range(len(timestamps)))
    return [(answer.error_code, answer.offset, answer.timestamp) for answer in answers]


def large_and_stamped(*timestamps: int, codec: int = GZIP) -> bytes:
    return build_batch([(b"key", bytes(2 * MIB), [], timestamp) for timestamp in timestamps], codec=codec)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize("timestamp", [2_500, -3])
def test_f23_others_are_served_while_a_time_is_looked_for_in_a_large_batch(play: Any, codec: int, timestamp: int) -> None:
    async def case(stage: Any) -> None:
        await stage.topic(partitions=3)
        one, other = await stage.connect(), await stage.connect()
        large = large_and_stamped(1_000, 4_000, 2_000, codec=codec)
        for partition in (0, 2):
            assert (await stage.produce(one, large, partition=partition)).error_code == 0
        assert (await stage.produce(one, stage.batch(b"small", timestamp=3_000), partition=1)).error_code == 0
        workers = HeldWorkers(stage.broker)
        waiting = asyncio.ensure_future(look_up(one, timestamp, timestamp, timestamp))
        await workers.asked.wait()
        assert (await stage.produce(other, stage.batch(b"other", timestamp=1))).base_offset == 3
        assert values_of(await stage.fetch(other, 3)) == [b"other"]
        assert await look_up(other, -1) == [(0, 4, -1)]
        assert not waiting.done()
        workers.let.set()
        assert await waiting == [(0, 1, 4_000), (0, 0, 3_000), (0, 1, 4_000)]
        assert workers.busy_max == 1

    play(case)


def test_w06_records_deleted_while_a_time_is_looked_for_are_not_the_answer(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        one = await stage.connect()
        assert (await stage.produce(one, large_and_stamped(1_000, 3_000, 2_000, 4_000))).error_code == 0
        workers = HeldWorkers(stage.broker)
        waiting = asyncio.ensure_future(look_up(one, 1_500))
        await workers.asked.wait()
        [partition] = stage.broker.partitions
        assert partition.delete_records(2) == 2
        workers.let.set()
        assert await waiting == [(0, 2, 2_000)]

    play(case)


@pytest.mark.parametrize("size", [1, 2 * MIB])
def test_w06_the_largest_timestamp_may_be_that_of_a_record_deleted_in_front_of_others(play: Any, size: int) -> None:
    """As Kafka has it: the record is still in its segment. In a large batch the search for it went round and round."""

    async def case(stage: Any) -> None:
        await stage.topic()
        one = await stage.connect()
        batch = build_batch([(b"key", bytes(size), [], timestamp) for timestamp in (1_000, 4_000, 2_000)], codec=GZIP)
        assert (await stage.produce(one, batch)).error_code == 0
        [partition] = stage.broker.partitions
        assert partition.delete_records(2) == 2
        assert await asyncio.wait_for(look_up(one, -3), 30) == [(0, 1, 4_000)]

    play(case)


def spoil(log: Any, position: int) -> None:
    with Path(log.active.path(LOG)).open("r+b") as file:
        file.seek(position)
        file.write(b"\xff")


@pytest.mark.parametrize("size", [1, 2 * MIB])
@pytest.mark.parametrize("timestamp", [1_500, -3])
def test_w06_a_batch_that_cannot_be_unpacked_is_told_to_who_looks_into_it(play: Any, timestamp: int, size: int) -> None:
    """Found by reading: it closed the asker's connection, as if that had sent it."""

    async def case(stage: Any) -> None:
        await stage.topic()
        one = await stage.connect()
        batch = build_batch([(b"key", bytes(size), [], timestamp) for timestamp in (1_000, 3_000, 2_000)], codec=GZIP)
        assert (await stage.produce(one, batch)).error_code == 0
        [partition] = stage.broker.partitions
        spoil(partition.log, RECORDS_AT)
        assert await look_up(one, timestamp) == [(ErrorCode.CORRUPT_MESSAGE, -1, -1)]

    play(case)


def test_r08_who_leads_is_asked_again_once_a_large_batch_was_looked_into(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        one = await stage.connect()
        assert (await stage.produce(one, large_and_stamped(1_000, 3_000, 2_000))).error_code == 0
        workers = HeldWorkers(stage.broker)
        waiting = asyncio.ensure_future(look_up(one, 1_500))
        await workers.asked.wait()
        await stage.broker.controller.topic_requests.delete(["t"])
        workers.let.set()
        assert await waiting == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)]

    play(case)


def test_f23_a_search_whose_asker_has_gone_makes_room_for_the_next(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        gone, one = await stage.connect(), await stage.connect()
        assert (await stage.produce(one, large_and_stamped(1_000, 3_000, 2_000))).error_code == 0
        workers = HeldWorkers(stage.broker)
        asked = ListOffsetsPartition(partition_index=0, timestamp=1_500)
        gone.tell("list_offsets", 7, ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[asked])]))
        await workers.asked.wait()
        gone.close()
        waiting = asyncio.ensure_future(look_up(one, 1_500))
        workers.let.set()
        assert await waiting == [(0, 1, 3_000)]

    play(case)
