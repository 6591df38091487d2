"""Brokers: is the cluster whole, how much passes through it, what takes time. From the metrics of brokers."""

from __future__ import annotations

from typing import Final

from ottla.generate.dashboards.grafana import Dashboard, Row, Variable, graph, stat

_ALL: Final = 'kafka_cluster=~"$cluster"'
_ONE: Final = f'{_ALL},instance=~"$instance"'
_TRAFFIC: Final = "kafka_server_brokertopicmetrics"
_REQUESTS: Final = "kafka_network_requestmetrics"
_PURGATORY: Final = "kafka_server_delayedoperationpurgatory"
_BY_LISTENER: Final = "{{listener}} {{instance}}"
_SOCKETS: Final = "kafka_server_socket_server_metrics"


def _rate(name: str, labels: str = _ONE, by: str = "instance") -> str:
    return f"sum by ({by}) (rate({name}{{{labels}}}[$__rate_interval]))"


def _traffic(name: str) -> str:
    """Of the whole broker: the series without a topic."""
    return _rate(f"{_TRAFFIC}_{name}_total", f'{_ONE},topic=""')


def _stage(stage: str, request: str) -> tuple[str, str]:
    return f'{_REQUESTS}_{stage}timems{{{_ONE},request="{request}",quantile="0.99"}}', f"{stage} {{{{instance}}}}"


_STAGES: Final = ("total", "requestqueue", "local", "remote", "responsesend", "throttle")

BROKERS: Final = Dashboard(
    "ottla-brokers",
    "Kafka: brokers",
    (
        Variable("cluster", "label_values(kafka_server_kafkaserver_brokerstate, kafka_cluster)"),
        Variable("instance", 'label_values(kafka_server_kafkaserver_brokerstate{kafka_cluster=~"$cluster"}, instance)'),
    ),
    (
        Row(
            "Is the cluster whole?",
            (
                stat("Brokers up", f'sum(up{{{_ALL},job=~".*kafka.*broker.*|integrations/kafka"}})', red_below=1),
                stat("Controllers", f"sum(kafka_controller_kafkacontroller_activecontrollercount{{{_ALL}}})", red_below=1),
                stat("Offline partitions", f"sum(kafka_controller_kafkacontroller_offlinepartitionscount{{{_ALL}}})", red_from=1),
                stat("Under-replicated", f"sum(kafka_server_replicamanager_underreplicatedpartitions{{{_ALL}}})", red_from=1),
                stat("Under min ISR", f"sum(kafka_server_replicamanager_underminisrpartitioncount{{{_ALL}}})", red_from=1),
                stat("Offline log directories", f"sum(kafka_log_logmanager_offlinelogdirectorycount{{{_ALL}}})", red_from=1),
                graph(
                    "ISR changes",
                    (_rate("kafka_server_replicamanager_isrshrinks_total"), "shrink {{instance}}"),
                    (_rate("kafka_server_replicamanager_isrexpands_total"), "expand {{instance}}"),
                    unit="ops",
                ),
                graph("Leaders", (f"kafka_server_replicamanager_leadercount{{{_ONE}}}", "{{instance}}")),
                graph("Replicas", (f"kafka_server_replicamanager_partitioncount{{{_ONE}}}", "{{instance}}")),
            ),
        ),
        Row(
            "Traffic",
            (
                graph("Records in", (_traffic("messagesin"), "{{instance}}"), unit="cps"),
                graph("Bytes in", (_traffic("bytesin"), "{{instance}}"), unit="Bps"),
                graph("Bytes out to consumers", (_traffic("bytesout"), "{{instance}}"), unit="Bps"),
                graph(
                    "Replication",
                    (_rate(f"{_TRAFFIC}_replicationbytesin_total"), "in {{instance}}"),
                    (_rate(f"{_TRAFFIC}_replicationbytesout_total"), "out {{instance}}"),
                    unit="Bps",
                ),
                graph(
                    "Failed produce and fetch",
                    (_traffic("failedproducerequests"), "produce {{instance}}"),
                    (_traffic("failedfetchrequests"), "fetch {{instance}}"),
                    unit="ops",
                ),
                graph("Follower lag, largest", (f"kafka_server_replicafetchermanager_maxlag{{{_ONE}}}", "{{instance}}")),
            ),
        ),
        Row(
            "Requests",
            (
                graph("Requests", (_rate(f"{_REQUESTS}_requests_total", by="request"), "{{request}}"), unit="reqps"),
                graph(
                    "Errors",
                    (_rate(f"{_REQUESTS}_errors_total", f'{_ONE},error!="NONE"', "request, error"), "{{request}} {{error}}"),
                    unit="ops",
                    about="Error codes in responses. Some are part of a client's life, such as NOT_LEADER_OR_FOLLOWER.",
                ),
                graph(
                    "Waiting requests",
                    (f"{_PURGATORY}_purgatorysize{{{_ONE}}}", "{{delayedOperation}} {{instance}}"),
                ),
                graph("Produce, p99 by stage", *(_stage(stage, "Produce") for stage in _STAGES), unit="ms"),
                graph("Consumer fetch, p99 by stage", *(_stage(stage, "FetchConsumer") for stage in _STAGES), unit="ms"),
                graph("Follower fetch, p99 by stage", *(_stage(stage, "FetchFollower") for stage in _STAGES), unit="ms"),
            ),
        ),
        Row(
            "Clients",
            (
                graph(
                    "Connections",
                    (f"sum by (instance, listener) ({_SOCKETS}_connection_count{{{_ONE}}})", _BY_LISTENER),
                ),
                graph(
                    "Connections made",
                    (f"sum by (instance, listener) ({_SOCKETS}_connection_creation_rate{{{_ONE}}})", _BY_LISTENER),
                    unit="ops",
                ),
                graph(
                    "Client software",
                    (
                        f"sum by (clientSoftwareName, clientSoftwareVersion) ({_SOCKETS}_connections_software{{{_ONE}}})",
                        "{{clientSoftwareName}} {{clientSoftwareVersion}}",
                    ),
                ),
            ),
        ),
        Row(
            "The process",
            (
                graph(
                    "Idle",
                    (f"kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent{{{_ONE}}}", "{{instance}}"),
                    unit="percentunit",
                    about="Below 0.3 requests begin to wait for the event loop.",
                ),
                graph("Longest stall of the loop", (f"ottla_loop_stall_seconds_max{{{_ONE}}}", "{{instance}}"), unit="s"),
                graph("CPU", (_rate("process_cpu_seconds_total"), "{{instance}}"), unit="percentunit"),
                graph("Resident memory", (f"process_resident_memory_bytes{{{_ONE}}}", "{{instance}}"), unit="bytes"),
                graph(
                    "File descriptors",
                    (f"process_open_fds{{{_ONE}}} / process_max_fds{{{_ONE}}}", "{{instance}}"),
                    unit="percentunit",
                ),
                graph("Log bytes", (f"sum by (instance) (kafka_log_log_size{{{_ONE}}})", "{{instance}}"), unit="bytes"),
            ),
        ),
    ),
)
