"""Replicas of this broker: their state, their logs, and how far followers are behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.partitions import Partitions
from ottla.broker.replicas.replica_fetcher import ReplicaFetchers
from ottla.metrics.family import PAUSE, Family, Sample, family, label_text, single
from ottla.metrics.table import CLUSTER, LOGS, METRICS, REPLICAS, REPLICAS_OF
from ottla.ports import Clock
from ottla.types import TopicPartition

_LATE_MS: Final = 300_000
"""As in Kafka: a coordinator needs some time after the timeout."""
_TURN: Final = 200
"""Partitions that are looked at between two pauses."""

_OF_LOG: Final[dict[str, Callable[[Partition], int]]] = {
    "size": lambda partition: partition.log.size_bytes,
    "logstartoffset": lambda partition: partition.log.log_start_offset,
    "logendoffset": lambda partition: partition.log.log_end_offset,
    "numlogsegments": lambda partition: len(partition.log.local.segments),
}
_OF_REPLICA: Final[dict[str, Callable[[Partition], int]]] = {
    "underreplicated": lambda partition: partition.is_leader and len(partition.isr) < len(partition.replicas),
    "underminisr": lambda partition: partition.is_leader and partition.is_under_min_isr,
    "atminisr": lambda partition: partition.is_leader and _is_at_min_isr(partition),
    "insyncreplicascount": lambda partition: len(partition.isr) if partition.is_leader else 0,
    "replicascount": lambda partition: len(partition.replicas) if partition.is_leader else 0,
    "laststableoffsetlag": lambda partition: max(0, partition.log.high_watermark - partition.log.last_stable_offset),
}
"""As in Kafka, a follower tells 0 for what only the leader knows."""


def _is_at_min_isr(partition: Partition) -> bool:
    return len(partition.isr) == min(partition.min_insync_replicas, len(partition.replicas))


class ReplicaCollector:
    def __init__(self, metadata: LocalMetadata, partitions: Partitions, clock: Clock, fetchers: ReplicaFetchers | None) -> None:
        """`fetchers` only in a cluster."""
        self._metadata = metadata
        self._clock = clock
        self._partitions = partitions
        self._fetchers = fetchers
        self._labels: dict[TopicPartition, str] = {}

    def __call__(self) -> Iterator[Family]:
        partitions = list(self._partitions)
        yield from self._totals(partitions)
        labelled = self._labelled(partitions)
        for name, value_of in _OF_REPLICA.items():
            yield _by_partition(f"{CLUSTER}_{name}", labelled, value_of)
        online = [(labels, partition) for labels, partition in labelled if not partition.is_offline]
        for name, value_of in _OF_LOG.items():
            yield _by_partition(f"{LOGS}_{name}", online, value_of)
        if self._fetchers is not None:
            yield from self._lags(self._fetchers)

    def _totals(self, partitions: list[Partition]) -> Iterator[Family]:
        counts = dict.fromkeys(REPLICAS_OF, 0)
        image = self._metadata.image
        late_ms = self._clock.now_ms() - self._metadata.settings.int("transaction.max.timeout.ms") - _LATE_MS
        for number, partition in enumerate(partitions, 1):
            if partition.is_leader:
                counts["leadercount"] += 1
                counts["underreplicatedpartitions"] += len(partition.isr) < len(partition.replicas)
                counts["underminisrpartitioncount"] += partition.is_under_min_isr
                counts["atminisrpartitioncount"] += _is_at_min_isr(partition)
                topic = image.topics.get(partition.topic_partition.topic)
                number_here = partition.topic_partition.partition
                if topic is not None and number_here < len(topic.partitions):
                    told = topic.partitions[number_here]
                    counts["reassigningpartitions"] += bool(told.adding or told.removing)
            counts["offlinereplicacount"] += partition.is_offline
            counts["produceridcount"] += len(partition.log.producers)
            counts["partitionswithlatetransactionscount"] += 0 <= partition.log.producers.oldest_open_timestamp() < late_ms
            if number % _TURN == 0:
                yield PAUSE
        counts["partitioncount"] = len(partitions)
        counts["offlinereplicacount"] += self._partitions.missing_count
        for name, value in counts.items():
            yield single(METRICS[f"{REPLICAS}_{name}"], value)

    def _labelled(self, partitions: list[Partition]) -> list[tuple[str, Partition]]:
        """Each with its labels as text, which are kept for the next time."""
        known, self._labels = self._labels, {}
        for partition in partitions:
            key = partition.topic_partition
            self._labels[key] = known.get(key) or label_text(("topic", "partition"), key)
        return list(zip(self._labels.values(), partitions, strict=True))

    def _lags(self, fetchers: ReplicaFetchers) -> Iterator[Family]:
        lags = fetchers.lags()
        yield family(
            METRICS["kafka_server_fetcherlagmetrics_consumerlag"],
            ((("Replica", key.topic, key.partition), lag) for key, lag in lags),
        )
        largest = max((lag for _, lag in lags), default=0)
        yield family(METRICS["kafka_server_replicafetchermanager_maxlag"], [(("Replica",), largest)])
        rate = round(fetchers.fetch_rate_min(), 3)
        yield family(METRICS["kafka_server_replicafetchermanager_minfetchrate"], [(("Replica",), rate)])


def _by_partition(name: str, labelled: list[tuple[str, Partition]], value_of: Callable[[Partition], int]) -> Family:
    metric = METRICS[name]
    return Family(name, metric.kind.value, metric.help, _samples(labelled, value_of))


def _samples(labelled: list[tuple[str, Partition]], value_of: Callable[[Partition], int]) -> Iterator[Sample]:
    for labels, partition in labelled:
        yield labels, int(value_of(partition))
