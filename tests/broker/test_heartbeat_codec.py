"""Heartbeat with the compiled codec and with the interpreted one: two brokers are asked the same and answer alike (F39)."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from ottla.broker.coordinators.group_shards import OFFSETS_TOPIC
from ottla.broker.network.dispatch import PendingReply
from ottla.protocol.headers import encode_request
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.registry import API_BY_NAME
from ottla.runtime.loop import run
from tests.broker.asked import Asked, started

HEARTBEAT = API_BY_NAME["heartbeat"]
VERSIONS = range(5)
CLASSIC, STATIC, JOINING, NEW = "classic-groupe-é", "static", "joining", "new"
LONG = "l" * 200
INSTANCE = "i-1"


class Side(Asked):
    """One of the two brokers."""

    def answer(self, frame: bytes) -> bytes | str:
        reply = self.ask(frame)
        assert reply is not None
        assert not isinstance(reply, PendingReply)
        return reply if isinstance(reply, str) else b"".join(bytes(part) for part in reply)

    def deadlines(self) -> dict[str, int]:
        """How long the members are still let live, beyond what they had."""
        found = {}
        for group_id in (CLASSIC, STATIC, LONG, JOINING):
            (member,) = self.group(group_id).members.values()
            found[group_id] = member.deadline_ms
        return found

    def forget_deadlines(self) -> None:
        for group_id in (CLASSIC, STATIC, LONG, JOINING):
            (member,) = self.group(group_id).members.values()
            member.deadline_ms = 0

    def request(self, group_id: str = CLASSIC, **changed: object) -> HeartbeatRequest:
        request = HeartbeatRequest(group_id=group_id, generation_id=1, member_id=self.member(group_id))
        for field, value in changed.items():
            setattr(request, field, value)
        return request

    async def populate(self) -> None:
        shards = self.broker.groups.shards
        for group_id, instance in ((CLASSIC, None), (STATIC, INSTANCE), (LONG, None), (JOINING, None)):
            await self.make_classic(group_id, instance)
        self.make_new(NEW, "m")
        # One group is called to join anew.
        hosted, shard = shards.find(JOINING)
        decision = shard.on_timer(("classic", "nothing", JOINING), shards.now())
        shard.classic.rebalance.prepare(decision, self.group(JOINING), shards.now(), "a test")
        hosted.perform(decision)


def frame_of(version: int, request: HeartbeatRequest) -> bytes:
    if version < 3:
        request.group_instance_id = None
    return b"".join(encode_request(HEARTBEAT, version, 0x7654321, "c", request))[4:]  # type: ignore[arg-type]


def compare(path: Path, frames: Callable[[Side], list[bytes]]) -> list[bytes | str]:
    """Both answer the same and extend the same sessions. Returns the answers."""
    settings = {"offsets.topic.num.partitions": "2", "group.initial.rebalance.delay.ms": "0"}

    async def case() -> list[bytes | str]:
        async with started(path / "1", [], settings) as first, started(path / "2", [], settings) as second:
            compiled, interpreted = Side(first), Side(second, interpreted=True)
            for side in (compiled, interpreted):
                await side.populate()
            answers = []
            for mine, others in zip(frames(compiled), frames(interpreted), strict=True):
                compiled.forget_deadlines()
                interpreted.forget_deadlines()
                said = compiled.answer(mine)
                assert said == interpreted.answer(others), mine.hex()
                assert {each: bool(ms) for each, ms in compiled.deadlines().items()} == {
                    each: bool(ms) for each, ms in interpreted.deadlines().items()
                }, mine.hex()
                answers.append(said)
            return answers

    return run(case())


def test_f39_the_usual_heartbeats_are_answered_alike(tmp_path: Path) -> None:
    def frames(side: Side) -> list[bytes]:
        return [
            frame_of(version, request)
            for version in VERSIONS
            for request in (
                side.request(),
                side.request(STATIC),
                side.request(STATIC, group_instance_id=INSTANCE),
            )
        ]

    answers = compare(tmp_path, frames)
    assert len(answers) == len(VERSIONS) * 3
    for answer in answers:
        assert isinstance(answer, bytes)
        assert answer[4:8] == b"\x07\x65\x43\x21"
        assert not any(answer[8:])  # no throttle time, no error, no tagged fields


def test_f39_the_deadline_moves_by_the_member_s_own_timeout(tmp_path: Path) -> None:
    async def case() -> None:
        settings = {"offsets.topic.num.partitions": "2", "group.initial.rebalance.delay.ms": "0"}
        async with started(tmp_path, [], settings) as broker:
            side = Side(broker)
            await side.populate()
            before_ms = broker.groups.shards.now().ms
            side.answer(frame_of(4, side.request()))
            (member,) = side.group(CLASSIC).members.values()
            assert before_ms + 60_000 <= member.deadline_ms <= broker.groups.shards.now().ms + 60_000

    run(case())


def test_what_is_not_committed_yet_is_waited_for(tmp_path: Path) -> None:
    async def case() -> None:
        settings = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}
        async with started(tmp_path, [], settings) as broker:
            side = Side(broker)
            await side.populate()
            log = broker.partitions.by_key[OFFSETS_TOPIC, 0].log
            log.high_watermark -= 1
            waits = side.ask(frame_of(4, side.request()))
            assert isinstance(waits, PendingReply)
            waits.future.cancel()
            log.high_watermark = log.log_end_offset
            side.answer(frame_of(4, side.request()))

    run(case())


def test_unusual_requests_are_answered_alike(tmp_path: Path) -> None:
    def frames(side: Side) -> list[bytes]:
        return [frame for version in VERSIONS for frame in of_version(side, version)]

    def of_version(side: Side, version: int) -> list[bytes]:
        good = frame_of(version, side.request())
        requests = [
            side.request(generation_id=0),
            side.request(generation_id=-1),
            side.request(member_id="nobody"),
            side.request(member_id=""),
            HeartbeatRequest(group_id="", generation_id=1, member_id="m"),
            HeartbeatRequest(group_id="unknown", generation_id=1, member_id="m"),
            HeartbeatRequest(group_id=NEW, generation_id=1, member_id="m"),
            side.request(JOINING),
        ]
        if version >= 3:
            requests += [
                side.request(group_instance_id=INSTANCE),
                side.request(STATIC, group_instance_id="i-2"),
                side.request(STATIC, member_id="another", group_instance_id=INSTANCE),
            ]
        return [*(frame_of(version, request) for request in requests), good[:-1], good + b"\0"]

    compare(tmp_path, frames)


def test_an_id_of_more_than_a_hundred_letters(tmp_path: Path) -> None:
    compare(tmp_path, lambda side: [frame_of(version, side.request(LONG)) for version in VERSIONS])


def test_whatever_a_frame_holds_both_ways_say_the_same(tmp_path: Path) -> None:
    def frames(side: Side) -> list[bytes]:
        rng = random.Random(39)
        found = []
        for version in VERSIONS:
            for request in (side.request(), side.request(STATIC, group_instance_id=INSTANCE)):
                good = frame_of(version, request)
                for _ in range(60):
                    bad = bytearray(good)
                    bad[rng.randrange(11, len(bad))] = rng.choice((0, 1, 2, 127, 128, 255, rng.randrange(256)))
                    found.append(bytes(bad[: rng.choice((len(bad), len(bad), rng.randrange(11, len(bad) + 1)))]))
        return found

    compare(tmp_path, frames)
