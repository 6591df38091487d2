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


def _row(name: str, kind: Kind, labels: str, help: str) -> Metric:
    return Metric(name, kind, tuple(labels.split()), help)


def event_name(counter: str) -> str:
    """The metric of `counters.add(counter)`."""
    return f"ottla_{counter}_total"


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

EVENTS: Final = (
    _row(event_name("cleaner_bytes_read"), _C, "", "Bytes read by compaction."),
    _row(event_name("cleaner_bytes_written"), _C, "", "Bytes written by compaction."),
    _row(event_name("cleaner_passes"), _C, "", "Passes of compaction over a log."),
    _row(event_name("cleaner_uncleanable_partitions"), _C, "", "Logs that compaction gave up."),
    _row(event_name("connections_accepted"), _C, "", "Connections accepted."),
    _row(event_name("connections_closed_failed"), _C, "", "Connections closed because a reply could not be sent."),
    _row(event_name("connections_closed_idle"), _C, "", "Connections closed after connections.max.idle.ms."),
    _row(event_name("connections_closed_malformed"), _C, "", "Connections closed because of malformed requests."),
    _row(event_name("connections_delayed"), _C, "", "Connections that waited for a creation rate."),
    _row(event_name("connections_refused"), _C, "", "Connections refused because of a limit."),
    _row(event_name("listeners_paused"), _C, "", "How often listeners paused to keep file descriptors for logs."),
    _row(event_name("logins_failed"), _C, "", "Failed SASL logins."),
    _row(event_name("requests_throttled"), _C, "", "Requests throttled by quotas."),
    _row(event_name("sendfile_bytes"), _C, "", "Bytes sent by sendfile."),
    _row(event_name("tls_encrypted_beside"), _C, "", "Replies encrypted beside the event loop."),
    _row(event_name("tls_handshakes_failed"), _C, "", "Failed TLS handshakes."),
)
"""What `counters.add` counts."""
# fmt: on

GROUPS: Final = (
    ("Records and bytes", (*BY_TOPIC, *OF_ALL_TOPICS)),
    ("Requests", OF_REQUESTS),
    ("Connections", OF_CONNECTIONS),
    ("Process and event loop", OF_PROCESS),
    ("Events", EVENTS),
)
"""Title and rows, as on the page."""

METRICS: Final = {metric.name: metric for _, rows in GROUPS for metric in rows}
assert len(METRICS) == sum(len(rows) for _, rows in GROUPS), "a name has two rows"
