"""Consumer groups and transactions: lag and lead in records and in seconds. From the exporter."""

from __future__ import annotations

from typing import Final

from ottla.generate.dashboards.grafana import Dashboard, Row, Variable, graph, stat, table

_READ: Final = 'kafka_cluster=~"$cluster",consumergroup=~"$group",topic=~"$topic"'
_GROUP: Final = 'kafka_cluster=~"$cluster",consumergroup=~"$group"'
_BY: Final = "consumergroup, topic"
_LEGEND: Final = "{{consumergroup}} {{topic}}"
_CLUSTER: Final = 'kafka_cluster=~"$cluster"'

GROUPS: Final = Dashboard(
    "ottla-groups",
    "Kafka: consumer groups",
    (
        Variable("cluster", "label_values(kafka_brokers, kafka_cluster)"),
        Variable("group", 'label_values(kafka_consumergroup_lag_sum{kafka_cluster=~"$cluster"}, consumergroup)'),
        Variable("topic", 'label_values(kafka_consumergroup_lag_sum{kafka_cluster=~"$cluster"}, topic)'),
    ),
    (
        Row(
            "All chosen groups",
            (
                stat("Groups", f"count(kafka_consumergroup_state{{{_GROUP}}})"),
                stat("Lag", f"sum(kafka_consumergroup_lag_sum{{{_READ}}})"),
                stat("Largest lag in time", f"max(kafka_consumergroup_lag_seconds_max{{{_READ}}})", "s"),
                stat(
                    "Smallest lead",
                    f"min(kafka_consumergroup_lead_min{{{_READ}}})",
                    about="Records until a group loses some to retention. Below 0 it has lost them.",
                    red_below=0,
                ),
                stat(
                    "Groups with lag and no member",
                    f"count((sum by (consumergroup) (kafka_consumergroup_lag_sum{{{_READ}}}) > 0)"
                    f" and on (consumergroup) kafka_consumergroup_members{{{_GROUP}}} == 0) or vector(0)",
                ),
                stat("Age of these figures", f"max(ottla_exporter_data_age_seconds{{{_CLUSTER}}})", "s", red_from=120),
            ),
        ),
        Row(
            "Lag and lead",
            (
                graph(
                    "Lag",
                    (f"sum by ({_BY}) (kafka_consumergroup_lag_sum{{{_READ}}})", _LEGEND),
                ),
                graph(
                    "Lag in time",
                    (
                        f"max by ({_BY}) (kafka_consumergroup_lag_seconds_max{{{_READ}}})",
                        _LEGEND,
                    ),
                    unit="s",
                    about="Age of the record that is read next.",
                ),
                graph(
                    "Lead",
                    (f"min by ({_BY}) (kafka_consumergroup_lead_min{{{_READ}}})", _LEGEND),
                    about="Records between the log start and the committed offset.",
                ),
                graph(
                    "Lead in time",
                    (
                        f"min by ({_BY}) (kafka_consumergroup_lead_seconds_min{{{_READ}}})",
                        _LEGEND,
                    ),
                    unit="s",
                    about="Until retention reaches the group, if it stands still.",
                ),
                graph(
                    "Records read",
                    (
                        f"sum by ({_BY}) (rate(kafka_consumergroup_current_offset_sum{{{_READ}}}[$__rate_interval]))",
                        _LEGEND,
                    ),
                    unit="cps",
                ),
                graph(
                    "Rebalances",
                    (
                        f"increase(kafka_consumergroup_rebalances_total{{{_GROUP}}}[10m])",
                        "{{consumergroup}}",
                    ),
                    about="In ten minutes.",
                ),
                graph("Members", (f"kafka_consumergroup_members{{{_GROUP}}}", "{{consumergroup}}")),
                table("Partitions with the largest lag", f"topk(20, kafka_consumergroup_lag{{{_READ}}})", width=16),
            ),
        ),
        Row(
            "Transactions",
            (
                graph("By state", (f"sum by (state) (ottla_transactions{{{_CLUSTER}}})", "{{state}}")),
                graph("Oldest open transaction", (f"max(ottla_transaction_open_seconds_max{{{_CLUSTER}}})", "age"), unit="s"),
                stat(
                    "Hanging",
                    f"sum(ottla_transactions_hanging{{{_CLUSTER}}})",
                    about="No coordinator will end them, and read_committed consumers wait: `ottla txn find-hanging`.",
                    red_from=1,
                ),
                stat("Open for too long", f"sum(ottla_transactions_over_timeout{{{_CLUSTER}}})", red_from=1),
            ),
        ),
    ),
)
