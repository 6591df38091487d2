"""The names of danielqsj/kafka_exporter, and the lag in milliseconds of Grafana's fork of it."""

from __future__ import annotations

from ottla.exporter.exposition import Page, gauge
from ottla.exporter.names.view import View, of_topic
from ottla.exporter.reading import Partition

_PARTITION = ("topic", "partition")
_READ = ("consumergroup", "topic", "partition")

BROKERS = gauge("kafka_brokers", "Brokers of the cluster")
BROKER_INFO = gauge("kafka_broker_info", "1 for each broker", ("id", "address"))
PARTITIONS = gauge("kafka_topic_partitions", "Partitions of the topic", ("topic",))
CURRENT_OFFSET = gauge("kafka_topic_partition_current_offset", "High watermark: the offset after the last record", _PARTITION)
OLDEST_OFFSET = gauge("kafka_topic_partition_oldest_offset", "Log start: the offset of the first record", _PARTITION)
LEADER = gauge("kafka_topic_partition_leader", "Broker id of the leader; -1 without one", _PARTITION)
PREFERRED = gauge("kafka_topic_partition_leader_is_preferred", "1 if the first replica leads", _PARTITION)
REPLICAS = gauge("kafka_topic_partition_replicas", "Replicas of the partition", _PARTITION)
IN_SYNC = gauge("kafka_topic_partition_in_sync_replica", "Replicas in the ISR", _PARTITION)
UNDER_REPLICATED = gauge("kafka_topic_partition_under_replicated_partition", "1 if the ISR lacks a replica", _PARTITION)
COMMITTED = gauge("kafka_consumergroup_current_offset", "Committed offset; -1 without one", _READ)
COMMITTED_SUM = gauge("kafka_consumergroup_current_offset_sum", "Sum of the topic's committed offsets", _READ[:2])
LAG = gauge("kafka_consumergroup_lag", "Records between the committed offset and the high watermark; -1 without a commit", _READ)
LAG_SUM = gauge("kafka_consumergroup_lag_sum", "Sum of the topic's lags", _READ[:2])
MEMBERS = gauge("kafka_consumergroup_members", "Members of the group", _READ[:1])
LAG_MILLIS = gauge("kafka_consumer_lag_millis", "kafka_consumergroup_lag_seconds in milliseconds", _READ)

FAMILIES = (
    BROKERS, BROKER_INFO, PARTITIONS, CURRENT_OFFSET, OLDEST_OFFSET, LEADER, PREFERRED, REPLICAS, IN_SYNC, UNDER_REPLICATED,
    COMMITTED, COMMITTED_SUM, LAG, LAG_SUM, MEMBERS, LAG_MILLIS,
)  # fmt: skip


def write(page: Page, view: View) -> None:
    reading = view.reading
    page.add(BROKERS, [((), len(reading.brokers))])
    page.add(BROKER_INFO, [((node.broker_id, f"{node.host}:{node.port}"), 1) for node in reading.brokers])
    page.add(PARTITIONS, [((topic.name,), len(topic.partitions)) for topic in reading.topics.values()])
    partitions = view.partitions(*_PARTITION)
    page.add_labelled(CURRENT_OFFSET, partitions, lambda each: each.log_end)
    page.add_labelled(OLDEST_OFFSET, partitions, lambda each: each.log_start)
    page.add_labelled(LEADER, partitions, lambda each: each.leader_id)
    page.add_labelled(PREFERRED, partitions, _preferred)
    page.add_labelled(REPLICAS, partitions, lambda each: len(each.replicas))
    page.add_labelled(IN_SYNC, partitions, lambda each: len(each.isr))
    page.add_labelled(UNDER_REPLICATED, partitions, lambda each: int(len(each.isr) < len(each.replicas)))
    read, topics = view.read_partitions(*_READ), view.read_topics(*_READ[:2])
    page.add_labelled(COMMITTED, read, lambda each: each.committed)
    page.add_labelled(COMMITTED_SUM, topics, of_topic(lambda each: each.committed, sum))
    page.add_labelled(LAG, read, lambda each: each.lag)
    page.add_labelled(LAG_SUM, topics, of_topic(lambda each: each.lag, sum))
    groups = [each.group for each in view.groups]
    page.add(MEMBERS, [((group.name,), None if group.members is None else len(group.members)) for group in groups])
    page.add_labelled(LAG_MILLIS, read, lambda each: None if each.lag_s is None else int(each.lag_s * 1000))


def _preferred(partition: Partition) -> int:
    return int(bool(partition.replicas) and partition.replicas[0] == partition.leader_id)
