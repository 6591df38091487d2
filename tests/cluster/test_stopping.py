"""A broker is asked to stop at a bad moment (F58)."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.kit.cluster import clusters, until
from tests.kit.zookeeper import ZooKeeper

STOPS_WITHIN_S = 90.0
"""A few seconds on a machine that has time for it; all tries of a controlled shutdown would take more than two minutes."""


@pytest.mark.parametrize("away", ["killed", "hanging"])
def test_brokers_stop_soon_although_zookeeper_is_away(
    own_zookeeper: ZooKeeper, zookeeper: ZooKeeper, tmp_path: Path, away: str
) -> None:
    with clusters(own_zookeeper, tmp_path) as make:
        two = make(2, controlled_shutdown_retry_backoff_ms="5000")
        two.create_topic("t", partitions=2, replicas=2)
        two.produce("t", [b"kept"] * 20)
        own_zookeeper.stop() if away == "killed" else own_zookeeper.pause()
        for broker in two.brokers.values():
            until(lambda broker=broker: "ZooKeeper session suspended" in broker.output(), "it knows that ZooKeeper is away")
        for broker in two.brokers.values():
            broker.signal(signal.SIGTERM)
        for broker in two.brokers.values():
            assert broker.process is not None
            assert broker.process.wait(STOPS_WITHIN_S) == 0, broker.output()[-2000:]
            broker.process = None
        for broker in two.brokers.values():
            assert (broker.data / ".kafka_cleanshutdown").exists(), "all is flushed and closed"
        if away == "killed":
            own_zookeeper.start()
        else:
            own_zookeeper.resume()
        for broker in two.brokers.values():
            broker.start(wait=False)
        for broker in two.brokers.values():
            broker.wait_ready()
        until(lambda: all(two.isr("t", number) == {1, 2} for number in (0, 1)), "in sync again")
