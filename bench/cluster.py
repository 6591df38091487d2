"""`python -m bench cluster [--quick]`: clusters of three brokers: Ottla, Apache Kafka 3.9.2 on ZooKeeper, Apache Kafka 4.3.

For each cluster, in turn on the same machine:

- produce with three replicas and acks=all; CPU and memory of all processes of the cluster
- kill -9 of the broker that leads all 1,000 partitions of a topic: the time without a leader
- kill -9 of the controller: the time until a topic can be created

Sessions last six seconds and both ZooKeepers use the same tick time, so failures differ only in what happens after they are
detected; that part is a separate figure. KRaft controllers detect failures by `controller.quorum.fetch.timeout.ms`, left at its
default of two seconds. The controller failure is therefore measured again with sessions of two seconds, the value that
`ottla cluster up` sets.

A cluster that fails does not stop the others. A round that would exceed `--minutes` does not start.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from itertools import count
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from bench import OUT
from bench.measure import lines_file
from bench.servers import usage
from ottla.cli.cluster.view import ClusterView
from ottla.cli.connection import Connection
from ottla.cli.failure import Failure
from ottla.cli.plain_request import call
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tests.kit import wait
from tests.kit.peers import KAFKA_3, KAFKA_4, START_SCRIPT_JVM, ApacheCluster, OttlaCluster, kcat

Figures = dict[str, float]
NAMES = {"ottla": "Ottla", "kafka-3.9.2": "Kafka 3.9.2, ZooKeeper", "kafka-4.3.0": "Kafka 4.3.0"}
LABELS = {
    "produce_1000": ("produce 1 KB, 3 replicas, acks=all, librdkafka", "MB/s"),
    "produce_1000_cpu": ("CPU of the whole cluster for it", "s/GB"),
    "produce_100": ("produce 100 B, 3 replicas, acks=all, librdkafka", "MB/s"),
    "produce_100_cpu": ("CPU of the whole cluster for it", "s/GB"),
    "rss_idle": ("memory of the whole cluster, idle", "MB"),
    "rss_load": ("memory of the whole cluster, after the load", "MB"),
    "create": ("creating a topic of 1,000 partitions", "s"),
    "leaderless": ("1,000 partitions without leader after kill -9", "s"),
    "failover": ("of it, from the first new leader to the last", "s"),
    "takeover": ("no topic can be created after kill -9 of the controller", "s"),
    "takeover_soon": ("the same, everybody is missed after two seconds", "s"),
}
SESSION_MS, SHORT_SESSION_MS = 6_000, 2_000
PARTITIONS = 6
WAIT_S = 120.0
STEP_S = 0.05


class Cluster:
    """One of the three, with the pids that belong to it."""

    def __init__(self, name: str, source: Path | None, session_ms: int = SESSION_MS) -> None:
        self.name = name
        self._cluster: OttlaCluster | ApacheCluster
        if name == "ottla":
            self._cluster = OttlaCluster(3, source=source, zookeeper_session_timeout_ms=session_ms)
        elif name.endswith(KAFKA_3):
            self._cluster = ApacheCluster(KAFKA_3, 3, jvm=START_SCRIPT_JVM, zookeeper_session_timeout_ms=session_ms)
        else:
            self._cluster = ApacheCluster(KAFKA_4, 3, jvm=START_SCRIPT_JVM, broker_session_timeout_ms=session_ms)

    def start(self) -> None:
        self._cluster.start()
        self.addresses: dict[int, str] = {}
        self.broker_pids: dict[int, int] = {}
        cluster = self._cluster
        if isinstance(cluster, OttlaCluster):
            assert cluster.told is not None
            for broker in cluster.told["brokers"]:
                self.addresses[broker["id"]], self.broker_pids[broker["id"]] = broker["address"], broker["pid"]
            self._roots = [cluster.pid]
        else:
            for kafka in cluster.brokers:
                self.addresses[kafka.broker_id], self.broker_pids[kafka.broker_id] = kafka.bootstrap_servers, kafka.pid
            self._roots = list(self.broker_pids.values())
            if cluster.zookeeper is not None:
                self._roots.append(cluster.zookeeper.pid)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(self.addresses.values())

    def cost(self) -> tuple[float, int]:
        """CPU seconds so far and resident bytes of all of it."""
        parents: dict[int, list[int]] = {}
        for entry in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = entry.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.parent.name))
        pids = list(self._roots)
        for pid in pids:
            pids += parents.get(pid, [])
        spent = []
        for pid in pids:
            try:
                spent.append(usage(pid))
            except (OSError, ProcessLookupError):
                continue
        return sum(each.cpu_s for each in spent), sum(each.rss_bytes for each in spent)

    def controller(self) -> int:
        if isinstance(self._cluster, ApacheCluster) and self._cluster.zookeeper is None:
            return _quorum_leader(self.addresses[1])
        return self.view(next(iter(self.addresses))).controller_id

    def view(self, broker: int) -> ClusterView:
        return ClusterView(Connection(self.addresses[broker]))

    def kill(self, broker: int) -> None:
        os.kill(self.broker_pids[broker], signal.SIGKILL)
        del self.addresses[broker]

    def close(self) -> None:
        self._cluster.close()


def _quorum_leader(address: str) -> int:
    """Of KRaft: DescribeQuorum, as any broker answers it (Metadata names a broker that hands requests on)."""
    topic = b"__cluster_metadata"
    body = b"\x02" + bytes([len(topic) + 1]) + topic + b"\x02" + struct.pack(">i", 0) + b"\x00\x00\x00"
    frame = struct.pack(">hhih", 55, 0, 1, -1) + b"\x00" + body
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 10) as connection:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        stream = connection.makefile("rb")
        (size,) = struct.unpack(">i", stream.read(4))
        reply = stream.read(size)
    at = 4 + 1 + 2 + 1 + 1 + len(topic) + 1
    partition, error, leader = struct.unpack_from(">ihi", reply, at)
    assert (partition, error) == (0, 0), (partition, error)
    return int(leader)


def until(condition: Callable[[], bool], what: str) -> float:
    """Wait for a condition on brokers that may be down. Return when it holds."""
    wait.until(condition, what, WAIT_S, every_s=0.01, ignoring=(Failure, OSError))
    return time.perf_counter()


def create(cluster: Cluster, topic: str, assignment: list[list[int]]) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "socket.timeout.ms": int(WAIT_S * 1000)})
    new = NewTopic(topic, len(assignment), replica_assignment=assignment)
    admin.create_topics([new], operation_timeout=WAIT_S, request_timeout=WAIT_S)[topic].result(WAIT_S)

    def settled(broker: int) -> bool:
        found = [each for each in cluster.view(broker).partitions.values() if each.topic == topic]
        return len(found) == len(assignment) and all(each.leader >= 0 and len(each.isr) == len(each.replicas) for each in found)

    for broker in cluster.addresses:
        until(lambda broker=broker: settled(broker), f"{topic} is known to broker {broker}")  # type: ignore[misc]


def in_turn(first: int, brokers: list[int]) -> list[int]:
    at = brokers.index(first)
    return brokers[at:] + brokers[:at]


def produce(cluster: Cluster, scratch: Path, load_bytes: int) -> Figures:
    figures: Figures = {}
    brokers = sorted(cluster.addresses)
    for size in (1_000, 100):
        count = load_bytes // size // 2_000 * 2_000
        lines = lines_file(scratch, size, count)
        for turn in ("warm", "measured"):
            topic = f"produce-{size}-{turn}"
            create(cluster, topic, [in_turn(brokers[at % 3], brokers) for at in range(PARTITIONS)])
            command = [kcat(), "-b", cluster.bootstrap_servers, "-P", "-t", topic, "-X", "acks=all", "-l", str(lines)]
            before, started = cluster.cost()[0], time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            seconds = time.perf_counter() - started
            figures[f"produce_{size}"] = count * size / seconds / 1e6
            figures[f"produce_{size}_cpu"] = (cluster.cost()[0] - before) / (count * size) * 1e9
    return figures


def failover(cluster: Cluster, partitions: int) -> Figures:
    """kill -9 of the broker that leads them all, which is not the controller."""
    brokers = sorted(cluster.addresses)
    controller = cluster.controller()
    victim = next(broker for broker in brokers if broker != controller)
    started = time.perf_counter()
    create(cluster, "many", [in_turn(victim, brokers)] * partitions)
    figures = {"create": time.perf_counter() - started}
    killed = time.perf_counter()
    cluster.kill(victim)

    def moved(broker: int) -> int:
        found = cluster.view(broker).partitions.values()
        return sum(each.topic == "many" and each.leader not in (victim, -1) for each in found)

    watched = next(iter(cluster.addresses))
    first = until(lambda: moved(watched) > 0, "one partition has a new leader")
    for broker in cluster.addresses:
        last = until(lambda broker=broker: moved(broker) == partitions, "all have")  # type: ignore[misc]
    return figures | {"leaderless": last - killed, "failover": last - first}


def takeover(cluster: Cluster, partitions: int) -> float:
    """kill -9 of the controller, with as many partitions to take over as before."""
    brokers = sorted(cluster.addresses)
    create(cluster, "many", [in_turn(brokers[at % 3], brokers) for at in range(partitions)])
    controller = cluster.controller()
    cluster.kill(controller)
    killed = time.perf_counter()
    left = sorted(cluster.addresses)
    created: list[float] = []

    def ask(broker: int) -> None:
        """One request after the other to one broker, whether it is the controller or asks it; 50 ms after a refusal the next."""
        connection = Connection(cluster.addresses[broker])
        assigned = [CreatableReplicaAssignment(partition_index=0, broker_ids=left)]
        for number in count():
            name = f"after-{broker}-{number}"
            topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assigned)
            request = CreateTopicsRequest(topics=[topic], timeout_ms=int(WAIT_S * 1000))
            try:
                code = call(connection, "create_topics", 5, request, CreateTopicsResponse).topics[0].error_code
            except Failure:
                code = -1
            if code == 0:
                created.append(time.perf_counter())
            if created or time.perf_counter() > killed + WAIT_S:
                return
            time.sleep(STEP_S)

    askers = [threading.Thread(target=ask, args=(broker,), daemon=True) for broker in left]
    for asker in askers:
        asker.start()
    until(lambda: bool(created), "a topic can be created")
    for asker in askers:
        asker.join(WAIT_S)
    return min(created) - killed


def one_round(name: str, source: Path | None, scratch: Path, load_bytes: int, partitions: int) -> Figures:
    figures: Figures = {}
    cluster = Cluster(name, source)
    try:
        cluster.start()
        time.sleep(2)
        figures["rss_idle"] = cluster.cost()[1] / 1e6
        figures |= produce(cluster, scratch, load_bytes)
        figures["rss_load"] = cluster.cost()[1] / 1e6
        figures |= failover(cluster, partitions)
    finally:
        cluster.close()
    for key, session_ms in (("takeover", SESSION_MS), ("takeover_soon", SHORT_SESSION_MS)):
        if key == "takeover_soon" and name.endswith(KAFKA_4):
            figures[key] = figures["takeover"]  # its controllers wait for each other as long as ever
            continue
        cluster = Cluster(name, source, session_ms)
        try:
            cluster.start()
            figures[key] = takeover(cluster, partitions)
        except Exception:
            # Sessions that short may end while brokers start: then that is what there is to say.
            if key == "takeover":
                raise
            traceback.print_exc()
        finally:
            cluster.close()
    return figures


def show(rounds: dict[str, list[Figures]], console: Console) -> None:
    grid = Table(title="Three brokers on one machine: median of the rounds")
    grid.add_column("figure")
    grid.add_column("unit")
    for name in rounds:
        grid.add_column(NAMES[name], justify="right")
    for key, (label, unit) in LABELS.items():
        cells = []
        for name in rounds:
            found = [each[key] for each in rounds[name] if key in each]
            cells.append(f"{statistics.median(found):,.2f}" if found else "-")
        grid.add_row(label, unit, *cells)
    console.print(grid)


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench cluster", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round with a quarter of the load: a look, not a result")
    parser.add_argument("--rounds", type=int, help="default 3, as far as there is time; quick: 1")
    parser.add_argument("--minutes", type=float, default=9.5, help="no further round if it would not end in that time")
    parser.add_argument("--brokers", default=",".join(NAMES), help="which of them, with commas")
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--ottla-src", type=Path, help="run Ottla from this source tree instead of the installed one")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(words)
    names = options.brokers.split(",")
    if not set(names) <= NAMES.keys():
        parser.error(f"of {', '.join(NAMES)}")
    wanted = options.rounds or (1 if options.quick else 3)
    load_bytes = 100_000_000 if options.quick else 300_000_000
    console = Console(width=None if sys.stdout.isatty() else 150)
    rounds: dict[str, list[Figures]] = {name: [] for name in names}
    for end in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(end, lambda got, _: sys.exit(128 + got))
    began, longest_s, failures = time.perf_counter(), 0.0, 0
    try:
        with tempfile.TemporaryDirectory(prefix="ottla-bench-") as scratch:
            for number in range(wanted):
                round_began = time.perf_counter()
                if round_began - began + longest_s > options.minutes * 60:
                    console.print(f"no time for round {number + 1}")
                    break
                for name in names if number % 2 == 0 else reversed(names):
                    console.print(f"round {number + 1}/{wanted}: {NAMES[name]}", end="")
                    started = time.perf_counter()
                    try:
                        found = one_round(name, options.ottla_src, Path(scratch), load_bytes, options.partitions)
                    except Exception:
                        failures += 1
                        console.print(f", failed after {time.perf_counter() - started:.0f} s")
                        traceback.print_exc()
                        continue
                    rounds[name].append(found)
                    console.print(f", {time.perf_counter() - started:.0f} s")
                    options.out.mkdir(parents=True, exist_ok=True)
                    (options.out / "cluster.json").write_text(json.dumps({"cores": os.cpu_count(), "rounds": rounds}, indent=2))
                longest_s = max(longest_s, time.perf_counter() - round_began)
    finally:
        show(rounds, console)
    if failures:
        sys.exit(1)
