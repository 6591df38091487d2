"""Copies a topic to another, exactly once, until it is killed or has copied all: servers, source, sink, id, partitions, records.

Begins where its predecessor's last committed transaction ended. Says what it has done at the end.
"""

from __future__ import annotations

import sys
import time

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition


def main(servers: str, source: str, sink: str, name: str, partitions: int, records: int) -> None:
    quick = {"bootstrap.servers": servers, "reconnect.backoff.max.ms": 200, "log_level": 0}
    producer = Producer({**quick, "transactional.id": name, "linger.ms": 1})
    producer.init_transactions(60)
    consumer = Consumer(
        {**quick, "group.id": name, "isolation.level": "read_committed", "enable.auto.commit": False, "fetch.wait.max.ms": 50}
    )
    places = [TopicPartition(source, partition) for partition in range(partitions)]
    positions = {at.partition: max(at.offset, 0) for at in consumer.committed(places, 60)}
    consumer.assign([TopicPartition(source, partition, at) for partition, at in positions.items()])
    while sum(positions.values()) < records:
        messages = [message for message in consumer.consume(5, timeout=1) if message.error() is None]
        if not messages:
            continue
        producer.begin_transaction()
        try:
            for message in messages:
                producer.produce(sink, message.value(), partition=message.partition())
                positions[message.partition()] = message.offset() + 1
            ends = [TopicPartition(source, partition, at) for partition, at in positions.items()]
            # librdkafka may wait here for a connection that it has itself given up, after a broker was away (seen with 2.x: its
            # cache of coordinators keeps a handle that is terminating). Then this process ends, and its successor goes on.
            producer.send_offsets_to_transaction(ends, consumer.consumer_group_metadata(), 8)
            commit(producer)
        except KafkaException as exception:
            if not exception.args[0].txn_requires_abort():
                raise
            producer.abort_transaction(60)
            positions = {at.partition: max(at.offset, 0) for at in consumer.committed(places, 60)}
            consumer.assign([TopicPartition(source, partition, at) for partition, at in positions.items()])
    consumer.close()
    print("all copied", flush=True)


def commit(producer: Producer) -> None:
    """Again and again while it says that this helps: only then is it known whether the transaction is committed."""
    while True:
        try:
            producer.commit_transaction(30)
            return
        except KafkaException as exception:
            if not exception.args[0].retriable():
                raise
            time.sleep(0.1)


if __name__ == "__main__":
    main(*sys.argv[1:5], *map(int, sys.argv[5:7]))  # type: ignore[call-arg, arg-type]
