"""Brokers of Apache Kafka 3.9 and ours in one cluster, under either's controller: the same words between them, the same nodes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from ottla.protocol.messages.metadata import MetadataRequest
from tests.cluster.test_kafka_tools import tool
from tests.cluster.test_replicas import Load
from tests.kit.apache_kafka import ApacheBroker
from tests.kit.cluster import Cluster, until, until_done

pytestmark = pytest.mark.slow


@pytest.fixture
def apache(cluster: Callable[..., Cluster]) -> Iterator[Callable[[Cluster, int], ApacheBroker]]:
    made: list[ApacheBroker] = []

    def start(on: Cluster, number: int) -> ApacheBroker:
        broker = ApacheBroker(on, number)
        made.append(broker)
        broker.start()
        return broker

    yield start
    for broker in made:
        broker.kill()


def all_know(mixed: Cluster, *numbers: int) -> None:
    for broker in mixed.brokers.values():
        if broker.process is not None:
            until(
                lambda broker=broker: (
                    {each.node_id for each in broker.ask("metadata", 9, MetadataRequest(topics=[])).brokers} == set(numbers)
                ),
                f"broker {broker.number} knows {numbers}",
            )


def read(address: str, topic: str, partition: int, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0)])
    values: list[bytes] = []

    def more() -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            values.append(message.value() or b"")
        return len(values) >= count

    try:
        until(more, f"{count} records")
    finally:
        consumer.close()
    return values


def test_under_our_controller(cluster: Callable[..., Cluster], apache: Callable[[Cluster, int], ApacheBroker]) -> None:
    mixed = cluster(2, offsets_topic_replication_factor="1")
    theirs = apache(mixed, 3)
    all_know(mixed, 1, 2, 3)
    assert mixed.controller() in (1, 2)
    mixed.create_topic_at("t", [[1, 3, 2], [3, 1, 2]])
    values = [b"%d" % number for number in range(200)]
    mixed.produce("t", values[:100], partitioner="consistent_random")
    assert mixed.isr("t", 0) == mixed.isr("t", 1) == {1, 2, 3}
    mixed.brokers[1].kill()
    until(lambda: mixed.leader("t", 0) == 3, "Apache Kafka leads what ours led")
    mixed.produce("t", values[100:])
    mixed.brokers[1].start()
    until(lambda: mixed.isr("t", 0) == mixed.isr("t", 1) == {1, 2, 3}, "ours follows it back into sync")
    theirs.kill()
    until(lambda: mixed.leader("t", 0) in (1, 2) and mixed.leader("t", 1) in (1, 2), "ours lead again")
    found: list[bytes] = []
    for partition in (0, 1):
        ends = Consumer({"bootstrap.servers": mixed.bootstrap, "group.id": "ends", "enable.auto.commit": False})
        # While it learns that a broker is gone librdkafka may end what it has just asked of it.
        _, end = until(lambda ends=ends, partition=partition: ends.get_watermark_offsets(TopicPartition("t", partition), 30))
        ends.close()
        found += read(mixed.bootstrap, "t", partition, end)
    assert sorted(found) == sorted(values)


def test_under_theirs(cluster: Callable[..., Cluster], apache: Callable[[Cluster, int], ApacheBroker]) -> None:
    mixed = cluster(0, offsets_topic_replication_factor="1")
    theirs = apache(mixed, 3)
    until(lambda: mixed.controller() == 3)
    for number in (1, 2):
        mixed.add(number)
    all_know(mixed, 1, 2, 3)
    assert mixed.controller() == 3
    mixed.create_topic_at("t", [[1, 2, 3], [3, 1, 2]])
    values = [b"%d" % number for number in range(100)]
    mixed.produce("t", values)
    until(lambda: mixed.isr("t", 0) == mixed.isr("t", 1) == {1, 2, 3}, "all in sync")
    assert mixed.brokers[1].stop() == 0
    assert mixed.leader("t", 0) == 2, "handed over by their controller"
    mixed.produce("t", values)
    mixed.brokers[1].start()
    until(lambda: mixed.isr("t", 0) == mixed.isr("t", 1) == {1, 2, 3}, "back in sync")
    epoch = int(mixed.tree.get("/controller_epoch")[0])
    theirs.kill()
    until(lambda: mixed.controller() in (1, 2), "ours takes over from theirs")
    assert int(mixed.tree.get("/controller_epoch")[0]) == epoch + 1
    until(lambda: mixed.leader("t", 1) in (1, 2))
    mixed.produce("t", values)
    mixed.create_topic("after", partitions=2, replicas=2)


def dumped(directory: Path) -> list[str]:
    """What Apache Kafka's own tool reads of a replica: every batch, record for record, without the names of its files."""
    files = ",".join(str(path) for path in sorted(directory.glob("*.log")))
    said = tool("dump", "--deep-iteration", "--print-data-log", "--files", files)
    assert "isvalid: false" not in said
    return [line.split(" position: ")[0] for line in said.splitlines() if line.startswith(("baseOffset", "| offset"))]


@pytest.mark.parametrize("controller", ["ours", "theirs"])
def test_leadership_goes_to_them_and_back_under_load(
    cluster: Callable[..., Cluster], apache: Callable[[Cluster, int], ApacheBroker], controller: str, tmp_path: Path
) -> None:
    mixed = cluster(2 if controller == "ours" else 0, offsets_topic_replication_factor="1", min_insync_replicas="2")
    theirs = apache(mixed, 3)
    if controller == "theirs":
        until(lambda: mixed.controller() == 3)
        for number in (1, 2):
            mixed.add(number)
    all_know(mixed, 1, 2, 3)
    assert (mixed.controller() == 3) == (controller == "theirs")
    until_done(lambda: mixed.create_topic_at("t", [[1, 2, 3], [2, 3, 1], [3, 1, 2]]), "the topic")
    epochs = [mixed.state("t", partition)["leader_epoch"] for partition in range(3)]

    def led_first_by(*replicas: int) -> None:
        """By Kafka's tools, as people do it."""
        plan = tmp_path / "plan.json"
        wanted = [{"topic": "t", "partition": partition, "replicas": replicas} for partition in range(3)]
        plan.write_text(json.dumps({"version": 1, "partitions": wanted}))
        server = ("--bootstrap-server", mixed.bootstrap)
        tool("reassign", *server, "--execute", "--reassignment-json-file", str(plan))
        until(
            lambda: all(mixed.json("/brokers/topics/t")["partitions"][str(p)] == list(replicas) for p in range(3)),
            "the replicas in their new order",
        )
        tool("elect", *server, "--election-type", "preferred", "--all-topic-partitions")
        until(lambda: all(mixed.leader("t", partition) == replicas[0] for partition in range(3)), f"{replicas[0]} leads all")

    with Load(mixed, "t", **{"message.timeout.ms": 0}) as load:
        load.more()
        for replicas in ((3, 1, 2), (1, 3, 2), (3, 2, 1), (2, 1, 3)):
            led_first_by(*replicas)
            load.more()
            until(lambda: all(mixed.isr("t", partition) == {1, 2, 3} for partition in range(3)), "all in sync")
    assert not load.failed
    assert all(mixed.state("t", partition)["leader_epoch"] > epochs[partition] + 2 for partition in range(3))
    found = []
    for partition in range(3):
        places = {number: mixed.brokers[number].data / f"t-{partition}" for number in (1, 2)} | {
            3: theirs.data / f"t-{partition}"
        }

        def logs(places: dict[int, Path] = places) -> set[bytes]:
            return {b"".join(path.read_bytes() for path in sorted(place.glob("*.log"))) for place in places.values()}

        until(lambda logs=logs: len(logs()) == 1, f"equal replicas of t-{partition}")
        read_by_kafka = [dumped(place) for place in places.values()]
        assert read_by_kafka[0] == read_by_kafka[1] == read_by_kafka[2]
        found += [line.rsplit("payload: ", 1)[1].encode() for line in read_by_kafka[0] if "payload: " in line]
    assert sorted(found, key=int) == sorted(load.acknowledged, key=int), "all that was acknowledged, once"
