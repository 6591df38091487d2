"""What the spellings write: one round, and how much of it is wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ottla.exporter.consumption import GroupProgress, PartitionProgress
from ottla.exporter.exposition import Row, Value
from ottla.exporter.reading import ClusterReading, Partition


@dataclass(frozen=True, slots=True)
class View:
    reading: ClusterReading
    groups: list[GroupProgress]
    cluster_name: str
    per_partition: bool = True
    """Whether series of single partitions are written."""

    def partitions(self, value: Callable[[Partition], Value | None]) -> Iterator[Row]:
        """A row for each partition, labelled by topic and partition."""
        if self.per_partition:
            for topic in self.reading.topics.values():
                for index, partition in topic.partitions.items():
                    yield (topic.name, index), value(partition)

    def topic_sums(self, value: Callable[[Partition], int | None]) -> Iterator[Row]:
        """A row for each topic whose partitions all have the value."""
        for topic in self.reading.topics.values():
            values = [value(partition) for partition in topic.partitions.values()]
            known = [each for each in values if each is not None]
            if len(known) == len(values):
                yield (topic.name,), sum(known)

    def read_partitions(self, value: Callable[[PartitionProgress], Value | None]) -> Iterator[Row]:
        """A row for each partition of each group, labelled by group, topic and partition."""
        if self.per_partition:
            for progress in self.groups:
                name = progress.group.name
                for each in progress:
                    yield (name, each.topic, each.partition), value(each)

    def read_topics(
        self, value: Callable[[PartitionProgress], Value | None], combine: Callable[[list[Value]], Value]
    ) -> Iterator[Row]:
        """A row for each topic of each group, of its partitions that have an offset and the value."""
        for progress in self.groups:
            name = progress.group.name
            for topic, partitions in progress.topics.items():
                values = [found for each in partitions if each.committed >= 0 and (found := value(each)) is not None]
                if values:
                    yield (name, topic), combine(values)
