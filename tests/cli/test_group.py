"""`ottla group` against a broker: lag and lead, resets, deletions (F32, F42, F71)."""

from __future__ import annotations

import json
import socket
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from ottla.testing import Broker
from tests.kit.ottla_command import TIMEOUT_S, Ottla
from tests.kit.wait import until


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def filled(ottla: Ottla, topic: str) -> str:
    """Ten records in each of partitions 0 and 1, none in 2; the first four of partition 0 are deleted."""
    for partition in ("0", "1"):
        ottla.ok("produce", topic, "-p", partition, *(str(number) for number in range(10)))
    admin = AdminClient({"bootstrap.servers": ottla.bootstrap_servers})
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, 4)]).values()
    deleted.result(60)
    return topic


def config(ottla: Ottla, group: str, protocol: str = "classic") -> dict[str, Any]:
    return {
        "bootstrap.servers": ottla.bootstrap_servers,
        "group.id": group,
        "group.protocol": protocol,
        "client.id": f"client-{group}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }


def commit(ottla: Ottla, group: str, topic: str, offsets: dict[int, int]) -> None:
    """As a consumer that assigns partitions by hand: the group stays empty."""
    consumer = Consumer(config(ottla, group))
    partitions = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
    done = consumer.commit(offsets=partitions, asynchronous=False)
    assert [each.error for each in done] == [None] * len(done)
    consumer.close()


@contextmanager
def member(ottla: Ottla, group: str, topic: str, protocol: str = "classic") -> Iterator[Consumer]:
    """Somebody in the group who has all three partitions."""
    consumer = Consumer(config(ottla, group, protocol))
    try:
        consumer.subscribe([topic])
        until(lambda: (consumer.poll(0.1), len(consumer.assignment()) == 3)[1], "the member owns all partitions", every_s=0)
        yield consumer
    finally:
        consumer.close()


def described(ottla: Ottla, group: str) -> dict[str, Any]:
    (document,) = json.loads(ottla.ok("group", "describe", group, "--json"))
    assert isinstance(document, dict)
    return document


def offsets(ottla: Ottla, group: str) -> dict[int, int | None]:
    partitions = described(ottla, group)["partitions"]
    assert isinstance(partitions, list)
    return {row["partition"]: row["committed"] for row in partitions}


def test_lag_and_lead_of_an_empty_group(ottla: Ottla, filled: str, group: str) -> None:
    commit(ottla, group, filled, {0: 6, 1: 3})
    document = described(ottla, group)
    assert (document["state"], document["type"], document["lag"]) == ("Empty", "classic", 11)
    assert document["coordinator"]["address"] == ottla.bootstrap_servers
    assert document["partitions"] == [
        {"topic": filled, "partition": 0, "committed": 6, "log_start": 4, "log_end": 10, "lag": 4, "lead": 2}
        | {"member": None, "host": None, "client": None},
        {"topic": filled, "partition": 1, "committed": 3, "log_start": 0, "log_end": 10, "lag": 7, "lead": 3}
        | {"member": None, "host": None, "client": None},
    ]
    text = ottla.ok("group", "describe", group).splitlines()
    assert text[0].startswith(f"{group}  classic, Empty, 0 members, ")
    assert text[0].endswith(", lag 11")
    assert text[2].split() == [filled, "0", "6", "4", "10", "4", "2", "-", "-", "-"]
    assert {"group": group, "type": "classic", "state": "Empty"} in json.loads(ottla.ok("group", "list", "--json"))
    assert group in ottla.ok("group", "list", "--state", "empty", "--type", "classic")
    assert group not in ottla.ok("group", "list", "--state", "stable")
    assert "states are " in ottla.fails("group", "list", "--state", "stabel", code=2)


@pytest.mark.parametrize(("protocol", "assignor"), [("classic", "range"), ("consumer", "uniform")])
def test_a_group_with_a_member(ottla: Ottla, filled: str, group: str, protocol: str, assignor: str) -> None:
    with member(ottla, group, filled, protocol) as consumer:
        consumer.commit(offsets=[TopicPartition(filled, 1, 8)], asynchronous=False)
        document = described(ottla, group)
        assert (document["type"], document["state"], document["protocol"]) == (protocol, "Stable", assignor)
        rows = document["partitions"]
        assert isinstance(rows, list)
        assert [(row["partition"], row["committed"], row["lag"], row["lead"]) for row in rows] == [
            (0, None, None, None),
            (1, 8, 2, 8),
            (2, None, None, None),
        ]
        assert {(row["client"], row["host"], row["member"]) for row in rows} == {
            (f"client-{group}", "127.0.0.1", consumer.memberid())
        }
        (found,) = json.loads(ottla.ok("group", "members", group, "--json"))
        assert [part["partition"] for part in found["assignment"]] == [0, 1, 2]
        assert (found["target"] is None) == (protocol == "classic")
        assert f"{filled}:0,1,2" in ottla.ok("group", "members", group)

        before = offsets(ottla, group)
        for words in (["--to-earliest"], ["--to-earliest", "--execute"]):
            error = ottla.fails("group", "reset-offsets", group, "--all-topics", *words)
            assert f"group {group} has 1 member (client-{group} on 127.0.0.1)" in error
            assert "stop its consumers" in error
        assert f"group {group} has members" in ottla.fails("group", "delete", group)
        error = json.loads(ottla.fails("group", "delete-offsets", group, "-t", filled, "--json"))["error"]
        assert error["code"] == "GROUP_SUBSCRIBED_TO_TOPIC"
        assert offsets(ottla, group) == before


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (["--to-earliest"], {0: 4, 1: 0, 2: 0}),
        (["--to-latest"], {0: 10, 1: 10, 2: 0}),
        (["--to-offset", "7"], {0: 7, 1: 7, 2: 0}),
        (["--to-offset", "1"], {0: 4, 1: 1, 2: 0}),
        (["--to-current"], {0: 6, 1: 3, 2: 0}),
        (["--to-time", "1h"], {0: 4, 1: 0, 2: 0}),
        (["--to-time", "2100-01-01T00:00"], {0: 10, 1: 10, 2: 0}),
        (["--by-duration", "PT1H"], {0: 4, 1: 0, 2: 0}),
        (["--by-duration", "0s"], {0: 10, 1: 10, 2: 0}),
    ],
)
def test_places_to_reset_to(ottla: Ottla, filled: str, group: str, where: list[str], expected: dict[int, int]) -> None:
    commit(ottla, group, filled, {0: 6, 1: 3})
    document = json.loads(ottla.ok("group", "reset-offsets", group, "--topic", filled, *where, "--json"))
    assert document["executed"] is False
    assert {row["partition"]: row["new_offset"] for row in document["partitions"]} == expected
    assert offsets(ottla, group) == {0: 6, 1: 3}, "a dry run changes nothing"
    ottla.ok("group", "reset-offsets", group, "--topic", filled, *where, "--execute")
    assert offsets(ottla, group) == expected


def test_a_shift(ottla: Ottla, filled: str, group: str) -> None:
    commit(ottla, group, filled, {0: 6, 1: 3})
    done = ottla.run("group", "reset-offsets", group, "--all-topics", "--shift-by", "-3", "--execute")
    assert f"offset 3 is before the start of {filled}-0; using 4" in done.stderr
    assert offsets(ottla, group) == {0: 4, 1: 0}
    ottla.ok("group", "reset-offsets", group, "--topic", f"{filled}:1", "--shift-by", "5", "--execute")
    assert offsets(ottla, group) == {0: 4, 1: 5}
    assert f"missing for {filled}-2" in ottla.fails("group", "reset-offsets", group, "-t", filled, "--shift-by", "1")


def test_plans_go_through_files(ottla: Ottla, filled: str, group: str, tmp_path: Path) -> None:
    commit(ottla, group, filled, {0: 6, 1: 3})
    words = ["group", "reset-offsets", group, "--all-topics", "--to-current", "--export"]
    csv, document = ottla.ok(*words), ottla.ok(*words, "--json")
    assert csv == f"{filled},0,6\n{filled},1,3\n"
    for number, text in enumerate((csv, document)):
        ottla.ok("group", "reset-offsets", group, "--all-topics", "--to-latest", "--execute")
        assert offsets(ottla, group) == {0: 10, 1: 10}
        file = tmp_path / str(number)
        file.write_text(text)
        ottla.ok("group", "reset-offsets", group, "--from-file", str(file), "--execute")
        assert offsets(ottla, group) == {0: 6, 1: 3}
    ottla.ok("group", "reset-offsets", group, "--from-file", "-", "--execute", stdin=f"{group},{filled},1,9\n")
    assert offsets(ottla, group) == {0: 6, 1: 9}
    (tmp_path / "wrong").write_text(f"{filled},7,1\n")
    assert "has no partition 7" in ottla.fails("group", "reset-offsets", group, "--from-file", str(tmp_path / "wrong"))
    (tmp_path / "wrong").write_text("no-such-topic,0,1\n")
    assert "topic no-such-topic does not exist" in ottla.fails(
        "group", "reset-offsets", group, "--from-file", str(tmp_path / "wrong")
    )


def test_a_group_that_is_not_there_can_be_given_offsets(ottla: Ottla, filled: str, group: str) -> None:
    done = ottla.run("group", "reset-offsets", group, "-t", f"{filled}:0", "--to-latest")
    assert f"group {group} does not exist and would be created" in done.stderr
    assert f"group {group} does not exist" in ottla.fails("group", "describe", group)
    ottla.ok("group", "reset-offsets", group, "-t", f"{filled}:0", "--to-latest", "--execute")
    assert offsets(ottla, group) == {0: 10}


def test_deleting_offsets_and_groups(ottla: Ottla, filled: str, group: str) -> None:
    commit(ottla, group, filled, {0: 6, 1: 3})
    assert ottla.ok("group", "delete-offsets", group, "-t", f"{filled}:1") == f"group {group}: offset of {filled}-1 deleted\n"
    assert offsets(ottla, group) == {0: 6}
    assert json.loads(ottla.ok("group", "delete", group, "--json")) == [{"group": group, "deleted": True}]
    error = ottla.fails("group", "delete", group)
    assert f"group {group} does not exist" in error
    assert "ottla group list" in error or "did you mean" in error


def test_a_misspelt_group_brings_the_nearest(ottla: Ottla, filled: str, group: str) -> None:
    commit(ottla, group, filled, {0: 6})
    for words in (["describe"], ["members"], ["delete"], ["delete-offsets", "-t", filled]):
        assert f"did you mean {group}" in ottla.fails("group", words[0], group[:-1], *words[1:])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["reset-offsets", "g", "--all-topics"], "no target given"),
        (["reset-offsets", "g", "--to-earliest"], "no partitions given"),
        (
            ["reset-offsets", "g", "--all-topics", "--to-earliest", "--to-latest"],
            "--to-earliest and --to-latest cannot be combined",
        ),
        (["reset-offsets", "g", "-t", "t:x", "--to-earliest"], "is not a topic with partitions"),
        (["reset-offsets", "g", "-t", "t", "--to-time", "noon"], "is not a time"),
        (["reset-offsets", "g", "-t", "t", "--by-duration", "long"], "is not a duration"),
        (["reset-offsets", "g", "--from-file", "/no/such/file"], "cannot read"),
        (["reset-offsets", "g", "--all-topics", "--from-file", "x"], "names the partitions itself"),
        (["describe"], "pass either groups or --all"),
        (["describe", "g", "--all"], "pass either groups or --all"),
        (["list", "--type", "share"], "neither classic nor consumer"),
    ],
)
def test_command_lines_that_cannot_be(ottla: Ottla, words: list[str], says: str) -> None:
    assert says in ottla.fails("group", *words, code=2)


def test_consume_as_a_member_goes_on_where_the_group_stopped(ottla: Ottla, filled: str, group: str) -> None:
    first = ottla.ok("consume", filled, "--group", group, "-n", "6").splitlines()
    rest = ottla.ok("consume", filled, "--group", group).splitlines()
    assert len(first) == 6
    assert sorted(first + rest) == sorted([str(number) for number in range(4, 10)] + [str(number) for number in range(10)])
    assert described(ottla, group)["lag"] == 0
    assert ottla.ok("consume", filled, "--group", group) == ""
    ottla.ok("produce", filled, "later", "-p", "2")
    assert ottla.ok("consume", filled, "-g", group, "-X", "group.protocol=consumer") == "later\n"


def test_a_member_that_is_terminated_leaves(ottla: Ottla, filled: str, group: str) -> None:
    """`timeout 60 ottla consume -g …`: the next member need not wait until the session has run out."""
    with subprocess.Popen(
        ottla.command("consume", filled, "-f", "-g", group), stdout=subprocess.PIPE, env=ottla.environment
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
        process.stdout.read()
        assert process.wait(TIMEOUT_S) == 143
    assert described(ottla, group)["state"] == "Empty"


def test_consume_as_a_member_of_a_group_that_is_held_up(
    ottla: Ottla, filled: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member that does not poll keeps the others waiting for the partitions; that is said, not waited for without end."""
    monkeypatch.setattr("ottla.cli.group.consume._JOIN_S", 1.0)
    with member(ottla, group, filled):
        error = ottla.fails("consume", filled, "--group", group)
    assert f"group {group} assigned no partition within 1 s" in error
    assert f"ottla group members {group}" in error


def test_no_groups_yet() -> None:
    with Broker() as broker:
        ottla = Ottla(broker.bootstrap_servers)
        for words in (["list"], ["describe", "--all"]):
            done = ottla.run("group", *words)
            assert (done.returncode, done.stdout) == (0, "")
            assert done.stderr.startswith("no groups yet")
            assert json.loads(ottla.ok("group", *words, "--json")) == []


def test_nobody_there(ottla: Ottla) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        for words in (["list"], ["describe", "g"], ["reset-offsets", "g", "-t", "t", "--to-latest"], ["delete", "g"]):
            assert f"no broker answers at {address}" in ottla.fails("group", *words, "-b", address)


def test_consume_as_a_member_takes_no_other_places(ottla: Ottla, topic: str) -> None:
    for words in (["-p", "0"], ["--from", "5"], ["--until", "5"]):
        assert "starts at the committed offsets" in ottla.fails("consume", topic, "-g", "g", *words, code=2)
