"""Readers of committed data on the wire (F65, T01, T02, T12, T14): records, markers, and what of them a reader sees.

A raw client writes transactional batches and, as a coordinator would, the markers.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ottla.errors import ErrorCode
from ottla.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from ottla.records.batch import scan_batches
from ottla.records.record import Record, read_records

COMMITTED = 1


def records_of(data: Any) -> list[Record]:
    return [record for batch in scan_batches(data.records)[0] for record in read_records(data.records, batch)]


class Willing:
    """A coordinator to which every partition is part of every transaction."""

    def __init__(self, broker: Any) -> None:
        broker.verifier.verify = self.verify
        self.asked: list[Any] = []
        self.later = False

    def verify(self, transactional_id: str, producer_id: int, epoch: int, partitions: Any, api_name: str, version: int) -> Any:
        self.asked.append((transactional_id, producer_id, epoch, list(partitions), api_name, version))
        return self._soon if self.later else {}

    async def _soon(self) -> dict[Any, Any]:
        await asyncio.sleep(0.01)
        return {}


async def write(
    stage: Any, connection: Any, producer: int, sequence: int, *values: bytes, epoch: int = 0, version: int = 11, **options: Any
) -> Any:
    batch = stage.batch(*values, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, transactional=True)
    request = stage.produce_request(batch, **options)
    request.transactional_id = f"txn-{producer}"
    response = await connection.call("produce", version, request)
    return response.responses[0].partition_responses[0]


async def mark(
    connection: Any,
    producer: int,
    commit: bool,
    *,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    topic: str = "t",
    version: int = 1,
) -> int:
    marker = WritableTxnMarker(
        producer_id=producer,
        producer_epoch=epoch,
        transaction_result=commit,
        coordinator_epoch=coordinator_epoch,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
    )
    response = await connection.call("write_txn_markers", version, WriteTxnMarkersRequest(markers=[marker]))
    assert response.markers[0].producer_id == producer
    return int(response.markers[0].topics[0].partitions[0].error_code)


async def end_offset(connection: Any, isolation_level: int, timestamp: int = -1) -> int:
    asked = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)])
    response = await connection.call(
        "list_offsets", 7, ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=[asked])
    )
    return int(response.topics[0].partitions[0].offset)


def visible(data: Any) -> list[bytes]:
    """What a consumer of committed data shows, by the rules of clients: it passes over control and aborted batches."""
    aborted = sorted((txn.first_offset, txn.producer_id) for txn in data.aborted_transactions or [])
    active: set[int] = set()
    shown: list[bytes] = []
    if not data.records:
        return shown
    for batch in scan_batches(data.records)[0]:
        while aborted and aborted[0][0] <= batch.last_offset:
            active.add(aborted.pop(0)[1])
        if batch.is_control:
            active.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in active):
            shown += [record.value or b"" for record in read_records(data.records, batch)]
    return shown


def test_t01_an_open_transaction_stops_readers_of_committed_data(play: Any) -> None:
    async def case(stage: Any) -> None:
        Willing(stage.broker)
        await stage.topic()
        connection = await stage.connect()
        await stage.produce(connection, stage.batch(b"before"))
        assert (await write(stage, connection, 5, 0, b"a", b"b")).base_offset == 1
        await stage.produce(connection, stage.batch(b"after"))
        data = await stage.fetch(connection, 0, isolation_level=COMMITTED)
        assert (data.high_watermark, data.last_stable_offset) == (4, 1)
        assert visible(data) == [b"before"]
        assert data.aborted_transactions == []
        all_of_it = await stage.fetch(connection, 0)
        assert [record.value for record in records_of(all_of_it)] == [b"before", b"a", b"b", b"after"]
        assert (all_of_it.last_stable_offset, all_of_it.aborted_transactions) == (1, None)
        assert (await end_offset(connection, 0), await end_offset(connection, COMMITTED)) == (4, 1)
        assert await end_offset(connection, COMMITTED, timestamp=0) == 0
        assert await mark(connection, 5, commit=True) == 0
        data = await stage.fetch(connection, 0, isolation_level=COMMITTED)
        assert visible(data) == [b"before", b"a", b"b", b"after"]
        assert data.last_stable_offset == data.high_watermark == 5
        assert await end_offset(connection, COMMITTED) == 5

    play(case)


def test_t01_a_reader_that_waits_is_woken_by_the_marker(play: Any) -> None:
    async def case(stage: Any) -> None:
        Willing(stage.broker)
        await stage.topic()
        writer, reader = await stage.connect(), await stage.connect()
        await write(stage, writer, 5, 0, b"a")
        waiting = asyncio.ensure_future(stage.fetch(reader, 0, isolation_level=COMMITTED, max_wait_ms=30_000))
        await write(stage, writer, 5, 1, b"b")
        await stage.produce(writer, stage.batch(b"c"))
        assert not waiting.done()
        await mark(writer, 5, commit=True)
        assert visible(await asyncio.wait_for(waiting, 60)) == [b"a", b"b", b"c"]

    play(case)


def test_t02_t14_aborted_records_are_listed_for_every_range_they_overlap(play: Any) -> None:
    async def case(stage: Any) -> None:
        Willing(stage.broker)
        await stage.topic(segment_bytes="1000")
        connection = await stage.connect()
        sequences = {5: 0, 6: 0}
        expected: list[bytes] = []
        for number in range(30):
            for producer in (5, 6):
                values = [b"%d-%d-%d" % (producer, number, index) for index in range(2)]
                await write(stage, connection, producer, sequences[producer], *values)
                sequences[producer] += 2
            plain = b"plain-%d" % number
            await stage.produce(connection, stage.batch(plain))
            commits = {5: number % 2 == 0, 6: number % 3 == 0}
            for producer in (6, 5):
                assert await mark(connection, producer, commits[producer]) == 0
            expected += [b"%d-%d-%d" % (p, number, index) for p in (5, 6) if commits[p] for index in range(2)] + [plain]
        assert len(next(iter(stage.broker.partitions)).log.segments) > 5
        for partition_max_bytes in (1, 700, 5000):
            offset, shown = 0, []
            while True:
                data = await stage.fetch(connection, offset, isolation_level=COMMITTED, partition_max_bytes=partition_max_bytes)
                if not data.records:
                    break
                shown += visible(data)
                offset = scan_batches(data.records)[0][-1].next_offset
            assert shown == expected
            assert offset == data.high_watermark, "positions step over control records"

    play(case)


def test_t12_markers_are_fenced_and_clients_write_none(play: Any) -> None:
    async def case(stage: Any) -> None:
        Willing(stage.broker)
        await stage.topic()
        connection = await stage.connect()
        await write(stage, connection, 5, 0, b"a", epoch=3)
        assert await mark(connection, 5, True, epoch=2, coordinator_epoch=7) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await mark(connection, 5, True, epoch=3, coordinator_epoch=7) == 0
        assert await mark(connection, 5, True, epoch=3, coordinator_epoch=6) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert await mark(connection, 5, True, epoch=3, coordinator_epoch=7, topic="none") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        control = stage.batch(b"x", producer_id=5, producer_epoch=3, base_sequence=1, transactional=True, control=True)
        request = stage.produce_request(control)
        request.transactional_id = "txn-5"
        response = await connection.call("produce", 9, request)
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_RECORD
        assert (await stage.fetch(connection, 0)).high_watermark == 2

    play(case)


def test_t14_a_transaction_without_records_may_end(play: Any) -> None:
    async def case(stage: Any) -> None:
        Willing(stage.broker)
        await stage.topic()
        connection = await stage.connect()
        for version in (0, 1, 2):
            assert await mark(connection, 5, True, version=version) == 0
            assert await mark(connection, 5, False, version=version) == 0
        data = await stage.fetch(connection, 0, isolation_level=COMMITTED)
        assert (data.last_stable_offset, data.aborted_transactions, visible(data)) == (6, [], [])

    play(case)


def test_t10_the_coordinator_is_asked_once_for_each_partition_and_transaction(play: Any) -> None:
    async def case(stage: Any) -> None:
        coordinator = Willing(stage.broker)
        await stage.topic()
        connection = await stage.connect()
        await write(stage, connection, 5, 0, b"a")
        await write(stage, connection, 5, 1, b"b")
        assert coordinator.asked == [("txn-5", 5, 0, [("t", 0)], "produce", 11)]
        await mark(connection, 5, commit=True)
        coordinator.later = True
        assert (await write(stage, connection, 5, 2, b"c", version=12)).base_offset == 3
        assert len(coordinator.asked) == 2
        assert (await write(stage, connection, 5, 2, b"c", version=12)).base_offset == 3, "a duplicate"
        data = await stage.fetch(connection, 0)
        assert [record.value for record in records_of(data) if record.key == b"key"] == [b"a", b"b", b"c"]

    play(case)


def test_t10_without_the_coordinators_word_nothing_is_written(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await stage.connect()
        answer = await write(stage, connection, 5, 0, b"a")
        assert answer.error_code != 0
        assert (await stage.fetch(connection, 0)).high_watermark == 0

    play(case)


def test_describe_producers_shows_the_open_transaction(play: Any) -> None:
    async def case(stage: Any) -> None:
        Willing(stage.broker)
        await stage.topic()
        connection = await stage.connect()
        await stage.produce(connection, stage.batch(b"x"))
        await write(stage, connection, 5, 0, b"a", b"b")
        request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])

        async def describe() -> Any:
            response = await connection.call("describe_producers", 0, request)
            [producer] = response.topics[0].partitions[0].active_producers
            return producer

        assert ((await describe()).current_txn_start_offset, (await describe()).last_sequence) == (1, 1)
        await mark(connection, 5, commit=False, coordinator_epoch=4)
        described = await describe()
        assert (described.current_txn_start_offset, described.coordinator_epoch, described.last_sequence) == (-1, 4, 1)

    play(case)
