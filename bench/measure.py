"""Take the figures of one running broker. Each function returns {figure key: value}; figures.py defines the keys.

CPU is that of all threads of the broker between the first and the last byte of a load. Loads have the same number of bytes or
requests for both brokers.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench import ROOT
from bench.figures import LOG_SIZES, PARTITION_COUNTS
from bench.load import values
from bench.servers import Kafka, Ottla, usage
from tests.kit.peers import kcat
from tests.kit.raw import RawConnection, batch, fetch_frame, produce_frame, read_fetched, read_produced

PARTITIONS = 6
START_TIMEOUT_S = 120
SETTLED_S = 2
READS = 3
"""Of a topic by kcat, whose own two threads are in each other's way at 100 B, now more, now less: the median counts."""
Figures = dict[str, float]
Server = Kafka | Ottla


@dataclass(frozen=True, slots=True)
class Scale:
    """How much load. Quick is for a look while working; the ratios of `full` are the ones to quote."""

    client_bytes: int = 400_000_000
    raw_bytes: int = 1_000_000_000
    requests: int = 60_000
    latency_s: float = 10
    small_log_bytes: int = 100_000_000
    middle_log_bytes: int = 1_000_000_000
    large_log_bytes: int = 10_000_000_000
    samples: int = 20_000
    warm_up_s: float = 5
    groups: int = 1_000
    group_requests: int = 60_000
    rebalances: int = 20
    compaction_bytes: int = 1_000_000_000
    transactions: int = 6_000
    isolation_bytes: int = 300_000_000
    turns: int = 4


QUICK = Scale(
    100_000_000, 300_000_000, 15_000, 4, 20_000_000, 100_000_000, 500_000_000, 5_000, 2, 1_000, 15_000, 5, 250_000_000,
    transactions=3_000, isolation_bytes=100_000_000, turns=3,
)  # fmt: skip


class Cost:
    cpu_s: float
    seconds: float


@contextmanager
def cost(server: Server) -> Iterator[Cost]:
    spent = Cost()
    before, started = usage(server.pid), time.perf_counter()
    yield spent
    spent.seconds = time.perf_counter() - started
    spent.cpu_s = usage(server.pid).cpu_s - before.cpu_s


def load(server: Server, kind: str, **options: Any) -> dict[str, Any]:
    """Runs the raw generator in a process of its own."""
    command = [sys.executable, "-m", "bench.load", kind, json.dumps({"bootstrap": server.bootstrap_servers} | options)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"load {kind} {options}:\n{done.stderr[-3000:]}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def client(module: str, *args: str) -> dict[str, Any]:
    """Runs one of the confluent-kafka clients beside this file, likewise."""
    done = subprocess.run([sys.executable, "-m", f"bench.{module}", *args], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{module} {args}:\n{done.stderr[-3000:]}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def create(server: Server, topic: str, partitions: int = PARTITIONS, **config: Any) -> None:
    """Creates it and waits until all its partitions can be fetched (KRaft answers a moment before that)."""
    request = fetch_frame(topic, [(partition, 0) for partition in range(partitions)], max_wait_ms=0)
    with RawConnection(server.bootstrap_servers) as connection:
        connection.create_topic(topic, partitions, **config)
        while any(found.error for found in read_fetched(connection.call(request))):
            time.sleep(0.05)


def high_watermark(connection: RawConnection, topic: str, partition: int) -> int | None:
    (found,) = read_fetched(connection.call(fetch_frame(topic, [(partition, 0)], max_wait_ms=0, partition_bytes=1)))
    return None if found.error else found.high_watermark


# --- start ---------------------------------------------------------------------------------------------------------------


def start(server: Server) -> Figures:
    """From the start of the process to the first acknowledged record of a topic that did not exist before (acks=all)."""
    record = batch(values(1, 100))
    server.prepare()
    started = time.perf_counter()
    server.launch()
    # `await_ready` looks twenty times a second, which is too seldom for a clock, but says why one did not start.
    while not server.is_ready() and server.process is not None and server.process.poll() is None:
        if time.perf_counter() - started > START_TIMEOUT_S:
            break
        time.sleep(0.005)
    server.await_ready()
    with RawConnection(server.bootstrap_servers) as connection:
        connection.create_topic("first")
        while error := read_produced(connection.call(produce_frame("first", 0, record, -1))).error:
            if time.perf_counter() - started > START_TIMEOUT_S:
                raise RuntimeError(f"{server.name} still answers Produce with error {error}:\n{server.output[-2000:]}")
            time.sleep(0.005)
    return {"start": time.perf_counter() - started}


# --- throughput ----------------------------------------------------------------------------------------------------------


def touch_memory(size: int) -> None:
    """Has the machine hold as much memory for files as is going to be written.

    A virtual machine may give free memory back to its host, which then has to find each page anew that a write puts into the page
    cache; the wait counts as system time of whoever writes (the same writes took 0.2 s/GB at one time, 2.2 at another). So a file
    of that size is written, in a process of its own, and removed: the writes that follow get its pages. (Memory of a process does
    not serve: files take theirs from elsewhere.)
    """
    code = f"""
import os, tempfile
with tempfile.TemporaryFile(buffering=0) as file:
    block = os.urandom(1 << 20)
    for _ in range({size >> 20}):
        file.write(block)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def lines_file(directory: Path, record_bytes: int, count: int) -> Path:
    """Input for kcat: `count` lines of `record_bytes`, a few thousand different ones over and over."""
    path = directory / f"lines-{record_bytes}-{count}"
    if not path.exists():
        block = b"".join(value + b"\n" for value in values(2_000, record_bytes))
        with path.open("wb") as file:
            for _ in range(count // 2_000):
                file.write(block)
    return path


def with_librdkafka(server: Server, scale: Scale, directory: Path) -> Figures:
    """librdkafka over six partitions, its default batching, by kcat: a thin shell around it in C."""
    figures: Figures = {}
    for size in (100, 1_000):
        count = scale.client_bytes // size // 2_000 * 2_000
        lines = lines_file(directory, size, count)
        cpu = 0.0
        for acks in ("1", "all"):
            topic = f"client-{size}-{acks}"
            create(server, topic)
            touch_memory(2 * scale.client_bytes)
            command = [kcat(), "-b", server.bootstrap_servers, "-P", "-t", topic, "-X", f"acks={acks}", "-l", str(lines)]
            with cost(server) as spent:
                subprocess.run(command, check=True, capture_output=True)
            figures[f"client_produce_{size}_{acks}"] = count * size / spent.seconds / 1e6
            cpu += spent.cpu_s
        figures[f"client_produce_{size}_cpu"] = cpu / (2 * count * size) * 1e9
        command = [kcat(), "-b", server.bootstrap_servers, "-C", "-t", f"client-{size}-all", "-o", "beginning", "-q", "-f", "%o"]
        # By default librdkafka pauses a second whenever 100,000 records wait in it: that would be measured, not the broker.
        command += ["-X", "queued.min.messages=10000000", "-X", "queued.max.messages.kbytes=1048576", "-c", str(count)]
        reads: list[Cost] = []
        for _ in range(READS):
            with cost(server) as spent:
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            reads.append(spent)
        figures[f"client_consume_{size}"] = count * size / median(read.seconds for read in reads) / 1e6
        figures[f"client_consume_{size}_cpu"] = median(read.cpu_s for read in reads) / (count * size) * 1e9
        with RawConnection(server.bootstrap_servers) as connection:
            stored = sum(high_watermark(connection, f"client-{size}-all", each) or 0 for each in range(PARTITIONS))
        if stored != count:
            raise RuntimeError(f"{server.name} holds {stored} of {count} records")
    return figures


def with_raw_load(server: Server, scale: Scale) -> Figures:
    """Prepared 64 KB batches, six connections with five requests in flight; fetches of 1 MB."""
    figures: Figures = {}
    for size, batch_records in ((100, 600), (1_000, 64)):
        cpu = total = 0.0
        requests = scale.raw_bytes // (size * batch_records) // PARTITIONS * PARTITIONS
        shape: dict[str, Any] = {"partitions": PARTITIONS, "record_bytes": size, "batch_records": batch_records}
        for acks in (1, -1):
            topic = f"raw-{size}-{'all' if acks < 0 else acks}"
            create(server, topic)
            touch_memory(2 * scale.raw_bytes)
            with cost(server) as spent:
                done = load(
                    server, "produce", topic=topic, **shape, acks=acks, connections=PARTITIONS, in_flight=5, requests=requests
                )
            figures[f"raw_produce_{size}_{'all' if acks < 0 else acks}"] = done["bytes"] / done["seconds"] / 1e6
            cpu += spent.cpu_s
            total += done["bytes"]
        figures[f"raw_produce_{size}_cpu"] = cpu / total * 1e9
        with RawConnection(server.bootstrap_servers) as connection:
            shortest = min(high_watermark(connection, topic, each) or 0 for each in range(PARTITIONS)) // batch_records
        layout = {"batch_bytes": done["batch_bytes"], "batch_records": batch_records, "batches": shortest}
        with cost(server) as spent:
            done = load(server, "fetch", topic=topic, partitions=PARTITIONS, layout=layout, connections=PARTITIONS)
        figures[f"raw_consume_{size}"] = done["bytes"] / done["seconds"] / 1e6
        figures[f"raw_consume_{size}_cpu"] = spent.cpu_s / done["bytes"] * 1e9
    return figures


# --- requests and latency ------------------------------------------------------------------------------------------------


def single_records(server: Server, scale: Scale) -> Figures:
    """100 connections, one record of 100 bytes in a request, the next when the last is acknowledged (acks=1)."""
    create(server, "requests")
    with cost(server) as spent:
        done = load(
            server, "produce", topic="requests", partitions=PARTITIONS, record_bytes=100, batch_records=1,
            connections=100, requests=scale.requests,
        )  # fmt: skip
    return {"requests": done["requests"] / done["seconds"], "request_cpu": spent.cpu_s / done["requests"] * 1e6}


def latency(server: Server, scale: Scale) -> Figures:
    """1,000 records of 100 bytes a second, linger 0, acks=1: from before the send until the consumer has it in its hands."""
    create(server, "latency", 1)
    create(server, "raw-latency", 1)
    found = client("client_latency", server.bootstrap_servers, "latency", str(scale.latency_s))
    raw = load(server, "latency", topic="raw-latency", per_s=1_000, seconds=scale.latency_s)
    return {
        "latency_p50": found["p50_ms"],
        "latency_p99": found["p99_ms"],
        "raw_latency_p50": raw["p50_ms"],
        "raw_latency_p99": raw["p99_ms"],
    }


# --- does the cost grow? -------------------------------------------------------------------------------------------------


def _append_cost(server: Server, topic: str, partitions: int, requests: int) -> float:
    """Ten records of 100 bytes a request, eight connections."""
    shape = {"partitions": partitions, "record_bytes": 100, "batch_records": 10, "connections": 8}
    load(server, "produce", topic=topic, **shape, requests=requests // 4)
    with cost(server) as spent:
        load(server, "produce", topic=topic, **shape, requests=requests)
    return spent.cpu_s / requests * 1e6


def _fetch_cost(server: Server, topic: str, partitions: int, layout: dict[str, int], requests: int) -> float:
    """One batch from a random place, eight connections."""
    options: dict[str, Any] = {"partitions": partitions, "layout": layout, "connections": 8, "max_bytes": 1, "anywhere": True}
    load(server, "fetch", topic=topic, **options, requests=requests // 4)
    with cost(server) as spent:
        load(server, "fetch", topic=topic, **options, requests=requests)
    return spent.cpu_s / requests * 1e6


def settle(server: Server) -> None:
    """Until the broker is idle: what it flushes after a filling is no cost of the next request."""
    while True:
        before = usage(server.pid).cpu_s
        time.sleep(SETTLED_S)
        if usage(server.pid).cpu_s - before < SETTLED_S / 20:
            return


def log_growth(server: Server, scale: Scale) -> Figures:
    """The same requests to partitions of three sizes, all filled with 16 KB batches."""
    sizes = dict(zip(LOG_SIZES, (scale.small_log_bytes, scale.middle_log_bytes, scale.large_log_bytes), strict=True))
    looks: list[Look] = []
    for name, size in sizes.items():
        topic, requests = f"log-{name}", size // 16_500
        create(server, topic, 1)
        done = load(
            server, "produce", topic=topic, partitions=1, record_bytes=100, batch_records=150, in_flight=5, requests=requests
        )
        layout = {"batch_bytes": done["batch_bytes"], "batch_records": 150, "batches": requests}
        looks.append(Look(f"{name}_log", topic, 1, layout))
    return _growth(server, looks, scale.samples)


def partition_growth(server: Server, scale: Scale) -> Figures:
    """The same requests to one partition, and to a random one of many."""
    looks: list[Look] = []
    for partitions in PARTITION_COUNTS:
        topic = f"partitions-{partitions}"
        create(server, topic, partitions)
        batches = 10 * max(partitions, 100) // partitions
        load(
            server, "produce", topic=topic, partitions=partitions, record_bytes=100, batch_records=10, in_flight=5,
            requests=batches * partitions,
        )  # fmt: skip
        name = f"{partitions}_partitions"
        looks.append(Look(name, topic, partitions, {"batch_bytes": 1, "batch_records": 10, "batches": batches - 1}))
    return _growth(server, looks, scale.samples)


@dataclass(frozen=True, slots=True)
class Look:
    name: str
    topic: str
    partitions: int
    layout: dict[str, int]


def _growth(server: Server, looks: list[Look], samples: int) -> Figures:
    """All are filled first, and looked at in turn: what files and flushes cost once is no cost of the requests, and a neighbour
    on the machine who wakes up meets all of them. The lowest of three is the cost; what is above is others'."""
    settle(server)
    found: dict[str, list[float]] = {}
    for _ in range(3):
        for look in looks:
            fetch = _fetch_cost(server, look.topic, look.partitions, look.layout, samples)
            append = _append_cost(server, look.topic, look.partitions, samples)
            found.setdefault(f"fetch_{look.name}", []).append(fetch)
            found.setdefault(f"append_{look.name}", []).append(append)
    return {name: min(costs) for name, costs in found.items()}


def memory(server: Server, key: str) -> Figures:
    return {key: usage(server.pid).rss_bytes / 1e6}


def warm_up(server: Server, scale: Scale) -> None:
    """A JVM compiles what runs often: a broker in service is warm, so both are measured warm."""
    create(server, "warm")
    shape = {"topic": "warm", "partitions": PARTITIONS, "record_bytes": 100}
    load(server, "produce", **shape, batch_records=1, connections=20, seconds=scale.warm_up_s)
    done = load(server, "produce", **shape, batch_records=600, connections=PARTITIONS, in_flight=5, seconds=scale.warm_up_s / 2)
    assert done["requests"]
