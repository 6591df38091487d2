"""OffsetCommit with the compiled codec and with the interpreted one: two brokers get the same frames and store the same."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from ottla.broker.coordinators.group_shards import OFFSETS_TOPIC
from ottla.broker.network.dispatch import PendingReply
from ottla.cluster.requests import NewTopic
from ottla.protocol.headers import encode_request
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.registry import API_BY_NAME
from ottla.records.batch import scan_batches
from ottla.records.record import read_records
from ottla.runtime.loop import run
from tests.broker.asked import Asked, StoppedClock, started

OFFSET_COMMIT = API_BY_NAME["offset_commit"]
LONG = "x" * 200
TOPICS = ("t", LONG)
MANY = 150
"""So many that their number takes two bytes."""
CLASSIC, STATIC, NEW = "classic-groupe-é", "static", "new"
MEMBER = "m-1"
GENERATION = 1


class Side(Asked):
    """One of the two brokers."""

    def answer(self, frame: bytes) -> list[bytes] | str | None:
        """The reply in its parts, or that the connection is closed."""
        reply = self.ask(frame)
        assert not isinstance(reply, PendingReply)
        return reply if reply is None or isinstance(reply, str) else [bytes(part) for part in reply]

    def log(self) -> list[object]:
        """All offsets that were written, without the ids of topics, which each broker draws itself."""
        found: list[object] = []
        for number in range(2):
            partition = self.broker.partitions.by_key[OFFSETS_TOPIC, number]
            read = partition.read(0, 1 << 24, partition.log.log_end_offset, True)
            data = b"".join(part.file.read(part.position, part.size) for part in read.ranges)
            batches, _ = scan_batches(data)
            for batch in batches:
                records = [
                    (each.offset, each.key or b"", each.value or b"", each.timestamp) for each in read_records(data, batch)
                ]
                if records[0][1][:2] == b"\0\1":
                    kept = [(offset, key, self.neutral(value), at_ms) for offset, key, value, at_ms in records]
                    found.append((number, batch.attributes, batch.base_timestamp, batch.max_timestamp, kept))
        return found

    def neutral(self, data: bytes) -> bytes:
        for name in TOPICS:
            data = data.replace(self.topic_id(name), b"=" * 16)
        return data

    def state(self) -> dict[str, list[object]]:
        """What the groups know of their offsets."""
        shards = self.broker.groups.shards
        found: dict[str, list[object]] = {}
        for group in (CLASSIC, STATIC, NEW, "simple"):
            _, shard = shards.find(group)
            found[group] = [
                (topic, partition, each.offset, each.leader_epoch, each.metadata, each.commit_timestamp_ms, each.order,
                 each.expire_timestamp_ms, self.neutral(each.topic_id))
                for topic, partition, each in shard.offsets.of_group(group)
            ]  # fmt: skip
        return found

    async def populate(self) -> None:
        """A group of each kind, in generation 1, as the log alone could not make it."""
        await self.make_classic(CLASSIC)
        await self.make_classic(STATIC, "i-1")
        self.make_new(NEW, MEMBER)

    def epoch(self, group: str) -> int:
        if group != NEW:
            return GENERATION
        _, shard = self.broker.groups.shards.find(group)
        found: Any = shard.groups.by_id[group]
        epoch: int = found.members[MEMBER].epoch
        return epoch

    def request(
        self,
        group: str = CLASSIC,
        offsets: dict[str, list[tuple[int, int, int, str | None]]] | None = None,
        **changed: object,
    ) -> OffsetCommitRequest:
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=self.epoch(group) if group != "simple" else -1,
            member_id=self.member(group) if group != "simple" else "",
            group_instance_id=None,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    topic_id=self.topic_id(topic),
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=index, committed_offset=offset, committed_leader_epoch=epoch, committed_metadata=text
                        )
                        for index, offset, epoch, text in partitions
                    ],
                )
                for topic, partitions in ({"t": [(0, 7, 3, "")]} if offsets is None else offsets).items()
            ],
        )
        for field, value in changed.items():
            setattr(request, field, value)
        return request


def frame_of(version: int, request: OffsetCommitRequest) -> bytes:
    return b"".join(encode_request(OFFSET_COMMIT, version, 77, "c", request))[4:]  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def side(path: Path, *, partitions: int, interpreted: bool = False, **configured: Any) -> AsyncIterator[Side]:
    settings = {"offsets.topic.num.partitions": "2", "group.initial.rebalance.delay.ms": "0", "offset.metadata.max.bytes": "10"}
    settings |= {name.replace("_", "."): value for name, value in configured.items()}
    topics = [NewTopic("t", 4, 1), NewTopic(LONG, partitions, 1)]
    async with started(path, topics, settings, clock=StoppedClock()) as broker:
        made = Side(broker, interpreted=interpreted)
        await made.populate()
        yield made


def compare(path: Path, frames: Callable[[Side], list[bytes]], partitions: int = 2, **configured: Any) -> list[object]:
    """Both answer the same to all frames and store the same. Returns the answers."""

    async def case() -> list[object]:
        async with (
            side(path / "1", partitions=partitions, **configured) as compiled,
            side(path / "2", partitions=partitions, interpreted=True, **configured) as interpreted,
        ):
            answers: list[object] = []
            for mine, others in zip(frames(compiled), frames(interpreted), strict=True):
                said, expected = compiled.answer(mine), interpreted.answer(others)
                if isinstance(said, list) and isinstance(expected, list):
                    assert [compiled.neutral(part) for part in said] == [interpreted.neutral(part) for part in expected], (
                        mine.hex()
                    )
                else:
                    assert said == expected, mine.hex()
                answers.append(said)
            assert compiled.state() == interpreted.state()
            assert compiled.log() == interpreted.log()
            return answers

    return run(case())


def test_f42_the_usual_commits_are_kept_and_answered_alike(tmp_path: Path) -> None:
    def frames(side: Side) -> list[bytes]:
        return [frame_of(version, request) for version in range(1, 11) for request in requests(side, version)]

    def requests(side: Side, version: int) -> list[OffsetCommitRequest]:
        return [
            side.request(offsets={"t": [(0, 1, -1, "")]}),
            side.request(offsets={"t": [(0, 2, 0, None), (1, 1 << 40, 5, "")]}),
            side.request(offsets={LONG: [(at, at * 1000, at, "") for at in range(MANY)]}),
            side.request(offsets={"t": [(3, 2, 0, ""), (3, 1, 0, "")], LONG: [(0, (1 << 63) - 1, (1 << 31) - 1, None)]}),
            side.request(STATIC, group_instance_id="i-1" if version >= 7 else None),
            side.request(STATIC, {LONG: [(9, 9, 9, "")]}),
            side.request(NEW if version >= 9 else CLASSIC),
        ]

    answers = compare(tmp_path, frames, MANY)
    assert all(isinstance(answer, list) for answer in answers)
    assert len(answers) == 10 * 7


def test_unusual_requests_are_answered_alike(tmp_path: Path) -> None:
    def frames(side: Side) -> list[bytes]:
        return [frame for version in range(6, 11) for frame in of_version(side, version)]

    def of_version(side: Side, version: int) -> list[bytes]:
        good = frame_of(version, side.request())
        requests = [
            side.request(offsets={"t": [(0, 7, 3, "metadata")]}),
            side.request(offsets={"t": [(0, 7, 3, "more than is taken")]}),
            side.request(offsets={"t": [(0, 1, 1, ""), (4, 7, 3, "")]}),
            side.request(offsets={"t": [(-1, 7, 3, "")]}),
            side.request(offsets={"t": [(0, 5, 5, "")], "unknown": [(0, 7, 3, "")]}),
            side.request(offsets={"t": []}),
            side.request(offsets={}),
            side.request(generation_id_or_member_epoch=GENERATION + 1),
            side.request(member_id="nobody"),
            side.request(generation_id_or_member_epoch=-1, member_id=""),
            side.request(STATIC, group_instance_id="i-2") if version >= 7 else side.request(member_id="x"),
            side.request(NEW, generation_id_or_member_epoch=99),
        ]
        return [frame_of(version, each) for each in requests] + [good[:-1], good + b"\0"]

    answers = compare(tmp_path, frames)
    assert len(answers) == 5 * 14


def test_whatever_byte_is_another_the_answer_is_the_same(tmp_path: Path) -> None:
    def frames(side: Side) -> list[bytes]:
        return [frame for version in (6, 7, 8, 10) for frame in of_version(side, version)]

    def of_version(side: Side, version: int) -> list[bytes]:
        chance = random.Random(version)
        good = frame_of(version, side.request(offsets={"t": [(0, 7, 3, ""), (1, 8, 3, None)]}))
        topic_id = good.find(side.topic_id("t"))
        made = []
        for at in range(13, len(good)):
            if version >= 10 and topic_id <= at < topic_id + 16:
                continue  # another id would be one of this broker only
            for value in sorted({0, 1, 2, 127, 128, 255, chance.randrange(256)}):
                made.append(good[:at] + bytes([value]) + good[at + 1 :])
            made.append(good[:at])
        return made

    answers = compare(tmp_path, frames)
    assert "closed" in answers


def test_who_has_no_members_commits_alike_and_compressed(tmp_path: Path) -> None:
    def frames(side: Side) -> list[bytes]:
        of_members = [frame_of(7, side.request(offsets={LONG: [(at, at, 0, "") for at in range(MANY)]}))]
        return of_members + [frame_of(9, side.request("simple", {"t": [(0, at, 0, "")]})) for at in range(3)]

    compare(tmp_path, frames, MANY, offsets_topic_compression_codec="3")
