"""End-to-end latency with confluent-kafka, producer and consumer in separate processes.

`python -m bench.client_latency BOOTSTRAP TOPIC SECONDS` prints one line of JSON. Each value carries its send time.
"""

from __future__ import annotations

import json
import multiprocessing
import struct
import sys
import time
from multiprocessing.connection import Connection

from confluent_kafka import Consumer, Producer, TopicPartition

from bench import answer_help

PER_S = 1_000
_STAMP = struct.Struct(">d")


def consume(bootstrap: str, topic: str, total: int, pipe: Connection) -> None:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False, "fetch.wait.max.ms": 500}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    latencies: list[float] = []
    while len(latencies) < total:
        message = consumer.poll(30)
        if message is None or message.error():
            raise RuntimeError(f"after {len(latencies)} records: {message and message.error()}")
        latencies.append(time.time() - _STAMP.unpack_from(message.value() or b"")[0])
        if len(latencies) == 1:
            pipe.send("ready")
    pipe.send(latencies)
    consumer.close()


def main() -> None:
    answer_help(__doc__)
    bootstrap, topic, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    total = int(PER_S * seconds)
    ours, theirs = multiprocessing.Pipe()
    reader = multiprocessing.Process(target=consume, args=(bootstrap, topic, total + 1, theirs))
    reader.start()
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": 1})
    rest = bytes(92)
    producer.produce(topic, _STAMP.pack(time.time()) + rest, partition=0)
    producer.flush(30)
    assert ours.recv() == "ready"
    start = time.perf_counter()
    for number in range(total):
        wait = start + number / PER_S - time.perf_counter()
        if wait > 0:
            time.sleep(wait)
        producer.produce(topic, _STAMP.pack(time.time()) + rest, partition=0)
        producer.poll(0)
    producer.flush(30)
    latencies = sorted(ours.recv()[total // 10 :])  # the first tenth warms up both sides
    reader.join()
    print(json.dumps({"p50_ms": 1000 * latencies[len(latencies) // 2], "p99_ms": 1000 * latencies[len(latencies) * 99 // 100]}))


if __name__ == "__main__":
    main()
