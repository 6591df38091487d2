"""The names of redpanda-data/kminion. Not written: `…_offset_commits_total` (kminion counts records of `__consumer_offsets`), and
its end-to-end probe, which writes records of its own. `UP` is about the rounds, so `service` writes it.
"""

from __future__ import annotations

from collections import Counter

from ottla.exporter.exposition import Page, gauge
from ottla.exporter.names.view import View, of_topic
from ottla.exporter.reading import Group

_TOPIC = ("topic_name",)
_PARTITION = ("topic_name", "partition_id")
_GROUP = ("group_id",)
_GROUP_TOPIC = ("group_id", "topic_name")

UP = gauge("kminion_exporter_up", "1 if the last round read everything", ("version",))
CLUSTER = gauge("kminion_kafka_cluster_info", "1", ("cluster_version", "broker_count", "controller_id", "cluster_id"))
BROKER = gauge("kminion_kafka_broker_info", "1 for each broker", ("broker_id", "address", "port", "rack_id", "is_controller"))
BROKER_BYTES = gauge(
    "kminion_kafka_broker_log_dir_size_total_bytes", "Bytes of the broker's replicas", ("broker_id", "address", "port", "rack_id")
)
TOPIC = gauge("kminion_kafka_topic_info", "1", ("topic_name", "partition_count", "replication_factor", "cleanup_policy"))
TOPIC_BYTES = gauge("kminion_kafka_topic_log_dir_size_total_bytes", "Bytes of all replicas of the topic", _TOPIC)
LOW = gauge("kminion_kafka_topic_partition_low_water_mark", "Log start of the partition", _PARTITION)
HIGH = gauge("kminion_kafka_topic_partition_high_water_mark", "High watermark of the partition", _PARTITION)
LOW_SUM = gauge("kminion_kafka_topic_low_water_mark_sum", "Sum of the log starts of the topic", _TOPIC)
HIGH_SUM = gauge("kminion_kafka_topic_high_water_mark_sum", "Sum of the high watermarks of the topic", _TOPIC)
GROUP = gauge(
    "kminion_kafka_consumer_group_info",
    "1 if the group is Stable, else 0",
    ("group_id", "protocol", "protocol_type", "state", "coordinator_id"),
)
MEMBERS = gauge("kminion_kafka_consumer_group_members", "Members of the group", _GROUP)
EMPTY_MEMBERS = gauge("kminion_kafka_consumer_group_empty_members", "Members without a partition", _GROUP)
TOPIC_MEMBERS = gauge("kminion_kafka_consumer_group_topic_members", "Members with partitions of the topic", _GROUP_TOPIC)
ASSIGNED = gauge("kminion_kafka_consumer_group_topic_assigned_partitions", "Assigned partitions of the topic", _GROUP_TOPIC)
OFFSET_SUM = gauge("kminion_kafka_consumer_group_topic_offset_sum", "Sum of the topic's committed offsets", _GROUP_TOPIC)
LAG = gauge("kminion_kafka_consumer_group_topic_partition_lag", "Lag in records", ("group_id", "topic_name", "partition_id"))
TOPIC_LAG = gauge("kminion_kafka_consumer_group_topic_lag", "Sum of the topic's lags", _GROUP_TOPIC)

FAMILIES = (
    UP, CLUSTER, BROKER, BROKER_BYTES, TOPIC, TOPIC_BYTES, LOW, HIGH, LOW_SUM, HIGH_SUM, GROUP, MEMBERS, EMPTY_MEMBERS,
    TOPIC_MEMBERS, ASSIGNED, OFFSET_SUM, LAG, TOPIC_LAG,
)  # fmt: skip


def write(page: Page, view: View) -> None:
    _write_cluster(page, view)
    _write_topics(page, view)
    _write_groups(page, [each.group for each in view.groups])
    topics = view.read_topics(*_GROUP_TOPIC)
    page.add_labelled(OFFSET_SUM, topics, of_topic(lambda each: each.committed, sum))
    page.add_labelled(LAG, view.read_partitions(*LAG.labels), lambda each: each.lag if each.committed >= 0 else None)
    page.add_labelled(TOPIC_LAG, topics, of_topic(lambda each: each.lag, sum))


def _write_cluster(page: Page, view: View) -> None:
    reading = view.reading
    controller = reading.controller_id
    # Brokers do not tell the version of their software.
    page.add(CLUSTER, [(("", len(reading.brokers), controller, reading.cluster_id), 1)])
    where = [(node, (node.broker_id, node.host, node.port, node.rack)) for node in reading.brokers]
    page.add(BROKER, [((*labels, str(node.broker_id == controller).lower()), 1) for node, labels in where])
    page.add(BROKER_BYTES, [(labels, node.log_bytes) for node, labels in where])


def _write_topics(page: Page, view: View) -> None:
    topics = view.reading.topics.values()
    described = []
    for topic in topics:
        replicas = next((len(each.replicas) for each in topic.partitions.values()), -1)
        described.append(((topic.name, len(topic.partitions), replicas, topic.cleanup_policy or "N/A"), 1))
    page.add(TOPIC, described)
    page.add(TOPIC_BYTES, [((topic.name,), topic.replica_bytes) for topic in topics])
    partitions = view.partitions(*_PARTITION)
    page.add_labelled(LOW, partitions, lambda each: each.log_start)
    page.add_labelled(HIGH, partitions, lambda each: each.log_end)
    page.add(LOW_SUM, view.topic_sums(lambda each: each.log_start))
    page.add(HIGH_SUM, view.topic_sums(lambda each: each.log_end))


def _write_groups(page: Page, groups: list[Group]) -> None:
    known = [(group, group.members) for group in groups if group.members is not None]
    page.add(
        GROUP,
        [
            ((group.name, group.assignor, group.protocol_type, group.state, group.coordinator_id), int(group.state == "Stable"))
            for group in groups
        ],
    )
    page.add(MEMBERS, [((group.name,), len(members)) for group, members in known])
    without = [((group.name,), sum(not each.assignment for each in members)) for group, members in known]
    page.add(EMPTY_MEMBERS, [(labels, count) for labels, count in without if count])
    consuming: Counter[tuple[str, str]] = Counter()
    assigned: Counter[tuple[str, str]] = Counter()
    for group, members in known:
        for member in members:
            for topic, partitions in member.assignment.items():
                consuming[group.name, topic] += 1
                assigned[group.name, topic] += len(partitions)
    page.add(TOPIC_MEMBERS, consuming.items())
    page.add(ASSIGNED, assigned.items())
