"""Which records are so old that retention deletes them soon, of the partitions in which a group has records to read.

Asks the leaders for the offset at two times. The age of a record is otherwise an estimate from samples (`lag`), and no sample is
as old as a retention of days. Needs no more rights than log ends. The answer is kept for some seconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Final

from ottla.client.brokers import Ask, Brokers
from ottla.exporter.reading import ClusterReading, Topic, TopicPartition
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

SOON_S: Final = (3600.0, 600.0)
"""The alert LeadLow and the console's overview ask for these."""
MAX_AGE_S: Final = 15.0
_CONSUMER: Final = -1


class RecordAges:
    def __init__(self, brokers: Brokers, now_s: Callable[[], float]) -> None:
        self._brokers = brokers
        self._now_s = now_s
        self._known: dict[TopicPartition, dict[float, int]] = {}
        self._read_at = float("-inf")

    async def fill(self, reading: ClusterReading) -> None:
        if self._now_s() - self._read_at >= MAX_AGE_S:
            self._known, self._read_at = {}, self._now_s()
            for soon_s in SOON_S:
                await self._read(reading, soon_s)
        for key, older in self._known.items():
            partition = reading.partition(*key)
            if partition is not None:
                partition.older = older

    async def _read(self, reading: ClusterReading, soon_s: float) -> None:
        brokers = {node.broker_id for node in reading.brokers}
        asked: defaultdict[int, defaultdict[str, list[ListOffsetsPartition]]] = defaultdict(lambda: defaultdict(list))
        for name, index in sorted(_lagging(reading)):
            age_s = _age_s(reading.topics[name], soon_s)
            leader_id = reading.topics[name].partitions[index].leader_id
            if age_s is not None and leader_id in brokers:
                timestamp = int((reading.time_s - age_s) * 1000)
                asked[leader_id][name].append(ListOffsetsPartition(partition_index=index, timestamp=timestamp))
        asks = [
            Ask(
                leader_id,
                "list_offsets",
                ListOffsetsRequest(
                    replica_id=_CONSUMER,
                    isolation_level=0,
                    topics=[ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
                ),
                (1, 6),
            )
            for leader_id, topics in asked.items()
        ]
        for _, answer in await self._brokers.ask_all(asks, reading.notes):
            for topic in answer.topics:
                for each in topic.partitions:
                    partition = reading.partition(topic.name, each.partition_index)
                    age_s = _age_s(reading.topics[topic.name], soon_s)
                    if each.error_code or partition is None or partition.log_end is None or age_s is None:
                        continue
                    # -1: every record is older.
                    offset = each.offset if each.offset >= 0 else partition.log_end
                    self._known.setdefault((topic.name, each.partition_index), {})[age_s] = offset


def _lagging(reading: ClusterReading) -> set[TopicPartition]:
    found = set()
    for group in reading.groups:
        for key, committed in group.committed.items():
            partition = reading.partition(*key)
            if partition is not None and partition.log_end is not None and committed < partition.log_end:
                found.add(key)
    return found


def _age_s(topic: Topic, soon_s: float) -> float | None:
    """The age from which retention deletes a record in so many seconds. None if no record is deleted by time, or earlier."""
    if topic.retention_ms is None or "delete" not in (topic.cleanup_policy or ""):
        return None
    age_s = topic.retention_ms / 1000 - soon_s
    return age_s if age_s > 0 else None
