"""The names of seglo/kafka-lag-exporter. The labels of the member are empty for a partition that nobody is assigned."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ottla.exporter.consumption import GroupProgress, PartitionProgress
from ottla.exporter.exposition import Family, Page, Row, Value
from ottla.exporter.names.view import View

_PARTITION = ("cluster_name", "topic", "partition")
_GROUP = ("cluster_name", "group")
_READ = ("cluster_name", "group", "topic", "partition", "member_host", "consumer_id", "client_id")

LATEST = Family("kafka_partition_latest_offset", "High watermark of the partition", _PARTITION)
EARLIEST = Family("kafka_partition_earliest_offset", "Log start of the partition", _PARTITION)
OFFSET = Family("kafka_consumergroup_group_offset", "Committed offset", _READ)
LAG = Family("kafka_consumergroup_group_lag", "Lag in records", _READ)
LAG_SECONDS = Family("kafka_consumergroup_group_lag_seconds", "Lag in seconds", _READ)
MAX_LAG = Family("kafka_consumergroup_group_max_lag", "Largest lag of the group's partitions in records", _GROUP)
MAX_LAG_SECONDS = Family("kafka_consumergroup_group_max_lag_seconds", "Largest lag of the group's partitions in seconds", _GROUP)
SUM_LAG = Family("kafka_consumergroup_group_sum_lag", "Sum of the lags of the group's partitions", _GROUP)
TOPIC_SUM_LAG = Family("kafka_consumergroup_group_topic_sum_lag", "Sum of the lags of a topic", (*_GROUP, "topic"))

FAMILIES = (LATEST, EARLIEST, OFFSET, LAG, LAG_SECONDS, MAX_LAG, MAX_LAG_SECONDS, SUM_LAG, TOPIC_SUM_LAG)


def write(page: Page, view: View) -> None:
    cluster = view.cluster_name
    page.add(LATEST, (((cluster, *labels), value) for labels, value in view.partitions(lambda each: each.log_end)))
    page.add(EARLIEST, (((cluster, *labels), value) for labels, value in view.partitions(lambda each: each.log_start)))
    page.add(OFFSET, _read(view, lambda each: each.committed))
    page.add(LAG, _read(view, lambda each: each.lag))
    page.add(LAG_SECONDS, _read(view, lambda each: each.lag_s))
    page.add(MAX_LAG, _groups(view, lambda each: each.lag, max))
    page.add(MAX_LAG_SECONDS, _groups(view, lambda each: each.lag_s, max))
    page.add(SUM_LAG, _groups(view, lambda each: each.lag, sum))
    page.add(TOPIC_SUM_LAG, (((cluster, *labels), lag) for labels, lag in view.read_topics(lambda each: each.lag, sum)))


def _committed(progress: GroupProgress) -> Iterator[PartitionProgress]:
    return (each for each in progress if each.committed >= 0)


def _read(view: View, value: Callable[[PartitionProgress], Value | None]) -> Iterator[Row]:
    if view.per_partition:
        for progress in view.groups:
            for each in _committed(progress):
                member = each.member
                about = ("", "", "") if member is None else (member.host, member.member_id, member.client_id)
                yield (view.cluster_name, progress.group.name, each.topic, each.partition, *about), value(each)


def _groups(
    view: View, value: Callable[[PartitionProgress], Value | None], combine: Callable[[list[Value]], Value]
) -> Iterator[Row]:
    for progress in view.groups:
        values = [found for each in _committed(progress) if (found := value(each)) is not None]
        if values:
            yield (view.cluster_name, progress.group.name), combine(values)
