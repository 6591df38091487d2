"""Reads a whole topic with confluent-kafka (librdkafka), all partitions assigned, in large batches.

`python -m bench.client_consume BOOTSTRAP TOPIC PARTITIONS COUNT`: one line of JSON. The clock runs from the first record to the
last, so that connecting and waiting for metadata, which are the client's own, do not count.
"""

from __future__ import annotations

import json
import sys
import time

from confluent_kafka import Consumer, TopicPartition


def main() -> None:
    bootstrap, topic, partitions, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    # By default librdkafka pauses a second whenever 100,000 records wait in it: that would be measured, not the broker.
    unpaused = {"queued.min.messages": 10_000_000, "queued.max.messages.kbytes": 1 << 20, "fetch.queue.backoff.ms": 1}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False, **unpaused})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    seen = first = 0
    started = 0.0
    while seen < count:
        messages = consumer.consume(20_000, 30)
        if not messages or messages[0].error():
            raise RuntimeError(f"after {seen} of {count} records: {messages and messages[0].error()}")
        seen += len(messages)
        if not started:
            started, first = time.perf_counter(), seen
    print(json.dumps({"records": seen - first, "seconds": time.perf_counter() - started}))
    consumer.close()


if __name__ == "__main__":
    main()
