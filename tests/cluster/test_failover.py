"""Three brokers on ZooKeeper: a controller, replicated records, another leader when one is killed (F50, F51, F54, F59-F61)."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import Consumer

from tests.kit.cluster import Cluster, until


def read_all(cluster: Cluster, topic: str, count: int, group: str = "reader") -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    values: list[bytes] = []
    try:

        def more() -> bool:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                values.append(message.value() or b"")
            return len(values) >= count

        until(more, f"{count} records of {topic}")
    finally:
        consumer.close()
    return values


def test_what_was_acknowledged_survives_the_leader(cluster: Callable[..., Cluster]) -> None:
    three = cluster(3, leader_imbalance_check_interval_seconds="1")
    assert three.controller() in (1, 2, 3)
    three.create_topic("t", partitions=2, replicas=3)
    assert three.isr("t") == {1, 2, 3}
    values = [b"%d" % number for number in range(200)]
    three.produce("t", values[:100])
    # The topic of offsets wants three brokers too, when it is made.
    assert len(read_all(three, "t", 100, group="while all are there")) == 100
    before = three.state("t")
    three.brokers[before["leader"]].kill()
    until(lambda: three.leader("t") not in (-1, before["leader"]), "another leader")
    after = three.state("t")
    assert after["leader_epoch"] > before["leader_epoch"]
    assert before["leader"] not in after["isr"]
    three.produce("t", values[100:])
    assert sorted(read_all(three, "t", 200)) == sorted(values)
    three.brokers[before["leader"]].start()
    until(lambda: three.isr("t") == {1, 2, 3} and three.isr("t", 1) == {1, 2, 3}, "the killed one back in sync")
    until(lambda: three.leader("t") == before["leader"], "it leads again, and nobody had to ask (F54)")
    assert three.state("t")["leader_epoch"] > after["leader_epoch"]
