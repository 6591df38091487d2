"""The short cut of Produce against the long way: two brokers get the same frames, one of them without the short cut."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.broker.handlers import produce_quick
from ottla.broker.network.dispatch import PendingReply
from ottla.cluster.requests import NewTopic
from ottla.protocol.headers import encode_request
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.registry import API_BY_NAME
from ottla.records.record import build_batch
from ottla.runtime.loop import run
from ottla.types import TopicPartition
from tests.broker.short_cut import NOW_MS, Asked, StoppedClock, started

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
    return b"".join(encode_request(PRODUCE, version, 77, client_id, request))[4:]


def records(count: int = 1, **options) -> bytes:
    return bytes(build_batch([(b"k", b"v%d" % at, [], NOW_MS) for at in range(count)], **options))


def request_of(
    side: Side, batch: bytes | None, *, acks: int = 1, topic: str = "t", partition: int = 0, transactional_id: str | None = None
) -> ProduceRequest:
    data = [PartitionProduceData(index=partition, records=batch)]
    topics = [TopicProduceData(name=topic, topic_id=side.topic_id(topic), partition_data=data)]
    return ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=1000, topic_data=topics)


@contextlib.asynccontextmanager
async def side(path: Path, *, quick: bool):
    topics = [NewTopic(name, 2, 1, config=config) for name, config in (TOPICS | NARROW).items()]
    async with started(path, topics, clock=StoppedClock()) as broker:
        yield Side(broker, produce_quick.quick if quick else None)


def compare(path: Path, frames: Callable[[Side], list[bytes]]) -> tuple[list[object], int]:
    """Both answer the same to all frames and keep the same; the answers, and how many came by the short cut."""

    async def case() -> tuple[list[object], int]:
        async with side(path / "quick", quick=True) as short, side(path / "long", quick=False) as long:
            answers = []
            for mine, others in zip(frames(short), frames(long), strict=True):
                said, expected = short.answer(mine), long.answer(others)
                if isinstance(said, list) and isinstance(expected, list):
                    for name in TOPICS | NARROW:
                        expected = [part.replace(long.topic_id(name), short.topic_id(name)) for part in expected]
                assert said == expected, mine.hex()
                answers.append(said)
            assert short.ends() == long.ends()
            assert long.taken == 0
            return answers, short.taken

    return run(case())


@pytest.mark.parametrize("version", range(3, 14))
def test_the_usual_requests_are_answered_alike(tmp_path, version):
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

    answers, taken = compare(tmp_path, frames)
    assert len(answers) == 4 * 36
    # With acks 1 and all, but for the gap in the sequence, and for names whose length takes two bytes: those are not looked at.
    assert taken == (0 if version < 7 else 2 * 25 if 9 <= version < 13 else 2 * 35)


@pytest.mark.parametrize("version", [7, 9, 13])
def test_what_no_segment_can_hold_is_refused_alike(tmp_path, version):
    """The second look at it must see what came, not what the first would have written."""

    def frames(side: Side) -> list[bytes]:
        return [frame_of(version, request_of(side, records(count), topic="narrow")) for count in (3, 300, 3)]

    _, taken = compare(tmp_path, frames)
    assert taken == 2


@pytest.mark.parametrize("version", range(7, 14))
def test_what_is_unusual_goes_the_long_way(tmp_path, version):
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

    answers, taken = compare(tmp_path, frames)
    assert taken == 0
    assert len(answers) == 16


@pytest.mark.parametrize("version", [7, 9, 13])
def test_whatever_byte_is_another_the_answer_is_the_same(tmp_path, version):
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

    answers, taken = compare(tmp_path, frames)
    assert taken >= 1
    assert "closed" in answers
    assert any(isinstance(answer, list) for answer in answers)


@pytest.mark.parametrize("version", [7, 9, 13])
def test_what_was_known_of_a_partition_goes_with_it(tmp_path, version):
    """The topic is deleted, and another gets its name: nothing is written to what was there."""

    async def case() -> None:
        async with side(tmp_path, quick=True) as short:

            def produce() -> list[bytes] | str | None:
                return short.answer(frame_of(version, request_of(short, records())))

            controller, partitions = short.broker.controller, short.broker.partitions
            produce()
            first = produce()
            assert short.taken == 2
            former, ends = partitions.get(TopicPartition("t", 0)), short.ends()
            former_frame = frame_of(version, request_of(short, records()))
            await controller.topic_requests.delete(["t"])
            assert short.answer(former_frame) != first
            assert produce() != first
            assert short.taken == 2
            await controller.topic_requests.create([NewTopic("t", 1, 1)])
            produce()
            assert short.taken == 3
            assert former.log.log_end_offset == ends["t-0"] == 2
            assert partitions.get(TopicPartition("t", 0)).log.log_end_offset == 1

    run(case())
