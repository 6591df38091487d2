"""Kafka's ConsumerGroupCommand and `ottla group` say the same about the same groups, and read each other's plans (F71)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.kit.peers import KAFKA_3, KAFKA_4, run_tool
from tests.kit.wait import until

pytestmark = pytest.mark.java

GROUP_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
Row = dict[str, str]


@pytest.fixture(params=[KAFKA_3, KAFKA_4])
def group_command(request: pytest.FixtureRequest, bootstrap: str) -> Callable[..., str]:
    def run(*args: str) -> str:
        done = run_tool(request.param, GROUP_COMMAND, "--bootstrap-server", bootstrap, *args, timeout=180)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Exception" not in done.stdout + done.stderr, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture
def ottla(bootstrap: str) -> Callable[..., Any]:
    """`ottla group …` with --json."""

    def run(*args: str, text: bool = False) -> Any:
        environment = {**os.environ, "OTTLA_BOOTSTRAP_SERVERS": bootstrap}
        command = [sys.executable, "-P", "-m", "ottla", "group", *args, *([] if text else ["--json"])]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=180)
        assert done.returncode == 0, done.stderr
        return done.stdout if text else json.loads(done.stdout)

    return run


def table(text: str) -> list[Row]:
    """The rows under the one head of columns; columns are cut where the head's words begin, as values may hold spaces."""
    lines = [line for line in text.splitlines() if line.strip()]
    head = next(line for line in lines if line.startswith("GROUP"))
    names = [name for name in head.split("  ") if name.strip()]
    names = [part for name in names for part in ([name.strip()] if name.strip() == "COORDINATOR (ID)" else name.split())]
    starts = [head.index(name) for name in names]
    ends = [*starts[1:], None]
    rows = lines[lines.index(head) + 1 :]
    return [{name: row[a:b].strip() for name, a, b in zip(names, starts, ends, strict=True)} for row in rows]


@pytest.fixture
def filled(bootstrap: str, new_topic: Callable[..., str]) -> str:
    """Three partitions of 20, 10 and no records; the first five of partition 0 are deleted."""
    name = new_topic(partitions=3)
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition, count in ((0, 20), (1, 10)):
        for _ in range(count):
            producer.produce(name, b"v", partition=partition)
    assert producer.flush(60) == 0
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (deleted,) = admin.delete_records([TopicPartition(name, 0, 5)]).values()
    deleted.result(60)
    return name


@contextmanager
def two_members(bootstrap: str, group: str, topic: str, protocol: str) -> Iterator[None]:
    """Two members who share the three partitions, and offsets committed in two of them."""
    members = [
        Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": protocol,
                "client.id": f"member-{number}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "max.poll.interval.ms": 1_800_000,  # nobody polls while the tools are run
            }
        )
        for number in range(2)
    ]
    try:
        for member in members:
            member.subscribe([topic])

        def polled() -> list[int]:
            for member in members:
                member.poll(0.1)
            return sorted(len(member.assignment()) for member in members)

        until(lambda: polled() == [1, 2], "the members share the partitions", every_s=0)
        offsets = {0: 12, 1: 10}
        for member in members:
            mine = [each.partition for each in member.assignment() if each.partition in offsets]
            if mine:
                member.commit(offsets=[TopicPartition(topic, index, offsets[index]) for index in mine], asynchronous=False)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        # With the new protocol a member has its partitions a moment before the group knows that it has.

        def is_stable() -> bool:
            polled()
            return admin.describe_consumer_groups([group])[group].result(60).state is ConsumerGroupState.STABLE

        until(is_stable, "the group is stable", every_s=0)
        yield
    finally:
        for member in members:
            member.close()


def shown(value: object) -> str:
    return "-" if value is None else str(value)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_describe(
    group_command: Callable[..., str], ottla: Callable[..., Any], bootstrap: str, filled: str, protocol: str
) -> None:
    group = f"compared-{uuid.uuid4().hex[:8]}"

    def compare() -> None:
        (ours,) = ottla("describe", group)
        theirs = table(group_command("--describe", "--group", group))
        assert sorted(
            (
                row["topic"],
                *(shown(row[name]) for name in ("partition", "committed", "log_end", "lag", "member")),
                "-" if row["host"] is None else f"/{row['host']}",
                shown(row["client"]),
            )
            for row in ours["partitions"]
        ) == sorted(
            tuple(
                row[name]
                for name in ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID")
            )
            for row in theirs
        )
        (state,) = table(group_command("--describe", "--group", group, "--state"))
        coordinator = f"{ours['coordinator']['address']}  ({ours['coordinator']['id']})"
        # Nobody in it, no strategy: 4.3 writes that as "-".
        assert (state["COORDINATOR (ID)"], state["ASSIGNMENT-STRATEGY"].strip("-"), state["STATE"], state["#MEMBERS"]) == (
            coordinator,
            ours["protocol"],
            ours["state"],
            str(len(ours["members"])),
        )
        listed = table(group_command("--list", "--state", "--type"))
        mine = next(row for row in ottla("list") if row["group"] == group)
        found = next(row for row in listed if row["GROUP"] == group)
        assert (found["TYPE"].lower(), found["STATE"]) == (mine["type"], mine["state"])

    with two_members(bootstrap, group, filled, protocol):
        (document,) = ottla("describe", group)
        assert (document["type"], document["state"], len(document["members"])) == (protocol, "Stable", 2)
        assert [(row["committed"], row["log_start"], row["lag"], row["lead"]) for row in document["partitions"]] == [
            (12, 5, 8, 7),
            (10, 0, 0, 10),
            (None, 0, None, None),
        ]
        compare()
        members = table(group_command("--describe", "--group", group, "--members"))
        assert sorted((row["CONSUMER-ID"], row["CLIENT-ID"], row["#PARTITIONS"]) for row in members) == sorted(
            (row["member"], row["client"], str(len(row["assignment"]))) for row in ottla("members", group)
        )
    compare()


def test_plans(group_command: Callable[..., str], ottla: Callable[..., Any], filled: str, tmp_path: Path) -> None:
    """The same plan for the same wish; each reads the file the other wrote."""
    group = f"planned-{uuid.uuid4().hex[:8]}"
    ottla("reset-offsets", group, "-t", f"{filled}:0,1", "--to-offset", "8", "--execute")
    reset = ("--group", group, "--reset-offsets", "--dry-run")

    def theirs(*words: str) -> dict[int, int]:
        # As CSV: 3.9 prints its table of a plan without ends of lines.
        lines = group_command(*reset, *words, "--export").split()
        return {int(partition): int(offset) for _, partition, offset in (line.split(",") for line in lines)}

    def ours(*words: str) -> dict[int, int]:
        return {row["partition"]: row["new_offset"] for row in ottla("reset-offsets", group, *words)["partitions"]}

    for words in (
        ["--to-offset", "99"],
        ["--shift-by", "-4"],
        ["--by-duration", "PT1H"],
    ):
        assert ours("--all-topics", *words) == theirs("--all-topics", *words), words

    kafkas = tmp_path / "kafka.csv"
    kafkas.write_text(group_command(*reset, "--topic", filled, "--to-latest", "--export"))
    assert ours("--from-file", str(kafkas)) == {0: 20, 1: 10, 2: 0}
    mine = tmp_path / "ottla.csv"
    mine.write_text(ottla("reset-offsets", group, "--topic", filled, "--to-earliest", "--export", text=True))
    assert theirs("--from-file", str(mine)) == {0: 5, 1: 0, 2: 0}
    group_command("--group", group, "--reset-offsets", "--execute", "--from-file", str(mine))
    (document,) = ottla("describe", group)
    assert [(row["committed"], row["lead"]) for row in document["partitions"]] == [(5, 0), (0, 0), (0, 0)]
    group_command("--group", group, "--delete-offsets", "--topic", f"{filled}:0")
    (document,) = ottla("describe", group)
    assert [row["partition"] for row in document["partitions"]] == [1, 2]
    group_command("--group", group, "--delete")
    assert group not in {row["group"] for row in ottla("list")}
