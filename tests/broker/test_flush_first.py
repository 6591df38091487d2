"""F14: with `flush.messages` an acknowledged record is on the disk, and nobody but its producer waits for that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.runtime.loop import ThreadWorkers
from ottla.storage.flush import FlushPlan


class Gate:
    """Flushes begin when they are let, or fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_open = asyncio.Event()
        self.waiting = asyncio.Event()
        self.flushes = 0
        self.error: OSError | None = None
        original = ThreadWorkers.run

        async def run(workers: ThreadWorkers, work: Callable[[], Any]) -> Any:
            if isinstance(getattr(work, "__self__", None), FlushPlan):
                self.waiting.set()
                await self.is_open.wait()
                self.flushes += 1
                if self.error is not None:
                    raise self.error
            return await original(workers, work)

        monkeypatch.setattr(ThreadWorkers, "run", run)


def offsets(replies: list[Any]) -> list[tuple[int, int]]:
    answers = [reply.responses[0].partition_responses[0] for reply in replies]
    return [(answer.error_code, answer.base_offset) for answer in answers]


@pytest.mark.parametrize("acks", [1, -1])
def test_a_record_is_acknowledged_and_visible_after_its_flush_and_others_do_not_wait(
    play: Any, monkeypatch: Any, acks: int
) -> None:
    async def case(stage: Any) -> None:
        await stage.topic(flush_messages="1")
        await stage.topic("other")
        gate = Gate(monkeypatch)
        connections = [await stage.connect() for _ in range(4)]
        other = await stage.connect()
        log = next(each.log for each in stage.broker.partitions if each.topic_partition.topic == "t")

        def send(number: int) -> Any:
            return connections[number].send("produce", 9, stage.produce_request(stage.batch(b"%d" % number), acks=acks))

        waiting = [send(0)]
        await gate.waiting.wait()
        for number in range(1, 4):
            waiting.append(send(number))
            while log.log_end_offset <= number:  # in this order
                await asyncio.sleep(0.001)
        assert (await stage.produce(other, stage.batch(b"x"), topic="other", acks=acks)).error_code == 0
        seen = await stage.fetch(other, 0)
        assert (seen.high_watermark, bytes(seen.records)) == (0, b"")
        assert log.recovery_point == 0
        assert not any(reply.done() for reply in waiting)
        gate.is_open.set()
        assert offsets(await asyncio.gather(*waiting)) == [(0, 0), (0, 1), (0, 2), (0, 3)]
        assert log.recovery_point == 4
        assert gate.flushes == 2  # those that came during the first share the second
        assert (await stage.fetch(other, 0)).high_watermark == 4

    play(case)


def test_who_comes_before_the_count_is_full_does_not_wait(play: Any, monkeypatch: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic(flush_messages="3")
        gate = Gate(monkeypatch)
        connection = await stage.connect()
        other = await stage.connect()
        log = next(iter(stage.broker.partitions)).log
        for number in range(2):
            assert (await stage.produce(connection, stage.batch(b"x"), acks=1)).base_offset == number
        third = connection.send("produce", 9, stage.produce_request(stage.batch(b"x"), acks=1))
        await gate.waiting.wait()
        fourth = other.send("produce", 9, stage.produce_request(stage.batch(b"x"), acks=1))
        while log.log_end_offset < 4:
            await asyncio.sleep(0.001)
        assert (await stage.fetch(await stage.connect(), 0)).high_watermark == 2
        gate.is_open.set()
        assert offsets([await third, await fourth]) == [(0, 2), (0, 3)]
        # What came meanwhile is short of the count again, or the flush was begun after it came.
        assert gate.flushes == 1
        assert log.recovery_point in (3, 4)

    play(case)


@pytest.mark.parametrize("acks", [1, -1])
def test_a_flush_that_fails_is_no_success(play: Any, monkeypatch: Any, acks: int, tmp_path: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic(flush_messages="1")
        gate = Gate(monkeypatch)
        gate.error = OSError(5, "planted")
        gate.is_open.set()
        connection = await stage.connect()
        answer = await stage.produce(connection, stage.batch(b"x"), acks=acks)
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR

    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    play(case, **{"log.dirs": f"{tmp_path}/a,{tmp_path}/b"})


@pytest.mark.parametrize("acks", [1, -1])
def test_a_topic_deleted_while_its_records_wait_is_not_there(play: Any, monkeypatch: Any, acks: int) -> None:
    async def case(stage: Any) -> None:
        await stage.topic(flush_messages="1")
        gate = Gate(monkeypatch)
        connection = await stage.connect()
        waiting = connection.send("produce", 9, stage.produce_request(stage.batch(b"x"), acks=acks))
        await gate.waiting.wait()
        await stage.broker.controller.topic_requests.delete(["t"])
        assert offsets([await waiting])[0][0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        gate.is_open.set()

    play(case)
