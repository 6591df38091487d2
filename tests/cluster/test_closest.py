"""Consumers read from the replica in their rack (KIP-392; F57, R19), as librdkafka and Java's consumer choose it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.kit.cluster import BrokerProcess, Cluster, until
from tests.kit.peers import KAFKA_3, KAFKA_4, run_tool

pytestmark = pytest.mark.slow

SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class Reader:
    """Knows which broker it reads from: librdkafka says so in its statistics."""

    def __init__(self, cluster: Cluster, rack: str) -> None:
        self.values: list[bytes] = []
        self.read_from = -1
        settings: dict[str, Any] = {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "client.rack": rack,
            "statistics.interval.ms": 100,
            "stats_cb": self._heard,
            "topic.metadata.refresh.interval.ms": 1000,
            "log_level": 0,
        }
        self._consumer = Consumer(settings)
        self._consumer.assign([TopicPartition("t", 0, 0)])

    def _heard(self, text: str) -> None:
        partition = json.loads(text)["topics"].get("t", {}).get("partitions", {}).get("0", {})
        self.read_from = partition.get("broker", -1)

    def poll(self) -> None:
        message = self._consumer.poll(0.1)
        if message is not None and message.error() is None:
            self.values.append(message.value() or b"")

    def until_from(self, number: int, count: int) -> None:
        def there() -> bool:
            self.poll()
            return self.read_from == number and len(self.values) == count

        until(there, f"{count} records, from broker {number}")

    def close(self) -> None:
        self._consumer.close()


def racks(cluster: Callable[..., Cluster]) -> Cluster:
    """Each broker in a rack of its own; 1 leads."""
    three = cluster(0, replica_selector_class=SELECTOR, min_insync_replicas="1", auto_leader_rebalance_enable="false")
    for number in (1, 2, 3):
        three.brokers[number] = BrokerProcess(three, number, f"broker-{number}")
        three.brokers[number].start(wait=False, broker_rack=f"r{number}")
    for broker in three.brokers.values():
        broker.wait_ready()
    three.until_agreed()
    three.create_topic_at("t", [[1, 2, 3]])
    return three


def test_r19_a_consumer_reads_in_its_rack_and_elsewhere_when_it_must(cluster: Callable[..., Cluster]) -> None:
    three = racks(cluster)
    three.produce("t", [b"%d" % number for number in range(100)])
    until(lambda: three.isr("t") == {1, 2, 3}, "all in sync")
    readers = {rack: Reader(three, rack) for rack in ("r1", "r3", "elsewhere")}
    readers["r3"].until_from(3, 100)
    readers["r1"].until_from(1, 100)
    readers["elsewhere"].until_from(1, 100)
    three.brokers[3].kill()
    three.produce("t", [b"%d" % number for number in range(100, 150)])
    readers["r3"].until_from(1, 150)
    until(lambda: three.isr("t") == {1, 2}, "it is out of sync")
    three.brokers[3].start(broker_rack="r3")
    until(lambda: three.isr("t") == {1, 2, 3}, "all in sync")
    three.produce("t", [b"%d" % number for number in range(150, 200)])
    readers["r3"].until_from(3, 200)
    for rack, reader in readers.items():
        until(lambda reader=reader: (reader.poll(), len(reader.values) == 200)[1], f"all records in {rack}")
        assert reader.values == [b"%d" % number for number in range(200)], rack
        reader.close()


@pytest.mark.java
@pytest.mark.parametrize("version", [KAFKA_4, KAFKA_3])
def test_r19_javas_consumer_does_not_need_to_hear_the_leader(cluster: Callable[..., Cluster], version: str) -> None:
    """All 2,000 records by way of the follower: its sent bytes are the proof."""
    three = racks(cluster)
    three.produce("t", [b"%04d" % number + bytes(1000) for number in range(2000)])
    until(lambda: three.isr("t") == {1, 2, 3}, "all in sync")
    size = (three.brokers[1].data / "t-0" / f"{0:020}.log").stat().st_size

    def sent(number: int) -> int:
        process = three.brokers[number].process
        assert process is not None
        counters = dict(line.split(": ") for line in Path(f"/proc/{process.pid}/io").read_text().splitlines())
        return int(counters["wchar"])

    before = {number: sent(number) for number in (1, 2, 3)}
    done = run_tool(
        version, "ConsoleConsumer", "--bootstrap-server", three.bootstrap, "--topic", "t", "--partition", "0",
        "--offset", "earliest", "--max-messages", "2000", "--timeout-ms", "60000", "--consumer-property", "client.rack=r3",
    )  # fmt: skip
    found = [int(line[:4]) for line in done.stdout.split("\n") if line[:4].isdigit()]
    assert found == list(range(2000)), done.stderr[-2000:]
    assert sent(3) - before[3] > 0.9 * size
    assert sent(1) - before[1] < 0.5 * size
