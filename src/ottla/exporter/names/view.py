"""What the spellings write: the rows of one round, with their labels as text."""

from __future__ import annotations

from collections.abc import Callable

from ottla.exporter.consumption import GroupProgress, PartitionProgress
from ottla.exporter.exposition import Value
from ottla.exporter.reading import ClusterReading, Partition
from ottla.metrics.family import escaped

ReadTopic = list[PartitionProgress]
"""The partitions of a topic that a group committed an offset in."""


class View:
    def __init__(
        self, reading: ClusterReading, groups: list[GroupProgress], cluster_name: str, *, per_partition: bool = True
    ) -> None:
        """`per_partition`: whether series of single partitions are written."""
        self.reading = reading
        self.groups = groups
        self.cluster_name = cluster_name
        self._per_partition = per_partition

    def partitions(self, topic: str, partition: str, first: str = "") -> list[tuple[str, Partition]]:
        """A row for each partition. The arguments are the names of the labels; `first` is the text of others before them."""
        if not self._per_partition:
            return []
        return [
            (f'{{{first}{topic}="{name}",{partition}="{index}"}}', each)
            for name, found in self.reading.topics.items()
            for index, each in found.partitions.items()
        ]

    def topic_sums(self, value: Callable[[Partition], int | None]) -> list[tuple[tuple[str], int | None]]:
        """(label values, sum) for each topic; None if the value of a partition is unknown."""
        found = []
        for topic in self.reading.topics.values():
            values = [value(partition) for partition in topic.partitions.values()]
            known = [each for each in values if each is not None]
            found.append(((topic.name,), sum(known) if len(known) == len(values) else None))
        return found

    def read_partitions(self, group: str, topic: str, partition: str) -> list[tuple[str, PartitionProgress]]:
        """A row for each partition of each group."""
        if not self._per_partition:
            return []
        rows = []
        for progress in self.groups:
            start = f'{{{group}="{escaped(progress.group.name)}",{topic}="'
            rows += [(f'{start}{each.topic}",{partition}="{each.partition}"}}', each) for each in progress]
        return rows

    def read_topics(self, group: str, topic: str, first: str = "") -> list[tuple[str, ReadTopic]]:
        """A row for each topic of each group."""
        rows = []
        for progress in self.groups:
            start = f'{{{first}{group}="{escaped(progress.group.name)}",{topic}="'
            rows += [
                (f'{start}{name}"}}', [each for each in partitions if each.committed >= 0])
                for name, partitions in progress.topics.items()
            ]
        return rows

    def members(self) -> list[tuple[str, PartitionProgress]]:
        """A row for each committed partition of each group, labelled by cluster and member as in kafka-lag-exporter."""
        if not self._per_partition:
            return []
        cluster = escaped(self.cluster_name)
        rows = []
        for progress in self.groups:
            start = f'{{cluster_name="{cluster}",group="{escaped(progress.group.name)}",topic="'
            for each in progress:
                if each.committed >= 0:
                    about = ("", "", "") if (owner := each.member) is None else (owner.host, owner.member_id, owner.client_id)
                    host, consumer, client = map(escaped, about)
                    end = f'member_host="{host}",consumer_id="{consumer}",client_id="{client}"}}'
                    rows.append((f'{start}{each.topic}",partition="{each.partition}",{end}', each))
        return rows


def of_topic(
    value: Callable[[PartitionProgress], Value | None], combine: Callable[[list[Value]], Value]
) -> Callable[[ReadTopic], Value | None]:
    """A value of a topic out of those of its partitions; None if none has it."""

    def combined(partitions: ReadTopic) -> Value | None:
        values = [found for each in partitions if (found := value(each)) is not None]
        return combine(values) if values else None

    return combined
