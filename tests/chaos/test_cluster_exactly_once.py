"""Exactly once on three brokers (T13, F66, C10): two applications copy a topic while brokers are killed, paused, stopped and cut
off from each other and from ZooKeeper, ZooKeeper goes away, and the applications themselves are killed and paused.

As on one broker, all that clients did and heard is one history, in which the checker must find nothing. Brokers and ZooKeeper are
on hosts of their own (network namespaces); the applications are on another.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.chaos.test_exactly_once import BROKER, PARTITIONS, SINK, SOURCE, Copiers, copied_through, pause
from tests.cluster.test_replicas import until_equal
from tests.kit.cluster import Cluster, on_hosts, until

BROKERS: list[str | int] = [1, 2, 3]
SETTINGS = {
    **BROKER,
    "min.insync.replicas": 2,
    "zookeeper.session.timeout.ms": 4000,
    "replica.lag.time.max.ms": 4000,
    # An application that was cut off from its coordinator must not wait longer for it than the test does for the application.
    "controller.socket.timeout.ms": 10_000,
    "replica.socket.timeout.ms": 10_000,
}


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Cluster]:
    with on_hosts(tmp_path, **{name: str(value) for name, value in SETTINGS.items()}) as found:
        for topic in (SOURCE, SINK):
            found.create_topic(topic, PARTITIONS)
        yield found


class Blows:
    """One at a time, each healed before the next; the first ones are one of each, so that a short run has them all."""

    def __init__(self, three: Cluster, copiers: Copiers, seed: int) -> None:
        assert three.network is not None
        self.three, self.copiers, self.network = three, copiers, three.network
        self.chance = random.Random(seed)
        self.told: list[str] = []

    def rain(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        kinds: list[Callable[[], None]] = [
            self.kill,
            self.stop,
            self.pause,
            self.cut_from_others,
            self.cut_from_zookeeper,
            self.cut_from_all,
            self.cut_from_clients,
            self.zookeeper_away,
            self.kill_copier,
            self.pause_copier,
        ]
        first = self.chance.sample(kinds, len(kinds))
        while first or time.monotonic() < deadline:
            time.sleep(self.chance.uniform(0.3, 2))  # not a wait for anything: when the blow falls is the point
            self.copiers.tend()
            blow = first.pop() if first else self.chance.choice(kinds)
            self.told.append(blow.__name__)
            blow()
            for broker in self.three.brokers.values():
                broker.wait_ready()

    def one(self) -> int:
        """Often the controller: its troubles are the cluster's."""
        if self.chance.random() < 0.4:
            return int(until(self.three.controller, "a controller"))
        return self.chance.choice([1, 2, 3])

    def hold(self) -> None:
        time.sleep(self.chance.choice([0.5, 3, 7, 12]))

    def kill(self) -> None:
        broker = self.three.brokers[self.one()]
        broker.kill()
        self.hold()
        broker.start(wait=False)

    def stop(self) -> None:
        broker = self.three.brokers[self.one()]
        assert broker.stop() == 0
        broker.start(wait=False)

    def pause(self) -> None:
        broker = self.three.brokers[self.one()]
        broker.pause()
        self.hold()
        broker.resume()

    def cut(self, targets: list[str | int]) -> None:
        one = self.one()
        way = self.chance.choice(["out", "in", "both", "both"])
        self.told.append(f"{one} {way}")
        if way == "in":
            self.network.cut(targets, one, both=False)
        else:
            self.network.cut(one, targets, both=way == "both")
        self.hold()
        self.network.heal()

    def cut_from_others(self) -> None:
        self.cut(BROKERS)

    def cut_from_zookeeper(self) -> None:
        self.cut(["zookeeper"])

    def cut_from_all(self) -> None:
        self.cut([*BROKERS, "zookeeper", "client"])

    def cut_from_clients(self) -> None:
        self.cut(["client"])

    def zookeeper_away(self) -> None:
        self.three.zookeeper.stop()
        self.hold()
        with self.network.inside("zookeeper"):
            self.three.zookeeper.start()

    def kill_copier(self) -> None:
        victim = self.chance.choice(self.copiers.processes)
        victim.kill()
        victim.wait()

    def pause_copier(self) -> None:
        pause(self.chance.choice(self.copiers.processes).pid, self.chance.choice([0.5, 3, 5]))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_t13_on_three_brokers(three: Cluster, seed: int, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()

    def rain(copiers: Copiers) -> None:
        blows = Blows(three, copiers, seed)
        blows.rain(120)
        print(seed, blows.told)

    def said() -> str:
        return "\n".join(f"--- {broker.number}\n{broker.output()[-1500:]}" for broker in three.brokers.values())

    copied_through(three.bootstrap, notes, rain, said)
    for broker in three.brokers.values():
        assert "Traceback" not in broker.output(), broker.output()[-4000:]
    for topic in (SOURCE, SINK):
        until_equal(three, topic, PARTITIONS)
