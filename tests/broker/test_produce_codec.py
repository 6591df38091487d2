"""Produce with the compiled codec and with the interpreted one: two brokers get the same frames and answer alike."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.network.dispatch import PendingReply
from ottla.cluster.requests import NewTopic
from ottla.errors import ErrorCode
from ottla.protocol.headers import decode_response, encode_request
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.registry import API_BY_NAME
from ottla.records.record import build_batch
from ottla.runtime.loop import run
from ottla.types import TopicPartition
from tests.broker.asked import NOW_MS, Asked, StoppedClock, started

PRODUCE = API_BY_NAME["produce"]
LONG = "x" * 200
TOPICS = {"t": {}, "stamped": {"message.timestamp.type": "LogAppendTime"}, LONG: {}}
NARROW = {"narrow": {"segment.bytes": "2000"}}


class Side(Asked):
    """One of the two brokers."""

    def answer(self, frame: bytes) -> list[bytes] | str | None:
        """The reply in its parts, that the connection is closed, that it waits, or None for no reply."""
        reply = self.ask(frame)
        if isinstance(reply, PendingReply):
            reply.future.cancel()
            return "waits"
        return reply if reply is None or isinstance(reply, str) else [bytes(part) for part in reply]

    def ends(self) -> dict[str, int]:
        return {str(each.topic_partition): each.log.log_end_offset for each in self.broker.partitions}


def frame_of(version: int, request: ProduceRequest, client_id: str | None = "c") -> bytes:
    return b"".join(encode_request(PRODUCE, version, 77, client_id, request))[4:]  # type: ignore[arg-type]


def records(count: int = 1, **options: Any) -> bytes:
    return bytes(build_batch([(b"k", b"v%d" % at, [], NOW_MS) for at in range(count)], **options))


def error_code(version: int, answer: object) -> int:
    assert isinstance(answer, list)
    _, response = decode_response(PRODUCE, version, memoryview(b"".join(answer))[4:])
    (topic,) = response.responses
    return topic.partition_responses[0].error_code


def request_of(
    side: Side, batch: bytes | None, *, acks: int = 1, topic: str = "t", partition: int = 0, transactional_id: str | None = None
) -> ProduceRequest:
    data = [PartitionProduceData(index=partition, records=batch)]
    topics = [TopicProduceData(name=topic, topic_id=side.topic_id(topic), partition_data=data)]
    return ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=1000, topic_data=topics)


@contextlib.asynccontextmanager
async def side(path: Path, *, interpreted: bool = False) -> AsyncIterator[Side]:
    topics = [NewTopic(name, 2, 1, config=config) for name, config in (TOPICS | NARROW).items()]
    async with started(path, topics, clock=StoppedClock()) as broker:
        yield Side(broker, interpreted=interpreted)


def compare(path: Path, frames: Callable[[Side], list[bytes]]) -> list[object]:
    """Both answer the same to all frames and keep the same. Returns the answers."""

    async def case() -> list[object]:
        async with side(path / "compiled") as compiled, side(path / "interpreted", interpreted=True) as interpreted:
            answers: list[object] = []
            for mine, others in zip(frames(compiled), frames(interpreted), strict=True):
                said, expected = compiled.answer(mine), interpreted.answer(others)
                if isinstance(said, list) and isinstance(expected, list):
                    for name in TOPICS | NARROW:
                        expected = [part.replace(interpreted.topic_id(name), compiled.topic_id(name)) for part in expected]
                assert said == expected, mine.hex()
                answers.append(said)
            assert compiled.ends() == interpreted.ends()
            return answers

    return run(case())


@pytest.mark.parametrize("version", range(3, 14))
def test_the_usual_requests_are_answered_alike(tmp_path: Path, version: int) -> None:
    def frames(side: Side) -> list[bytes]:
        return [frame for acks in (1, -1, 0, 2) for frame in with_acks(side, acks)]

    def with_acks(side: Side, acks: int) -> list[bytes]:
        requests = []
        for topic in TOPICS:
            for batch in (records(), records(3), records(300), records(2, codec=1), records(2, codec=4)):
                requests += [request_of(side, batch, acks=acks, topic=topic, partition=at) for at in (0, 1)]
        for sequence in (0, 1, 1, 0, 5):  # of one producer: in order, twice the same, a gap
            batch = records(producer_id=5 + acks, producer_epoch=0, base_sequence=sequence)
            requests.append(request_of(side, batch, acks=acks))
        return [frame_of(version, each) for each in requests] + [frame_of(version, requests[0], None)]

    answers = compare(tmp_path, frames)
    assert len(answers) == 4 * 36
    assert sum(answer is None for answer in answers) > 20  # acks=0
    assert sum(isinstance(answer, list) for answer in answers) == 3 * 36


@pytest.mark.parametrize("version", [7, 9, 13])
def test_what_no_segment_can_hold_is_refused_alike(tmp_path: Path, version: int) -> None:
    def frames(side: Side) -> list[bytes]:
        return [frame_of(version, request_of(side, records(count), topic="narrow")) for count in (3, 300, 3)]

    stored, refused, stored_too = compare(tmp_path, frames)
    assert error_code(version, stored) == error_code(version, stored_too) == ErrorCode.NONE
    assert error_code(version, refused) == ErrorCode.RECORD_LIST_TOO_LARGE


@pytest.mark.parametrize("version", range(7, 14))
def test_unusual_requests_are_answered_alike(tmp_path: Path, version: int) -> None:
    def frames(side: Side) -> list[bytes]:
        batch = records()
        good = frame_of(version, request_of(side, batch))
        two_partitions = request_of(side, batch)
        two_partitions.topic_data[0].partition_data.append(PartitionProduceData(index=1, records=batch))
        two_topics = request_of(side, batch)
        two_topics.topic_data.append(request_of(side, batch, topic="stamped").topic_data[0])
        nothing = request_of(side, batch)
        nothing.topic_data.clear()
        no_partition = request_of(side, batch)
        no_partition.topic_data[0].partition_data.clear()
        damaged = bytearray(batch)
        damaged[-1] ^= 1
        requests = [
            two_partitions,
            two_topics,
            nothing,
            no_partition,
            request_of(side, None),
            request_of(side, b""),
            request_of(side, bytes(damaged)),
            request_of(side, batch + batch),
            request_of(side, batch, topic="unknown"),
            request_of(side, batch, partition=2),
            request_of(side, batch, partition=-1),
            request_of(side, records(producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)),
            request_of(side, records(control=True)),
        ]
        return [frame_of(version, each) for each in requests] + [good[:-1], good + b"\0", good + b"\1"]

    answers = compare(tmp_path, frames)
    assert len(answers) == 16


@pytest.mark.parametrize("version", [7, 9, 13])
def test_whatever_byte_is_another_the_answer_is_the_same(tmp_path: Path, version: int) -> None:
    def frames(side: Side) -> list[bytes]:
        chance = random.Random(version)
        good = frame_of(version, request_of(side, records(2, producer_id=1, producer_epoch=0, base_sequence=0)))
        # A changed id would name the topic of one broker only; a changed header another API.
        ids = range(len(good)) if version < 13 else [at for at in range(len(good)) if not 20 <= at < 36]
        made = []
        for at in ids:
            if at < 11:
                continue
            for value in {0, 2, 128, 255, chance.randrange(256)}:
                made.append(good[:at] + bytes([value]) + good[at + 1 :])
            made.append(good[:at])
        return made

    answers = compare(tmp_path, frames)
    assert "closed" in answers
    assert any(isinstance(answer, list) for answer in answers)


@pytest.mark.parametrize("version", [7, 9, 13])
def test_a_topic_of_the_same_name_is_another(tmp_path: Path, version: int) -> None:
    """The topic is deleted, and another gets its name: nothing is written to what was there."""

    async def case() -> None:
        async with side(tmp_path) as broker:

            def produce() -> list[bytes] | str | None:
                return broker.answer(frame_of(version, request_of(broker, records())))

            controller, partitions = broker.broker.controller, broker.broker.partitions
            produce()
            first = produce()
            former, ends = partitions.get(TopicPartition("t", 0)), broker.ends()
            former_frame = frame_of(version, request_of(broker, records()))
            await controller.topic_requests.delete(["t"])
            assert broker.answer(former_frame) != first
            assert produce() != first
            await controller.topic_requests.create([NewTopic("t", 1, 1)])
            produce()
            assert former.log.log_end_offset == ends["t-0"] == 2
            assert partitions.get(TopicPartition("t", 0)).log.log_end_offset == 1

    run(case())
