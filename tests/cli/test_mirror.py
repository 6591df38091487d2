"""`ottla mirror`: records, settings, groups and ACLs in another cluster, exactly once, without loops (F69, T08)."""

from __future__ import annotations

import json
import random
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from ottla.cli.connection import Connection
from ottla.cli.mirror import mirror
from ottla.cli.mirror.layout import keep_layouts
from ottla.cli.mirror.naming import Naming
from ottla.testing import Broker
from tests.kit.ottla_command import Ottla
from tests.kit.wait import until

# No wait for further members, and no search for old records: those of 2023 must stay.
QUICK: dict[str, Any] = {
    "group.initial.rebalance.delay.ms": 0,
    "log.initial.task.delay.ms": 86_400_000,
    "log.retention.check.interval.ms": 86_400_000,
}


@pytest.fixture(scope="module")
def brokers() -> Iterator[tuple[Broker, Broker]]:
    with Broker(QUICK) as east, Broker(QUICK) as west:
        yield east, west


@pytest.fixture(scope="module")
def clusters(brokers: tuple[Broker, Broker]) -> tuple[Ottla, Ottla]:
    return Ottla(brokers[0].bootstrap_servers), Ottla(brokers[1].bootstrap_servers)


def mirror_words(to: Ottla, *words: str) -> tuple[str, ...]:
    return ("mirror", *words, "--to-bootstrap-servers", to.bootstrap_servers)


def reports(source: Ottla, to: Ottla, *words: str) -> list[dict[str, Any]]:
    """The reports of a mirror that stops at the end."""
    return [json.loads(line) for line in source.ok(*mirror_words(to, *words), "-e", "--json").splitlines()]


def contents(ottla: Ottla, topic: str) -> list[tuple[str, ...]]:
    """Of each record all but its offset."""
    found = [json.loads(line) for line in ottla.ok("consume", topic, "--json").splitlines()]
    found.sort(key=lambda each: (each["partition"], each["offset"]))
    return [tuple(str(each[name]) for name in ("partition", "key", "value", "headers", "timestamp")) for each in found]


def produce(ottla: Ottla, topic: str, numbers: range) -> None:
    lines = [
        {"key": f"k{n}", "value": f"v{n}", "headers": {"n": str(n)}, "partition": n % 3, "timestamp": 1_680_000_000_000 + n}
        for n in numbers
    ]
    ottla.ok("produce", topic, "--format", "json", stdin="\n".join(map(json.dumps, lines)))


def test_topics_of_a_pattern_arrive_with_records_settings_and_partitions(clusters: tuple[Ottla, Ottla]) -> None:
    east, west = clusters
    east.ok("topic", "create", "shop.orders", "-p", "3", "-c", "retention.ms=-1")
    east.ok("topic", "create", "shop.empty", "-p", "2")
    east.ok("topic", "create", "shop.private")
    produce(east, "shop.orders", range(30))
    (report,) = reports(east, west, "shop.*", "--exclude", "*.private")
    assert report["records"] == 30
    assert report["lag"] == {"shop.orders": 0, "shop.empty": 0}
    assert contents(west, "shop.orders") == contents(east, "shop.orders")
    assert "shop.private" not in west.ok("topic", "list")
    # Run again: what is new, also settings and partitions.
    produce(east, "shop.orders", range(30, 35))
    east.ok("topic", "alter", "shop.orders", "-p", "4")
    east.ok("config", "set", "topic", "shop.orders", "max.message.bytes=2000000")
    east.ok("config", "unset", "topic", "shop.orders", "retention.ms")
    (report,) = reports(east, west, "shop.*", "--exclude", "*.private")
    assert report["records"] == 5
    assert contents(west, "shop.orders") == contents(east, "shop.orders")
    (described,) = json.loads(west.ok("topic", "describe", "shop.orders", "--json"))
    assert (len(described["partitions"]), described["config"]) == (4, {"max.message.bytes": "2000000"})


def test_a_topic_that_was_made_anew_is_mirrored_from_its_beginning(clusters: tuple[Ottla, Ottla]) -> None:
    east, west = clusters
    east.ok("topic", "create", "anew", "-p", "3")
    produce(east, "anew", range(9))
    assert reports(east, west, "anew", "--name", "anew")[0]["records"] == 9
    east.ok("topic", "delete", "anew")
    until(lambda: "anew" not in east.ok("topic", "list", "-o", "names").split(), "the topic is deleted")
    east.ok("topic", "create", "anew", "-p", "3")
    produce(east, "anew", range(100, 104))
    assert reports(east, west, "anew", "--name", "anew")[0]["records"] == 4
    assert len(contents(west, "anew")) == 13


def test_a_topic_that_is_made_anew_while_it_is_mirrored_begins_again(clusters: tuple[Ottla, Ottla]) -> None:
    east, west = clusters
    east.ok("topic", "create", "renewed", "-p", "3")
    produce(east, "renewed", range(9))
    process = running_mirror(east, west, "renewed", "--name", "renewed")

    def have(numbers: list[int]) -> bool:
        return sorted(int(value[1:]) for _, _, value, _, _ in contents(west, "renewed")) == sorted(numbers)

    try:
        until(lambda: have([*range(9)]), "the records", 60, ignoring=(AssertionError,))
        # Its copy: all records come once more, to the new copy.
        west.ok("topic", "delete", "renewed")
        until(lambda: have([*range(9)]), "the records again", 60, ignoring=(AssertionError,))
        produce(east, "renewed", range(9, 12))
        until(lambda: have([*range(12)]), "further records", 60)
        # The source, which has more records than it had.
        east.ok("topic", "delete", "renewed")
        until(lambda: "renewed" not in east.ok("topic", "list", "-o", "names").split(), "the topic is deleted")
        east.ok("topic", "create", "renewed", "-p", "3")
        produce(east, "renewed", range(100, 130))
        until(lambda: have([*range(12), *range(100, 130)]), "the records of the new topic", 60)
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert "Traceback" not in errors


def test_a_failure_before_the_first_report_ends_no_mirror(clusters: tuple[Ottla, Ottla]) -> None:
    east, west = clusters
    east.ok("topic", "create", "early", "-p", "3")
    produce(east, "early", range(3))
    process = running_mirror(east, west, "early", "--name", "early", "--interval", "600")
    try:
        until(lambda: len(contents(west, "early")) == 3, "the records", 60, ignoring=(AssertionError,))
        east.ok("topic", "delete", "early")
        until(lambda: "early" not in east.ok("topic", "list", "-o", "names").split(), "the topic is deleted")
        assert process.stderr is not None
        assert "trying again" in process.stderr.readline()
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def test_no_record_comes_back(clusters: tuple[Ottla, Ottla]) -> None:
    east, west = clusters
    east.ok("topic", "create", "ring", "-p", "3")
    produce(east, "ring", range(6))
    assert reports(east, west, "ring", "--name", "ring")[0]["records"] == 6
    (back,) = reports(west, east, "ring", "--name", "ring")
    assert back["records"] == 0
    assert back["done"] == ["topic ring is left out: its records came from the target cluster"]
    # A prefix does not change where records came from.
    (back,) = reports(west, east, "ring", "--name", "ring", "--prefix", "west.")
    assert (back["records"], back["lag"]) == (0, {})
    # Inside one cluster: the copy matches the pattern too, and is not copied again.
    assert reports(east, east, "ring*", "--prefix", "ring-copy.", "--name", "inside")[0]["records"] == 6
    assert reports(east, east, "*ring", "--prefix", "ring-copy.", "--name", "inside")[0]["records"] == 0
    assert "same cluster" in east.fails(*mirror_words(east, "ring"), code=2)


def test_the_reverse_mirror_gives_way_though_it_claimed_a_new_topic_first(
    clusters: tuple[Ottla, Ottla], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looked between the creation of the topic and the first commit: both had claimed it then, and both left it out."""
    east, west = clusters
    east.ok("topic", "create", "raced", "-p", "3")
    produce(east, "raced", range(6))
    looked: list[dict[str, Any]] = []

    def create(*arguments: Any) -> list[str]:
        done = keep_layouts(*arguments)
        monkeypatch.setattr(mirror, "keep_layouts", keep_layouts)
        looked.extend(reports(west, east, "raced", "--name", "raced"))
        return done

    monkeypatch.setattr(mirror, "keep_layouts", create)
    options = mirror.MirrorOptions(Naming(("raced",)), name="raced")
    found: list[mirror.Report] = []
    one = mirror.Mirror(Connection(east.bootstrap_servers, None), Connection(west.bootstrap_servers, None), options)
    try:
        one.run(found.append, follow=False)
    finally:
        one.close()
    assert looked[0]["lag"] == {"raced": 0}
    assert found[0].records == 6
    assert contents(west, "raced") == contents(east, "raced")
    (back,) = reports(west, east, "raced", "--name", "raced")
    assert back["done"] == ["topic raced is left out: its records came from the target cluster"]
    produce(east, "raced", range(6, 9))
    assert reports(east, west, "raced", "--name", "raced")[0]["records"] == 3


def test_a_ring_of_three_clusters_ends(clusters: tuple[Ottla, Ottla]) -> None:
    east, west = clusters
    with Broker(QUICK) as third:
        south = Ottla(third.bootstrap_servers)
        east.ok("topic", "create", "around", "-p", "3")
        produce(east, "around", range(3))
        assert reports(east, west, "around", "--name", "around")[0]["records"] == 3
        assert reports(west, south, "around", "--name", "around")[0]["records"] == 3
        assert reports(south, east, "around", "--name", "around")[0]["records"] == 0
    assert len(contents(east, "around")) == 3


def test_groups_go_on_in_the_target(clusters: tuple[Ottla, Ottla]) -> None:
    east, west = clusters
    east.ok("topic", "create", "billed", "-p", "3")
    produce(east, "billed", range(30))
    reports(east, west, "billed", "--name", "billed")
    produce(east, "billed", range(30, 60))
    east.ok("consume", "billed", "-g", "billing", "-n", "40")
    produce(east, "billed", range(60, 90))
    (report,) = reports(east, west, "billed", "--name", "billed", "--groups", "bill*")
    assert set(report["groups"]) == {"billing"}
    left = sorted(json.loads(line)["value"] for line in east.ok("consume", "billed", "-g", "billing", "--json").splitlines())
    there = sorted(json.loads(line)["value"] for line in west.ok("consume", "billed", "-g", "billing", "--json").splitlines())
    assert left == there
    # A group never moves backwards: it has read more here by now.
    east.ok("group", "reset-offsets", "billing", "--topic", "billed", "--to-earliest", "--execute")
    assert reports(east, west, "billed", "--name", "billed", "--groups", "bill*")[0]["groups"] == {}


def test_acls_of_the_topics_except_write() -> None:
    authorizer = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:ANONYMOUS"}
    with Broker(QUICK | authorizer) as one, Broker(QUICK | authorizer) as two:
        east, west = Ottla(one.bootstrap_servers), Ottla(two.bootstrap_servers)
        east.ok("topic", "create", "orders")
        east.ok("acl", "add", "-u", "ada", "-o", "Read", "-o", "Write", "-t", "orders")
        east.ok("acl", "add", "-u", "bob", "-o", "Describe", "-t", "ord", "--prefixed")
        east.ok("acl", "add", "-u", "eve", "-o", "Read", "-t", "*")
        east.ok("acl", "add", "-u", "ada", "-o", "Read", "-g", "readers")
        (report,) = reports(east, west, "orders", "--prefix", "east.", "--acls")
        assert len([each for each in report["done"] if each.startswith("ACL")]) == 2
        found = {(each["name"], each["principal"], each["operation"]) for each in json.loads(west.ok("acl", "list", "--json"))}
        assert found == {("east.orders", "User:ada", "Read"), ("east.ord", "User:bob", "Describe")}


def running_mirror(source: Ottla, to: Ottla, *words: str) -> subprocess.Popen[str]:
    command = source.command(*mirror_words(to, "--interval", "0.2", *words), "--json")
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=source.environment)


def test_exactly_once_when_mirror_and_brokers_are_killed(tmp_path: Any) -> None:
    chance = random.Random(7)
    with Broker(QUICK, data_dir=tmp_path / "east") as one, Broker(QUICK, data_dir=tmp_path / "west") as two:
        east, west = Ottla(one.bootstrap_servers), Ottla(two.bootstrap_servers)
        east.ok("topic", "create", "stream", "-p", "3")
        producer = Producer({"bootstrap.servers": one.bootstrap_servers, "enable.idempotence": True})
        sent = 0
        process = running_mirror(east, west, "stream")
        try:
            for victim in ("mirror", "target", "mirror", "source", "mirror"):
                for _ in range(3_000):
                    producer.produce("stream", f"{sent}", partition=sent % 3)
                    sent += 1
                producer.flush(0.3 + chance.random() / 2)
                if victim == "mirror":
                    process.kill()
                    process.communicate()
                    process = running_mirror(east, west, "stream")
                else:
                    killed = two if victim == "target" else one
                    killed.kill()
                    killed.start()
            assert producer.flush(60) == 0
            until(lambda: len(contents(west, "stream")) >= sent, "all records are mirrored", 90, ignoring=(AssertionError,))
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
        values = [
            [value for partition, _, value, _, _ in contents(west, "stream") if partition == str(index)] for index in range(3)
        ]
        assert values == [[str(number) for number in range(sent) if number % 3 == index] for index in range(3)]


def test_a_second_mirror_ends_the_first_and_a_name_tells_them_apart(clusters: tuple[Ottla, Ottla]) -> None:
    east, west = clusters
    east.ok("topic", "create", "fenced", "-p", "3")
    first = running_mirror(east, west, "fenced", "--name", "fenced")
    assert first.stdout is not None
    assert json.loads(first.stdout.readline())["lag"] == {"fenced": 0}
    produce(east, "fenced", range(3))
    assert reports(east, west, "fenced", "--name", "fenced")
    produce(east, "fenced", range(3, 6))
    _, errors = first.communicate(timeout=60)
    assert first.returncode == 1
    assert "another run of ottla-mirror." in errors
    assert reports(east, west, "fenced", "--name", "fenced")[0]["lag"] == {"fenced": 0}
    assert len(contents(west, "fenced")) == 6
