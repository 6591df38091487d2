"""From PLAINTEXT to SASL_SSL without an outage, and a cluster as `ottla secure init` makes it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ottla.client.librdkafka import librdkafka_properties
from ottla.cluster.properties import parse_properties
from ottla.runtime.free_ports import free_port
from ottla.testing import Broker, Security
from tests.kit.cluster import BrokerProcess, Cluster, until
from tests.kit.ottla_command import Ottla
from tests.kit.present import present
from tests.kit.zookeeper import ZooKeeper

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
TOPIC, PARTITIONS = "orders", 3
USERS = {"broker": "broker-secret", "alice": "alice-secret"}


class Load:
    """Produces numbers until it is stopped; `acknowledged` are those that were."""

    def __init__(self, **config: Any) -> None:
        self.acknowledged: list[int] = []
        self.failed: list[str] = []
        self._config = {"acks": "all", "enable.idempotence": True, "log_level": 0, "message.timeout.ms": 120_000, **config}
        self._next = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        producer = Producer(self._config)
        number = 0
        while not self._stop.wait(0.002):
            producer.produce(TOPIC, b"%d" % number, on_delivery=partial(self._heard, number))
            producer.poll(0)
            number += 1
        producer.flush(120)

    def _heard(self, number: int, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.acknowledged.append(number)
        else:
            self.failed.append(error.str())

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(150)


def read(config: dict[str, Any]) -> list[bytes | None]:
    consumer = Consumer({**config, "group.id": "none", "enable.partition.eof": True, "log_level": 0})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    values, ended = [], 0
    try:
        while ended < PARTITIONS:
            message = consumer.poll(60)
            assert message is not None
            if message.error() is None:
                values.append(message.value())
            else:
                assert present(message.error()).code() == KafkaError._PARTITION_EOF
                ended += 1
    finally:
        consumer.close()
    return values


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_cluster_moves_to_sasl_ssl_under_load(cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    """Three rounds of restarts: a second listener, brokers use it, the first one goes. No record is refused or lost."""
    found = cluster(3)
    found.create_topic(TOPIC, PARTITIONS, 3, min_insync_replicas="2")
    security = Security("SASL_SSL", users=USERS)
    made = security.write(tmp_path)
    ports = {number: free_port() for number in found.brokers}
    login = f'{SCRAM} username="broker" password="{USERS["broker"]}";'
    both = {
        **{name: value for name, value in made.items() if name.startswith("ssl.")},
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "listener.name.secure.scram-sha-512.sasl.jaas.config": login,
        "ottla.bootstrap.users.file": made["ottla.bootstrap.users.file"],
    }
    secured = librdkafka_properties(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": f'{SCRAM} username="alice" password="{USERS["alice"]}";',
            "ssl.truststore.location": str(tmp_path / "ca.pem"),
        }
    ) | {"bootstrap.servers": ",".join(f"127.0.0.1:{port}" for port in ports.values())}

    def restart(settings: dict[str, str], listeners: Callable[[BrokerProcess], str], config: dict[str, Any]) -> None:
        for number, broker in found.brokers.items():
            broker.stop()
            until(lambda number=number: number not in found.live_brokers(), f"{number} is gone")
            broker.start(wait=False, **settings, listeners=listeners(broker))
            until(lambda number=number: number in found.live_brokers(), broker.output)
            admin = AdminClient({**config, "log_level": 0})
            until(lambda admin=admin: len(admin.list_topics(timeout=10).brokers) == 3, "all brokers are known")
            until(
                lambda: all(found.isr(TOPIC, partition) == {1, 2, 3} for partition in range(PARTITIONS)),
                lambda broker=broker: f"all replicas are in sync again\n{broker.output()[-3000:]}",
            )

    def plain(broker: BrokerProcess) -> str:
        return f"PLAINTEXT://{broker.address}"

    def secure(broker: BrokerProcess) -> str:
        return f"SECURE://127.0.0.1:{ports[broker.number]}"

    unsecured = {"bootstrap.servers": found.bootstrap}
    loads = [Load(**unsecured)]
    try:
        restart({**both, "inter.broker.listener.name": "PLAINTEXT"}, lambda each: f"{plain(each)},{secure(each)}", unsecured)
        loads.append(Load(**secured))
        restart({**both, "inter.broker.listener.name": "SECURE"}, lambda each: f"{plain(each)},{secure(each)}", unsecured)
        loads[0].stop()
        restart({**both, "inter.broker.listener.name": "SECURE"}, secure, secured)
    finally:
        for load in loads:
            load.stop()
    assert [load.failed for load in loads] == [[], []]
    assert all(len(load.acknowledged) > 100 for load in loads)
    assert len(read(secured)) == sum(len(load.acknowledged) for load in loads), "each acknowledged record once"


@pytest.mark.timeout(300)
def test_a_cluster_of_secure_init(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    """Three brokers that know each other by their certificates; an admin, and a user who may only write."""
    folder = tmp_path / "made"
    port = free_port()
    Ottla("").ok("secure", "init", str(folder), "--brokers", "3", "--port", str(port), "--zookeeper", f"{zookeeper.address}/init")
    with ExitStack() as stack:
        for number in (1, 2, 3):
            settings = parse_properties((folder / f"server-{number}.properties").read_text())
            stack.enter_context(Broker(settings, offsets_topic_num_partitions=1))
        ottla = Ottla(f"localhost:{port}")
        admin = ("--command-config", str(folder / "client.properties"))
        created = ("topic", "create", "orders", "-p", "3", "-r", "3", *admin)
        until(lambda: ottla.run(*created).returncode == 0, "all brokers are there")
        ottla.ok("user", "add", "alice", "--password-file", "-", *admin, stdin="alice-secret\n")
        ottla.ok("acl", "add", "-u", "alice", "--producer", "-t", "orders", *admin)
        login = f'{SCRAM} username="alice" password="alice-secret";'
        lines = (folder / "client.properties").read_text().splitlines()
        lines = [line for line in lines if not line.startswith("sasl.jaas.config")] + [f"sasl.jaas.config={login}"]
        (folder / "alice.properties").write_text("\n".join(lines) + "\n")
        alice = ("--command-config", str(folder / "alice.properties"))
        ottla.ok("produce", "orders", *alice, stdin="one\ntwo\nthree\n")
        assert "TOPIC_AUTHORIZATION_FAILED" in ottla.fails("consume", "orders", "-n", "1", "--json", *alice)
        assert len(ottla.ok("consume", "orders", "-n", "3", *admin).splitlines()) == 3
        status = ottla.ok("cluster", "status", *admin)
        assert "under-replicated" not in status.lower() or " 0 " in status
