"""The figures: one line each, with unit, direction, and Ottla's target beside Kafka.

`aim` is a ratio Ottla / Kafka: a minimum where more is better, a maximum where less is better, `None` where there is no target.
A growth figure compares one broker with itself: cost of the large case over cost of the small one, and the difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

LOG_SIZES = ("small", "middle", "large")
PARTITION_COUNTS = (1, 100, 1_000, 4_000)


@dataclass(frozen=True, slots=True)
class Figure:
    key: str
    label: str
    unit: str
    more_is_better: bool
    aim: float | None


def _throughput() -> list[Figure]:
    figures = []
    for size, name in ((100, "100 B"), (1000, "1 KB")):
        for acks in ("1", "all"):
            figures.append(Figure(f"client_produce_{size}_{acks}", f"produce {name}, acks={acks}, librdkafka", "MB/s", True, 1.0))
        figures.append(Figure(f"client_produce_{size}_cpu", f"broker CPU, produce {name}, librdkafka", "s/GB", False, 0.5))
        figures.append(Figure(f"client_consume_{size}", f"consume {name}, librdkafka", "MB/s", True, 1.0))
        figures.append(Figure(f"client_consume_{size}_cpu", f"broker CPU, consume {name}, librdkafka", "s/GB", False, 0.5))
    for size, name in ((100, "100 B"), (1000, "1 KB")):
        for acks in ("1", "all"):
            figures.append(
                Figure(f"raw_produce_{size}_{acks}", f"produce {name}, acks={acks}, raw 64 KB batches", "MB/s", True, 1.0)
            )
        figures.append(Figure(f"raw_produce_{size}_cpu", f"broker CPU, produce {name}, raw", "s/GB", False, 0.5))
        figures.append(Figure(f"raw_consume_{size}", f"consume {name}, raw", "MB/s", True, 1.0))
        figures.append(Figure(f"raw_consume_{size}_cpu", f"broker CPU, consume {name}, raw", "s/GB", False, 0.5))
    return figures


def _tls() -> list[Figure]:
    figures = []
    for size, name in ((100, "100 B"), (1000, "1 KB")):
        for what in ("produce", "consume"):
            figures.append(Figure(f"tls_{what}_{size}", f"{what} {name} over TLS, librdkafka", "MB/s", True, 1.5))
            figures.append(
                Figure(f"tls_{what}_{size}_cpu", f"broker CPU, {what} {name} over TLS, librdkafka", "s/GB", False, 0.5)
            )
    return [
        *figures,
        Figure("tls_raw_produce", "produce 1 KB over TLS, raw 64 KB batches", "MB/s", True, 1.5),
        Figure("tls_raw_produce_cpu", "broker CPU, produce 1 KB over TLS, raw", "s/GB", False, 0.5),
        Figure("tls_raw_consume", "consume 1 KB over TLS, raw", "MB/s", True, 1.5),
        Figure("tls_raw_consume_cpu", "broker CPU, consume 1 KB over TLS, raw", "s/GB", False, 0.5),
        Figure("tls_requests", "single-record produce requests over TLS, 100 connections", "1/s", True, 1.5),
        Figure("tls_request_cpu", "broker CPU for one such request", "µs", False, 0.5),
        Figure("tls_requests_open", "the same without ACLs and quotas", "1/s", True, 1.5),
        Figure("tls_request_open_cpu", "broker CPU for one without them", "µs", False, 0.5),
        Figure("tls_handshakes", "TLS 1.3 handshakes (RSA 2048), 8 connections at a time", "1/s", True, 1.0),
        Figure("tls_handshake_cpu", "broker CPU for one handshake", "µs", False, 1.0),
    ]


def _growing() -> list[Figure]:
    cases = [(f"{size}_log", f"{size} log") for size in LOG_SIZES]
    cases += [(f"{count}_partitions", f"partitions: {count:,}") for count in PARTITION_COUNTS]
    return [
        Figure(f"{what}_{key}", f"broker CPU per {what}, {label}", "µs", False, None)
        for key, label in cases
        for what in ("append", "fetch")
    ]


FIGURES: list[Figure] = [
    *_throughput(),
    Figure("requests", "single-record produce requests, 100 connections", "1/s", True, 2.0),
    Figure("request_cpu", "broker CPU for one such request", "µs", False, 1 / 3),
    Figure("latency_p50", "end-to-end latency p50 at 1,000 records/s, librdkafka", "ms", False, 1.0),
    Figure("latency_p99", "end-to-end latency p99 at 1,000 records/s, librdkafka", "ms", False, 1.0),
    Figure("raw_latency_p50", "end-to-end latency p50 at 1,000 records/s, raw", "ms", False, 1.0),
    Figure("raw_latency_p99", "end-to-end latency p99 at 1,000 records/s, raw", "ms", False, 1.0),
    Figure("group_heartbeats", "heartbeats of 1,000 groups, 50 connections", "1/s", True, 1.0),
    Figure("group_heartbeat_cpu", "broker CPU for one heartbeat", "µs", False, 0.5),
    Figure("group_commits", "commits of 1,000 groups, 50 connections", "1/s", True, 1.0),
    Figure("group_commit_cpu", "broker CPU for one commit (four partitions)", "µs", False, 0.5),
    Figure("rebalance", "rebalance of 100 members over 1,000 partitions, classic", "ms", False, 1.0),
    Figure("rebalance_cpu", "broker CPU for it", "ms", False, 0.5),
    Figure("rebalance848", "half of 100 members leave and return, 1,000 partitions, new protocol", "ms", False, 1.0),
    Figure("rebalance848_cpu", "broker CPU for it", "ms", False, 0.5),
    Figure("txn2", "transactions of 100 records, 50 producers, version 2 (KIP-890)", "1/s", True, 1.0),
    Figure("txn2_cpu", "broker CPU for one such transaction", "µs", False, 0.5),
    Figure("txn1", "transactions of 100 records, 50 producers, before KIP-890", "1/s", True, 1.0),
    Figure("txn1_cpu", "broker CPU for one such transaction", "µs", False, 0.5),
    Figure("plain_produce", "produce requests of ten records, no producer id", "1/s", True, None),
    Figure("idempotent_produce", "produce requests of ten records, idempotent", "1/s", True, 1.0),
    Figure("plain_produce_cpu", "broker CPU for one, no producer id", "µs", False, None),
    Figure("idempotent_produce_cpu", "broker CPU for one, idempotent", "µs", False, 0.5),
    Figure("read_uncommitted", "consume transactions, read_uncommitted", "MB/s", True, None),
    Figure("read_committed", "consume transactions, read_committed", "MB/s", True, 1.0),
    Figure("read_uncommitted_cpu", "broker CPU, read_uncommitted", "s/GB", False, None),
    Figure("read_committed_cpu", "broker CPU, read_committed", "s/GB", False, 0.5),
    *_tls(),
    Figure("compaction", "compaction", "MB/s", True, 1.0),
    Figure("compaction_cpu", "broker CPU, compaction", "s/GB", False, 0.5),
    Figure("rss_idle", "memory, idle", "MB", False, 1 / 8),
    Figure("rss_load", "memory, after the load", "MB", False, 1 / 8),
    Figure("start", "start to first acknowledged record", "s", False, 1 / 10),
    *_growing(),
]

# The same cost in the large and in the small case, with a promise and without it; flat, and for nothing, mean about 1.
GROWTHS: list[tuple[str, str, str]] = [
    *(
        (f"{what}: {large} log / {small}", f"{what}_{large}_log", f"{what}_{small}_log")
        for what in ("append", "fetch")
        for small, large in pairwise(LOG_SIZES)
    ),
    *(
        (f"{what}: {many:,} partitions / {few:,}", f"{what}_{many}_partitions", f"{what}_{few}_partitions")
        for what in ("append", "fetch")
        for few, many in pairwise(PARTITION_COUNTS)
    ),
    ("produce: idempotent / not", "idempotent_produce_cpu", "plain_produce_cpu"),
    ("request over TLS: ACLs and quotas / neither", "tls_request_cpu", "tls_request_open_cpu"),
    ("fetch: read_committed / read_uncommitted", "read_committed_cpu", "read_uncommitted_cpu"),
]
