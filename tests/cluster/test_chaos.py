"""Three brokers that are killed, paused, stopped and started at random while producers write with acks=all and in transactions.

What the checker wants at the end: every acknowledged record once, nothing of an aborted transaction, the order of each producer
kept, and replicas that are equal byte by byte, also to Kafka's DumpLogSegments.
"""

from __future__ import annotations

import os
import random
import re
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaException

from tests.cluster.test_kafka_tools import tool
from tests.cluster.test_replicas import Load, read, until_equal
from tests.kit.cluster import Cluster, until

PARTITIONS = 3
PATIENT: dict[str, Any] = {"message.timeout.ms": 0, "batch.num.messages": 1_000}
"""How long nothing can be committed is up to the seed: a broker that has just caught up and dies holds the high watermark until
its session ends, as in Kafka, and by then the next one is due. What has waited so long must still fit into a segment."""


class Transactions:
    """One producer that commits or aborts small transactions; knows which records must be seen, and which must not."""

    def __init__(self, cluster: Cluster, topic: str, seed: int) -> None:
        self.committed: set[bytes] = set()
        self.aborted: set[bytes] = set()
        self.unknown: set[bytes] = set()
        self.failure: BaseException | None = None
        self._cluster = cluster
        self._topic = topic
        self._rng = random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Transactions:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def go_on(self) -> None:
        """Until one more is committed."""
        before = len(self.committed)
        until(lambda: len(self.committed) > before, "transactions go on")

    def _run(self) -> None:
        try:
            number = 0
            while not self._stop.is_set():
                number = self._live(number)
        except BaseException as error:
            self.failure = error

    def _live(self, number: int) -> int:
        """One producer, until it is told to end or has to be replaced by a new one."""
        settings: dict[str, Any] = {"transactional.id": "chaos", "transaction.timeout.ms": 60_000, "message.timeout.ms": 60_000}
        producer = self._cluster.producer(**settings)
        _patiently(lambda: producer.init_transactions(30))
        while not self._stop.is_set():
            producer.begin_transaction()
            values = {b"%d.%d" % (number, index) for index in range(self._rng.randrange(1, 12))}
            number += 1
            commits = self._rng.random() < 0.7
            self.unknown |= values
            try:
                for value in values:
                    producer.produce(self._topic, value, partition=self._rng.randrange(PARTITIONS))
                if commits:
                    _patiently(lambda: producer.commit_transaction(30))
                else:
                    _patiently(lambda: producer.abort_transaction(30))
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    return number  # what became of it only the log can say
                try:
                    _patiently(lambda: producer.abort_transaction(30))
                except KafkaException:
                    return number
                commits = False
            self.unknown -= values
            if commits:
                self.committed |= values
            else:
                self.aborted |= values
        return number


def _patiently(call: Callable[[], Any]) -> None:
    while True:
        try:
            call()
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def disturb(cluster: Cluster, rng: random.Random, seconds: float) -> list[str]:
    """One broker at a time suffers; afterwards all are up again."""
    deadline = time.monotonic() + seconds
    told: list[str] = []
    while time.monotonic() < deadline:
        number = rng.choice(list(cluster.brokers))
        broker = cluster.brokers[number]
        what = rng.choice(["kill", "kill", "pause", "stop", "all"])
        told.append(f"{what} {number}")
        if what == "pause":
            broker.pause()
            time.sleep(rng.choice([0.5, 2, 5]))
            broker.resume()
        elif what == "all":
            for each in cluster.brokers.values():
                each.kill()
            for each in cluster.brokers.values():
                each.start(wait=False)
        else:
            broker.stop() if what == "stop" else broker.kill()
            time.sleep(rng.choice([0.0, 1.0, 4.0]))
            broker.start(wait=False)
        time.sleep(rng.choice([0.2, 2.0, 6.0]))
        for each in cluster.brokers.values():
            each.wait_ready()
    return told


def check(three: Cluster, load: Load, transactions: Transactions) -> None:
    """Nothing lost, nothing twice, nothing torn, on any replica."""
    assert transactions.failure is None
    assert not load.failed

    found = read(three, "plain", PARTITIONS)
    missing = set(load.acknowledged) - set(found)
    assert not missing, f"{len(missing)} acknowledged records are lost"
    assert len(found) == len(set(found)), "records are there twice"

    seen = read(three, "txn", PARTITIONS, **{"isolation.level": "read_committed"})
    assert len(seen) == len(set(seen)), "records of transactions are there twice"
    assert not transactions.committed - set(seen), "committed records are lost"
    assert not transactions.aborted & set(seen), "aborted records are seen"
    until_equal(three, "plain", PARTITIONS)
    until_equal(three, "txn", PARTITIONS)


def dumped(three: Cluster, number: int, topic: str) -> list[str]:
    """Every batch and record of a replica as Kafka's tool reads it. Segments may begin elsewhere than on another broker."""
    directories = [three.brokers[number].data / f"{topic}-{partition}" for partition in range(PARTITIONS)]
    files = [str(path) for directory in directories for path in sorted(directory.glob("*.log"))]
    told = tool("dump", "--deep-iteration", "--files", ",".join(files))
    assert not re.search(r"isvalid: false|mismatch|[Nn]on-consecutive|corrupt", told), told[-3000:]
    return [re.sub(r" position: \d+", "", line) for line in told.splitlines() if line.startswith(("baseOffset: ", "| "))]


@pytest.mark.slow
def test_nothing_is_lost_doubled_or_torn(cluster: Callable[..., Cluster]) -> None:
    seed = int(os.environ.get("CHAOS_SEED", "1"))
    seconds = float(os.environ.get("CHAOS_SECONDS", "60"))
    three = cluster(3, min_insync_replicas="2", log_segment_bytes="100000")
    three.create_topic("plain", partitions=PARTITIONS)
    three.create_topic("txn", partitions=PARTITIONS)
    with Load(three, "plain", **PATIENT) as load, Transactions(three, "txn", seed) as transactions:
        load.more()
        told = disturb(three, random.Random(seed), seconds)
        load.more()
        until(lambda: len(transactions.committed) > 20, "committed transactions")
    print(seed, told, len(load.acknowledged), len(transactions.committed), len(transactions.aborted))
    check(three, load, transactions)
    for topic in ("plain", "txn"):
        first, *others = (dumped(three, number, topic) for number in three.brokers)
        assert first
        assert all(other == first for other in others), f"Kafka's tool reads the replicas of {topic} differently"
