"""Replicas move under load while brokers and the controller are killed; nothing is lost (R18, C09, F56)."""

from __future__ import annotations

import threading
from collections.abc import Callable

from confluent_kafka import Consumer, TopicPartition

from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from tests.kit.cluster import WAIT_S, Cluster, until


def reassign(cluster: Cluster, topic: str, replicas: list[int] | None) -> None:
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=topic, partitions=[ReassignablePartition(partition_index=0, replicas=replicas)])]
    )

    def asked() -> bool:
        response = cluster.brokers[cluster.controller()].ask("alter_partition_reassignments", 1, request)
        return response.error_code == 0 and response.responses[0].partitions[0].error_code == 0

    until(asked, "the controller takes it")


def under_way(cluster: Cluster) -> list[tuple[list[int], list[int], list[int]]]:
    response = cluster.brokers[cluster.controller()].ask("list_partition_reassignments", 0, ListPartitionReassignmentsRequest())
    return [
        (partition.replicas, partition.adding_replicas, partition.removing_replicas)
        for topic in response.topics
        for partition in topic.partitions
    ]


class Load:
    """Records with acks=all, one after the other, as long as the block lasts."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster, self._topic = cluster, topic
        self.acknowledged: list[bytes] = []
        self.failures: list[object] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._produce)

    def _produce(self) -> None:
        producer = self._cluster.producer(**{"linger.ms": 2, "enable.idempotence": True, "retry.backoff.ms": 20})
        number = 0

        def heard(error: object, message: object) -> None:
            if error is not None:
                self.failures.append(error)
            else:
                self.acknowledged.append(message.value())  # type: ignore[attr-defined]

        while not self._done.is_set():
            producer.produce(self._topic, b"%d" % number, on_delivery=heard)
            number += 1
            producer.poll(0.005)
        producer.flush(WAIT_S)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join(WAIT_S)

    def goes_on(self) -> None:
        seen = len(self.acknowledged)
        until(lambda: len(self.acknowledged) > seen + 20, "records are acknowledged")


def stored(cluster: Cluster, topic: str) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "none", "enable.auto.commit": False})
    partition = TopicPartition(topic, 0, 0)
    consumer.assign([partition])
    values: list[bytes] = []
    try:
        _, end = consumer.get_watermark_offsets(partition, WAIT_S)

        def all_read() -> bool:
            for message in consumer.consume(500, 0.2):
                if message.error() is None:
                    values.append(message.value() or b"")
            return consumer.position([partition])[0].offset >= end

        until(all_read, f"all records up to {end}")
    finally:
        consumer.close()
    return values


def test_replicas_move_under_load_and_kills(cluster: Callable[..., Cluster]) -> None:
    # A broker that is paused is one of the cluster until its session is over: the plan that names it must come before that.
    four = cluster(4, zookeeper_session_timeout_ms="10000")
    controller = four.controller()
    first, second = sorted({1, 2, 3, 4} - {controller})[:2]
    late = next(number for number in (4, 3, 2, 1) if number not in (controller, first, second))
    four.create_topic_at("t", [[first, second]])
    with Load(four, "t") as load:
        load.goes_on()
        # One of the target cannot follow: the partition has both sets of replicas, and all it had goes on.
        four.brokers[late].pause()
        reassign(four, "t", [late, controller])
        assert under_way(four) == [([late, controller, first, second], [late, controller], [first, second])]
        node = four.json("/brokers/topics/t")
        assert node["adding_replicas"] == {"0": [late, controller]}
        assert node["removing_replicas"] == {"0": [first, second]}
        until(lambda: controller in four.isr("t"), "the one that can follow is in sync")
        assert four.isr("t") >= {first, second}
        load.goes_on()
        four.brokers[late].kill()
        until(lambda: late not in four.live_brokers())
        load.goes_on()
        # Stopped, it is where it was; the replica that had come is gone again.
        reassign(four, "t", None)
        until(lambda: four.json("/brokers/topics/t")["partitions"]["0"] == [first, second])
        until(lambda: four.isr("t") == {first, second} and not under_way(four))
        until(lambda: not (four.brokers[controller].data / "t-0").exists(), "its log too")
        load.goes_on()
        # Asked for again, and the controller is killed before the last one is in sync: the next one finishes it (C09).
        four.brokers[late].start()
        until(lambda: late in four.live_brokers())
        four.brokers[late].pause()
        reassign(four, "t", [late, second])
        four.brokers[controller].kill()
        four.brokers[late].resume()
        until(lambda: four.controller() != controller, "another controller")
        until(lambda: four.json("/brokers/topics/t")["partitions"]["0"] == [late, second], "arrived")
        until(lambda: four.isr("t") == {late, second})
        load.goes_on()
    assert not load.failures, load.failures[:3]
    found = stored(four, "t")
    assert len(set(found)) == len(found), "nothing twice"
    assert set(load.acknowledged) <= set(found), "nothing lost"
