"""Every metric of a broker: name, type, labels, help. docs/metrics.md is generated from it.

`kafka_*` names are those that the JMX exporter gives Kafka's MBeans with Strimzi's rules, so that dashboards of others fill.
Times in them are milliseconds, as in Kafka. What Kafka has no name for is `ottla_*`, in seconds and bytes. `process_*` names are
those of Prometheus' client libraries. JVM metrics are not imitated.
"""

from __future__ import annotations

from typing import Final

from ottla.metrics.family import Kind, Metric

_C, _G, _H, _S = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM, Kind.QUANTILES

TRAFFIC: Final = "kafka_server_brokertopicmetrics"
REQUESTS: Final = "kafka_network_requestmetrics"
SOCKETS: Final = "kafka_server_socket_server_metrics"
REPLICAS: Final = "kafka_server_replicamanager"
CLUSTER: Final = "kafka_cluster_partition"
LOGS: Final = "kafka_log_log"
CONTROLLER: Final = "kafka_controller_kafkacontroller"
GROUPS_OF: Final = "kafka_coordinator_group_groupmetadatamanager"
GROUP_STATES: Final = ("preparingrebalance", "completingrebalance", "assigning", "reconciling", "stable", "dead", "empty")
PURGATORY: Final = "kafka_server_delayedoperationpurgatory"
QUOTA: Final = "kafka_server_quota"
ZOOKEEPER_SESSION: Final = "kafka_server_sessionexpirelistener_zookeeper"


def _row(name: str, kind: Kind, labels: str, help: str) -> Metric:
    return Metric(name, kind, tuple(labels.split()), help)


# fmt: off
BY_TOPIC: Final = (
    _row(f"{TRAFFIC}_messagesin_total", _C, "topic", "Records appended by producers and coordinators."),
    _row(f"{TRAFFIC}_bytesin_total", _C, "topic", "Bytes of these records, as stored."),
    _row(f"{TRAFFIC}_bytesout_total", _C, "topic", "Bytes of records sent to consumers."),
    _row(f"{TRAFFIC}_bytesrejected_total", _C, "topic", "Bytes of batches refused because they exceed max.message.bytes."),
    _row(f"{TRAFFIC}_totalproducerequests_total", _C, "topic", "Partitions in Produce requests, appended or not."),
    _row(f"{TRAFFIC}_totalfetchrequests_total", _C, "topic", "Partitions read for Fetch requests."),
    _row(f"{TRAFFIC}_failedproducerequests_total", _C, "topic",
        "Partitions in Produce requests that failed with an error that is not part of a client's life, such as invalid records."),
    _row(f"{TRAFFIC}_failedfetchrequests_total", _C, "topic", "Partitions in Fetch requests that failed, in the same sense."),
    _row(f"{TRAFFIC}_producemessageconversions_total", _C, "topic", "Records converted for producers: always 0."),
    _row(f"{TRAFFIC}_fetchmessageconversions_total", _C, "topic", "Records converted for consumers: always 0."),
)
"""Emitted by topic, and without the label for the whole broker: Kafka has both under one name."""

OF_ALL_TOPICS: Final = (
    _row(f"{TRAFFIC}_replicationbytesin_total", _C, "", "Bytes of records fetched from leaders."),
    _row(f"{TRAFFIC}_replicationbytesout_total", _C, "", "Bytes of records sent to followers."),
    _row(f"{TRAFFIC}_reassignmentbytesin_total", _C, "", "Those fetched for replicas that a reassignment adds."),
    _row(f"{TRAFFIC}_reassignmentbytesout_total", _C, "", "Those sent to replicas that a reassignment adds."),
    _row(f"{TRAFFIC}_invalidmessagecrcrecords_total", _C, "", "Batches refused because of a wrong CRC."),
    _row(f"{TRAFFIC}_invalidmagicnumberrecords_total", _C, "", "Batches refused because of another message format."),
    _row(f"{TRAFFIC}_invalidoffsetorsequencerecords_total", _C, "", "Batches refused because of wrong offsets inside."),
    _row(f"{TRAFFIC}_nokeycompactedtopicrecords_total", _C, "", "Records without a key for a compacted topic."),
)

OF_REQUESTS: Final = (
    _row(f"{REQUESTS}_requests_total", _C, "request version", "Requests."),
    _row(f"{REQUESTS}_errors_total", _C, "request error",
        "Error codes in responses, of each topic, partition or group that they list. NONE counts too."),
    _row(f"{REQUESTS}_totaltimems", _S, "request", "From the whole request to the reply, in milliseconds."),
    _row(f"{REQUESTS}_requestqueuetimems", _S, "request",
        "How long a request waits for the event loop: all APIs wait for the same one, sampled fifty times a second."),
    _row(f"{REQUESTS}_localtimems", _S, "request", "Decoding, handling and encoding."),
    _row(f"{REQUESTS}_remotetimems", _S, "request", "Waiting for replicas, for records, for a group."),
    _row(f"{REQUESTS}_responsequeuetimems", _S, "request", "Always 0: there is no queue of responses."),
    _row(f"{REQUESTS}_responsesendtimems", _S, "request", "Sending a reply of records; 0 for replies that are sent at once."),
    _row(f"{REQUESTS}_throttletimems", _S, "request", "How long quotas mute the connection afterwards."),
    _row(f"{REQUESTS}_requestbytes", _S, "request", "Size of the request."),
    _row(f"{REQUESTS}_temporarymemorybytes", _S, "request", "Always 0: nothing is converted."),
    _row("ottla_request_time_seconds", _H, "request", "From the whole request to the reply."),
    _row("ottla_request_size_bytes", _H, "request", "Size of the request."),
)

OF_CONNECTIONS: Final = (
    _row(f"{SOCKETS}_connection_count", _G, "listener networkProcessor", "Open connections."),
    _row(f"{SOCKETS}_connection_creation_rate", _G, "listener networkProcessor", "Accepted connections per second."),
    _row(f"{SOCKETS}_connection_creation_total", _C, "listener networkProcessor", "Accepted connections."),
    _row(f"{SOCKETS}_connection_close_rate", _G, "listener networkProcessor", "Closed connections per second."),
    _row(f"{SOCKETS}_connection_close_total", _C, "listener networkProcessor", "Closed connections."),
    _row(f"{SOCKETS}_connections", _G, "clientSoftwareName clientSoftwareVersion listener networkProcessor",
        "Open connections by the software that the client names."),
    _row(f"{SOCKETS}_connections_software", _G, "clientSoftwareName clientSoftwareVersion listener",
        "The same under the name that Confluent's dashboards use."),
)

REPLICAS_OF: Final = {
    "leadercount": "Partitions that this broker leads.",
    "partitioncount": "Replicas on this broker.",
    "underreplicatedpartitions": "Led partitions with fewer in-sync replicas than replicas.",
    "underminisrpartitioncount": "Led partitions with fewer in-sync replicas than min.insync.replicas.",
    "atminisrpartitioncount": "Led partitions with just as many.",
    "offlinereplicacount": "Replicas whose data directory is offline.",
    "reassigningpartitions": "Led partitions that are being reassigned.",
    "produceridcount": "Producer ids whose last batches are remembered.",
    "partitionswithlatetransactionscount": "Partitions with a transaction that is open for longer than a coordinator allows.",
}

OF_REPLICAS: Final = (
    *(_row(f"{REPLICAS}_{name}", _G, "", help) for name, help in REPLICAS_OF.items()),
    _row(f"{CLUSTER}_underreplicated", _G, "topic partition", "1 if the partition is led here and under-replicated."),
    _row(f"{CLUSTER}_underminisr", _G, "topic partition", "1 if it is led here and under its min.insync.replicas."),
    _row(f"{CLUSTER}_atminisr", _G, "topic partition", "1 if it is led here and has just min.insync.replicas."),
    _row(f"{CLUSTER}_insyncreplicascount", _G, "topic partition", "In-sync replicas; 0 on followers."),
    _row(f"{CLUSTER}_replicascount", _G, "topic partition", "Replicas; 0 on followers."),
    _row(f"{CLUSTER}_laststableoffsetlag", _G, "topic partition", "Records from the last stable offset to the high watermark."),
    _row("kafka_server_fetcherlagmetrics_consumerlag", _G, "clientId topic partition",
        "Records that this follower is behind its leader's high watermark."),
    _row("kafka_server_replicafetchermanager_maxlag", _G, "clientId", "The largest of them."),
    _row("kafka_server_replicafetchermanager_minfetchrate", _G, "clientId",
        "Fetches per second of the slowest fetcher of this follower, weighed over the last minute. 0: it follows nobody."),
)

OF_STORAGE: Final = (
    _row(f"{LOGS}_size", _G, "topic partition", "Bytes of the log on this broker."),
    _row(f"{LOGS}_logstartoffset", _G, "topic partition", "First offset of the log."),
    _row(f"{LOGS}_logendoffset", _G, "topic partition", "Offset of the next record."),
    _row(f"{LOGS}_numlogsegments", _G, "topic partition", "Segments of the log."),
    _row("kafka_log_logmanager_offlinelogdirectorycount", _G, "", "Data directories that failed."),
    _row("kafka_log_logmanager_logdirectoryoffline", _G, "logDirectory", "1 if the data directory failed."),
    _row("ottla_log_dir_total_bytes", _G, "logDirectory", "Size of the volume of a data directory."),
    _row("ottla_log_dir_free_bytes", _G, "logDirectory", "Space on it that the broker may still use."),
    _row("kafka_log_logflushstats_logflushrateandtimems", _S, "", "Flushes of logs, and how long they took."),
    _row("kafka_log_logcleaner_max_clean_time_secs", _G, "", "How long the last pass of compaction took."),
    _row("kafka_log_logcleaner_max_compaction_delay_secs", _G, "",
        "How much longer than max.compaction.lag.ms the oldest records wait for compaction."),
    _row("kafka_log_logcleaner_deadthreadcount", _G, "", "Always 0: compaction has no threads that die."),
    _row("kafka_log_logcleanermanager_uncleanable_partitions_count", _G, "logDirectory", "Logs that compaction gave up."),
)

OF_CONTROLLER: Final = (
    _row(f"{CONTROLLER}_activecontrollercount", _G, "", "1 on the controller. The next nine are 0 on other brokers."),
    _row(f"{CONTROLLER}_offlinepartitionscount", _G, "", "Partitions without a leader."),
    _row(f"{CONTROLLER}_preferredreplicaimbalancecount", _G, "", "Partitions led by another than their first replica."),
    _row(f"{CONTROLLER}_globaltopiccount", _G, "", "Topics of the cluster."),
    _row(f"{CONTROLLER}_topicstodeletecount", _G, "", "Deleted topics whose replicas or nodes in ZooKeeper are not gone yet."),
    _row(f"{CONTROLLER}_globalpartitioncount", _G, "", "Partitions of the cluster."),
    _row(f"{CONTROLLER}_activebrokercount", _G, "", "Registered brokers."),
    _row("kafka_controller_controllereventmanager_eventqueuesize", _G, "",
        "Work of the controller under way, apart from requests."),
    _row("kafka_controller_controllereventmanager_eventqueuetimems", _S, "",
        "How long changes of the cluster waited for those before them."),
    _row("kafka_controller_controllerstats_uncleanleaderelections_total", _C, "", "Leaders elected from outside of the ISR."),
    _row("kafka_controller_controllerstats_leaderelectionrateandtimems", _S, "",
        "Changes in which partitions got other leaders, and how long they took."),
)

OF_COORDINATORS: Final = (
    _row(f"{GROUPS_OF}_numgroups", _G, "", "Groups that this broker coordinates."),
    *(_row(f"{GROUPS_OF}_numgroups{state}", _G, "", f"Those in the state {state}.") for state in GROUP_STATES),
    _row(f"{GROUPS_OF}_numoffsets", _G, "", "Their committed offsets."),
    _row("ottla_coordinator_groups", _G, "type", "Groups by type, classic or consumer."),
    _row("kafka_server_group_coordinator_metrics_partition_load_time_max", _G, "",
        "The longest load of groups from __consumer_offsets, of the last hundred, in milliseconds."),
    _row("kafka_server_group_coordinator_metrics_partition_load_time_avg", _G, "", "Their average."),
    _row("ottla_coordinator_transactions", _G, "state", "Transactional ids that this broker coordinates."),
    _row("ottla_coordinator_transaction_open_seconds_max", _G, "", "Age of their oldest open transaction; 0: none is open."),
    _row("kafka_server_transaction_coordinator_metrics_partition_load_time_max", _G, "",
        "The longest load of transactions from __transaction_state, of the last hundred, in milliseconds."),
    _row("kafka_server_transaction_coordinator_metrics_partition_load_time_avg", _G, "", "Their average."),
)

OF_CLIENTS: Final = (
    _row(f"{PURGATORY}_purgatorysize", _G, "delayedOperation", "Requests that wait, by operation."),
    _row(f"{PURGATORY}_numdelayedoperations", _G, "delayedOperation", "The same: none is kept after its end."),
    _row("kafka_network_requestchannel_requestqueuesize", _G, "", "Always 0: there is no queue of requests."),
    _row("kafka_network_requestchannel_responsequeuesize", _G, "", "Always 0: there is no queue of responses."),
    _row("kafka_network_socketserver_expiredconnectionskilledcount", _G, "listener",
        "Connections closed because their client did not authenticate again in time."),
    _row("kafka_server_fetchsessioncache_numincrementalfetchsessions", _G, "", "Fetch sessions."),
    _row("kafka_server_fetchsessioncache_numincrementalfetchpartitionscached", _G, "", "Partitions in them."),
    _row("kafka_server_fetchsessioncache_incrementalfetchsessionevictions_total", _C, "",
        "Fetch sessions that made room for others."),
    _row(f"{QUOTA}_byte_rate", _G, "resource user clientId", "Bytes per second of clients with a quota, by Produce and Fetch."),
    _row(f"{QUOTA}_request_time", _G, "resource user clientId",
        "Percent of the event loop's time, of clients with such a quota."),
    _row(f"{QUOTA}_throttle_time", _G, "resource user clientId", "For how many milliseconds they would be throttled now."),
    _row("ottla_certificate_expiry_timestamp_seconds", _G, "listener", "When the first certificate of the chain expires."),
    _row("kafka_server_client_metrics_instance_count", _G, "", "Client instances known to client metrics (KIP-714)."),
)

OF_ZOOKEEPER: Final = (
    _row("kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms", _S, "",
        "Requests to ZooKeeper, and how long they took."),
    _row(f"{ZOOKEEPER_SESSION}disconnects_total", _C, "", "How often the connection was lost."),
    _row(f"{ZOOKEEPER_SESSION}expires_total", _C, "", "How often the session expired."),
    _row(f"{ZOOKEEPER_SESSION}syncconnects_total", _C, "", "How often the connection was established again."),
    _row(f"{ZOOKEEPER_SESSION}authfailures_total", _C, "", "Always 0: a broker whose login ZooKeeper refuses does not start."),
)
"""Only in a cluster."""

OF_PROCESS: Final = (
    _row("process_cpu_seconds_total", _C, "", "CPU time of the broker, user and system."),
    _row("process_resident_memory_bytes", _G, "", "Resident memory."),
    _row("process_virtual_memory_bytes", _G, "", "Virtual memory."),
    _row("process_open_fds", _G, "", "Open file descriptors."),
    _row("process_max_fds", _G, "", "The limit of file descriptors."),
    _row("process_start_time_seconds", _G, "", "When the process started, in seconds since 1970."),
    _row("kafka_server_kafkaserver_brokerstate", _G, "", "1 while the broker starts, 3 while it serves, 6 while it stops."),
    _row("kafka_server_kafkaserver_linux_disk_read_bytes", _G, "", "Bytes this process read from disks, as Linux counts them."),
    _row("kafka_server_kafkaserver_linux_disk_write_bytes", _G, "", "Bytes this process caused to be written to disks."),
    _row("kafka_network_socketserver_networkprocessoravgidle_percent", _G, "",
        "Idle share of the event loop in the last minute, 0 to 1."),
    _row("kafka_network_socketserver_networkprocessoravgidlepercent", _G, "", "The same under the name without underscore."),
    _row("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", _G, "", "The same: one loop does both."),
    _row("ottla_loop_busy_seconds_total", _C, "", "CPU time of the event loop's thread."),
    _row("ottla_loop_stall_seconds_max", _G, "", "The longest time the event loop kept others waiting, in the last minutes."),
    _row("ottla_scrape_seconds", _G, "", "How long the last /metrics took, requests served in between included."),
    _row("ottla_info", _G, "version broker_id cluster_id compiled", "Always 1."),
)

EVENTS: Final = {
    "bytes_scrubbed": _row("ottla_bytes_scrubbed_total", _C, "", "Bytes of closed segments read again to find damage."),
    "cleaner_bytes_read": _row("ottla_cleaner_bytes_read_total", _C, "", "Bytes read by compaction."),
    "cleaner_bytes_written": _row("ottla_cleaner_bytes_written_total", _C, "", "Bytes written by compaction."),
    "cleaner_passes": _row("ottla_cleaner_passes_total", _C, "", "Passes of compaction over a log."),
    "cleaner_uncleanable_partitions": _row("ottla_cleaner_uncleanable_partitions_total", _C, "", "Logs that compaction gave up."),
    "connections_accepted": _row("ottla_connections_accepted_total", _C, "", "Connections accepted."),
    "connections_closed_failed": _row("ottla_connections_closed_failed_total", _C, "",
        "Connections closed because a reply could not be sent."),
    "connections_closed_idle": _row("ottla_connections_closed_idle_total", _C, "",
        "Connections closed after connections.max.idle.ms."),
    "connections_closed_malformed": _row("ottla_connections_closed_malformed_total", _C, "",
        "Connections closed because of malformed requests."),
    "connections_delayed": _row("ottla_connections_delayed_total", _C, "", "Connections that waited for a creation rate."),
    "connections_refused": _row("ottla_connections_refused_total", _C, "", "Connections refused because of a limit."),
    "isr_expands": _row(f"{REPLICAS}_isrexpands_total", _C, "", "How often an ISR grew, of partitions led here."),
    "isr_shrinks": _row(f"{REPLICAS}_isrshrinks_total", _C, "", "How often an ISR shrank, of partitions led here."),
    "isr_updates_failed": _row(f"{REPLICAS}_failedisrupdates_total", _C, "", "ISR changes that the controller refused."),
    "listeners_paused": _row("ottla_listeners_paused_total", _C, "",
        "How often listeners paused to keep file descriptors for logs."),
    "logins_failed": _row("ottla_logins_failed_total", _C, "", "Failed SASL logins."),
    "requests_throttled": _row("ottla_requests_throttled_total", _C, "", "Requests throttled by quotas."),
    "segment_damages_found": _row("ottla_segment_damages_found_total", _C, "", "Damaged places found in closed segments."),
    "segments_scrubbed": _row("ottla_segments_scrubbed_total", _C, "", "Closed segments read again to find damage."),
    "sendfile_bytes": _row("ottla_sendfile_bytes_total", _C, "", "Bytes sent by sendfile."),
    "telemetry_pushes": _row("ottla_telemetry_pushes_total", _C, "", "Pushes of client metrics."),
    "telemetry_pushes_invalid": _row("ottla_telemetry_pushes_invalid_total", _C, "", "Of these, pushes that could not be read."),
    "telemetry_series_left_out": _row("ottla_telemetry_series_left_out_total", _C, "",
        "Series of client metrics left out because of a limit."),
    "tls_encrypted_beside": _row("ottla_tls_encrypted_beside_total", _C, "", "Replies encrypted beside the event loop."),
    "tls_handshakes_failed": _row("ottla_tls_handshakes_failed_total", _C, "", "Failed TLS handshakes."),
}
"""What `counters.add` counts."""
# fmt: on

GROUPS: Final = (
    ("Records and bytes", (*BY_TOPIC, *OF_ALL_TOPICS)),
    ("Requests", OF_REQUESTS),
    ("Connections", OF_CONNECTIONS),
    ("Clients", OF_CLIENTS),
    ("Replicas", OF_REPLICAS),
    ("Storage", OF_STORAGE),
    ("Controller", OF_CONTROLLER),
    ("Groups and transactions", OF_COORDINATORS),
    ("ZooKeeper", OF_ZOOKEEPER),
    ("Process and event loop", OF_PROCESS),
    ("Events", tuple(EVENTS.values())),
)
"""Title and rows, as on the page."""

METRICS: Final = {metric.name: metric for _, rows in GROUPS for metric in rows}
assert len(METRICS) == sum(len(rows) for _, rows in GROUPS), "a name has two rows"
