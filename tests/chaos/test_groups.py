"""Groups in chaos (G05-G07): six members over 24 partitions join, leave, are killed and paused, the broker is killed in between.

Each acknowledged record is handed over at least once, no partition has two owners at once (what that means for a member that is
paused: proof.py), and in the end the group settles: stable, every partition owned once, nothing left to read, all committed.
What happens is decided by a seed; the short form is in `make test`, minutes of it are `slow`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from ottla.testing import Broker
from tests.chaos.proof import owned_twice
from tests.chaos.team import MEMBERS, PARTITIONS, TOPIC, Feed, Team, steps
from tests.kit.wait import until

SESSION_MS = 4_000
SETTLE_S = 180.0
GROUP = "g"

BROKER = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1_000,
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.min.session.timeout.ms": 1_000,
    "group.consumer.heartbeat.interval.ms": 300,
    "group.consumer.min.heartbeat.interval.ms": 300,
}
CLASSIC = {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 300}
# `mixed`: every member can do both, half of them would rather range, half round-robin; the group chooses anew each time.
KINDS: dict[str, list[dict[str, Any]]] = {
    "range": [CLASSIC | {"partition.assignment.strategy": "range"}],
    "roundrobin": [CLASSIC | {"partition.assignment.strategy": "roundrobin"}],
    "mixed": [
        CLASSIC | {"partition.assignment.strategy": "range,roundrobin"},
        CLASSIC | {"partition.assignment.strategy": "roundrobin,range"},
    ],
    "cooperative-sticky": [CLASSIC | {"partition.assignment.strategy": "cooperative-sticky"}],
    "consumer": [{"group.protocol": "consumer"}],
}


def chaos(kind: str, seed: int, seconds: float, path: Path) -> None:
    with Broker(BROKER) as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        servers = broker.bootstrap_servers
        common = {
            "bootstrap.servers": servers,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
        team = Team(path, [common | config for config in KINDS[kind]])
        feed = Feed(servers, seed, per_s=400)
        try:
            team.all_in()
            until(
                lambda: sum(len(each.spans(session_ns_of(kind))) for each in team.current()) >= PARTITIONS,
                "all partitions are owned by members that have committed",
                SETTLE_S,
                every_s=0.1,
            )
            for step in steps(seed, seconds):
                time.sleep(step.wait_s)
                if step.what == "broker":
                    broker.kill()
                    broker.start()
                else:
                    team.do(step.what, step.place)
            team.all_in()
            feed.finish(60)
            settle(team, servers, feed.acknowledged)
        finally:
            feed.stop()
            team.close()
        check(kind, team, feed.acknowledged)
        assert "Traceback" not in broker.log, broker.log[-4000:]


def session_ns_of(kind: str) -> int:
    """For how long after its last commit a member certainly owned its partitions."""
    return 0 if kind == "consumer" else SESSION_MS * 1_000_000


def settle(team: Team, servers: str, acknowledged: dict[tuple[int, int], str]) -> None:
    """Stable, six members, each partition owned once by the coordinator's word and by the members' own, and lag 0."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    team.wait_for_leavers(SETTLE_S)
    everything = list(range(PARTITIONS))
    ends = [max((offset for part, offset in acknowledged if part == partition), default=-1) + 1 for partition in everything]
    state: dict[str, Any] = {}

    def settled() -> bool:
        found = admin.describe_consumer_groups([GROUP])[GROUP].result(30)
        offsets = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)])[GROUP].result(30)
        committed = {each.partition: each.offset for each in offsets.topic_partitions}
        state.update(
            state=found.state,
            members=len(found.members),
            owned=sorted(each.partition for member in found.members for each in member.assignment.topic_partitions),
            believed=sorted(partition for notes in team.current() for partition in notes.owned),
            behind={partition: end - committed.get(partition, 0) for partition, end in enumerate(ends)},
        )
        return (
            state["state"] == ConsumerGroupState.STABLE
            and state["members"] == MEMBERS
            and state["owned"] == everything
            and state["believed"] == everything
            and all(lag <= 0 for lag in state["behind"].values())
        )

    until(settled, lambda: f"the group did not settle: {state}", SETTLE_S, every_s=0.1)


def check(kind: str, team: Team, acknowledged: dict[tuple[int, int], str]) -> None:
    notes = team.notes()
    seen: dict[tuple[int, int], str] = {}
    for each in notes:
        for place, value in each.seen.items():
            assert seen.setdefault(place, value) == value, f"{each.name} was handed another record at {place}"
    missing = {place: value for place, value in acknowledged.items() if seen.get(place) != value}
    assert acknowledged
    assert missing == {}, f"{len(missing)} of {len(acknowledged)} acknowledged records were not handed over"
    session_ns = session_ns_of(kind)
    assert owned_twice(notes, session_ns) == []
    assert sum(len(each.spans(session_ns)) for each in notes) > PARTITIONS, "there was no chaos to speak of"


@pytest.mark.parametrize(("kind", "seed"), [("mixed", 1), ("cooperative-sticky", 2), ("consumer", 3)])
def test_g05_g06_g07_chaos(kind: str, seed: int, tmp_path: Path) -> None:
    chaos(kind, seed, 6, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["range", "roundrobin", "mixed", "cooperative-sticky", "consumer"])
@pytest.mark.parametrize("seed", [11, 12])
def test_g05_g06_g07_minutes_of_chaos(kind: str, seed: int, tmp_path: Path) -> None:
    chaos(kind, seed, 90, tmp_path)
