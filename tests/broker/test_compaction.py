"""The cleaner in a running broker: F13, while records come and go, and what makes it stop."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.records.batch import scan_batches
from ottla.records.record import Record, build_batch, read_records
from ottla.storage.names import LOG
from ottla.types import TopicPartition
from tests.kit.wait import until_async

QUICK = {"log_cleaner_backoff_ms": "20", "log_initial_task_delay_ms": "10"}
COMPACT = {"cleanup_policy": "compact", "segment_bytes": "4096", "min_cleanable_dirty_ratio": "0.01"}


async def put(stage: Any, connection: Any, pairs: list[tuple[bytes, bytes | None]], **options: Any) -> int:
    now_ms = stage.broker.world.clock.now_ms()
    batch = build_batch([(key, value, [], now_ms) for key, value in pairs], **options)
    reply = await stage.produce(connection, batch)
    assert reply.error_code == 0
    offset: int = reply.base_offset
    return offset


async def read_all(stage: Any, connection: Any) -> list[Record]:
    found: list[Record] = []
    offset = 0
    while True:
        data = await stage.fetch(connection, offset)
        assert data.error_code == 0
        batches, _ = scan_batches(data.records or b"")
        found += [record for batch in batches for record in read_records(data.records, batch)]
        if not batches:
            assert offset == data.high_watermark
            return found
        offset = batches[-1].next_offset


def log_of(stage: Any) -> Any:
    return stage.broker.partitions.get(TopicPartition("t", 0)).log


def checkpoint(path: Path) -> str:
    file = path / "data" / "cleaner-offset-checkpoint"
    return file.read_text() if file.exists() else ""


def test_f13_a_compacted_topic_keeps_the_newest_of_each_key(play: Any, tmp_path: Path) -> None:
    async def case(stage: Any) -> None:
        await stage.topic(**COMPACT)
        connection = await stage.connect()
        newest: dict[bytes, tuple[int, bytes]] = {}
        for number in range(300):
            key, value = b"key-%d" % (number % 7), b"value-%d" % number
            newest[key] = (await put(stage, connection, [(key, value)], codec=number % 5), value)
        log = log_of(stage)
        await until_async(lambda: log.cleaned_offset is not None and log.cleaned_offset == log.active.base_offset)
        records = await read_all(stage, connection)
        sealed = [record for record in records if record.offset < log.active.base_offset]
        assert len({record.key for record in sealed}) == len(sealed) <= 7
        last = {record.key: (record.offset, record.value) for record in records}
        assert last == newest
        await until_async(lambda: checkpoint(tmp_path) == f"0\n1\nt 0 {log.cleaned_offset}\n")
        assert stage.counters.get("cleaner_passes") > 0

    play(case, **QUICK)


def test_another_pause_of_the_cleaner_counts_at_once(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic(**COMPACT)
        connection = await stage.connect()
        for number in range(200):
            await put(stage, connection, [(b"key", b"value-%d" % number)])
        log = log_of(stage)
        assert log.cleaned_offset is None
        often = AlterableConfig(name="log.cleaner.backoff.ms", value="20", config_operation=0)
        resource = AlterConfigsResource(resource_type=4, resource_name="", configs=[often])
        request = IncrementalAlterConfigsRequest(resources=[resource])
        response = await connection.call("incremental_alter_configs", 1, request)
        assert [each.error_code for each in response.responses] == [0]
        await until_async(lambda: log.cleaned_offset == log.active.base_offset)

    play(case, log_cleaner_backoff_ms="600000")


def test_f13_readers_and_writers_go_on_while_a_log_is_compacted(play: Any) -> None:
    """A consumer that follows from the beginning sees, of each key, the newest; offsets only grow."""

    async def case(stage: Any) -> None:
        await stage.topic(**COMPACT)
        writer, reader = await stage.connect(), await stage.connect()
        done = asyncio.Event()
        seen: dict[bytes, bytes | None] = {}

        async def follow() -> None:
            offset = 0
            while True:
                data = await stage.fetch(reader, offset, max_wait_ms=20, partition_max_bytes=3000)
                assert data.error_code == 0
                batches, _ = scan_batches(data.records or b"")
                for batch in batches:
                    assert batch.next_offset > offset or batch.base_offset <= offset
                    for record in read_records(data.records, batch):
                        if record.offset >= offset:
                            seen[record.key or b""] = record.value
                if batches:
                    assert batches[-1].next_offset > offset
                    offset = batches[-1].next_offset
                elif done.is_set():
                    return

        following = asyncio.ensure_future(follow())
        expected: dict[bytes, bytes] = {}
        for number in range(400):
            if number == 200:  # by then the first segments are flushed, and their compaction is under way
                await until_async(lambda: stage.counters.get("cleaner_passes") > 0)
            pairs = [(b"key-%d" % (number * step % 50), b"%d-%d" % (number, step)) for step in (1, 2, 3)]
            expected.update(pairs)
            await put(stage, writer, list(pairs))
        done.set()
        await following
        assert seen == expected
        log = log_of(stage)
        await until_async(lambda: log.cleaned_offset == log.active.base_offset)
        again = await read_all(stage, reader)
        assert {record.key: record.value for record in again} == expected
        assert len(again) < 1200

    play(case, **QUICK)


def test_f13_no_reply_is_of_empty_batches_alone(play: Any) -> None:
    """The last batch of a cleaned segment stays, if need be empty. A reply of it alone would hold up who reads records and not
    batches: kafka-go asks for the same offset again, for ever."""

    async def case(stage: Any) -> None:
        await stage.topic(**COMPACT)
        connection = await stage.connect()
        for number in range(200):  # what ends a segment is soon replaced, most of what is before it is not
            await put(stage, connection, [(b"same" if number % 4 else b"key-%d" % number, bytes(200))])
        log = log_of(stage)
        await until_async(lambda: log.cleaned_offset is not None and log.cleaned_offset == log.active.base_offset)
        data = b"".join(bytes(segment.file.read(0, segment.size)) for segment in log.segments)
        stored, _ = scan_batches(data)
        hollow = [batch for batch in stored if not batch.record_count]
        assert hollow, "compaction left no empty batch, so this shows nothing"
        for batch in hollow:
            for offset in (batch.base_offset, batch.last_offset):
                reply = await stage.fetch(connection, offset)
                assert sum(found.record_count for found in scan_batches(reply.records)[0]) > 0

    play(case, **QUICK)


def test_compact_and_delete_apply_both(play: Any) -> None:
    async def case(stage: Any) -> None:
        settings = COMPACT | {"cleanup_policy": "compact,delete", "retention_bytes": "20000"}
        await stage.topic(**settings)
        connection = await stage.connect()
        for number in range(300):
            await put(stage, connection, [(b"unique-%d" % number, bytes(300)), (b"same", b"%d" % number)])
        log = log_of(stage)
        await until_async(lambda: log.log_start_offset > 0 and (log.cleaned_offset or 0) == log.active.base_offset)
        await until_async(lambda: log.size_bytes < 26_000)
        offset = log.log_start_offset
        data = await stage.fetch(connection, offset)
        assert data.error_code == 0
        assert data.log_start_offset == offset

    play(case, log_retention_check_interval_ms="50", **QUICK)


def test_a_topic_deleted_while_it_is_compacted_takes_nothing_with_it(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic(**COMPACT)
        connection = await stage.connect()
        for number in range(200):
            await put(stage, connection, [(b"k%d" % (number % 20), bytes(200))])
        for _ in range(5):
            [outcome] = await stage.broker.controller.topic_requests.delete(["t"])
            assert not isinstance(outcome, Exception)
            await stage.topic(**COMPACT)
            for number in range(50):
                await put(stage, connection, [(b"k%d" % (number % 5), bytes(200))])
        assert stage.broker.partitions.data_dirs.offline_paths() == []
        log = log_of(stage)
        await until_async(lambda: (log.cleaned_offset or 0) == log.active.base_offset > 0)

    play(case, **QUICK)


def damage(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff")


def test_a_damaged_log_is_set_aside_and_serves_on(play: Any, caplog: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic(**(COMPACT | {"min_cleanable_dirty_ratio": "0.99"}))
        await stage.topic("other", **COMPACT)
        connection = await stage.connect()
        log = log_of(stage)
        await put(stage, connection, [(b"a", bytes(100)), (b"b", bytes(100))])
        damage(Path(log.segments[0].path(LOG)))
        for number in range(100):
            await put(stage, connection, [(b"k%d" % (number % 20), bytes(200))])
        await until_async(lambda: stage.counters.get("cleaner_uncleanable_partitions") == 1)
        assert "t-0 cannot be compacted" in caplog.text
        assert "CRC" in caplog.text
        assert await put(stage, connection, [(b"a", b"still written")]) == 102
        assert stage.broker.partitions.data_dirs.offline_paths() == []

    play(case, **QUICK)


def test_l06_a_log_whose_aborted_transactions_cannot_be_read_fails_with_its_directory(play: Any) -> None:
    """Found by reading: its pass ended before it began, unheard, and the next one began at once, for ever."""

    async def case(stage: Any) -> None:
        await stage.topic(**COMPACT)
        connection = await stage.connect()
        log = log_of(stage)
        log.active.indexes.has_aborted = True  # and there is no file
        log.local.find_aborted()
        for number in range(30):
            await put(stage, connection, [(b"k%d" % (number % 20), bytes(200))])
        await stage.broker.stop_asked()
        assert "00000.txnindex" in stage.broker.failure

    play(case, **QUICK)


def test_the_cleaner_can_be_turned_off(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic(**COMPACT)
        connection = await stage.connect()
        for number in range(100):
            await put(stage, connection, [(b"k%d" % (number % 5), bytes(200))])
        await asyncio.sleep(0.1)
        assert log_of(stage).cleaned_offset is None
        assert len(await read_all(stage, connection)) == 100

    play(case, log_cleaner_enable="false", **QUICK)
