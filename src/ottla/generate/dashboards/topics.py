"""Topics: growth, size, traffic, replicas. From the exporter, and traffic from the brokers."""

from __future__ import annotations

from typing import Final

from ottla.generate.dashboards.grafana import Dashboard, Row, Variable, graph, stat, table

_TOPIC: Final = 'kafka_cluster=~"$cluster",topic=~"$topic"'
_END: Final = f"kafka_topic_partition_current_offset{{{_TOPIC}}}"
_BYTES: Final = 'kminion_kafka_topic_log_dir_size_total_bytes{kafka_cluster=~"$cluster",topic_name=~"$topic"}'


def _traffic(name: str) -> str:
    labels = f'{_TOPIC},topic!=""'
    return f"sum by (topic) (rate(kafka_server_brokertopicmetrics_{name}_total{{{labels}}}[$__rate_interval]))"


TOPICS: Final = Dashboard(
    "ottla-topics",
    "Kafka: topics",
    (
        Variable("cluster", "label_values(kafka_topic_partitions, kafka_cluster)"),
        Variable("topic", 'label_values(kafka_topic_partitions{kafka_cluster=~"$cluster"}, topic)'),
    ),
    (
        Row(
            "All chosen topics",
            (
                stat("Topics", f"count(kafka_topic_partitions{{{_TOPIC}}})"),
                stat("Partitions", f"sum(kafka_topic_partitions{{{_TOPIC}}})"),
                stat("Bytes with all replicas", f"sum({_BYTES})", "bytes"),
                stat(
                    "Without a leader",
                    f"count(kafka_topic_partition_leader{{{_TOPIC}}} < 0) or vector(0)",
                    red_from=1,
                ),
                stat("Under-replicated", f"sum(kafka_topic_partition_under_replicated_partition{{{_TOPIC}}})", red_from=1),
                stat(
                    "Not led by the preferred leader",
                    f"count(kafka_topic_partition_leader_is_preferred{{{_TOPIC}}} == 0) or vector(0)",
                ),
            ),
        ),
        Row(
            "By topic",
            (
                graph(
                    "Records produced",
                    (f"sum by (topic) (rate({_END}[$__rate_interval]))", "{{topic}}"),
                    unit="cps",
                ),
                graph("Bytes in", (_traffic("bytesin"), "{{topic}}"), unit="Bps"),
                graph("Bytes out to consumers", (_traffic("bytesout"), "{{topic}}"), unit="Bps"),
                graph(
                    "Records kept",
                    (
                        f"sum by (topic) ({_END} - kafka_topic_partition_oldest_offset{{{_TOPIC}}})",
                        "{{topic}}",
                    ),
                    about="High watermark minus log start. A compacted topic keeps fewer.",
                ),
                graph(
                    "Bytes with all replicas",
                    (_BYTES, "{{topic_name}}"),
                    unit="bytes",
                ),
                graph(
                    "Fullest partition over the average",
                    (
                        f"max by (topic) ({_END}) / avg by (topic) ({_END} > 0)",
                        "{{topic}}",
                    ),
                    about="Far above 1: most records have few keys.",
                ),
                table("Topics", 'kminion_kafka_topic_info{kafka_cluster=~"$cluster",topic_name=~"$topic"}', width=24),
            ),
        ),
    ),
)
