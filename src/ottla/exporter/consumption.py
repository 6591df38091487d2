"""How far each group has read, put together from a reading and the log ends of earlier rounds.

A partition counts for a group if the group has committed an offset in its topic. One of them without an offset has lag -1, as in
kafka_exporter; sums leave it out. Offsets in topics or partitions that do not exist any more are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ottla.exporter.lag import LogEnds
from ottla.exporter.lead import lead_s
from ottla.exporter.reading import ClusterReading, Group, Member, TopicPartition
from ottla.exporter.rebalances import Rebalances

NOT_COMMITTED = -1


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    topic: str
    partition: int
    committed: int
    """-1 without a commit."""
    lag: int | None
    """-1 without a commit; None if the log end is unknown."""
    lead: int | None = None
    lag_s: float | None = None
    lead_s: float | None = None
    member: Member | None = None


@dataclass(frozen=True, slots=True)
class GroupProgress:
    group: Group
    topics: dict[str, list[PartitionProgress]]
    rebalances: int | None

    def __iter__(self) -> Iterator[PartitionProgress]:
        for partitions in self.topics.values():
            yield from partitions


class Consumption:
    """Keeps log ends and rebalances from round to round."""

    def __init__(self) -> None:
        self._log_ends: dict[TopicPartition, LogEnds] = {}
        self._rebalances = Rebalances()

    def add(self, reading: ClusterReading) -> list[GroupProgress]:
        self._sample(reading)
        self._rebalances.observe(reading.groups)
        if not reading.problems:
            # In a round with problems a group may be missing only because its coordinator did not answer.
            self._rebalances.forget_others(group.name for group in reading.groups)
        return [self._progress(reading, group) for group in reading.groups]

    def _sample(self, reading: ClusterReading) -> None:
        known = set()
        for topic in reading.topics.values():
            for index, partition in topic.partitions.items():
                key = topic.name, index
                known.add(key)
                if partition.log_end is not None:
                    self._log_ends.setdefault(key, LogEnds()).add(reading.time_s, partition.log_end)
        for key in self._log_ends.keys() - known:
            del self._log_ends[key]

    def _progress(self, reading: ClusterReading, group: Group) -> GroupProgress:
        owners = {
            (topic, index): member
            for member in group.members or ()
            for topic, indexes in member.assignment.items()
            for index in indexes
        }
        topics = {
            name: [
                self._partition(reading, (name, index), group.committed.get((name, index)), owners.get((name, index)))
                for index in reading.topics[name].partitions
            ]
            for name in sorted({topic for topic, _ in group.committed})
            if name in reading.topics
        }
        return GroupProgress(group, topics, self._rebalances.of(group.name))

    def _partition(
        self, reading: ClusterReading, key: TopicPartition, committed: int | None, member: Member | None
    ) -> PartitionProgress:
        if committed is None:
            return PartitionProgress(*key, NOT_COMMITTED, NOT_COMMITTED, member=member)
        topic = reading.topics[key[0]]
        partition = topic.partitions[key[1]]
        start, end = partition.log_start, partition.log_end
        lag = None if end is None else max(end - committed, 0)
        lead = None if start is None else committed - start
        samples = self._log_ends.get(key)
        lag_s = None if samples is None or end is None else samples.lag_s(committed, reading.time_s)
        if lag and lag_s is not None:
            for age_s, offset in partition.older.items():
                lag_s = max(lag_s, age_s) if committed < offset else min(lag_s, age_s)
        per_s = None if samples is None else samples.records_per_s()
        left_s = None if lead is None or lag is None else lead_s(topic, partition, lead, lag, lag_s, per_s)
        return PartitionProgress(*key, committed, lag, lead, lag_s, left_s, member)
