"""The coordinator dies and comes back: its groups go on (G07)."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import Broker
from tests.kit.subject import chosen
from tests.kit.wait import until

pytestmark = pytest.mark.skipif(chosen() != "ottla", reason="kills the broker under test")


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_g07_members_go_on_without_a_rebalance(how: str) -> None:
    with Broker({"group.initial.rebalance.delay.ms": 200}) as broker:
        servers = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        (made,) = admin.create_topics([NewTopic("t", 6, 1)]).values()
        made.result(60)
        assigned: list[int] = []
        consumers = []
        for _ in range(3):
            consumer = Consumer(
                {
                    "bootstrap.servers": servers,
                    "group.id": "g",
                    "auto.offset.reset": "earliest",
                    "session.timeout.ms": 60_000,
                    "heartbeat.interval.ms": 200,
                    "reconnect.backoff.max.ms": 200,
                    "log_level": 0,
                }
            )
            consumer.subscribe(["t"], on_assign=lambda _, partitions: assigned.append(len(partitions)))
            consumers.append(consumer)
        seen: set[bytes] = set()

        def read(expected: set[bytes]) -> bool:
            for consumer in consumers:
                seen.update(message.value() for message in consumer.consume(50, timeout=0.05) if message.error() is None)  # type: ignore[misc]
            return expected <= seen

        producer = Producer({"bootstrap.servers": servers, "log_level": 0})

        def produce(word: str) -> set[bytes]:
            values = {f"{word} {number}".encode() for number in range(60)}
            for number, value in enumerate(sorted(values)):
                producer.produce("t", value, partition=number % 6)
            assert producer.flush(60) == 0
            return values

        until(lambda: read(produce("before")) and sorted(len(each.assignment()) for each in consumers) == [2, 2, 2])
        consumers[0].commit(asynchronous=False)
        rebalances = len(assigned)
        getattr(broker, how)()
        broker.start()
        until(lambda: read(produce("after")))
        assert len(assigned) == rebalances, "nobody was given another assignment"
        partition = consumers[0].assignment()[0]
        consumers[0].commit(offsets=[TopicPartition("t", partition.partition, 5)], asynchronous=False)
        assert "2 members" not in broker.log.rsplit("ready in", 1)[1]
        for consumer in consumers:
            consumer.close()


def test_f41_offsets_survive_kills() -> None:
    with Broker() as broker:
        servers = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        (made,) = admin.create_topics([NewTopic("t", 1, 1)]).values()
        made.result(60)
        for number in range(1, 6):
            consumer = Consumer({"bootstrap.servers": servers, "group.id": "g", "log_level": 0})
            consumer.commit(offsets=[TopicPartition("t", 0, number)], asynchronous=False)
            broker.kill()
            broker.start()
            [found] = consumer.committed([TopicPartition("t", 0)], timeout=60)
            assert found.offset == number
            consumer.close()
