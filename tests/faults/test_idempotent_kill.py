"""An idempotent producer through kills of the broker (I07, F63, F29): no record twice, none missing, each partition in order.

librdkafka keeps five requests in flight and sends again what was not acknowledged when its connection broke: with every kill some
of it is in the log already. Segments are small, so that rolls, snapshots and recoveries fall into it; every third time the broker
stops in order, every other time it dies.
"""

from __future__ import annotations

import random
import threading
import time

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from ottla.testing import Broker

TOPIC = "idempotent"
PARTITIONS = 2
KILLS = 8


def test_i07_kills_under_an_idempotent_producer() -> None:
    chance = random.Random(11)
    settings = {"log.segment.bytes": 200_000, "log.index.interval.bytes": 1024}
    failures: list[str] = []
    acknowledged: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
    with Broker(settings) as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "enable.idempotence": True,
                "batch.num.messages": 20,
                "linger.ms": 1,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 10,
            }
        )
        stop = threading.Event()
        sent = [0] * PARTITIONS

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failures.append(str(error))
            else:
                acknowledged[message.partition()].append(int(message.value().split(b":")[0]))

        def write() -> None:
            while not stop.is_set():
                for partition in range(PARTITIONS):
                    try:
                        producer.produce(TOPIC, b"%d:" % sent[partition] + bytes(100), partition=partition, on_delivery=delivered)
                        sent[partition] += 1
                    except BufferError:
                        producer.poll(0.05)
                producer.poll(0)
                if len(producer) > 2000:
                    producer.poll(0.01)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for number in range(KILLS):
                target = len(acknowledged[0]) + chance.randrange(200, 1500)
                deadline = time.monotonic() + 60
                while len(acknowledged[0]) < target:
                    assert time.monotonic() < deadline, f"no progress: {failures[:3]} {broker.log[-2000:]}"
                    time.sleep(0.005)
                if number % 3 == 2:
                    broker.stop()
                else:
                    broker.kill()
                broker.start()
        finally:
            stop.set()
            writer.join()
        assert producer.flush(90) == 0
        assert failures == []
        for partition in range(PARTITIONS):
            numbers = read_all(broker.bootstrap_servers, partition, sent[partition])
            assert numbers == list(range(sent[partition])), "doubled, lost or out of order"
            assert acknowledged[partition] == numbers


def read_all(bootstrap_servers: str, partition: int, count: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "check", "enable.partition.eof": True})
    consumer.assign([TopicPartition(TOPIC, partition, 0)])
    numbers: list[int] = []
    while True:
        message = consumer.poll(20)
        assert message is not None
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF
            break
        assert message.offset() == len(numbers)
        numbers.append(int(message.value().split(b":")[0]))
    consumer.close()
    return numbers
