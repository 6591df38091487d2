"""Checks of `ottla doctor` that need several brokers, or certificates that end."""

from __future__ import annotations

import os
import socket
import ssl
from typing import Any, cast

import pytest

from ottla.cli.cluster.view import BrokerState, ClusterView, PartitionState
from ottla.cli.connection import Connection
from ottla.cli.doctor import machine, replicas, software, tls
from ottla.cli.doctor.bundle import scrub, secrets_of
from ottla.cli.doctor.case import Case
from ottla.cli.doctor.finding import Finding, Severity


class View:
    """As much of a `ClusterView` as the checks read."""

    def __init__(self, alive: list[int], partitions: list[PartitionState], controller_id: int = 1) -> None:
        self.controller_id = controller_id
        self.changes_fail: str | None = None
        self.brokers = {number: BrokerState(number, ("127.0.0.1", 1)) for number in alive}
        self.partitions = {(each.topic, each.index): each for each in partitions}
        named = {broker for each in partitions for broker in each.replicas}
        self.all_brokers = [*self.brokers.values(), *(BrokerState(number, None) for number in sorted(named - set(alive)))]

    def why_changes_fail(self) -> str | None:
        return self.changes_fail


def case(alive: list[int], partitions: list[PartitionState], controller_id: int = 1) -> Case:
    view: Any = View(alive, partitions, controller_id)
    return Case(cast(Connection, None), None, cast(ClusterView, view), 0)


def partition(index: int, leader: int, brokers: list[int], isr: list[int] | None = None) -> PartitionState:
    return PartitionState("t", index, leader, 1, brokers, brokers if isr is None else isr)


@pytest.fixture(autouse=True)
def min_insync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "_min_insync", lambda case, topic: 2)


def told(findings: Any) -> list[tuple[str, str, str | None]]:
    return [(str(each.severity), each.subject, each.mend) for each in cast(list[Finding], list(findings))]


def test_a_cluster_in_order() -> None:
    healthy = case([1, 2, 3], [partition(0, 1, [1, 2, 3]), partition(1, 2, [2, 3, 1])])
    for check in (replicas.controller, replicas.replicas, replicas.leaders, replicas.single_copies):
        assert list(check(healthy)) == []


def test_a_broker_that_is_away_and_no_controller() -> None:
    found = told(replicas.controller(case([1, 2], [partition(0, 1, [1, 2, 3], [1, 2])], controller_id=-1)))
    assert [each[:2] for each in found] == [("error", "cluster"), ("error", "broker 3")]


def test_a_zookeeper_that_is_away() -> None:
    away = case([1], [partition(0, 1, [1])])
    cast(Any, away.view).changes_fail = "ZooKeeper has not answered this broker for 9 s"
    (found,) = replicas.controller(away)
    assert (found.severity, found.subject) == (Severity.ERROR, "cluster")
    assert found.what.endswith("cannot change: ZooKeeper has not answered this broker for 9 s")


def test_replicas_by_how_bad_it_is() -> None:
    partitions = [
        partition(0, 1, [1, 2, 3], [1, 2]),
        partition(1, 1, [1, 2, 3], [1]),
        partition(2, -1, [3], []),
        partition(3, 1, [1, 2, 3]),
    ]
    assert told(replicas.replicas(case([1, 2], partitions))) == [
        ("error", "t-2", "start broker 3; if they are lost for good: ottla elect unclean t:2 (loses records)"),
        ("error", "t-1", "ottla cluster status --problems"),
        ("warning", "t-0", "ottla cluster status --problems"),
    ]


def test_leaders_that_are_not_preferred() -> None:
    moved = [partition(index, 2, [1, 2]) for index in range(3)] + [partition(index, 1, [1, 2]) for index in range(3, 10)]
    assert told(replicas.leaders(case([1, 2], moved))) == [("warning", "t-0, t-1, t-2", "ottla elect preferred --all-topics")]
    assert told(replicas.leaders(case([1, 2], moved[2:]))) == [("warning", "t-2", "ottla elect preferred --all-topics")]
    assert told(replicas.leaders(case([2], [partition(index, 2, [1, 2], [2]) for index in range(9)]))) == [], "it is away"


def test_topics_with_one_copy() -> None:
    ((severity, subject, mend),) = told(replicas.single_copies(case([1, 2, 3], [partition(0, 1, [1])])))
    assert (severity, subject) == ("warning", "t")
    assert mend is not None
    assert mend.startswith("ottla reassign plan t -r 3 ")
    assert told(replicas.single_copies(case([1], [partition(0, 1, [1])]))) == []


def test_versions_that_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {1: {"fetch": (4, 18)}, 2: {"fetch": (4, 17)}, 3: {"fetch": (4, 18)}}
    monkeypatch.setattr(software, "versions_of", lambda case: known)
    monkeypatch.setattr(software, "_between_brokers", lambda case: iter(()))
    (finding,) = software.versions(case([1, 2, 3], []))
    assert finding.what == "they support different versions of requests: brokers 1, 3; broker 2"


def test_certificates_that_end() -> None:
    ends = "May 10 12:00:00 2030 GMT"
    moment_ms = ssl.cert_time_to_seconds(ends) * 1000
    assert list(tls._expiry("broker 1", {"notAfter": ends}, moment_ms - 31 * 86_400_000)) == []
    (soon,) = tls._expiry("broker 1", {"notAfter": ends}, moment_ms - 12 * 86_400_000)
    assert (soon.severity, soon.what) == (Severity.WARNING, f"its certificate expires in 12 days, at {ends}")


def test_the_process_that_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        found = machine._listening(server.getsockname()[1])
        assert found is not None
        assert found.name == str(os.getpid())
        port = server.getsockname()[1]
    assert machine._listening(port) is None


def test_secrets_are_found_and_scrubbed() -> None:
    properties = {
        "sasl.jaas.config": 'org.x.PlainLoginModule required username="alice" password="p\\"lanted-1";',
        "sasl.password": "planted-2",
        "ssl.truststore.password": "abc",
        "sasl.username": "alice",
        "ssl.keystore.location": "/etc/planted.p12",
    }
    found = secrets_of(properties)
    assert "planted-2" in found
    assert "alice" not in found
    text = '{"a": "planted-2 and more", "url": "http://bob:planted-3@host/x", "jaas": "password=\'planted-4\'"}'
    clean = scrub(text, found)
    assert "planted" not in clean
    assert '"(hidden) and more"' in clean
    assert "@host/x" in clean
