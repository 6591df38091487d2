"""What befalls the whole cluster while producers write, plain and in transactions: ZooKeeper away for a minute, the controller
stopped in its tracks, the only disk of a broker full, one restart after the other. `test_chaos.check` is the judge."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.test_chaos import PARTITIONS, Transactions, check
from tests.cluster.test_replicas import Load
from tests.kit.cluster import BrokerProcess, Cluster, clusters, until, until_done
from tests.kit.zookeeper import ZooKeeper

pytestmark = pytest.mark.slow
PATIENT = {"message.timeout.ms": 0}


def in_sync(three: Cluster) -> bool:
    return all(three.isr(topic, partition) == {1, 2, 3} for topic in ("plain", "txn") for partition in range(PARTITIONS))


def make_topics(three: Cluster) -> None:
    for topic in ("plain", "txn"):
        three.create_topic(topic, PARTITIONS)


def going_on(load: Load, transactions: Transactions) -> None:
    load.more()
    transactions.go_on()


def test_c10_zookeeper_is_away_for_a_minute(own_zookeeper: ZooKeeper, tmp_path: Path) -> None:
    """Records and transactions flow all the time; when it is back the cluster is what it was."""
    with clusters(own_zookeeper, tmp_path) as make:
        three = make(3, min_insync_replicas="2")
        make_topics(three)
        with Load(three, "plain", **PATIENT) as load, Transactions(three, "txn", seed=2) as transactions:
            going_on(load, transactions)
            own_zookeeper.stop()
            away = time.monotonic()
            while time.monotonic() < away + 60:
                going_on(load, transactions)
            own_zookeeper.start()
            until(lambda: three.live_brokers() == {1, 2, 3}, "all registered")
            until(lambda: three.controller() in (1, 2, 3) and in_sync(three), "all in sync")
            going_on(load, transactions)
            until_done(lambda: three.create_topic("after"), "a controller that works")
        check(three, load, transactions)


def test_c02_the_controller_and_then_each_leader_is_stopped_in_its_tracks(cluster: Callable[..., Cluster]) -> None:
    three = cluster(3, min_insync_replicas="2")
    make_topics(three)
    with Load(three, "plain", **PATIENT) as load, Transactions(three, "txn", seed=3) as transactions:
        going_on(load, transactions)
        for number in (three.controller(), 1, 2, 3):
            three.brokers[number].pause()
            until(lambda number=number: number not in three.live_brokers(), "its session is over")
            load.more()
            three.brokers[number].resume()
            until(lambda: in_sync(three), "all in sync")
            going_on(load, transactions)
    check(three, load, transactions)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of six megabytes."""
    path = tmp_path / "small"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "ottla-test", str(path)], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=False)


def test_l06_the_only_disk_of_a_broker_is_full(cluster: Callable[..., Cluster], small: Path) -> None:
    """It ends, as it must: others lead, and what was acknowledged is there. With room again it comes back and catches up."""
    three = cluster(0, min_insync_replicas="2", log_segment_bytes="1100000")
    for number in (1, 2, 3):
        broker = three.brokers[number] = BrokerProcess(three, number, f"broker-{number}")
        if number == 1:
            broker.data = small / "data"
        broker.start(wait=False)
    for broker in three.brokers.values():
        broker.wait_ready()
    make_topics(three)
    filler = bytes(2000)
    with Load(three, "plain", **PATIENT) as load, Transactions(three, "txn", seed=4) as transactions:
        going_on(load, transactions)
        three.create_topic("filler", 1)
        first = three.brokers[1].process
        assert first is not None
        stop = threading.Event()

        def fill() -> None:
            producer = three.producer(**PATIENT)
            while not stop.is_set():
                try:
                    producer.produce("filler", filler)
                except BufferError:
                    producer.poll(0.1)  # nothing is acknowledged just now
                producer.poll(0)
            assert producer.flush(120) == 0

        thread = threading.Thread(target=fill)
        thread.start()
        try:
            until(lambda: first.poll() is not None or 1 not in three.live_brokers(), "no room, no broker", 120)
        finally:
            stop.set()
            thread.join()
        going_on(load, transactions)
        three.brokers[1].kill()
        subprocess.run(["mount", "-o", "remount,size=200m", str(small)], check=True)
        three.brokers[1].start()
        until(lambda: in_sync(three) and three.isr("filler") == {1, 2, 3}, "all in sync")
        going_on(load, transactions)
    check(three, load, transactions)


def test_f58_brokers_are_restarted_one_after_the_other(cluster: Callable[..., Cluster]) -> None:
    """With transactions, and every broker twice: nothing that a client would not try again by itself."""
    three = cluster(3, min_insync_replicas="2")
    make_topics(three)
    with Load(three, "plain", **PATIENT) as load, Transactions(three, "txn", seed=5) as transactions:
        going_on(load, transactions)
        for number in (1, 2, 3, 1, 2, 3):
            assert three.brokers[number].stop() == 0
            going_on(load, transactions)
            three.brokers[number].start()
            until(lambda: in_sync(three), "all in sync")
    assert not load.failed
    assert not transactions.unknown, "no producer had to be replaced by another"
    check(three, load, transactions)
