"""Names of metrics that shipped dashboards, alerts and rules may use."""

from __future__ import annotations

_TRAFFIC = [
    "messagesin",
    "bytesin",
    "bytesout",
    "bytesrejected",
    "totalproducerequests",
    "totalfetchrequests",
    "failedproducerequests",
    "failedfetchrequests",
    "producemessageconversions",
    "fetchmessageconversions",
    "replicationbytesin",
    "replicationbytesout",
    "reassignmentbytesin",
    "reassignmentbytesout",
    "invalidmessagecrcrecords",
    "invalidmagicnumberrecords",
    "invalidoffsetorsequencerecords",
    "nokeycompactedtopicrecords",
]
_REPLICAS = [
    "leadercount",
    "partitioncount",
    "underreplicatedpartitions",
    "underminisrpartitioncount",
    "isrshrinks_total",
    "isrexpands_total",
    "failedisrupdates_total",
]

OF_BROKERS = {
    *(f"kafka_server_brokertopicmetrics_{name}_total" for name in _TRAFFIC),
    *(f"kafka_server_replicamanager_{name}" for name in _REPLICAS),
    *(f"kafka_controller_kafkacontroller_{name}" for name in ("activecontrollercount", "offlinepartitionscount")),
    "kafka_controller_kafkacontroller_preferredreplicaimbalancecount",
    "kafka_controller_controllerstats_uncleanleaderelections_total",
    *(f"kafka_network_requestmetrics_{name}_total" for name in ("requests", "errors")),
    *(f"kafka_network_requestmetrics_{name}timems" for name in ("total", "requestqueue", "local", "remote")),
    *(f"kafka_network_requestmetrics_{name}timems" for name in ("responsequeue", "responsesend", "throttle")),
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    *(f"kafka_server_socket_server_metrics_connection_{name}" for name in ("count", "creation_rate", "close_rate")),
    "kafka_server_socket_server_metrics_connections_software",
    "kafka_server_delayedoperationpurgatory_purgatorysize",
    "kafka_server_fetchsessioncache_incrementalfetchsessionevictions_total",
    *(f"kafka_server_replicafetchermanager_{name}" for name in ("maxlag", "minfetchrate")),
    "kafka_log_log_size",
    "kafka_log_logmanager_offlinelogdirectorycount",
    *(
        f"kafka_server_sessionexpirelistener_zookeeper{name}_total"
        for name in ("disconnects", "expires", "syncconnects", "authfailures")
    ),
    *(f"kafka_server_quota_{name}" for name in ("byte_rate", "throttle_time", "request_time")),
    *(f"process_{name}" for name in ("cpu_seconds_total", "resident_memory_bytes", "open_fds", "max_fds")),
    "ottla_loop_stall_seconds_max",
    "ottla_log_dir_free_bytes",
    "ottla_coordinator_transactions",
    "ottla_coordinator_transaction_open_seconds_max",
    "ottla_certificate_expiry_timestamp_seconds",
}
"""Of brokers: Kafka's, as the JMX exporter spells them with Strimzi's rules, and Ottla's own."""

OF_PIPELINES = {
    *(f"ottla_pipeline_{name}" for name in ("up", "lag", "rows_per_s", "batch_ms", "transaction_ms", "phase_ms")),
    *(f"ottla_pipeline_{name}" for name in ("state_rows", "state_bytes", "watermark_seconds", "checkpoint_age_seconds")),
    *(f"ottla_pipeline_{name}_total" for name in ("rows_in", "records_out", "dead_letters", "batches", "run_again")),
}
