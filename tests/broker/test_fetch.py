"""Fetch on the wire: whole batches, limits, waiting, sessions, epochs, sendfile (W03, R08, R10, L10, F16, F31)."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.network.connection import COPY_BYTES_MAX
from ottla.errors import ErrorCode
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from ottla.records.batch import MAGIC_AT, RECORDS_AT, scan_batches
from ottla.runtime.loop import ThreadWorkers
from ottla.storage.names import LOG, OFFSET_INDEX
from ottla.storage.segment import _build_indexes


def offsets_of(records: Any) -> list[tuple[int, int]]:
    batches, end = scan_batches(records or b"")
    assert end == len(records or b""), "only whole batches"
    return [(batch.base_offset, batch.last_offset) for batch in batches]


async def fill(stage: Any, batches: int = 4, records: int = 3, size: int = 100) -> Any:
    """A topic `t` with so many batches; returns a connection."""
    await stage.topic()
    connection = await stage.connect()
    for _ in range(batches):
        await stage.produce(connection, stage.batch(*[b"x" * size] * records))
    return connection


@pytest.mark.parametrize("version", [4, 6, 7, 11, 12])
def test_w03_from_the_middle_of_a_batch_the_whole_batch_comes(play: Any, version: int) -> None:
    async def case(stage: Any) -> None:
        connection = await fill(stage)
        data = await stage.fetch(connection, 4, version=version)
        assert offsets_of(data.records) == [(3, 5), (6, 8), (9, 11)]
        assert data.high_watermark == 12

    play(case)


def test_w03_at_least_one_batch_comes_however_small_the_limits(play: Any) -> None:
    async def case(stage: Any) -> None:
        connection = await fill(stage)
        assert offsets_of((await stage.fetch(connection, 3, max_bytes=1)).records) == [(3, 5)]
        assert offsets_of((await stage.fetch(connection, 3, partition_max_bytes=1)).records) == [(3, 5)]
        size = len((await stage.fetch(connection, 9)).records)
        assert offsets_of((await stage.fetch(connection, 0, partition_max_bytes=2 * size + 1)).records) == [(0, 2), (3, 5)]

    play(case)


def test_w03_only_the_first_partition_may_exceed_the_limit(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic(partitions=2)
        connection = await stage.connect()
        for partition in (0, 1):
            await stage.produce(connection, stage.batch(b"x" * 1000), partition=partition)
        asked = [FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1 << 20) for number in (0, 1)]
        request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=10, topics=[FetchTopic(topic="t", partitions=asked)])
        first, second = (await connection.call("fetch", 12, request)).responses[0].partitions
        assert offsets_of(first.records) == [(0, 0)]
        assert offsets_of(second.records) == []
        assert second.high_watermark == 1

    play(case)


def test_f31_an_empty_fetch_waits_and_is_answered_the_moment_records_come(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        reader, writer = await stage.connect(), await stage.connect()
        waiting = asyncio.ensure_future(stage.fetch(reader, 0, max_wait_ms=60_000))
        while not len(stage.broker.purgatory):
            await asyncio.sleep(0)
        await stage.produce(writer, stage.batch(b"news"))
        assert offsets_of((await waiting).records) == [(0, 0)]
        assert stage.broker.purgatory.watched_keys == 0

    play(case)


def test_f31_min_bytes_is_waited_for(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        reader, writer = await stage.connect(), await stage.connect()
        waiting = asyncio.ensure_future(stage.fetch(reader, 0, max_wait_ms=60_000, min_bytes=3000))
        for _ in range(2):
            await stage.produce(writer, stage.batch(b"x" * 1000))
        assert not waiting.done()
        await stage.produce(writer, stage.batch(b"x" * 1000))
        assert offsets_of((await waiting).records) == [(0, 0), (1, 1), (2, 2)]

    play(case)


def test_f31_a_complete_segment_is_not_waited_for(play: Any) -> None:
    """What will be written comes behind it: whoever waited at the end of every segment would read an old topic slowly."""

    async def case(stage: Any) -> None:
        await stage.topic(segment_bytes="2000")
        connection = await stage.connect()
        for _ in range(3):
            await stage.produce(connection, stage.batch(b"x" * 1500))
        for offset in (0, 1):
            data = await stage.fetch(connection, offset, max_wait_ms=600_000, min_bytes=1 << 20)
            assert offsets_of(data.records) == [(offset, offset)]

    play(case)


def test_f31_when_the_time_is_over_the_fetch_gets_what_there_is(play: Any) -> None:
    async def case(stage: Any) -> None:
        connection = await fill(stage, batches=1)
        loop = asyncio.get_running_loop()
        start = loop.time()
        data = await stage.fetch(connection, 0, max_wait_ms=50, min_bytes=1 << 20)
        assert loop.time() - start >= 0.045
        assert offsets_of(data.records) == [(0, 2)]

    play(case)


def test_a_peer_that_goes_away_leaves_no_waiting_fetch(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await stage.connect()
        waiting = asyncio.ensure_future(stage.fetch(connection, 0, max_wait_ms=600_000))
        while not len(stage.broker.purgatory):
            await asyncio.sleep(0)
        connection.close()
        with pytest.raises(ConnectionError):
            await waiting
        while len(stage.broker.purgatory):
            await asyncio.sleep(0.001)

    play(case)


def test_a_deleted_topic_ends_the_wait_for_it(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await stage.connect()
        waiting = asyncio.ensure_future(stage.fetch(connection, 0, max_wait_ms=600_000))
        while not len(stage.broker.purgatory):
            await asyncio.sleep(0)
        await stage.broker.controller.topic_requests.delete(["t"])
        assert (await waiting).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(case)


def test_w03_sessions(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic(partitions=3)
        connection = await stage.connect()
        asked = [FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1 << 20) for number in range(3)]

        def request(session_id: int, epoch: int, *topics: FetchTopic, **options: Any) -> FetchRequest:
            return FetchRequest(
                max_wait_ms=0, min_bytes=1, session_id=session_id, session_epoch=epoch, topics=list(topics), **options
            )

        full = await connection.call("fetch", 12, request(0, 0, FetchTopic(topic="t", partitions=asked)))
        session_id = full.session_id
        assert session_id > 0
        assert [data.partition_index for data in full.responses[0].partitions] == [0, 1, 2]
        nothing = await connection.call("fetch", 12, request(session_id, 1))
        assert (nothing.session_id, nothing.responses) == (session_id, [])
        await stage.produce(connection, stage.batch(b"x"), partition=1)
        news = await connection.call("fetch", 12, request(session_id, 2))
        assert [data.partition_index for data in news.responses[0].partitions] == [1]
        repeated = await connection.call("fetch", 12, request(session_id, 2))
        assert repeated.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        unknown = await connection.call("fetch", 12, request(session_id + 1, 1))
        assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        forgotten = [ForgottenTopic(topic="t", partitions=[1])]
        less = await connection.call("fetch", 12, request(session_id, 3, forgotten_topics_data=forgotten))
        assert (less.error_code, less.responses) == (0, [])

    play(case)


def test_topics_by_id_from_version_13_on(play: Any) -> None:
    async def case(stage: Any) -> None:
        connection = await fill(stage, batches=1)
        topic_id = stage.broker.image.topics["t"].topic_id
        asked = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)]
        for version in (13, 15, 17):
            for wanted, code in ((topic_id, ErrorCode.NONE), (b"\7" * 16, ErrorCode.UNKNOWN_TOPIC_ID)):
                request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic_id=wanted, partitions=asked)])
                [topic] = (await connection.call("fetch", version, request)).responses
                assert topic.topic_id == wanted
                assert topic.partitions[0].error_code == code

    play(case)


def test_r08_leader_epochs_that_are_not_the_current_one_get_no_data(play: Any) -> None:
    async def case(stage: Any) -> None:
        connection = await fill(stage, batches=1)
        [partition] = stage.broker.partitions
        partition.leader_epoch = 5
        for epoch, code in ((4, ErrorCode.FENCED_LEADER_EPOCH), (6, ErrorCode.UNKNOWN_LEADER_EPOCH)):
            data = await stage.fetch(connection, 0, current_leader_epoch=epoch)
            assert (data.error_code, bytes(data.records)) == (code, b"")
        assert (await stage.fetch(connection, 0, current_leader_epoch=5)).error_code == 0
        assert (await stage.fetch(connection, 0, current_leader_epoch=-1)).error_code == 0

    play(case)


def test_r10_a_diverging_log_hears_where_it_diverged(play: Any) -> None:
    async def case(stage: Any) -> None:
        connection = await fill(stage, batches=2)
        [partition] = stage.broker.partitions
        partition.leader_epoch = 3
        partition.log.epochs.assign(3, 6)
        await stage.produce(connection, stage.batch(b"x"))
        data = await stage.fetch(connection, 7, last_fetched_epoch=0)
        assert data.diverging_epoch is not None
        assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 6)
        assert bytes(data.records) == b""
        assert offsets_of((await stage.fetch(connection, 6, last_fetched_epoch=0)).records) == [(6, 6)]
        unknown = await stage.fetch(connection, 2, last_fetched_epoch=2)
        assert unknown.diverging_epoch is not None
        assert unknown.diverging_epoch.epoch == 0

    play(case)


def test_l10_below_the_log_start_and_beyond_the_end_is_out_of_range(play: Any) -> None:
    async def case(stage: Any) -> None:
        connection = await fill(stage)
        asked = [DeleteRecordsPartition(partition_index=0, offset=5)]
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=asked)], timeout_ms=1000)
        [result] = (await connection.call("delete_records", 2, request)).topics[0].partitions
        assert (result.error_code, result.low_watermark) == (0, 5)
        assert (await stage.fetch(connection, 4)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        data = await stage.fetch(connection, 5)
        assert (data.error_code, data.log_start_offset) == (0, 5)
        assert offsets_of(data.records)[0] == (3, 5)
        assert (await stage.fetch(connection, 13)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await stage.fetch(connection, 12)).error_code == 0

    play(case)


def test_nobody_becomes_a_follower_by_saying_so(play: Any) -> None:
    async def case(stage: Any) -> None:
        connection = await fill(stage, batches=1)
        for replica_id in (0, 1, 7):
            data = await stage.fetch(connection, 0, replica_id=replica_id)
            assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    play(case)


def test_isolation_levels(play: Any) -> None:
    async def case(stage: Any) -> None:
        connection = await fill(stage, batches=1)
        uncommitted = await stage.fetch(connection, 0)
        committed = await stage.fetch(connection, 0, isolation_level=1)
        assert uncommitted.aborted_transactions is None
        assert committed.aborted_transactions == []
        assert bytes(committed.records) == bytes(uncommitted.records)
        assert committed.last_stable_offset == 3

    play(case)


def test_zstd_topics_need_fetch_10(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic(compression_type="zstd")
        connection = await stage.connect()
        await stage.produce(connection, stage.batch(b"x"))
        assert (await stage.fetch(connection, 0, version=9)).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert (await stage.fetch(connection, 0, version=10)).error_code == 0

    play(case)


def test_f16_records_go_from_file_to_socket(play: Any) -> None:
    async def case(stage: Any) -> None:
        connection = await fill(stage, batches=20, records=10, size=10_000)
        before = stage.counters.get("sendfile_bytes")
        data = await stage.fetch(connection, 0, partition_max_bytes=10 << 20)
        assert len(offsets_of(data.records)) == 20
        assert stage.counters.get("sendfile_bytes") - before == len(data.records)

    play(case)


def test_f16_a_few_records_are_sent_along_with_the_reply(play: Any) -> None:
    """Below COPY_BYTES_MAX one write is cheaper than a header, a range and a trailer."""

    async def case(stage: Any) -> None:
        connection = await fill(stage, batches=20, records=10, size=100)
        before = stage.counters.get("sendfile_bytes")
        data = await stage.fetch(connection, 0, partition_max_bytes=COPY_BYTES_MAX)
        found = offsets_of(data.records)
        assert found[0] == (0, 9)
        assert len(found) > 1
        assert stage.counters.get("sendfile_bytes") == before

    play(case)


def test_f16_a_slow_reader_gets_every_byte_and_holds_up_nobody(play: Any) -> None:
    async def case(stage: Any) -> None:
        connection = await fill(stage, batches=30, records=10, size=50_000)
        from ottla.protocol.headers import decode_response, encode_request
        from ottla.protocol.registry import API_BY_NAME

        api = API_BY_NAME["fetch"]
        slow = await stage.raw(limit=1 << 10)
        request = stage.fetch_request(0, partition_max_bytes=100 << 20)
        slow.send(b"".join(encode_request(api, 12, 9, "slow", request)))  # type: ignore[arg-type]
        assert (await stage.produce(connection, stage.batch(b"meanwhile"))).error_code == 0
        frame = await slow.frame()
        _, response = decode_response(api, 12, memoryview(frame))
        assert len(offsets_of(response.responses[0].partitions[0].records)) == 30

    play(case)


def traced() -> bool:
    """Whether the tracer has all threads of this process."""
    statuses = [path.read_text() for path in Path("/proc/self/task").glob("*/status")]
    return not any("TracerPid:\t0\n" in status for status in statuses)


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_f16_seen_by_strace(play: Any, tmp_path: Path) -> None:
    async def case(stage: Any) -> None:
        connection = await fill(stage, batches=5, records=10, size=10_000)
        trace = tmp_path / "trace"
        command = [
            "strace",
            "-f",
            "-qq",
            "-e",
            "trace=sendfile,sendfile64,pread64,preadv",
            "-o",
            str(trace),
            "-p",
            str(os.getpid()),
        ]
        tracer = subprocess.Popen(command, stderr=subprocess.PIPE)  # noqa: ASYNC220
        try:
            while not traced():
                if tracer.poll() is not None:
                    pytest.fail(f"strace may not trace here: {tracer.stderr.read() if tracer.stderr else b''!r}")
                await asyncio.sleep(0.01)
            data = await stage.fetch(connection, 0, partition_max_bytes=10 << 20)
        finally:
            tracer.terminate()
            tracer.communicate(timeout=60)
        calls = trace.read_text()
        # A socket that is full takes nothing: `= -1 EAGAIN`.
        sent = sum(int(count) for count in re.findall(r"sendfile.*= (\d+)$", calls, re.MULTILINE))
        assert sent == len(data.records)

    play(case)


@pytest.mark.parametrize("version", [4, 11, 12, 17])
def test_what_lists_aborted_transactions_and_what_has_null_there(play: Any, version: int) -> None:
    """As Kafka: what a read_committed consumer reads lists them, and what is not known at all; other errors do not."""

    async def case(stage: Any) -> None:
        connection = await fill(stage, batches=1)
        known, nowhere = stage.broker.image.topics["t"].topic_id, b"\7" * 16

        async def listed(committed: int, topic: str = "t", topic_id: bytes = known, **asked: Any) -> Any:
            wanted = FetchPartition(**({"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000} | asked))
            topics = [FetchTopic(topic=topic, topic_id=topic_id, partitions=[wanted])]
            request = FetchRequest(max_wait_ms=0, max_bytes=1000, isolation_level=committed, topics=topics)
            answer = await connection.call("fetch", version, request)
            return answer.responses[0].partitions[0].aborted_transactions

        for committed in (0, 1):
            assert await listed(committed) == ([] if committed else None)
            assert await listed(committed, fetch_offset=3) == ([] if committed else None)
            assert await listed(committed, fetch_offset=4) is None
            assert await listed(committed, partition=9) == []
            assert await listed(committed, topic="absent", topic_id=nowhere) == []
            if version >= 9:
                assert await listed(committed, current_leader_epoch=5) is None
            if version >= 12:
                assert await listed(committed, last_fetched_epoch=5) is None, "histories part"

    play(case)


@pytest.mark.parametrize("version", [7, 12, 17])
def test_a_session_may_begin_without_partitions(play: Any, version: int) -> None:
    async def case(stage: Any) -> None:
        connection = await fill(stage, batches=1)
        asked: dict[str, Any] = {"max_wait_ms": 0, "max_bytes": 1000}
        begun = await connection.call("fetch", version, FetchRequest(session_epoch=0, topics=[], **asked))
        assert (begun.error_code, begun.session_id != 0, begun.responses) == (ErrorCode.NONE, True, [])
        wanted = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)]
        topics = [FetchTopic(topic="t", topic_id=stage.broker.image.topics["t"].topic_id, partitions=wanted)]
        request = FetchRequest(session_id=begun.session_id, session_epoch=1, topics=topics, **asked)
        answer = await connection.call("fetch", version, request)
        assert (answer.error_code, answer.session_id) == (ErrorCode.NONE, begun.session_id)
        assert offsets_of(answer.responses[0].partitions[0].records) == [(0, 2)]

    play(case)


def with_damage(path: str, position: int) -> None:
    with Path(path).open("r+b") as file:
        file.seek(position)
        file.write(b"\xff")


@pytest.mark.parametrize("size", [2 * RECORDS_AT, 2 * RECORDS_AT + 1])
def test_a_broken_batch_is_sent_as_it_is_whatever_its_size(play: Any, size: int) -> None:
    """The consumer sees what is wrong. Found by reading: bytes that could be headers without records were looked at more closely,
    and what is no batch closed the consumer's connection, again and again."""

    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await stage.connect()
        batch = stage.batch(bytes(size - len(stage.batch(b""))))
        assert len(batch) == size
        for offset in range(2):  # where the next one begins is known from the read before it, and is not looked for
            assert (await stage.produce(connection, batch)).error_code == 0
            [partition] = stage.broker.partitions
            if offset == 1:
                with_damage(partition.log.active.path(LOG), size + MAGIC_AT)
            data = await stage.fetch(connection, offset)
            assert (data.error_code, len(data.records)) == (0, size)
        with_damage(partition.log.active.path(LOG), MAGIC_AT)
        assert (await stage.fetch(connection, 0)).error_code == ErrorCode.CORRUPT_MESSAGE

    play(case)


class HeldBuilding:
    """The building of lost indexes begins when it is let."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = 0
        self.begun = asyncio.Event()
        self.let = asyncio.Event()
        original = ThreadWorkers.run

        async def run(workers: ThreadWorkers, work: Any) -> Any:
            if getattr(work, "func", None) is _build_indexes:
                self.asked += 1
                self.begun.set()
                await self.let.wait()
            return await original(workers, work)

        monkeypatch.setattr(ThreadWorkers, "run", run)


async def fill_segments(stage: Any) -> tuple[Any, Any]:
    """Ten batches in a segment, an index entry for each but the first; a connection, and the first segment."""
    await stage.topic(segment_bytes="4000", index_interval_bytes="100")
    connection = await stage.connect()
    for _ in range(25):
        assert (await stage.produce(connection, stage.batch(b"x" * 320))).error_code == 0
    [partition] = stage.broker.partitions
    segment = partition.log.segments[0]
    assert (segment.end_offset, len(segment.index)) == (10, 9)
    return connection, segment


def lose_index(segment: Any, shift: int | None = None) -> None:
    """Its file is gone; or all it says is wrong by some bytes."""
    path = Path(segment.path(OFFSET_INDEX))
    entries = [(offset, position + (shift or 0)) for offset, position in struct.iter_unpack(">ii", path.read_bytes())]
    path.write_bytes(b"".join(struct.pack(">ii", *entry) for entry in entries))
    if shift is None:
        path.unlink()
    segment.evict()


@pytest.mark.parametrize("offset", [0, 5])
@pytest.mark.parametrize("shift", [None, -1])
def test_f15_while_a_lost_index_is_built_the_fetch_waits_and_others_do_not(
    play: Any, monkeypatch: pytest.MonkeyPatch, shift: int | None, offset: int
) -> None:
    async def case(stage: Any) -> None:
        connection, segment = await fill_segments(stage)
        lose_index(segment, shift)
        building = HeldBuilding(monkeypatch)
        limits = {"max_wait_ms": 60_000, "partition_max_bytes": 1000}
        waiting = connection.send("fetch", 12, stage.fetch_request(offset, **limits))
        await building.begun.wait()
        other = await stage.connect()
        data = await stage.fetch(other, offset, partition_max_bytes=1000)
        assert (data.error_code, data.high_watermark, data.records) == (0, 25, b"")
        assert (await stage.produce(other, stage.batch(b"other"))).base_offset == 25
        assert offsets_of((await stage.fetch(other, 24)).records) == [(24, 24), (25, 25)]
        assert not waiting.done()
        building.let.set()
        data = (await waiting).responses[0].partitions[0]
        assert offsets_of(data.records) == [(offset, offset), (offset + 1, offset + 1)]
        assert building.asked == 1
        segment.evict()
        assert offsets_of((await stage.fetch(other, 3, partition_max_bytes=1)).records) == [(3, 3)], "the file is right again"

    play(case)


@pytest.mark.parametrize("shift", [None, -1])
def test_f15_where_no_index_helps_the_damage_is_told_and_looked_for_once(
    play: Any, monkeypatch: pytest.MonkeyPatch, shift: int | None
) -> None:
    async def case(stage: Any) -> None:
        connection, segment = await fill_segments(stage)
        lose_index(segment, shift)
        with_damage(segment.path(LOG), 5 * (segment.size // 10) + MAGIC_AT)
        building = HeldBuilding(monkeypatch)
        building.let.set()
        limits = {"max_wait_ms": 60_000, "partition_max_bytes": 1}
        for _ in range(3):
            assert (await stage.fetch(connection, 7, **limits)).error_code == ErrorCode.CORRUPT_MESSAGE
        assert building.asked == (2 if shift is None else 1)
        assert offsets_of((await stage.fetch(connection, 12, **limits)).records) == [(12, 12)]

    play(case)


def test_a_topic_deleted_while_a_lost_index_is_built_is_not_there(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def case(stage: Any) -> None:
        connection, segment = await fill_segments(stage)
        lose_index(segment)
        building = HeldBuilding(monkeypatch)
        waiting = connection.send("fetch", 12, stage.fetch_request(5, max_wait_ms=60_000))
        await building.begun.wait()
        await stage.broker.controller.topic_requests.delete(["t"])
        assert (await waiting).responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        building.let.set()
        while stage.broker.index_rebuilder.building:
            await asyncio.sleep(0.01)
        assert stage.broker.partitions.data_dirs.offline_paths() == []

    play(case)
