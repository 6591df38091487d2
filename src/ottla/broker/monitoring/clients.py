"""What concerns clients on a broker beside their requests: those that wait, fetch sessions, quotas, certificates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from ottla.broker.network.listener_tls import TlsOfListeners
from ottla.broker.network.socket_server import SocketServer
from ottla.metrics.family import Family, family, single
from ottla.metrics.table import METRICS, PURGATORY, QUOTA
from ottla.replication.fetch_session import FetchSessionCache
from ottla.security.quotas import FETCH, PRODUCE, REQUEST, Quotas

_OPERATIONS: Final = {
    "produce": "Produce",
    "fetch": "Fetch",
    "join_group": "Rebalance",
    "sync_group": "Rebalance",
    "delete_records": "DeleteRecords",
    "elect_leaders": "ElectLeader",
}
"""Kafka's names of delayed operations, by the API whose request waits."""
_RESOURCES: Final = {PRODUCE: "Produce", FETCH: "Fetch", REQUEST: "Request"}


def waiting_families(server: SocketServer) -> Iterator[Family]:
    waiting = Counter(_OPERATIONS.get(name, "Other") for each in server.connections() if (name := each.waits_in) is not None)
    counts = [((operation,), waiting[operation]) for operation in (*dict.fromkeys(_OPERATIONS.values()), "Other")]
    yield family(METRICS[f"{PURGATORY}_purgatorysize"], counts)
    yield family(METRICS[f"{PURGATORY}_numdelayedoperations"], counts)
    yield single(METRICS["kafka_network_requestchannel_requestqueuesize"], 0)
    yield single(METRICS["kafka_network_requestchannel_responsequeuesize"], 0)
    killed = [((use.name,), use.expired) for use in server.listeners]
    yield family(METRICS["kafka_network_socketserver_expiredconnectionskilledcount"], killed)


def session_families(sessions: FetchSessionCache) -> Iterator[Family]:
    yield single(METRICS["kafka_server_fetchsessioncache_numincrementalfetchsessions"], len(sessions))
    yield single(METRICS["kafka_server_fetchsessioncache_numincrementalfetchpartitionscached"], sessions.partition_count)
    yield single(METRICS["kafka_server_fetchsessioncache_incrementalfetchsessionevictions_total"], sessions.evictions)


def quota_families(quotas: Quotas, now_ms: float) -> Iterator[Family]:
    rates = [(_RESOURCES[quota], user, client_id, rate) for quota, user, client_id, rate in quotas.rates() if quota in _RESOURCES]
    per_second = [((name, user, client_id), rate.rate.per_second(now_ms)) for name, user, client_id, rate in rates]
    yield family(METRICS[f"{QUOTA}_byte_rate"], [each for each in per_second if each[0][0] != "Request"])
    yield family(METRICS[f"{QUOTA}_request_time"], [each for each in per_second if each[0][0] == "Request"])
    throttled = [((name, user, client_id), rate.throttle_ms(now_ms)) for name, user, client_id, rate in rates]
    yield family(METRICS[f"{QUOTA}_throttle_time"], throttled)


def certificate_families(tls: TlsOfListeners) -> Iterator[Family]:
    expiries = [((each.listener,), each.not_after_ms / 1000) for each in tls]
    yield family(METRICS["ottla_certificate_expiry_timestamp_seconds"], expiries)
