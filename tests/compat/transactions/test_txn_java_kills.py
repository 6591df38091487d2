"""T13 in Java: consume-transform-produce by the clients of both generations, application and broker killed and paused (F66)."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.testing import Broker
from tests.kit.peers import KAFKA_3, KAFKA_4, java_command
from tests.kit.subject import chosen

pytestmark = [pytest.mark.java, pytest.mark.skipif(chosen() != "ottla", reason="kills the broker under test")]

PARTITIONS = 3
RECORDS = 12_000
RELAY = Path(__file__).parent / "Relay.java"
BROKER = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1000,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
}
GIVEN_UP = 3


class Relay:
    """The application; whoever ends without order is started again."""

    def __init__(self, version: str, servers: str, path: Path) -> None:
        self.command = java_command(version, str(RELAY), servers, "source", "sink", "relay")
        self.log = path / "log"
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(self.command, stdout=log, stderr=log)

    def tend(self) -> None:
        code = self.process.poll()
        if code is not None:
            assert code in (GIVEN_UP, -signal.SIGKILL), self.log.read_text()[-3000:]
            self.process = self._start()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def relayed(servers: str, version: str, blows: int, path: Path, victim: Callable[[], Any], said: Callable[[], str]) -> None:
    """The topics are there; what is written to the one comes out of the other, whoever is hit: the relay or a broker."""
    chance = random.Random(blows)
    per_blow = RECORDS // (blows + 1) // PARTITIONS * PARTITIONS
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 5, "log_level": 0})
    expected: list[list[bytes]] = [[] for _ in range(PARTITIONS)]

    def write() -> None:
        for number in range(per_blow):
            partition = number % PARTITIONS
            value = b"%d" % len(expected[partition])
            expected[partition].append(value)
            producer.produce("source", value, partition=partition)
            producer.poll(0)

    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "r", "isolation.level": "read_committed", "auto.offset.reset": "error"}
    )
    consumer.assign([TopicPartition("sink", partition, 0) for partition in range(PARTITIONS)])
    found: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    relay = Relay(version, servers, path)

    def read(count: int) -> None:
        deadline = time.monotonic() + 300  # a JVM that starts on a busy machine may take a minute
        while sum(map(len, found)) < count:
            assert time.monotonic() < deadline, relay.log.read_text()[-3000:] + said()[-2000:]
            relay.tend()
            for message in consumer.consume(200, 0.2):
                if message.error() is None:
                    found[message.partition() or 0].append(message.value() or b"")

    try:
        what = ["kill relay", "kill broker", "pause relay", "pause broker", "kill broker", "kill relay"]
        for blow in range(blows):
            write()
            # The blow falls in the midst of what was just written.
            read(blow * per_blow + chance.randrange(1, per_blow // 2))
            word = what[blow % len(what)]
            if word == "kill relay":
                relay.process.kill()
                relay.process.wait()
            elif word == "kill broker":
                broker = victim()
                broker.kill()
                broker.start()
            else:
                process = victim().process if word == "pause broker" else relay.process
                assert process is not None
                pid = process.pid
                os.kill(pid, signal.SIGSTOP)
                time.sleep(2.5)  # longer than a session
                os.kill(pid, signal.SIGCONT)
        write()
        assert producer.flush(60) == 0
        read(sum(map(len, expected)))
    finally:
        relay.close()
        consumer.close()
    assert found == expected


@pytest.mark.parametrize(
    ("version", "blows"),
    [(KAFKA_4, 4), pytest.param(KAFKA_3, 4, marks=pytest.mark.slow), pytest.param(KAFKA_4, 40, marks=pytest.mark.slow)],
    ids=str,
)
def test_t13_in_java(version: str, blows: int, tmp_path: Path) -> None:
    with Broker(BROKER) as broker:
        for topic in ("source", "sink"):
            broker.create_topic(topic, PARTITIONS)
        relayed(broker.bootstrap_servers, version, blows, tmp_path, lambda: broker, lambda: broker.log)
        assert "Traceback" not in broker.log, broker.log[-4000:]
