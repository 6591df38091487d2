"""Figures of transactions: transactions per second and their CPU, the cost of idempotence and of read_committed."""

from __future__ import annotations

from bench.measure import PARTITIONS, Figures, Scale, Server, create
from bench.measure_groups import loads

PRODUCERS = 50
ABORTED = 10
"""Every tenth transaction of the topic that is read."""


def transactions(server: Server, scale: Scale) -> Figures:
    """50 producers, transactions of 100 records of 100 bytes to one partition, in both generations of the protocol."""
    create(server, "transactions")
    figures: Figures = {}
    for name, (found, spent) in zip(
        ("txn2", "txn1"),
        loads(
            server, "transactions", module="transactions", topic="transactions", producers=PRODUCERS, partitions=PARTITIONS,
            record_bytes=100, records=100, count=scale.transactions, warm_up=scale.transactions // 2, versions=[2, 1],
        ),
        strict=True,
    ):  # fmt: skip
        figures[name] = found["count"] / found["seconds"]
        figures[f"{name}_cpu"] = spent.cpu_s / found["count"] * 1e6
    return figures


def idempotence(server: Server, scale: Scale) -> Figures:
    """Ten records a request, 20 connections: without a producer id and with one, in turn; the lowest of the rounds, since what is
    above it is others'."""
    create(server, "idempotence")
    rates: dict[bool, list[float]] = {False: [], True: []}
    costs: dict[bool, list[float]] = {False: [], True: []}
    for found, spent in loads(
        server, "produce", module="transactions", topic="idempotence", partitions=PARTITIONS, connections=20,
        record_bytes=100, records=10, requests=scale.requests // 3, rounds=scale.turns,
    ):  # fmt: skip
        rates[found["idempotent"]].append(found["requests"] / found["seconds"])
        costs[found["idempotent"]].append(spent.cpu_s / found["requests"] * 1e6)
    return {
        "plain_produce": max(rates[False]),
        "idempotent_produce": max(rates[True]),
        "plain_produce_cpu": min(costs[False]),
        "idempotent_produce_cpu": min(costs[True]),
    }


def isolation(server: Server, scale: Scale) -> Figures:
    """A topic of transactions of 100 records of 1 KB, every tenth aborted, read whole: uncommitted and committed in turn."""
    create(server, "isolation")
    count = scale.isolation_bytes // 100_000 // PARTITIONS
    shape = {"topic": "isolation", "partitions": PARTITIONS, "count": count}
    ((layout, _),) = loads(server, "fill", module="transactions", **shape, record_bytes=1_000, records=100, abort=ABORTED)
    rates: dict[int, list[float]] = {0: [], 1: []}
    costs: dict[int, list[float]] = {0: [], 1: []}
    # CPU is counted in hundredths of a second: what is compared must take many of them.
    for found, spent in loads(server, "fetch", module="transactions", **shape, **layout, rounds=scale.turns, times=3):
        rates[found["isolation"]].append(found["bytes"] / found["seconds"] / 1e6)
        costs[found["isolation"]].append(spent.cpu_s / found["bytes"] * 1e9)
    return {
        "read_uncommitted": max(rates[0]),
        "read_committed": max(rates[1]),
        "read_uncommitted_cpu": min(costs[0]),
        "read_committed_cpu": min(costs[1]),
    }
