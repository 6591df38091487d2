"""How many records there are over time, from ListOffsets alone: brokers look into their time indexes, no record is read."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ottla.cli.failure import Failure
from ottla.client.brokers import ANY_VERSION, Ask, Brokers, Versions
from ottla.errors import error_name
from ottla.exporter.reading import Topic
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

LOOKUPS_MAX: Final = 20_000
"""Partitions times instants. Of a topic with more partitions fewer instants are asked for."""
_CONSUMER: Final = -1
_MAX_TIMESTAMP: Final = -3
_WITH_TIMESTAMPS: Final[Versions] = (1, 6)
_WITH_MAX_TIMESTAMP: Final[Versions] = (7, 9)

Found = dict[int, tuple[int, int]]
"""Timestamp and offset by partition."""


async def histogram(
    brokers: Brokers, topic: Topic, partitions: Sequence[int] | None, from_ms: int | None, until_ms: int | None, buckets: int
) -> dict[str, Any]:
    """Records of a topic whose log ends were just read, between two times (default: the first and the last record)."""
    indexes = [index for index in sorted(topic.partitions) if partitions is None or index in partitions]
    leaders = {index: topic.partitions[index].leader_id for index in indexes if topic.partitions[index].leader_id >= 0}
    if from_ms is None:
        oldest = await _asked(brokers, topic.name, leaders, 0)
        from_ms = min((timestamp for timestamp, offset in oldest.values() if offset >= 0), default=None)
    if until_ms is None:
        newest = await _asked(brokers, topic.name, leaders, _MAX_TIMESTAMP, _WITH_MAX_TIMESTAMP)
        until_ms = max((timestamp for timestamp, offset in newest.values() if offset >= 0), default=int(time.time() * 1000)) + 1
    if from_ms is None or until_ms <= from_ms:
        return {"from_ms": from_ms, "until_ms": until_ms, "bucket_ms": 0, "buckets": [], "total": 0, "exact": True}
    count = max(1, min(buckets, LOOKUPS_MAX // max(1, len(leaders)), until_ms - from_ms))
    width_ms = -(-(until_ms - from_ms) // count)
    count = -(-(until_ms - from_ms) // width_ms)
    instants = [from_ms + width_ms * number for number in range(count + 1)]
    asks = [ask for instant in instants for ask in _asks(topic.name, leaders, instant, _WITH_TIMESTAMPS)]
    answers = iter(await _answers(brokers, asks))
    per_instant = len(asks) // len(instants)
    edges = [_offsets(topic, [next(answers) for _ in range(per_instant)]) for _ in instants]
    counts = [_between(before, after) for before, after in itertools.pairwise(edges)]
    return {
        "from_ms": from_ms,
        "until_ms": until_ms,
        "bucket_ms": width_ms,
        "buckets": [{"at_ms": at_ms, "records": max(found, 0)} for at_ms, found in zip(instants, counts, strict=False)],
        "total": sum(max(found, 0) for found in counts),
        # Where timestamps fall, a later time has an earlier offset.
        "exact": all(found >= 0 for found in counts),
    }


def _between(before: Mapping[int, int], after: Mapping[int, int]) -> int:
    return sum(after[index] - before[index] for index in before)


def _offsets(topic: Topic, answers: Sequence[Found]) -> dict[int, int]:
    """The offset of each partition at an instant; its end if nothing is that late."""
    found = {index: offset for answer in answers for index, (_, offset) in answer.items()}
    return {index: offset if offset >= 0 else topic.partitions[index].log_end or 0 for index, offset in found.items()}


async def _asked(
    brokers: Brokers, topic: str, leaders: Mapping[int, int], timestamp: int, versions: Versions = ANY_VERSION
) -> Found:
    """Empty if brokers are too old to tell."""
    failures: list[str] = []
    answers = await brokers.ask_all(_asks(topic, leaders, timestamp, versions), failures)
    if failures:
        raise Failure("; ".join(failures), code="BROKER_AWAY")
    return {index: each for _, answer in answers for index, each in _read(answer).items()}


async def _answers(brokers: Brokers, asks: Sequence[Ask]) -> list[Found]:
    failures: list[str] = []
    answers = await brokers.ask_all(asks, failures)
    if failures or len(answers) != len(asks):
        raise Failure("; ".join(failures) or "the brokers do not tell offsets by time", code="BROKER_AWAY")
    return [_read(answer) for _, answer in answers]


def _asks(topic: str, leaders: Mapping[int, int], timestamp: int, versions: Versions) -> list[Ask]:
    by_leader: dict[int, list[int]] = {}
    for index, leader in leaders.items():
        by_leader.setdefault(leader, []).append(index)
    return [
        Ask(
            leader,
            "list_offsets",
            ListOffsetsRequest(
                replica_id=_CONSUMER,
                topics=[
                    ListOffsetsTopic(
                        name=topic,
                        partitions=[ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in indexes],
                    )
                ],
            ),
            (max(versions[0], _WITH_TIMESTAMPS[0]), min(versions[1], _WITH_MAX_TIMESTAMP[1])),
        )
        for leader, indexes in by_leader.items()
    ]


def _read(answer: Any) -> Found:
    found: Found = {}
    for topic in answer.topics:
        for each in topic.partitions:
            if each.error_code:
                name = error_name(each.error_code)
                raise Failure(f"{topic.name}-{each.partition_index}: {name}", code=name)
            found[each.partition_index] = (each.timestamp, each.offset)
    return found
