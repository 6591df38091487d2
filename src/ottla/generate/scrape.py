"""The configuration of Prometheus: what to scrape, and the labels that other people's dashboards select by.

Outside Kubernetes nobody sets the labels that Strimzi's dashboards filter on, so they are set here: `namespace`,
`strimzi_io_cluster`, `kubernetes_pod_name`, `container`. `kafka_cluster` is Grafana's, `env` Confluent's. The job of brokers is
named as Confluent's dashboards want it; Grafana Cloud's want `integrations/kafka`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

BROKERS_JOB: Final = "kafka-broker"
EXPORTER_JOB: Final = "kafka-exporter"
PIPELINES_JOB: Final = "ottla-pipeline"

_TEMPLATE: Final = """\
# Prometheus for an Ottla cluster: start it with `prometheus --config.file=prometheus.yml`.
global:
  scrape_interval: 15s
  evaluation_interval: 15s

# ottla generate rules -o . && ottla generate alerts -o .
rule_files:
  - ottla-rules.yml
  - ottla-alerts.yml

# Alertmanager, if there is one:
# alerting:
#   alertmanagers:
#     - static_configs: [{{targets: ["127.0.0.1:9093"]}}]

scrape_configs:
  # Each broker: `ottla serve --metrics HOST:PORT`, or metrics.listener in server.properties.
  - job_name: {brokers_job}
    static_configs:
      - targets: {brokers}
        labels: &cluster
          # Grafana's dashboards select by kafka_cluster, Confluent's by env.
          kafka_cluster: {cluster}
          env: {cluster}
          # Strimzi's dashboards select by labels of Kubernetes.
          namespace: {cluster}
          strimzi_io_cluster: {cluster}
          container: kafka
    relabel_configs:
      # Strimzi's dashboards select brokers by kubernetes_pod_name=~"CLUSTER-.*".
      - source_labels: [__address__]
        target_label: kubernetes_pod_name
        replacement: {pod_name}

  # `ottla exporter`, once for the cluster.
  - job_name: {exporter_job}
    static_configs:
      - targets: {exporter}
        labels: *cluster

  # `ottla pipeline run … --metrics HOST:PORT`, one target for each.
  - job_name: {pipelines_job}
    static_configs:
      - targets: {pipelines}
        labels: *cluster
"""


@dataclass(frozen=True, slots=True)
class Targets:
    """Addresses (host:port) that Prometheus scrapes, and the name of the cluster."""

    brokers: tuple[str, ...] = ("127.0.0.1:9404",)
    exporter: tuple[str, ...] = ("127.0.0.1:9308",)
    pipelines: tuple[str, ...] = ()
    cluster: str = "ottla"
    brokers_job: str = BROKERS_JOB


def render(targets: Targets) -> str:
    # JSON's strings and lists are YAML's.
    return _TEMPLATE.format(
        brokers=json.dumps(targets.brokers),
        exporter=json.dumps(targets.exporter),
        pipelines=json.dumps(targets.pipelines),
        cluster=json.dumps(targets.cluster),
        pod_name=json.dumps(f"{targets.cluster}-$1"),
        brokers_job=json.dumps(targets.brokers_job),
        exporter_job=EXPORTER_JOB,
        pipelines_job=PIPELINES_JOB,
    )
