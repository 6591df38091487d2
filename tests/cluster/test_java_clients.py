"""Java's clients on three brokers while brokers die: Kafka Streams with exactly_once_v2, consume-transform-produce, the
verifiable producer and consumer, and the tools that look at groups and settings (F66, F69)."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.compat.streams import test_streams
from tests.compat.transactions import test_txn_java_kills
from tests.kit.cluster import BrokerProcess, Cluster, until
from tests.kit.peers import KAFKA_3, KAFKA_4, java_command, run_tool, tool_class

pytestmark = [pytest.mark.slow, pytest.mark.java]

SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
RETRIABLE = {
    "NotLeaderOrFollowerException",
    "NetworkException",
    "DisconnectException",
    "TimeoutException",
    "NotEnoughReplicasException",
    "NotEnoughReplicasAfterAppendException",
    "LeaderNotAvailableException",
    "UnknownTopicOrPartitionException",
    "UnknownTopicIdException",
}


def said_by(three: Cluster) -> Callable[[], str]:
    return lambda: "\n".join(broker.output()[-1500:] for broker in three.brokers.values())


def no_tracebacks(three: Cluster) -> None:
    for broker in three.brokers.values():
        assert "Traceback" not in broker.output(), broker.output()[-4000:]


def killed_and_started(three: Cluster, topic: str) -> None:
    """Whoever leads the first partition; it comes back while the others go on."""
    broker = three.brokers[three.leader(topic)]
    broker.kill()
    until(lambda: three.leader(topic) not in (-1, broker.number), "another leader")
    broker.start(wait=False)


def test_streams_counts_words_exactly_once(cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    three = cluster(3, **SETTINGS)
    for topic in ("lines", "counts"):
        three.create_topic(topic, test_streams.PARTITIONS)

    def blow() -> None:
        killed_and_started(three, "counts")
        killed_and_started(three, "__transaction_state")

    test_streams.counted(three.bootstrap, tmp_path, blow, said_by(three))
    no_tracebacks(three)
    described = three.json("/brokers/topics/word-count-counts-changelog")
    assert all(len(replicas) == 3 for replicas in described["partitions"].values())


@pytest.mark.parametrize("version", [KAFKA_4, KAFKA_3])
def test_t13_in_java_on_three_brokers(cluster: Callable[..., Cluster], version: str, tmp_path: Path) -> None:
    three = cluster(3, **SETTINGS)
    for topic in ("source", "sink"):
        three.create_topic(topic, test_txn_java_kills.PARTITIONS)
    chance = random.Random(9)

    def victim() -> BrokerProcess:
        return three.brokers[chance.choice([1, 2, 3])]

    test_txn_java_kills.relayed(three.bootstrap, version, 6, tmp_path, victim, said_by(three))
    no_tracebacks(three)


@contextmanager
def verifiable(version: str, name: str, log: Path, *args: str) -> Iterator[Callable[[str], list[dict[str, Any]]]]:
    """One of Kafka's own verifiable clients; gives what it told so far of one kind of event."""
    with log.open("wb") as output:
        process = subprocess.Popen(java_command(version, tool_class(version, name), *args), stdout=output, stderr=output)

    def told(kind: str) -> list[dict[str, Any]]:
        lines = [line for line in log.read_text().split("\n")[:-1] if line.startswith("{")]
        return [event for event in map(json.loads, lines) if event["name"] == kind]

    try:
        yield told
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("version", [KAFKA_4, KAFKA_3])
def test_the_verifiable_producer_and_consumer(cluster: Callable[..., Cluster], version: str, tmp_path: Path) -> None:
    """All that the one was told is stored the other gets, while each broker is killed in turn."""
    three = cluster(3, **SETTINGS)
    three.create_topic("v", 3)
    server = ("--bootstrap-server", three.bootstrap, "--topic", "v")
    producer = verifiable(version, "VerifiableProducer", tmp_path / "p", *server, "--acks", "-1", "--throughput", "200")
    consumer = verifiable(
        version, "VerifiableConsumer", tmp_path / "c", *server, "--group-id", "v", "--verbose", "--reset-policy", "earliest",
        "--session-timeout", "6000",
    )  # fmt: skip
    with consumer as heard:
        with producer as told:
            for number in (1, 2, 3):
                before = len(told("producer_send_success"))
                until(lambda: len(told("producer_send_success")) > before + 300, "records are stored", 120)  # noqa: B023
                three.brokers[number].kill()
                three.brokers[number].start()
                until(lambda: all(three.isr("v", partition) == {1, 2, 3} for partition in range(3)), "all in sync")
            before = len(told("producer_send_success"))
            until(lambda: len(told("producer_send_success")) > before + 300, "records are stored", 120)
        stored = {(event["partition"], event["offset"]): event["value"] for event in told("producer_send_success")}
        # It is told not to try again by itself, and so tells of each death; all it tells can be tried again.
        assert {event["exception"].rpartition(".")[2] for event in told("producer_send_error")} <= RETRIABLE

        def got() -> dict[tuple[int, int], str]:
            return {(event["partition"], event["offset"]): event["value"] for event in heard("record_data")}

        until(lambda: stored.keys() <= got().keys(), "all that was stored is read", 120)
        found = got()
        assert {place: found[place] for place in stored} == stored
        assert len(set(stored.values())) == len(stored)
        done = run_tool(version, GROUPS, *server[:2], "--describe", "--group", "v", "--members", check=True)
        (member,) = [line.split() for line in done.stdout.splitlines() if line.startswith("v ")]
        assert member[-1] == "3", "one member with all partitions"
    no_tracebacks(three)


@pytest.mark.parametrize("version", [KAFKA_3, KAFKA_4])
def test_tools_for_groups_and_settings(three: Cluster, version: str) -> None:
    """Asked of any broker, answered by the coordinator, the controller, or all."""
    topic, group = f"tools{version[0]}", f"group{version[0]}"
    three.create_topic(topic, 3)
    producer = three.producer()
    for number in range(90):
        producer.produce(topic, b"x", partition=number % 3)
    assert producer.flush(60) == 0

    def tool(name: str, *args: str, at: int = 1) -> str:
        server = ("--bootstrap-server", three.brokers[at].address)
        return str(run_tool(version, name, *server, *args, check=True, timeout=120).stdout)

    reset = ("--group", group, "--topic", topic, "--reset-offsets")
    tool(GROUPS, *reset, "--to-offset", "7", "--execute", at=1)
    described = tool(GROUPS, "--describe", "--group", group, at=2)
    rows = [line.split() for line in described.splitlines() if line.startswith(group)]
    assert sorted((row[1], row[2], row[3]) for row in rows) == [(topic, str(partition), "7") for partition in range(3)], described
    assert group in tool(GROUPS, "--list", at=3).split()
    tool(GROUPS, "--delete", "--group", group, at=3)
    assert group not in tool(GROUPS, "--list", at=1).split()

    entity = ("--entity-type", "topics", "--entity-name", topic)
    tool("ConfigCommand", "--alter", *entity, "--add-config", "retention.ms=123456", at=1)
    for number in (1, 2, 3):
        until(lambda number=number: "retention.ms=123456" in tool("ConfigCommand", "--describe", *entity, at=number))
    assert three.json(f"/config/topics/{topic}")["config"] == {"retention.ms": "123456"}
    default = ("--entity-type", "brokers", "--entity-default")
    tool("ConfigCommand", "--alter", *default, "--add-config", "log.cleaner.threads=2", at=2)
    assert three.json("/config/brokers/<default>")["config"] == {"log.cleaner.threads": "2"}
    until(lambda: "log.cleaner.threads=2" in tool("ConfigCommand", "--describe", *default, at=3))
    tool("ConfigCommand", "--alter", *default, "--delete-config", "log.cleaner.threads", at=3)
    one = ("--entity-type", "brokers", "--entity-name", "2")
    tool("ConfigCommand", "--alter", *one, "--add-config", "follower.replication.throttled.rate=1000000", at=1)
    assert three.json("/config/brokers/2")["config"] == {"follower.replication.throttled.rate": "1000000"}
    tool("ConfigCommand", "--alter", *one, "--delete-config", "follower.replication.throttled.rate", at=3)
    offsets = tool("GetOffsetShell", "--topic", topic, at=2)
    assert sum(int(line.rsplit(":", 1)[1]) for line in offsets.split()) == 90
