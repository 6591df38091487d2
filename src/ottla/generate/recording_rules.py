"""Recording rules: other spellings of the names that brokers tell.

Brokers tell the names that the JMX exporter makes with Strimzi's rules. Confluent's and Grafana Cloud's dashboards ask for
`…persec` without `_total` and other labels, Strimzi's Metrics Reporter writes `…persec_total`. These rules derive both, so that
such dashboards work, and brokers tell each number once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final, NamedTuple


class Rule(NamedTuple):
    record: str
    expr: str


_TOPIC: Final = "kafka_server_brokertopicmetrics"
_ISR: Final = "kafka_server_replicamanager"
_SESSION: Final = "kafka_server_sessionexpirelistener"
_SOCKETS: Final = "kafka_server_socket_server_metrics"

RATES: Final = (
    *(
        f"{_TOPIC}_{name}"
        for name in (
            "messagesin", "bytesin", "bytesout", "bytesrejected", "totalproducerequests", "totalfetchrequests",
            "failedproducerequests", "failedfetchrequests", "producemessageconversions", "fetchmessageconversions",
            "replicationbytesin", "replicationbytesout", "reassignmentbytesin", "reassignmentbytesout",
            "invalidmessagecrcrecords", "invalidmagicnumberrecords", "invalidoffsetorsequencerecords",
            "nokeycompactedtopicrecords",
        )
    ),
    *(f"{_ISR}_{name}" for name in ("isrshrinks", "isrexpands", "failedisrupdates")),
    "kafka_controller_controllerstats_uncleanleaderelections",
    "kafka_network_requestmetrics_requests",
    "kafka_network_requestmetrics_errors",
    "kafka_server_fetchsessioncache_incrementalfetchsessionevictions",
    *(f"{_SESSION}_zookeeper{name}" for name in ("disconnects", "expires", "syncconnects", "authfailures")),
)  # fmt: skip
"""Meters: brokers tell NAME_total, Confluent asks for NAMEpersec, Strimzi's reporter for NAMEpersec_total."""

_IDLE: Final = "kafka_server_kafkarequesthandlerpool_requesthandleravgidle"


def _relabelled(name: str, **labels: str) -> str:
    """The series of a name with labels renamed (new="old")."""
    expr = name
    for new, old in labels.items():
        expr = f'label_replace({expr}, "{new}", "$1", "{old}", "(.*)")'
    return f"sum without ({', '.join(labels.values())}) ({expr})"


def _quota(kind: str, resource: str) -> str:
    return f"sum without (clientId, resource) (label_replace({kind}{{resource={json.dumps(resource)}}}, " + (
        '"client_id", "$1", "clientId", "(.*)"))'
    )


def confluent() -> Iterator[Rule]:
    for name in RATES:
        yield Rule(f"{name}persec", f"{name}_total")
    yield Rule(f"{_IDLE}percent_oneminuterate", f"{_IDLE}_percent")
    for name in ("connection_count", "connection_creation_rate", "connection_close_rate"):
        renamed = _relabelled(f"{_SOCKETS}_{name}", network_processor="networkProcessor")
        yield Rule(f"kafka_server_socketservermetrics_{name}", renamed)
    software = {"client_software_name": "clientSoftwareName", "client_software_version": "clientSoftwareVersion"}
    yield Rule("kafka_server_socketservermetrics_connections", _relabelled(f"{_SOCKETS}_connections_software", **software))
    for name in ("maxlag", "minfetchrate"):
        record = f"kafka_server_replicafetchermanager_{name}"
        # The same name with another label; without the condition the rule would read what it wrote.
        yield Rule(record, _relabelled(f'{record}{{clientId!=""}}', clientid="clientId"))
    for resource in ("Produce", "Fetch"):
        yield Rule(f"kafka_server_{resource.lower()}_byte_rate", _quota("kafka_server_quota_byte_rate", resource))
    for resource in ("Produce", "Fetch", "Request"):
        yield Rule(f"kafka_server_{resource.lower()}_throttle_time", _quota("kafka_server_quota_throttle_time", resource))
    yield Rule("kafka_server_request_request_time", _quota("kafka_server_quota_request_time", "Request"))
    transactions = "kafka_server_transaction_coordinator_metrics"
    yield Rule(f"{transactions}_transactional_id_count", "sum without (state) (ottla_coordinator_transactions)")
    yield Rule(f"{transactions}_active_transaction_total_time_max", "1000 * ottla_coordinator_transaction_open_seconds_max")


def strimzi_reporter() -> Iterator[Rule]:
    for name in RATES:
        yield Rule(f"{name}persec_total", f"{name}_total")
    yield Rule(f"{_IDLE}percent", f"{_IDLE}_percent")


def grafana() -> Iterator[Rule]:
    """A name of Grafana's fork of kafka_exporter."""
    yield Rule("kafka_consumergroup_uncommitted_offsets", "kafka_consumergroup_lag >= 0")


GROUPS: Final = {"confluent": confluent, "strimzi-metrics-reporter": strimzi_reporter, "grafana": grafana}


def render() -> str:
    lines = [
        "# Other spellings of the metrics of brokers, for the dashboards of others. Written by `ottla generate rules`.",
        "groups:",
    ]
    for name, rules in GROUPS.items():
        lines += [f"  - name: ottla-names-{name}", "    rules:"]
        for rule in rules():
            lines += [f"      - record: {rule.record}", f"        expr: {json.dumps(rule.expr)}"]
    return "\n".join(lines) + "\n"
