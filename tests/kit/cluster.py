"""Brokers as processes on one real ZooKeeper: start, kill, stop, and send requests."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from ottla.client.pipeline import Pipeline
from ottla.ports import FileRange
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.registry import API_BY_NAME
from ottla.runtime.free_ports import free_port
from tests.kit import wait
from tests.kit.network import Network
from tests.kit.zookeeper import ZooKeeper, halt, popen

WAIT_S = 60.0
logging.getLogger("kazoo").setLevel(logging.CRITICAL)


until = partial(wait.until, every_s=0.05, ignoring=Exception)
until_done = partial(wait.until_done, every_s=0.05, ignoring=Exception)
"""Wait for a condition on brokers that may be down: an exception counts as false."""


def ask_at(address: str, api_name: str, version: int, request: object) -> Any:
    """Send one request on a new connection."""
    pipeline = Pipeline("test")
    _, parts = pipeline.request(API_BY_NAME[api_name], version, request)
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), WAIT_S) as connection:
        for part in parts:
            assert not isinstance(part, FileRange)
            connection.sendall(part)
        while data := connection.recv(1 << 20):
            for _, response in pipeline.receive(data):
                return response
    raise ConnectionResetError(f"the broker at {address} closed the connection")


def _asking_about(topic: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)


class BrokerProcess:
    def __init__(self, cluster: Cluster, number: int, name: str) -> None:
        self.cluster = cluster
        self.number = number
        self.host = cluster.network.address(number) if cluster.network else "127.0.0.1"
        self.port = free_port()
        self.directory = cluster.directory / name
        self.data = self.directory / "data"
        self.log_path = self.directory / "output.log"
        self.directory.mkdir()
        self.process: subprocess.Popen[bytes] | None = None
        self._is_paused = False

    @property
    def answers(self) -> bool:
        """Whether it runs and is not paused."""
        return self.process is not None and not self._is_paused

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def start(self, *, wait: bool = True, **properties: Any) -> None:
        assert self.process is None
        settings = {
            "broker.id": str(self.number),
            "listeners": f"PLAINTEXT://{self.address}",
            "log.dirs": str(self.data),
            "zookeeper.connect": self.cluster.connect,
            # A process may get no CPU for seconds while all tests run. Sessions must not expire from that.
            "zookeeper.session.timeout.ms": "6000",
            "offsets.topic.num.partitions": "5",
            "transaction.state.log.num.partitions": "5",
            "controlled.shutdown.retry.backoff.ms": "200",
            **self.cluster.properties,
            **{name.replace("_", "."): value for name, value in properties.items()},
        }
        path = self.directory / "server.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        network = self.cluster.network
        with self.log_path.open("ab") as output, network.inside(self.number) if network else contextlib.nullcontext():
            # A thread that has entered a namespace starts its processes there.
            self.process = popen(
                [sys.executable, "-m", "ottla", "serve", "--config", str(path)],
                here=network is not None,
                stdout=output,
                stderr=output,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        def ready() -> bool:
            assert self.process is not None
            if self.process.poll() is not None:
                raise RuntimeError(f"broker {self.number} ended:\n{self.output()[-3000:]}")
            if self.number not in self.cluster.live_brokers():
                return False
            with contextlib.suppress(OSError):
                told = self.ask("metadata", 9, MetadataRequest(topics=[]))
                return told.controller_id >= 0 and self.number in {broker.node_id for broker in told.brokers}
            return False

        wait.until(ready, lambda: f"broker {self.number} starts:\n{self.output()[-3000:]}", every_s=0.05)

    def ask(self, api_name: str, version: int, request: object) -> Any:
        return ask_at(self.address, api_name, version, request)

    def output(self) -> str:
        return self.log_path.read_text() if self.log_path.exists() else ""

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        self._is_paused = False
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(WAIT_S)
        self.process = None
        return code

    def pause(self) -> None:
        assert self.process is not None
        self._is_paused = True
        halt(self.process)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)
        self._is_paused = False


class Cluster:
    def __init__(self, zookeeper: ZooKeeper, directory: Path, properties: dict[str, str], network: Network | None = None) -> None:
        self.zookeeper = zookeeper
        self.network = network
        self.directory = directory
        self.properties = properties
        self.chroot = f"/{uuid.uuid4().hex[:12]}"
        self.connect = f"{zookeeper.address}{self.chroot}"
        self.brokers: dict[int, BrokerProcess] = {}
        self._rivals: list[BrokerProcess] = []
        self._kazoo: KazooClient | None = None

    @property
    def tree(self) -> KazooClient:
        if self._kazoo is None:
            self._kazoo = KazooClient(self.connect, timeout=30)
            self._kazoo.start(WAIT_S)
            self._kazoo.ensure_path("/")
        return self._kazoo

    def json(self, path: str) -> Any:
        data, _ = self.tree.get(path)
        return json.loads(data)

    def add(self, number: int, *, wait: bool = True, **properties: Any) -> BrokerProcess:
        broker = BrokerProcess(self, number, f"broker-{number}")
        self.brokers[number] = broker
        broker.start(wait=wait, **properties)
        return broker

    def rival(self, number: int) -> BrokerProcess:
        """A second broker with the same broker id."""
        broker = BrokerProcess(self, number, f"rival-{number}")
        self._rivals.append(broker)
        broker.start(wait=False)
        return broker

    def live_brokers(self) -> set[int]:
        try:
            return {int(name) for name in self.tree.get_children("/brokers/ids")}
        except Exception:
            return set()

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers.values())

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap})

    def admin_at(self, address: str) -> AdminClient:
        return AdminClient({"bootstrap.servers": address})

    def controller(self) -> int:
        return int(self.json("/controller")["brokerid"])

    def state(self, topic: str, partition: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = self.json(f"/brokers/topics/{topic}/partitions/{partition}/state")
        return found

    def leader(self, topic: str, partition: int = 0) -> int:
        return int(self.state(topic, partition)["leader"])

    def isr(self, topic: str, partition: int = 0) -> set[int]:
        return set(self.state(topic, partition)["isr"])

    def create_topic(self, name: str, partitions: int = 1, replicas: int = 3, **config: Any) -> None:
        new = NewTopic(name, partitions, replicas, config={key.replace("_", "."): value for key, value in config.items()})
        admin = self.admin()  # keep a reference: requests are cancelled when the client is collected
        admin.create_topics([new])[name].result(WAIT_S)
        self.until_known(name, partitions)

    def create_topic_at(self, name: str, replicas: list[list[int]]) -> None:
        """Create a topic with this assignment."""
        admin = self.admin()
        admin.create_topics([NewTopic(name, len(replicas), replica_assignment=replicas)])[name].result(WAIT_S)
        self.until_known(name, len(replicas))

    def until_known(self, topic: str, partitions: int) -> None:
        """Wait until every broker that runs knows the topic: the controller sends UpdateMetadata after it answers."""

        def known(broker: BrokerProcess) -> bool:
            told = broker.ask("metadata", 9, _asking_about(topic))
            found = told.topics[0]
            return len(found.partitions) == partitions and all(each.leader_id >= 0 for each in found.partitions)

        for broker in self.brokers.values():
            until(lambda broker=broker: not broker.answers or known(broker), f"broker {broker.number} knows {topic}")

    def until_agreed(self) -> None:
        """Wait until every broker that runs knows all brokers and the controller that ZooKeeper names."""

        def agrees(broker: BrokerProcess) -> bool:
            told = broker.ask("metadata", 9, MetadataRequest(topics=[]))
            numbers = {number for number, each in self.brokers.items() if each.answers}
            return told.controller_id == self.controller() and numbers <= {each.node_id for each in told.brokers}

        for broker in self.brokers.values():
            until(lambda broker=broker: not broker.answers or agrees(broker), f"broker {broker.number} knows the others")

    def producer(self, **settings: Any) -> Producer:
        return Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "message.timeout.ms": 60_000, **settings})

    def produce(self, topic: str, values: list[bytes], **settings: Any) -> list[tuple[int, int]]:
        """Produce values and return (partition, offset) of each, in order, once all are acknowledged."""
        found: list[tuple[int, int]] = []
        failures: list[object] = []

        def heard(error: object, message: Any) -> None:
            if error is not None:
                failures.append(error)
            else:
                found.append((message.partition(), message.offset()))

        producer = self.producer(**settings)
        for value in values:
            producer.produce(topic, value, on_delivery=heard)
        assert producer.flush(WAIT_S) == 0
        assert not failures, failures
        return found

    def close(self) -> None:
        for broker in [*self.brokers.values(), *self._rivals]:
            with contextlib.suppress(ProcessLookupError):
                broker.kill()
        if self._kazoo is not None:
            self._kazoo.stop()
            self._kazoo.close()


@contextlib.contextmanager
def clusters(zookeeper: ZooKeeper, directory: Path, network: Network | None = None) -> Iterator[Callable[..., Cluster]]:
    """Make clusters. With a network, broker N runs on the host named N."""
    made: list[Cluster] = []

    def make(count: int, **properties: Any) -> Cluster:
        place = directory / f"cluster-{len(made)}"
        place.mkdir()
        found = Cluster(zookeeper, place, {name.replace("_", "."): value for name, value in properties.items()}, network)
        made.append(found)
        for number in range(1, count + 1):
            found.add(number, wait=False)
        for broker in found.brokers.values():
            broker.wait_ready()
        found.until_agreed()
        return found

    make.made = made  # type: ignore[attr-defined]
    try:
        yield make
    finally:
        for each in made:
            each.close()


@contextlib.contextmanager
def on_hosts(directory: Path, **properties: Any) -> Iterator[Cluster]:
    """Three brokers and a ZooKeeper, each in its own namespace. The caller is in another one that reaches all of them."""
    with contextlib.ExitStack() as stack:
        network = Network("zookeeper", 1, 2, 3, "client")
        stack.callback(network.close)
        zookeeper = ZooKeeper(network.address("zookeeper"))
        stack.callback(zookeeper.close)
        with network.inside("zookeeper"):
            zookeeper.start()
        stack.enter_context(network.inside("client"))
        make = stack.enter_context(clusters(zookeeper, directory, network))
        yield make(3, **properties)
