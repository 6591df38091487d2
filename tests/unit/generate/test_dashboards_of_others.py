"""Public dashboards find the names they ask for: what brokers and the exporter tell, and what recording rules derive from it.

The names are those in the dashboards' JSON (2026): Confluent's jmx-monitoring-stacks, Grafana's kafka-mixin, Strimzi's examples.
"""

from __future__ import annotations

import pytest

from ottla.exporter import names
from ottla.generate.recording_rules import GROUPS
from ottla.metrics.family import Kind
from ottla.metrics.table import METRICS

TOLD = (
    set(METRICS)
    | {f"{name}_count" for name, metric in METRICS.items() if metric.kind is Kind.QUANTILES}
    | {family.name for families in names.FAMILIES.values() for family in families}
    | {rule.record for rules in GROUPS.values() for rule in rules()}
)


def named(prefix: str, text: str) -> list[str]:
    return [f"{prefix}_{name}" for name in text.split()]


TOPICS = "messagesinpersec bytesinpersec bytesoutpersec"
PROCESS = named("process", "cpu_seconds_total resident_memory_bytes open_fds max_fds start_time_seconds")
SESSION = named(
    "kafka_server_sessionexpirelistener",
    "zookeeperauthfailurespersec zookeeperdisconnectspersec zookeeperexpirespersec zookeepersyncconnectspersec",
)
TIMES = named(
    "kafka_network_requestmetrics", "localtimems remotetimems requestqueuetimems responsequeuetimems responsesendtimems"
)
STATES = ("", "completingrebalance", "dead", "empty", "preparingrebalance", "stable")

DASHBOARDS = {
    "Confluent, cluster": [
        *named("kafka_controller_kafkacontroller", "activecontrollercount offlinepartitionscount preferredreplicaimbalancecount"),
        *(f"kafka_coordinator_group_groupmetadatamanager_numgroups{state}" for state in STATES),
        *named("kafka_server_brokertopicmetrics", f"{TOPICS} fetchmessageconversionspersec producemessageconversionspersec"),
        *named("kafka_server_replicamanager", "isrexpandspersec isrshrinkspersec leadercount partitioncount"),
        *named("kafka_server_socketservermetrics", "connection_close_rate connection_count connection_creation_rate connections"),
        *named("kafka_server_kafkaserver", "brokerstate linux_disk_read_bytes linux_disk_write_bytes"),
        *named("kafka_network_requestmetrics", "errorspersec requestspersec totaltimems"),
        *named("kafka_network_requestchannel", "requestqueuesize responsequeuesize"),
        "kafka_server_replicamanager_underreplicatedpartitions",
        "kafka_cluster_partition_underminisr",
        "kafka_controller_controllerstats_uncleanleaderelectionspersec",
        "kafka_log_log_size",
        "kafka_network_socketserver_networkprocessoravgidlepercent",
        "kafka_server_fetchsessioncache_incrementalfetchsessionevictionspersec",
        "kafka_server_fetchsessioncache_numincrementalfetchsessions",
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_oneminuterate",
        "kafka_server_replicafetchermanager_maxlag",
        "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms",
        *TIMES,
        *SESSION,
    ],
    "Confluent, topics": [
        *named("kafka_server_brokertopicmetrics", f"{TOPICS} totalfetchrequestspersec totalproducerequestspersec"),
        *named("kafka_log_log", "logendoffset logstartoffset size"),
        *named("kafka_controller_kafkacontroller", "globalpartitioncount globaltopiccount"),
    ],
    "Confluent, quotas": [
        *named("kafka_server", "produce_byte_rate fetch_byte_rate produce_throttle_time fetch_throttle_time"),
        *named("kafka_server", "request_throttle_time request_request_time"),
    ],
    "Confluent, transactions": [
        *named("kafka_server_transaction_coordinator_metrics", "partition_load_time_avg partition_load_time_max"),
        *named("kafka_server_transaction_coordinator_metrics", "transactional_id_count active_transaction_total_time_max"),
    ],
    "Confluent, lag exporter": [
        *named("kafka_consumergroup_group", "lag lag_seconds max_lag max_lag_seconds offset sum_lag"),
    ],
    "Grafana, overview": [
        *named("kafka_cluster_partition", "underminisr underreplicated"),
        *named("kafka_server_brokertopicmetrics", f"{TOPICS} fetchmessageconversionspersec producemessageconversionspersec"),
        *named("kafka_server_replicamanager", "isrexpandspersec isrshrinkspersec partitioncount"),
        *PROCESS,
        *TIMES,
    ],
    "Grafana, topics": [
        *named("kafka_log_log", "logendoffset logstartoffset size"),
        *named("kafka_consumergroup", "current_offset uncommitted_offsets"),
        "kafka_consumer_lag_millis",
        "kafka_topic_partition_current_offset",
    ],
    "Strimzi, Kafka": [
        *named("kafka_server_brokertopicmetrics", "messagesin_total bytesin_total bytesout_total totalproducerequests_total"),
        *named("kafka_server_brokertopicmetrics", "totalfetchrequests_total"),
        *named("kafka_server_brokertopicmetrics", "failedproducerequests_total failedfetchrequests_total"),
        *named("kafka_server_replicamanager", "leadercount partitioncount underreplicatedpartitions"),
        *named("kafka_cluster_partition", "atminisr underminisr replicascount"),
        *named("kafka_server_socket_server_metrics", "connection_count connection_creation_rate connection_close_rate"),
        "kafka_network_socketserver_networkprocessoravgidle_percent",
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
        "kafka_controller_controllerstats_uncleanleaderelections_total",
        "kafka_log_log_size",
    ],
    "Strimzi, Kafka Exporter; Grafana 7589": [
        *named("kafka", "brokers broker_info topic_partitions consumergroup_current_offset consumergroup_lag"),
        *named("kafka_topic_partition", "current_offset oldest_offset in_sync_replica leader_is_preferred replicas"),
        "kafka_topic_partition_under_replicated_partition",
    ],
}


@pytest.mark.parametrize("dashboard", DASHBOARDS)
def test_the_names_of_a_dashboard_are_told(dashboard: str) -> None:
    assert set(DASHBOARDS[dashboard]) - TOLD == set()
