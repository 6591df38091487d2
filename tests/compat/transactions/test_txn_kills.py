"""T13: consume-transform-produce is exactly once while the application and the broker are killed (F66)."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from subject import chosen

from ottla.testing import Broker

pytestmark = pytest.mark.skipif(chosen() != "ottla", reason="kills the broker under test")

PARTITIONS = 3
RECORDS = 6000
COPIER = Path(__file__).parent / "copier.py"


def values(servers: str, topic: str, isolation: str) -> list[list[bytes]]:
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "reader", "isolation.level": isolation, "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    ends = 0
    while ends < PARTITIONS:
        message = consumer.poll(30)
        assert message is not None
        error = message.error()
        if error is None:
            found[message.partition() or 0].append(message.value() or b"")
        else:
            assert error.code() == KafkaError._PARTITION_EOF
            ends += 1
    consumer.close()
    return found


@pytest.mark.parametrize("seed", [1, 2])
def test_t13_what_comes_out_is_what_went_in(seed: int) -> None:
    chance = random.Random(seed)
    with Broker({"transaction.abort.timed.out.transaction.cleanup.interval.ms": 100}) as broker:
        servers = broker.bootstrap_servers
        for topic in ("source", "sink"):
            broker.create_topic(topic, PARTITIONS)
        producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "log_level": 0})
        expected: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        for number in range(RECORDS):
            expected[number % PARTITIONS].append(b"%d" % number)
            producer.produce("source", b"%d" % number, partition=number % PARTITIONS)
        assert producer.flush(30) == 0

        def start() -> subprocess.Popen[str]:
            words = [sys.executable, str(COPIER), servers, "source", "sink", "copier", str(PARTITIONS), str(RECORDS)]
            return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

        application = start()
        kills = 0
        deadline = time.monotonic() + 120
        try:
            while kills < 8:
                time.sleep(chance.uniform(0.3, 1.2))  # not a wait for anything: when the blow falls is the point
                if application.poll() is not None:
                    said = application.communicate()[0]
                    if "all copied" in said:
                        break
                    # A producer that cannot go on is started anew, as people do it.
                    application = start()
                if chance.random() < 0.5:
                    application.kill()
                    application.communicate()
                    application = start()
                else:
                    broker.kill()
                    broker.start()
                kills += 1
                assert time.monotonic() < deadline
            while "all copied" not in (said := application.communicate(timeout=90)[0]):
                assert time.monotonic() < deadline, said
                application = start()
        finally:
            application.kill()
            application.communicate()
        assert kills >= 2
        assert values(servers, "sink", "read_committed") == expected
        assert values(servers, "source", "read_committed") == expected
