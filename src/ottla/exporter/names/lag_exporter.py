"""The names of seglo/kafka-lag-exporter. The labels of the member are empty for a partition that nobody is assigned."""

from __future__ import annotations

from ottla.exporter.consumption import GroupProgress, PartitionProgress
from ottla.exporter.exposition import Page, gauge
from ottla.exporter.names.view import View, of_topic
from ottla.metrics.family import escaped, label_text

_PARTITION = ("cluster_name", "topic", "partition")
_GROUP = ("cluster_name", "group")
_READ = ("cluster_name", "group", "topic", "partition", "member_host", "consumer_id", "client_id")

LATEST = gauge("kafka_partition_latest_offset", "High watermark of the partition", _PARTITION)
EARLIEST = gauge("kafka_partition_earliest_offset", "Log start of the partition", _PARTITION)
OFFSET = gauge("kafka_consumergroup_group_offset", "Committed offset", _READ)
LAG = gauge("kafka_consumergroup_group_lag", "Lag in records", _READ)
LAG_SECONDS = gauge("kafka_consumergroup_group_lag_seconds", "Lag in seconds", _READ)
MAX_LAG = gauge("kafka_consumergroup_group_max_lag", "Largest lag of the group's partitions in records", _GROUP)
MAX_LAG_SECONDS = gauge("kafka_consumergroup_group_max_lag_seconds", "Largest lag of the group's partitions in seconds", _GROUP)
SUM_LAG = gauge("kafka_consumergroup_group_sum_lag", "Sum of the lags of the group's partitions", _GROUP)
TOPIC_SUM_LAG = gauge("kafka_consumergroup_group_topic_sum_lag", "Sum of the lags of a topic", (*_GROUP, "topic"))

FAMILIES = (LATEST, EARLIEST, OFFSET, LAG, LAG_SECONDS, MAX_LAG, MAX_LAG_SECONDS, SUM_LAG, TOPIC_SUM_LAG)


def write(page: Page, view: View) -> None:
    first = f'cluster_name="{escaped(view.cluster_name)}",'
    partitions = view.partitions(*_PARTITION[1:], first)
    page.add_labelled(LATEST, partitions, lambda each: each.log_end)
    page.add_labelled(EARLIEST, partitions, lambda each: each.log_start)
    read = view.members()
    page.add_labelled(OFFSET, read, lambda each: each.committed)
    page.add_labelled(LAG, read, lambda each: each.lag)
    page.add_labelled(LAG_SECONDS, read, lambda each: each.lag_s)
    groups = [(label_text(_GROUP, (view.cluster_name, each.group.name)), _committed(each)) for each in view.groups]
    page.add_labelled(MAX_LAG, groups, of_topic(lambda each: each.lag, max))
    page.add_labelled(MAX_LAG_SECONDS, groups, of_topic(lambda each: each.lag_s, max))
    page.add_labelled(SUM_LAG, groups, of_topic(lambda each: each.lag, sum))
    page.add_labelled(TOPIC_SUM_LAG, view.read_topics("group", "topic", first), of_topic(lambda each: each.lag, sum))


def _committed(progress: GroupProgress) -> list[PartitionProgress]:
    return [each for each in progress if each.committed >= 0]
