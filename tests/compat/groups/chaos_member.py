"""One member of the chaos test: reads, writes down what it read, then commits. Ends by a signal, or is ended by one.

chaos_member.py <bootstrap servers> <group> <topic> <file> <strategy>
"""

from __future__ import annotations

import signal
import sys

from confluent_kafka import Consumer, KafkaException

servers, group, topic, path, strategy = sys.argv[1:]
ended = False


def end(number: int, frame: object) -> None:
    global ended
    ended = True


signal.signal(signal.SIGTERM, end)
consumer = Consumer(
    {
        "bootstrap.servers": servers,
        "group.id": group,
        "partition.assignment.strategy": strategy,
        "auto.offset.reset": "earliest",
        "enable.auto.offset.store": False,
        "auto.commit.interval.ms": 500,
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 500,
        "max.poll.interval.ms": 10_000,
        "reconnect.backoff.max.ms": 500,
        "log_level": 0,
    }
)
consumer.subscribe([topic])
with open(path, "ab", buffering=0) as file:
    while not ended:
        message = consumer.poll(0.2)
        if message is None or message.error() is not None:
            continue
        file.write(message.value() + b"\n")
        try:
            consumer.store_offsets(message)
        except KafkaException:
            # The partition was taken away meanwhile: its next owner reads the record again.
            continue
consumer.close()
