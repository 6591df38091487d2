"""Six members over 24 partitions, joining, leaving, killed and paused at random, the broker killed in between (G05-G07).

Each record is handed over at least once, no partition is assigned to two members at once, and in the end the group settles.
`OTTLA_CHAOS_SECONDS` says for how long; `OTTLA_CHAOS_SEED` what happens.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupState, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from subject import chosen

from ottla.testing import Broker

pytestmark = [pytest.mark.slow, pytest.mark.skipif(chosen() != "ottla", reason="kills the broker under test")]

PARTITIONS = 24
MEMBERS = 6
SECONDS = int(os.environ.get("OTTLA_CHAOS_SECONDS", "40"))
SEED = int(os.environ.get("OTTLA_CHAOS_SEED", "1"))


class Team:
    def __init__(self, servers: str, path: Path, strategy: str) -> None:
        self.args = [servers, "chaos", "t"]
        self.path = path
        self.strategy = strategy
        self.live: list[subprocess.Popen[bytes]] = []
        self.paused: list[subprocess.Popen[bytes]] = []
        self._count = 0

    def add(self) -> None:
        self._count += 1
        script = Path(__file__).with_name("chaos_member.py")
        command = [sys.executable, str(script), *self.args, str(self.path / f"member-{self._count}"), self.strategy]
        self.live.append(subprocess.Popen(command))

    def end(self, member: subprocess.Popen[bytes], how: int) -> None:
        (self.live if member in self.live else self.paused).remove(member)
        member.send_signal(signal.SIGCONT)
        member.send_signal(how)
        try:
            member.wait(30)
        except subprocess.TimeoutExpired:
            member.kill()
            member.wait()

    def pause(self, member: subprocess.Popen[bytes]) -> None:
        member.send_signal(signal.SIGSTOP)
        self.live.remove(member)
        self.paused.append(member)

    def resume(self) -> None:
        for member in self.paused:
            member.send_signal(signal.SIGCONT)
        self.live += self.paused
        self.paused.clear()

    def read(self) -> set[bytes]:
        # The last line of a member that was killed may not be whole.
        return {line for file in self.path.iterdir() for line in file.read_bytes().split(b"\n")[:-1]}

    def close(self) -> None:
        for member in [*self.live, *self.paused]:
            self.end(member, signal.SIGKILL)


def owners(config: dict[str, object]) -> tuple[bool, list[tuple[str, int]]]:
    """Whether the group is stable, and every partition somebody owns, as often as it is owned."""
    # A new client each time: librdkafka's may never get over a coordinator that was killed while it was asked.
    admin = AdminClient(config)
    try:
        found = admin.describe_consumer_groups(["chaos"])["chaos"].result(10)
    except Exception:
        # The broker is away.
        return False, []
    owned = [(each.topic, each.partition) for member in found.members for each in member.assignment.topic_partitions]
    return found.state == ConsumerGroupState.STABLE, owned


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range"])
def test_g05_g06_g07_chaos(strategy: str, tmp_path: Path, eventually: Callable[..., None]) -> None:
    chance = random.Random(SEED)
    sent: set[bytes] = set()
    with Broker({"group.initial.rebalance.delay.ms": 100}) as broker:
        servers = broker.bootstrap_servers
        quiet: dict[str, object] = {"bootstrap.servers": servers, "log_level": 0, "reconnect.backoff.max.ms": 500}
        admin = AdminClient(quiet)
        (made,) = admin.create_topics([NewTopic("t", PARTITIONS, 1)]).values()
        made.result(20)
        producer = Producer(quiet | {"enable.idempotence": True})
        team = Team(servers, tmp_path, strategy)
        try:
            for _ in range(MEMBERS):
                team.add()
            deadline = time.monotonic() + SECONDS
            while time.monotonic() < deadline:
                for partition in range(PARTITIONS):
                    value = f"{len(sent)}-{partition}".encode()
                    producer.produce("t", value, partition=partition)
                    sent.add(value)
                producer.poll(0)
                match chance.randrange(8):
                    case 0:
                        broker.kill()
                        broker.start()
                    case 1 if len(team.live) > 1:
                        team.end(chance.choice(team.live), signal.SIGKILL)
                    case 2 if len(team.live) > 1:
                        team.end(chance.choice(team.live), signal.SIGTERM)
                    case 3 if len(team.live) > 1:
                        team.pause(chance.choice(team.live))
                    case 4:
                        team.resume()
                while len(team.live) + len(team.paused) < MEMBERS:
                    team.add()
                _, owned = owners(quiet)
                assert len(owned) == len(set(owned)), "a partition has two owners"
                time.sleep(chance.random())
            assert producer.flush(60) == 0
            team.resume()

            def settled() -> bool:
                stable, owned = owners(quiet)
                assert len(owned) == len(set(owned)), "a partition has two owners"
                return stable and len(owned) == PARTITIONS

            eventually(settled, 90, what="the group settles")
            eventually(lambda: sent <= team.read(), 60, what="every record is handed over")
        finally:
            team.close()
        assert "Traceback" not in broker.log
