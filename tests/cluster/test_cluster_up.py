"""`ottla cluster up`: a ZooKeeper and brokers that come and go together (F46, F67)."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from tests.kit.cluster import WAIT_S, until
from tests.kit.zookeeper import KAFKA_3, kafka_jars


@pytest.fixture(autouse=True, scope="module")
def _zookeeper_can_be_found() -> None:
    kafka_jars(KAFKA_3)


class Up:
    def __init__(self, directory: Path, *words: str) -> None:
        self.directory = directory
        command = [sys.executable, "-P", "-m", "ottla", "cluster", "up", "-d", str(directory / "data"), "--json", *words]
        self.errors = directory / "errors"
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert self.process.stdout is not None
        lines: list[str] = []
        for line in self.process.stdout:
            lines.append(line)
            if line == "}\n":
                break
        assert lines, self.errors.read_text()
        self.told: dict[str, Any] = json.loads("".join(lines))

    @property
    def bootstrap_servers(self) -> str:
        return str(self.told["bootstrap_servers"])

    def pid(self, number: int) -> int:
        return int(self.told["brokers"][number - 1]["pid"])

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(2 * WAIT_S)

    def others(self) -> list[str]:
        """The command lines of what still runs with this directory."""
        found = []
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(self.directory) in line and str(os.getpid()) != entry.parent.name:
                found.append(line)
        return found


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Callable[..., Up]]:
    started: list[Up] = []

    def start(*words: str) -> Up:
        # Under many tests at once a process may be without a core for longer than the sessions of `up` last.
        sessions = ("--set", "zookeeper.session.timeout.ms=6000")
        started.append(Up(tmp_path, "--port", "0", "--zookeeper-port", "0", *sessions, *words))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.stop()
        assert each.process.stdout is not None
        each.process.stdout.close()


def ottla(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "ottla", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=3 * WAIT_S, check=False)


def test_it_comes_stops_comes_back_and_says_who_died(up: Callable[..., Up]) -> None:
    first = up("--brokers", "3", "--racks", "a,b", "--set", "num.partitions=4")
    status = json.loads(ottla("cluster", "status", "-b", first.bootstrap_servers, "--json").stdout)
    assert [(broker["id"], broker["rack"]) for broker in status["brokers"]] == [(1, "a"), (2, "b"), (3, "a")]
    assert ottla("topic", "create", "t", "-b", first.bootstrap_servers).returncode == 0
    producer = Producer({"bootstrap.servers": first.bootstrap_servers, "acks": "all"})
    for number in range(100):
        producer.produce("t", str(number).encode(), key=str(number).encode())
    assert producer.flush(WAIT_S) == 0
    taken = ottla("cluster", "up", "-d", str(first.directory / "data"), "--port", "0")
    assert taken.returncode == 1
    assert "runs in" in taken.stderr
    assert first.stop(signal.SIGINT) == 0
    assert first.others() == []

    again = up("--brokers", "3")
    consumer = Consumer({"bootstrap.servers": again.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    seen: set[bytes] = set()

    def read() -> bool:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            seen.add(message.value())  # type: ignore[arg-type]
        return len(seen) == 100

    until(read, "all records are there after a restart")
    consumer.close()
    os.kill(again.pid(2), signal.SIGKILL)
    until(lambda: "broker 2 was killed by SIGKILL" in again.errors.read_text(), "the death is said")
    until(
        lambda: json.loads(ottla("cluster", "status", "-b", again.bootstrap_servers, "--problems", "--json").stdout)[
            "partitions"
        ],
        "its partitions are under-replicated",
    )
    assert again.stop() == 0
    assert again.others() == []


def test_a_secured_cluster_has_an_admin(up: Callable[..., Up]) -> None:
    cluster = up("--brokers", "2", "--secure")
    config = str(cluster.directory / "data" / "security" / "client.properties")
    created = ottla("topic", "create", "orders", "-r", "2", "--command-config", config)
    assert created.returncode == 0, created.stderr
    refused = ottla("topic", "list", "-b", cluster.bootstrap_servers)
    assert "this port speaks TLS" in refused.stderr
    assert cluster.stop() == 0


def test_brokers_end_with_the_one_who_started_them(up: Callable[..., Up]) -> None:
    cluster = up("--brokers", "1")
    cluster.process.kill()
    cluster.process.wait()
    until(lambda: not cluster.others(), "broker and ZooKeeper are gone")


def test_zookeeper_waits_for_who_is_started_again_by_hand(up: Callable[..., Up]) -> None:
    cluster = up("--brokers", "1")
    os.kill(cluster.pid(1), signal.SIGKILL)
    until(lambda: cluster.errors.read_text().count("no broker is left") == 1, "the last one is missed")
    config, log = cluster.directory / "data" / "broker-1" / "server.properties", cluster.directory / "again.log"
    with log.open("wb") as output:
        command = [sys.executable, "-P", "-m", "ottla", "serve", "--config", str(config)]
        broker = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        until(lambda: "ready in" in log.read_text(), "a broker by hand is in the cluster")
        broker.send_signal(signal.SIGTERM)
        assert broker.wait(WAIT_S) == 0
    finally:
        broker.kill()
        broker.wait()
    until(lambda: cluster.errors.read_text().count("no broker is left") == 2, "this one was seen, and is missed too")
    assert cluster.stop() == 0
    assert cluster.others() == []


def test_brokers_outlive_a_zookeeper_that_is_killed_and_started_again(up: Callable[..., Up]) -> None:
    cluster = up("--brokers", "1")
    servers = ("-b", cluster.bootstrap_servers)
    os.kill(cluster.pid(1), signal.SIGKILL)
    config, log = cluster.directory / "data" / "broker-1" / "server.properties", cluster.directory / "again.log"
    # The ports of this cluster are any free ones. By hand the broker must have the address that clients know.
    listener = f"listeners=PLAINTEXT://{cluster.bootstrap_servers}"
    by_hand = [sys.executable, "-P", "-m", "ottla", "serve", "--config", str(config), "--set", listener]
    running: list[subprocess.Popen[bytes]] = []
    try:
        with log.open("wb") as output:
            running.append(subprocess.Popen(by_hand, stdout=output, stderr=output))
        until(lambda: "ready in" in log.read_text(), "a broker by hand is in the cluster")
        (zookeeper,) = [pid for pid in _pids(str(cluster.directory / "data" / "zookeeper")) if pid != cluster.process.pid]
        os.kill(zookeeper, signal.SIGKILL)
        until(lambda: "ZooKeeper again with `" in cluster.errors.read_text(), "it tells how to start ZooKeeper")
        until(lambda: "WARNING ZooKeeper session suspended: no connection. Producing" in log.read_text(), "the broker warns")
        shown = "metadata cannot be changed: ZooKeeper has not"
        until(lambda: shown in ottla("cluster", "status", *servers).stdout, "status shows it")
        until(
            lambda: "cannot change: ZooKeeper has not" in ottla("doctor", *servers, "--watch-groups", "0").stdout,
            "doctor finds it",
        )
        for words in (("topic", "create", "t"), ("config", "set", "broker", "default", "log.retention.ms=1000000")):
            refused = ottla(*words, *servers)
            assert refused.returncode == 1
            assert "ZooKeeper has not answered this broker for" in refused.stderr
            assert "nothing was changed" in refused.stderr
        assert cluster.process.poll() is None
        again = cluster.errors.read_text().partition("ZooKeeper again with `")[2].partition("`")[0]
        with (cluster.directory / "zookeeper-again.log").open("wb") as output:
            running.append(subprocess.Popen(shlex.split(again), stdout=output, stderr=output))
        until(lambda: "Connected to ZooKeeper again" in log.read_text(), "the broker is back")
        until(lambda: ottla("topic", "create", "later", *servers).returncode == 0, "topics can be created")
        assert ottla("topic", "list", *servers).stdout.count("later") == 1
        assert cluster.process.poll() is None
        running[0].terminate()
        assert running[0].wait(WAIT_S) == 0
        assert cluster.process.wait(WAIT_S) == 1
        assert "all brokers have ended" in cluster.errors.read_text()
    finally:
        for each in running:
            each.kill()
            each.wait()


def _pids(word: str) -> list[int]:
    return [int(line.parent.name) for line in Path("/proc").glob("[0-9]*/cmdline") if word.encode() in _read(line)]


def test_a_setting_nobody_knows_ends_it_all(tmp_path: Path) -> None:
    done = ottla("cluster", "up", "-d", str(tmp_path / "c"), "--port", "0", "--zookeeper-port", "0", "--set", "num.partitons=3")
    assert done.returncode == 1
    assert "did you mean num.partitions" in done.stderr
    assert not [line for line in Path("/proc").glob("[0-9]*/cmdline") if str(tmp_path).encode() in _read(line)]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
