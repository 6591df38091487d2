"""Brokers of Apache Kafka 3.9 and ours in one cluster, under either's controller: the same words between them, the same nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from apache_kafka import ApacheBroker
from cluster_kit import Cluster, until
from confluent_kafka import Consumer, TopicPartition

from ottla.protocol.messages.metadata import MetadataRequest

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
        _, end = ends.get_watermark_offsets(TopicPartition("t", partition), 30)
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
