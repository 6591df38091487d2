"""Java's consumers in groups, Kafka's own tools on groups, and Kafka's own reading of our `__consumer_offsets`."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import Broker
from tests.kit.peers import KAFKA_3, KAFKA_4, ApacheKafka, java_command, run_tool
from tests.kit.subject import chosen
from tests.kit.wait import until

pytestmark = pytest.mark.java

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


@pytest.fixture(params=[KAFKA_3, KAFKA_4])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def rows(text: str) -> list[dict[str, str]]:
    """The table a tool printed, by column."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    at = next(number for number, words in enumerate(lines) if words[0] == "GROUP")
    head = lines[at]
    return [dict(zip(head, words, strict=False)) for words in lines[at + 1 :] if len(words) >= len(head) - 1]


def test_console_consumer_and_the_group_tool(servers: str, group: str, filled: Callable[..., str], version: str) -> None:
    topic = filled(partitions=3, each=10)

    def tool(*args: str) -> str:
        done = run_tool(version, GROUPS, "--bootstrap-server", servers, *args, timeout=180)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    read = run_tool(
        version,
        "ConsoleConsumer",
        *("--bootstrap-server", servers, "--topic", topic, "--group", group, "--from-beginning", "--max-messages", "30"),
        *("--timeout-ms", "120000"),
        timeout=180,
    )
    assert sorted(read.stdout.split()) == sorted(f"{partition}:{number}" for partition in range(3) for number in range(10))
    assert group in tool("--list").split()
    assert re.search(rf"{group}\s+Empty", tool("--list", "--state", "Empty"))
    described = rows(tool("--describe", "--group", group, "--offsets"))
    assert {(row["PARTITION"], row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]) for row in described} == {
        (str(partition), "10", "10", "0") for partition in range(3)
    }
    assert "has no active members" in tool("--describe", "--group", group, "--members")
    assert "Empty" in tool("--describe", "--group", group, "--state")
    tool("--group", group, "--reset-offsets", "--to-offset", "4", "--topic", f"{topic}:0", "--execute")
    tool("--group", group, "--reset-offsets", "--shift-by", "-3", "--topic", f"{topic}:1", "--execute")
    tool("--group", group, "--delete-offsets", "--topic", f"{topic}:2")
    described = rows(tool("--describe", "--group", group))
    assert {(row["PARTITION"], row["CURRENT-OFFSET"], row["LAG"]) for row in described} == {("0", "4", "6"), ("1", "7", "3")}
    assert "successful" in tool("--delete", "--group", group)
    assert group not in tool("--list").split()


class Verifiable:
    """Kafka's VerifiableConsumer: says in JSON what it is given and what it reads."""

    def __init__(self, version: str, servers: str, topic: str, group: str, *args: str, session_ms: int = 10_000) -> None:
        command = java_command(
            version,
            "org.apache.kafka.tools.VerifiableConsumer",
            *("--bootstrap-server", servers, "--topic", topic, "--group-id", group, "--reset-policy", "earliest"),
            *("--session-timeout", str(session_ms), *args),
        )
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.owned: set[int] = set()
        self.read = 0
        self.events: list[str] = []
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.startswith("{"):
                continue
            event = json.loads(line)
            self.events.append(event["name"])
            if event["name"] == "partitions_assigned":
                self.owned |= {each["partition"] for each in event["partitions"]}
            elif event["name"] == "partitions_revoked":
                self.owned -= {each["partition"] for each in event["partitions"]}
            elif event["name"] == "records_consumed":
                self.read += event["count"]

    def end(self, how: int) -> None:
        self.process.send_signal(how)
        self.process.wait(120)
        self._thread.join(60)
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextmanager
def team(*makers: Callable[[], Verifiable]) -> Iterator[list[Verifiable]]:
    made = [make() for make in makers]
    try:
        yield made
    finally:
        for each in made:
            if each.process.poll() is None:
                each.end(signal.SIGKILL)


# The broker hands on what the leader assigned: one eager and the cooperative protocol differ for it, the others are slow.
@pytest.mark.parametrize(
    "assignor",
    [
        "RangeAssignor",
        pytest.param("RoundRobinAssignor", marks=pytest.mark.slow),
        pytest.param("StickyAssignor", marks=pytest.mark.slow),
        "CooperativeStickyAssignor",
    ],
)
def test_f36_java_consumers_share_and_follow_leavers_and_the_dead(
    servers: str, group: str, filled: Callable[..., str], assignor: str
) -> None:
    topic = filled(partitions=6, each=50)
    strategy = f"org.apache.kafka.clients.consumer.{assignor}"

    def make(version: str) -> Callable[[], Verifiable]:
        return lambda: Verifiable(version, servers, topic, group, "--assignment-strategy", strategy)

    def shared(*members: Verifiable) -> bool:
        owned = [partition for member in members for partition in member.owned]
        sizes = [len(member.owned) for member in members]
        return sorted(owned) == list(range(6)) and max(sizes) - min(sizes) <= 1

    with team(make(KAFKA_4), make(KAFKA_3), make(KAFKA_4)) as members:
        until(lambda: shared(*members), timeout_s=120)
        until(lambda: sum(member.read for member in members) >= 300, timeout_s=120)
        done = run_tool(KAFKA_4, GROUPS, "--bootstrap-server", servers, "--describe", "--group", group)
        described = rows(done.stdout)
        assert len({row["CONSUMER-ID"] for row in described}) == 3
        assert {row["HOST"] for row in described} == {"/127.0.0.1"}
        members[0].end(signal.SIGTERM)  # says that it leaves
        until(lambda: shared(*members[1:]), timeout_s=120)
        members[1].end(signal.SIGKILL)  # does not
        members[1].owned.clear()
        until(lambda: shared(members[2]), timeout_s=120)


def test_g04_a_static_java_member_comes_back(servers: str, group: str, filled: Callable[..., str]) -> None:
    topic = filled(partitions=4, each=5)

    def make(name: str) -> Callable[[], Verifiable]:
        # Long enough for a JVM to start again, however busy the machine is.
        return lambda: Verifiable(KAFKA_4, servers, topic, group, "--group-instance-id", name, session_ms=300_000)

    with team(make("one"), make("two")) as members:
        until(lambda: sorted(len(member.owned) for member in members) == [2, 2], timeout_s=120)
        events = list(members[1].events)
        owned = set(members[0].owned)
        members[0].end(signal.SIGKILL)
        members[0] = make("one")()
        until(lambda: members[0].owned == owned, timeout_s=120)
        assert [event for event in members[1].events[len(events) :] if event.startswith("partitions")] == []


# What we write, read by Kafka


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of an Ottla broker with a stable group, one that was emptied, and offsets of all sorts."""
    path = tmp_path_factory.mktemp("groups") / "data"
    with Broker(
        {"broker.id": 1, "offsets.topic.num.partitions": 1, "group.initial.rebalance.delay.ms": 0}, data_dir=path
    ) as broker:
        servers = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        (made,) = admin.create_topics([NewTopic("t", 2, 1)]).values()
        made.result(60)
        producer = Producer({"bootstrap.servers": servers})
        for partition in (0, 1):
            for number in range(10):
                producer.produce("t", b"%d" % number, partition=partition)
        producer.flush(60)
        simple = Consumer({"bootstrap.servers": servers, "group.id": "simple"})
        simple.commit(offsets=[TopicPartition("t", 0, 3, "Anmerkung"), TopicPartition("t", 1, 4)], asynchronous=False)
        simple.close()
        gone = Consumer({"bootstrap.servers": servers, "group.id": "gone"})
        gone.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
        gone.close()
        admin.delete_consumer_groups(["gone"])["gone"].result(60)
        left = Consumer({"bootstrap.servers": servers, "group.id": "left", "auto.offset.reset": "earliest"})
        left.subscribe(["t"])
        count = 0
        while count < 20:
            count += len(left.consume(20, timeout=20))
        left.close()
        static = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "stable",
                "group.instance.id": "one",
                "session.timeout.ms": 600_000,
                "max.poll.interval.ms": 600_000,
                "auto.offset.reset": "earliest",
            }
        )
        static.subscribe(["t"])
        count = 0
        while count < 20:
            count += len(static.consume(20, timeout=20))
        static.commit(asynchronous=False)
        # A static member does not leave when it closes: its group stays as it is.
        static.close()
    return path


def test_f41_kafkas_dump_tool_decodes_our_offsets(written: Path, version: str) -> None:
    log = written / "__consumer_offsets-0" / "00000000000000000000.log"
    done = run_tool(version, "DumpLogSegments", "--files", str(log), "--offsets-decoder", "--deep-iteration")
    assert done.returncode == 0, done.stderr
    text = done.stdout
    payloads = [line.split("payload:")[-1].strip() for line in text.splitlines() if "payload:" in line]
    assert payloads
    if version == KAFKA_4:
        values = [json.loads(payload) for payload in payloads if payload != "<DELETE>"]
        commits = [value["data"] for value in values if value and "offset" in value.get("data", {})]
        # confluent-kafka sends the zero byte that ends a C string along with it.
        assert next(c for c in commits if c["offset"] == 3)["metadata"].rstrip("\0") == "Anmerkung"
        groups = [value["data"] for value in values if value and value.get("data", {}).get("protocolType") == "consumer"]
        stable = [group for group in groups if group["members"]][-1]
        assert stable["members"][0]["groupInstanceId"] == "one"
        assert stable["protocol"] == "range"
    assert "stable" in text
    assert "Anmerkung" in text or version == KAFKA_3
    assert "DECODING" not in text.upper().replace("OFFSETS-DECODER", "")


@pytest.mark.skipif(chosen() != "ottla", reason="about Ottla's files")
def test_f41_groups_go_to_kafka_and_back(written: Path) -> None:
    """Apache Kafka 3.9 loads our groups and offsets, works on them, and we load what it left."""
    ours = {path: path.read_bytes() for path in written.glob("t-*/partition.metadata")}
    for path in [written / "ottla-metadata.db", written / "meta.properties", *written.glob("*/partition.metadata")]:
        # Whose the directory is belongs to the metadata, which does not move along.
        path.unlink()
    for path in written.glob("ottla-metadata.db-*"):
        path.unlink()
    settings: dict[str, Any] = {"offsets.topic.num.partitions": 1}
    with ApacheKafka(KAFKA_3, data_dir=written, **settings) as kafka:
        servers = kafka.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        for made in admin.create_topics([NewTopic("t", 2, 1)]).values():
            made.result(30)
        assert _offsets(servers, "simple") == {0: 3, 1: 4}
        assert _offsets(servers, "left") == {0: 10, 1: 10}
        assert _offsets(servers, "stable") == {0: 10, 1: 10}
        described = run_tool(KAFKA_3, GROUPS, "--bootstrap-server", servers, "--describe", "--group", "stable", "--members")
        assert "one" in described.stdout, described.stdout + described.stderr
        state = run_tool(KAFKA_3, GROUPS, "--bootstrap-server", servers, "--describe", "--all-groups", "--state").stdout
        assert re.search(r"stable .*range\s+Stable\s+1", state), state
        assert re.search(r"left .*Empty\s+0", state), state
        assert "gone" not in state
        consumer = Consumer({"bootstrap.servers": servers, "group.id": "simple"})
        consumer.commit(offsets=[TopicPartition("t", 0, 7)], asynchronous=False)
        consumer.close()
        assert kafka.stop() in (0, 143)
    for path, data in ours.items():
        # Offsets belong to a topic's id, and Kafka made the topic anew.
        path.write_bytes(data)
    with Broker({"broker.id": 1}, data_dir=written) as broker:
        servers = broker.bootstrap_servers
        assert _offsets(servers, "simple") == {0: 7, 1: 4}
        assert _offsets(servers, "left") == {0: 10, 1: 10}
        state = run_tool(KAFKA_4, GROUPS, "--bootstrap-server", servers, "--describe", "--all-groups", "--state").stdout
        assert re.search(r"stable .*range\s+Stable\s+1", state), state
        assert "gone" not in state


def _offsets(servers: str, group: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    found = consumer.committed([TopicPartition("t", 0), TopicPartition("t", 1)], timeout=180)
    consumer.close()
    return {partition.partition: partition.offset for partition in found}
