"""Java's consumers with group.protocol=consumer (F40), Kafka's own tools on such groups, and its own reading of their records."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.kit.peers import KAFKA_4, java_command, run_tool
from tests.kit.subject import running
from tests.kit.wait import until

pytestmark = pytest.mark.java

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


def tool(servers: str, *args: str) -> str:
    done = run_tool(KAFKA_4, GROUPS, "--bootstrap-server", servers, *args, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rows(text: str) -> list[dict[str, str]]:
    """The table a tool printed, by column; cells that hold spaces stay whole."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    at = next(number for number, line in enumerate(lines) if line.startswith("GROUP"))
    head = lines[at].split()
    starts = [match.start() for match in re.finditer(r"\S+", lines[at])]
    ends = [*starts[1:], 10_000]
    return [
        {name: line[start:end].strip() for name, start, end in zip(head, starts, ends, strict=True)} for line in lines[at + 1 :]
    ]


class Verifiable:
    """Kafka's VerifiableConsumer: says in JSON what it is given and what it reads."""

    def __init__(self, servers: str, topic: str, group: str, name: str, ledger: Any, *args: str) -> None:
        command = java_command(
            KAFKA_4,
            "org.apache.kafka.tools.VerifiableConsumer",
            *("--bootstrap-server", servers, "--topic", topic, "--group-id", group, "--reset-policy", "earliest"),
            *("--verbose", *args),
        )
        self.name, self.ledger = name, ledger
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.problems: list[str] = []
        self._threads = [threading.Thread(target=target, daemon=True) for target in (self._listen, self._complain)]
        for thread in self._threads:
            thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.startswith("{"):
                continue
            event = json.loads(line)
            match event["name"]:
                case "partitions_assigned":
                    self.ledger.gains(self.name, [_Part(**part) for part in event["partitions"]])
                case "partitions_revoked":
                    self.ledger.loses(self.name, [_Part(**part) for part in event["partitions"]])
                case "record_data":
                    self.ledger.read.add((event["topic"], event["partition"], event["offset"]))

    def _complain(self) -> None:
        assert self.process.stderr is not None
        self.problems += list(self.process.stderr)

    @property
    def owned(self) -> set[int]:
        return self.ledger.numbers(self.name)

    def close(self, how: int = signal.SIGTERM) -> None:
        if self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(120)
        for thread in self._threads:
            thread.join(60)
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
        self.ledger.loses(self.name)


class _Part:
    def __init__(self, topic: str, partition: int, **_: Any) -> None:
        self.topic, self.partition = topic, partition


@pytest.fixture
def verifiable(servers: str, group: str, ledger: Any) -> Iterator[Callable[..., Verifiable]]:
    started: list[Verifiable] = []

    def start(name: str, topic: str, *args: str, protocol: str = "consumer") -> Verifiable:
        options = ["--group-protocol", protocol, *args]
        if protocol == "classic":
            options += ["--session-timeout", "10000"]
        started.append(Verifiable(servers, topic, group, name, ledger, *options))
        return started[-1]

    yield start
    for one in started:
        one.close(signal.SIGKILL)


def test_console_consumer_reads_as_a_member(servers: str, group: str, filled: Callable[..., str]) -> None:
    topic = filled(partitions=3, each=10)
    read = run_tool(
        KAFKA_4,
        "ConsoleConsumer",
        *("--bootstrap-server", servers, "--topic", topic, "--group", group, "--from-beginning", "--max-messages", "30"),
        *("--timeout-ms", "120000", "--command-property", "group.protocol=consumer"),
        timeout=180,
    )
    assert sorted(read.stdout.split()) == sorted(f"{partition}:{number}" for partition in range(3) for number in range(10))
    assert re.search(rf"{group}\s+Consumer", tool(servers, "--list", "--type"))
    assert group in tool(servers, "--list", "--type", "consumer", "--state", "empty").split()
    described = rows(tool(servers, "--describe", "--group", group, "--offsets"))
    assert {(row["PARTITION"], row["CURRENT-OFFSET"], row["LAG"]) for row in described} == {(str(p), "10", "0") for p in range(3)}
    assert "successful" in tool(servers, "--delete", "--group", group)


def test_a_pattern_of_javas(servers: str, group: str, filled: Callable[..., str]) -> None:
    """Java resolves `--include` on its own side; the server's own patterns are confluent's business here."""
    topic = filled(partitions=2, each=5)
    read = run_tool(
        KAFKA_4,
        "ConsoleConsumer",
        *("--bootstrap-server", servers, "--include", f"{topic}.*", "--group", group, "--from-beginning"),
        *("--max-messages", "10", "--timeout-ms", "120000", "--command-property", "group.protocol=consumer"),
        timeout=180,
    )
    assert len(read.stdout.split()) == 10


def test_verifiable_consumers_and_the_group_tool(
    verifiable: Callable[..., Verifiable],
    filled: Callable[..., str],
    ledger: Any,
    servers: str,
    group: str,
) -> None:
    topic = filled(partitions=6, each=20)
    first = verifiable("a", topic)
    until(lambda: len(first.owned) == 6)
    second = verifiable("b", topic, "--group-instance-id", "i")
    until(lambda: len(first.owned) == len(second.owned) == 3)
    until(lambda: len(ledger.read) == 120)

    (state,) = rows(tool(servers, "--describe", "--group", group, "--state", "--verbose"))
    assert (state["ASSIGNMENT-STRATEGY"], state["STATE"], state["#MEMBERS"]) == ("uniform", "Stable", "2")
    assert state["GROUP-EPOCH"] == state["TARGET-ASSIGNMENT-EPOCH"]
    members = rows(tool(servers, "--describe", "--group", group, "--members", "--verbose"))
    assert {member["GROUP-INSTANCE-ID"] for member in members} == {"", "i"}
    assert {member["CURRENT-EPOCH"] for member in members} == {state["GROUP-EPOCH"]} == {m["TARGET-EPOCH"] for m in members}
    assert [member["#PARTITIONS"] for member in members] == ["3", "3"]
    assert all(member["CURRENT-ASSIGNMENT"] == member["TARGET-ASSIGNMENT"] for member in members)
    assert all(member["CURRENT-ASSIGNMENT"].startswith(f"{topic}:") for member in members)
    offsets = rows(tool(servers, "--describe", "--group", group))
    assert {(row["PARTITION"], row["LAG"]) for row in offsets} == {(str(p), "0") for p in range(6)}

    first.close(signal.SIGKILL)
    until(lambda: len(second.owned) == 6, "after the session of the one that died")
    assert not ledger.twice
    assert not first.problems + second.problems


def test_the_range_assignor_of_javas_choice(
    verifiable: Callable[..., Verifiable], filled: Callable[..., str], servers: str, group: str
) -> None:
    topic = filled(partitions=4, each=1)
    both = [verifiable(name, topic, "--group-remote-assignor", "range") for name in ("a", "b")]
    until(lambda: {frozenset(one.owned) for one in both} == {frozenset({0, 1}), frozenset({2, 3})})
    (state,) = rows(tool(servers, "--describe", "--group", group, "--state"))
    assert state["ASSIGNMENT-STRATEGY"] == "range"


def test_a_mixed_group_of_java_and_librdkafka_in_migration(
    verifiable: Callable[..., Verifiable],
    reader: Callable[..., Any],
    filled: Callable[..., str],
    ledger: Any,
    servers: str,
    group: str,
) -> None:
    """Java's classic consumer and librdkafka's; one of each goes over; the tool shows which is which; then back."""
    topic = filled(partitions=8, each=10)
    # The range assignor, in the first place of what Java supports, is what both have in common.
    java_old = verifiable("java-old", topic, protocol="classic")
    rd_old = reader("rd-old", topic, protocol="classic", partition_assignment_strategy="range")
    until(lambda: len(java_old.owned) == len(rd_old.owned) == 4)
    java_new = verifiable("java-new", topic)
    until(lambda: sorted(len(one.owned) for one in (java_old, rd_old, java_new)) == [2, 3, 3])
    rd_new = reader("rd-new", topic)
    everyone = (java_old, rd_old, java_new, rd_new)
    until(lambda: [len(one.owned) for one in everyone] == [2, 2, 2, 2])
    until(lambda: len(ledger.read) == 80)
    members = rows(tool(servers, "--describe", "--group", group, "--members", "--verbose"))
    assert sorted(member["UPGRADED"] for member in members) == ["false", "false", "true", "true"]
    # When it closes in the middle of a reconciliation, Java complains of that.
    assert not java_old.problems + java_new.problems
    rd_new.close()
    java_new.close()
    until(lambda: len(java_old.owned) == len(rd_old.owned) == 4)
    assert re.search(rf"{group}\s+Classic", tool(servers, "--list", "--type"))
    assert not ledger.twice


def test_cooperative_members_go_on_reading_while_their_group_goes_over(
    verifiable: Callable[..., Verifiable],
    filled: Callable[..., str],
    ledger: Any,
    servers: str,
    group: str,
) -> None:
    """Java's cooperative consumers (G05): who has to give up some keeps the others."""
    topic = filled(partitions=6, each=10)
    cooperative = ("--assignment-strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor")
    old = [verifiable(f"old{number}", topic, *cooperative, protocol="classic") for number in range(2)]
    until(lambda: [len(one.owned) for one in old] == [3, 3])
    had = [one.owned for one in old]
    new = verifiable("new", topic)
    until(lambda: [len(one.owned) for one in (*old, new)] == [2, 2, 2])
    assert all(one.owned < before for one, before in zip(old, had, strict=True))
    assert re.search(rf"{group}\s+Consumer", tool(servers, "--list", "--type"))
    new.close(signal.SIGKILL)
    until(lambda: [len(one.owned) for one in old] == [3, 3], "after the session of the one that died")
    assert re.search(rf"{group}\s+Classic", tool(servers, "--list", "--type"))
    until(lambda: len(ledger.read) == 60)
    assert not ledger.twice
    assert not [problem for one in old for problem in one.problems]


def test_kafka_reads_the_records_of_such_groups(tmp_path: Path) -> None:
    """DumpLogSegments with Kafka's own decoder: every kind of record of the new protocol, field by field."""
    with running("ottla", log_dirs=str(tmp_path), offsets_topic_num_partitions=1, log_flush_interval_messages=1) as subject:
        servers = subject.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic("t", 2, 1)])["t"].result(60)
        config = {"bootstrap.servers": servers, "group.id": "g", "group.protocol": "consumer", "client.id": "c"}
        consumer = Consumer({**config, "group.instance.id": "i", "group.remote.assignor": "range"})
        given: list[Any] = []
        consumer.subscribe(["^t.*"], on_assign=lambda _, partitions: given.extend(partitions))
        for _ in range(200):
            if given:
                break
            consumer.poll(0.1)
        assert sorted(part.partition for part in given) == [0, 1]
        consumer.close()
    (log,) = (tmp_path / "__consumer_offsets-0").glob("*.log")
    done = run_tool(KAFKA_4, "DumpLogSegments", "--files", str(log), "--offsets-decoder", timeout=180, check=True)
    payloads: dict[str, list[Any]] = {}
    for line in done.stdout.splitlines():
        if match := re.search(r"key: (\{.*\}) payload: (\{.*\}|<null>|null)?", line):
            key = json.loads(match[1])
            value = match[2]
            payloads.setdefault(str(key["type"]), []).append(json.loads(value)["data"] if value and value[0] == "{" else None)
    assert {"3", "5", "6", "7", "8", "16"} <= payloads.keys(), done.stdout[-3000:]
    assert payloads["3"][0]["epoch"] == 2
    member = payloads["5"][0]
    assert (member["instanceId"], member["clientId"], member["serverAssignor"]) == ("i", "c", "range")
    assert member["subscribedTopicRegex"] == "(^t.*)", "librdkafka joins several by |"
    assert payloads["16"][0]["topics"] == ["t"]
    assert payloads["6"][0]["assignmentEpoch"] == 2
    assert [topic["partitions"] for topic in payloads["7"][0]["topicPartitions"]] == [[0, 1]]
    (assigned,) = payloads["8"][0]["assignedPartitions"]
    assert (assigned["partitions"], assigned["assignmentEpochs"]) == ([0, 1], [2, 2])
    assert (payloads["8"][0]["memberEpoch"], payloads["8"][0]["state"]) == (2, 0)
    assert payloads["8"][-1]["memberEpoch"] == -2, "a static member leaves for a while"
