"""Fetch with the compiled codec and with the interpreted one: one broker gets every frame twice and answers alike."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.app import Broker
from ottla.broker.handlers import fetch
from ottla.broker.network.dispatch import PendingReply, Route
from ottla.broker.network.handler import bind
from ottla.broker.replicas.partition import Partition, VerifiedTransaction
from ottla.cluster.requests import NewTopic
from ottla.ports import FileRange, Part
from ottla.protocol.headers import decode_response, encode_request
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from ottla.protocol.registry import API_BY_NAME
from ottla.records.record import build_batch
from ottla.replication.fetch_session import FetchSessionCache
from ottla.runtime.loop import run
from ottla.types import TopicPartition
from tests.broker.asked import NOW_MS, Asked, started

FETCH = API_BY_NAME["fetch"]
LONG = "x" * 200
PARTITIONS = {"t": 3, "u": 2, LONG: 1, "empty": 1}
COMMITTED = 1
VERSIONS = range(4, 19)


class Chance:
    """`ports.Random` that both ways get the same of."""

    def __init__(self) -> None:
        self._random = random.Random(1)

    def bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def below(self, limit: int) -> int:
        return self._random.randrange(limit)


class Way(Asked):
    """One of the two: its own sessions, the same logs."""

    def __init__(self, broker: Broker, *, interpreted: bool = False) -> None:
        super().__init__(broker, interpreted=interpreted)
        self._handle = bind(fetch.handle, {**self._dispatcher._parts, "fetch_sessions": FetchSessionCache(1000, Chance())})

    def prepare(self, route: Route) -> None:
        super().prepare(route)
        route.handle = self._handle


def plain(parts: list[Part] | None) -> tuple[bytes, list[tuple[str, int, int]]]:
    """All bytes of a reply, and which of them come from files."""
    data, ranges = [], []
    assert parts is not None
    for part in parts:
        if isinstance(part, FileRange):
            ranges.append((part.file.path, part.position, part.size))
            data.append(part.file.read(part.position, part.size))
        else:
            data.append(bytes(part))
    return b"".join(data), ranges


class Both:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.compiled = Way(broker)
        self.interpreted = Way(broker, interpreted=True)

    def answer(self, frame: bytes) -> bytes | str:
        said, expected = self.compiled.ask(frame), self.interpreted.ask(frame)
        if isinstance(said, PendingReply) or isinstance(expected, PendingReply):
            assert isinstance(said, PendingReply), frame.hex()
            assert isinstance(expected, PendingReply), frame.hex()
            said.future.cancel()
            expected.future.cancel()
            return "waits"
        if isinstance(expected, str):
            assert said == expected, frame.hex()
            return expected
        assert not isinstance(said, str), frame.hex()
        assert plain(said) == plain(expected), frame.hex()
        return plain(said)[0]

    async def answer_after(self, frame: bytes, happens: Callable[[], None]) -> bytes:
        """To a request that has to wait until something happens."""
        said, expected = self.compiled.ask(frame), self.interpreted.ask(frame)
        assert isinstance(said, PendingReply)
        assert isinstance(expected, PendingReply)
        happens()
        async with asyncio.timeout(60):
            await asyncio.wait([said.future, expected.future])
        parts = plain(said.parts())
        assert parts == plain(expected.parts())
        return parts[0]

    def partition(self, topic: str, number: int) -> Partition:
        return self.broker.partitions.get(TopicPartition(topic, number))

    def topic(self, name: str, partitions: list[FetchPartition]) -> FetchTopic:
        return FetchTopic(topic=name, topic_id=self.compiled.topic_id(name), partitions=partitions)

    def fill(self) -> None:
        """Plain records everywhere but in one topic; in t-1 also transactions, committed, aborted and open."""
        for topic, count in PARTITIONS.items():
            for number in range(count if topic != "empty" else 0):
                partition = self.partition(topic, number)
                for size in (1, 5, 300):
                    partition.append(records(size), 1, NOW_MS)
        partition = self.partition("t", 1)
        for producer_id, commit in ((7, True), (8, False), (9, False), (10, None)):
            batch = records(3, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
            partition.append(batch, 1, NOW_MS, transaction=VerifiedTransaction())
            if commit is not None:
                partition.append_marker(producer_id, 0, commit=commit, coordinator_epoch=0, now_ms=NOW_MS)


def records(count: int = 1, **options: Any) -> bytearray:
    return bytearray(build_batch([(b"k", b"v%d" % at, [], NOW_MS) for at in range(count)], **options))


def frame_of(version: int, request: FetchRequest, client_id: str | None = "c") -> bytes:
    return b"".join(encode_request(FETCH, version, 77, client_id, request))[4:]  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def both(path: Path) -> AsyncIterator[Both]:
    async with started(path, [NewTopic(name, count, 1) for name, count in PARTITIONS.items()]) as broker:
        ways = Both(broker)
        ways.fill()
        yield ways


def any_request(ways: Both, chance: random.Random, version: int, sessions: list[tuple[int, int]]) -> FetchRequest:
    """Mostly in order, sometimes not; `sessions` are (id, epoch) that were given."""
    if chance.random() < 0.1:  # as most are: at the end of a log
        asked = FetchPartition(partition=0, fetch_offset=ways.partition("t", 0).log.log_end_offset, partition_max_bytes=1000)
        return FetchRequest(max_wait_ms=5000, min_bytes=1, max_bytes=1000, topics=[ways.topic("t", [asked])])
    topics = []
    for name in chance.sample([*PARTITIONS, "t", "unknown"], chance.choice((0, 1, 1, 1, 2, 3))):
        partitions = []
        for number in chance.sample(range(3), chance.choice((0, 1, 1, 2))):
            offset = chance.choice((0, 1, 3, 100, 306, 306, 306, 311, 10_000, -1))
            wanted = FetchPartition(
                partition=number, fetch_offset=offset, partition_max_bytes=chance.choice((0, 10, 1000, 1 << 20, -5))
            )
            if version >= 9:
                wanted.current_leader_epoch = chance.choice((-1, -1, -1, 0, 1, -2))
            if version >= 12:
                wanted.last_fetched_epoch = chance.choice((-1, -1, -1, -1, 0, 3))
            partitions.append(wanted)
        topics.append(ways.topic(name, partitions))
    request = FetchRequest(
        max_wait_ms=chance.choice((0, 5000)),
        min_bytes=chance.choice((0, 1, 100, 1 << 30)),
        max_bytes=chance.choice((0, 100, 5000, 1 << 20, 0x7FFFFFFF, -1)),
        isolation_level=chance.choice((0, COMMITTED)),
        topics=topics,
    )
    if version >= 7:
        request.session_id, request.session_epoch = chance.choice([(0, -1), (0, 0), (5, 1), *sessions * 3])
        if request.session_epoch > 0 and chance.random() < 0.3:
            request.topics = []
        if request.session_id and chance.random() < 0.2:
            name = chance.choice([*PARTITIONS])
            request.forgotten_topics_data = [ForgottenTopic(topic=name, topic_id=ways.compiled.topic_id(name), partitions=[0, 1])]
    if version >= 11:
        request.rack_id = chance.choice(("", "", "", "somewhere"))
    if chance.random() < 0.05:
        if version < 15:
            request.replica_id = chance.choice((1, 2, -2))
        else:
            request.replica_state = ReplicaState(replica_id=2, replica_epoch=1)
    if version >= 12 and chance.random() < 0.05:
        request.cluster_id = "somebody"
    return request


@pytest.mark.parametrize("version", VERSIONS)
def test_whatever_is_asked_both_ways_answer_alike(tmp_path: Path, version: int) -> None:
    async def case() -> None:
        async with both(tmp_path) as ways:
            chance = random.Random(version)
            sessions: list[tuple[int, int]] = []
            said = []
            for at in range(250):
                request = any_request(ways, chance, version, sessions)
                answer = ways.answer(frame_of(version, request, chance.choice(("c", None))))
                said.append(answer)
                if (request.session_epoch > 0 and not isinstance(answer, str)) or request.session_epoch == 0:
                    sessions = [each for each in sessions if each[0] != request.session_id]
                if isinstance(answer, bytes):
                    _, response = decode_response(FETCH, version, memoryview(answer)[4:])
                    if response.session_id:
                        sessions.append((response.session_id, max(request.session_epoch, 0) + 1))
                if at % 20 == 0:  # so that sessions have news
                    ways.partition("t", at // 20 % 3).append(records(2), 1, NOW_MS)
            assert sum(isinstance(answer, bytes) for answer in said) > 120
            assert "waits" in said
            assert version < 7 or sessions

    run(case())


@pytest.mark.parametrize("version", [7, 11, 12, 13, 18])
def test_whatever_byte_is_another_the_answer_is_the_same(tmp_path: Path, version: int) -> None:
    async def case() -> None:
        async with both(tmp_path) as ways:
            chance = random.Random(version)
            asked = [FetchPartition(partition=0, fetch_offset=3, partition_max_bytes=500)]
            request = FetchRequest(
                min_bytes=1, max_bytes=1 << 20, isolation_level=COMMITTED, topics=[ways.topic("t", asked), ways.topic("u", asked)]
            )
            request.forgotten_topics_data = [ForgottenTopic(topic="t", topic_id=ways.compiled.topic_id("t"), partitions=[2])]
            good = frame_of(version, request)
            said = set()
            for at in range(11, len(good)):
                for value in {0, 2, 128, 255, chance.randrange(256)}:
                    said.add(type(ways.answer(good[:at] + bytes([value]) + good[at + 1 :])))
                said.add(type(ways.answer(good[:at])))
            said.add(type(ways.answer(good + b"\0")))
            assert said == {str, bytes}

    run(case())


@pytest.mark.parametrize("version", [7, 11, 12, 13, 17])
@pytest.mark.parametrize("epoch", [-1, 0])
def test_who_waits_at_the_end_of_a_log_hears_the_same(tmp_path: Path, version: int, epoch: int) -> None:
    """F31: with a session and without; what was appended comes, and in a session the next request need name nothing."""

    async def case() -> None:
        async with both(tmp_path) as ways:
            partition = ways.partition("t", 0)

            def append() -> None:
                partition.append(records(4), 1, NOW_MS)

            def request(session_id: int, session_epoch: int) -> bytes:
                offset = partition.log.log_end_offset
                asked = [FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)]
                others = [FetchPartition(partition=at, fetch_offset=0, partition_max_bytes=0) for at in (1, 2)]
                return frame_of(
                    version,
                    FetchRequest(
                        max_wait_ms=60_000,
                        min_bytes=1,
                        max_bytes=1 << 20,
                        session_id=session_id,
                        session_epoch=session_epoch,
                        topics=[ways.topic("t", asked), ways.topic("empty", others[:0])]
                        if session_epoch < 1
                        else [ways.topic("t", asked)],
                    ),
                )

            answer = await ways.answer_after(request(0, epoch), append)
            _, response = decode_response(FETCH, version, memoryview(answer)[4:])
            assert response.responses[0].partitions[0].records
            assert bool(response.session_id) == (epoch == 0)
            if response.session_id:
                again = await ways.answer_after(request(response.session_id, 1), append)
                _, response = decode_response(FETCH, version, memoryview(again)[4:])
                assert response.responses[0].partitions[0].records
                nothing = FetchRequest(
                    max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_id=response.session_id, session_epoch=2
                )
                got = ways.answer(frame_of(version, nothing))
                assert isinstance(got, bytes)

    run(case())


def test_a_bug_that_comes_to_light_later_is_answered(tmp_path: Path) -> None:
    async def case() -> None:
        async with both(tmp_path) as ways:
            partition = ways.partition("t", 0)
            asked = [FetchPartition(partition=0, fetch_offset=partition.log.log_end_offset, partition_max_bytes=100)]
            request = FetchRequest(max_wait_ms=60_000, min_bytes=1, max_bytes=100, topics=[ways.topic("t", asked)])
            waiting = ways.compiled.ask(frame_of(11, request))
            assert isinstance(waiting, PendingReply)
            waiting.future.set_exception(RuntimeError("planted"))
            _, response = decode_response(FETCH, 11, memoryview(plain(waiting.parts())[0])[4:])
            assert response.error_code == -1
            assert response.responses[0].partitions[0].error_code == -1

    run(case())
