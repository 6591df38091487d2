"""`ottla cluster status` and `ottla reassign` on three brokers of Apache Kafka, with ZooKeeper and without (F56, F67)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.testing import Broker
from tests.kit.ottla_command import Ottla
from tests.kit.peers import KAFKA_3, KAFKA_4, ApacheCluster
from tests.kit.wait import until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=[KAFKA_3, KAFKA_4])
def kafka(request: pytest.FixtureRequest) -> Iterator[ApacheCluster]:
    with ApacheCluster(request.param) as cluster:
        yield cluster


def ottla(kafka: ApacheCluster, *words: str, stdin: str = "") -> str:
    command = [sys.executable, "-P", "-m", "ottla", *words, "-b", kafka.bootstrap_servers]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, input=stdin)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_status_and_a_move_there_and_back(kafka: ApacheCluster, tmp_path: Path) -> None:
    ottla(kafka, "topic", "create", "t", "--replica-assignment", "1:2,1:2,1:2")
    ottla(kafka, "produce", "t", stdin="".join(f"{number}\n" for number in range(100)))
    status = json.loads(ottla(kafka, "cluster", "status", "--json"))
    assert [broker["id"] for broker in status["brokers"]] == [1, 2, 3]
    assert sum(each["high_watermark"] for each in status["partitions"]) == 100
    for each in status["partitions"]:
        assert set(each["log_end_offsets"]) == {"1", "2"}
        assert each["log_end_offsets"]["1"] == each["high_watermark"]
    plan, back = tmp_path / "plan.json", tmp_path / "back.json"
    ottla(kafka, "reassign", "plan", "t", "-o", str(plan))
    ottla(kafka, "reassign", "execute", str(plan), "--throttle", "10000000", "--save-current", str(back), "--wait")
    assert json.loads(ottla(kafka, "reassign", "status", str(plan), "--json"))["done"]
    status = json.loads(ottla(kafka, "cluster", "status", "-t", "t", "--json"))
    assert Counter(broker for each in status["partitions"] for broker in each["replicas"]) == {1: 2, 2: 2, 3: 2}
    assert "throttled" not in ottla(kafka, "config", "describe", "broker", "3", "--overrides")
    ottla(kafka, "reassign", "execute", str(back), "--wait")
    assert ottla(kafka, "reassign", "status") == "no reassignment is running\n"


def test_a_slow_move_is_cancelled(kafka: ApacheCluster, tmp_path: Path) -> None:
    ottla(kafka, "topic", "create", "slow", "--replica-assignment", "1")
    ottla(kafka, "produce", "slow", stdin=("x" * 1000 + "\n") * 4000)
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "slow", "partition": 0, "replicas": [2]}]}))
    ottla(kafka, "reassign", "execute", str(plan), "--throttle", "1000")
    (move,) = json.loads(ottla(kafka, "reassign", "status", "--json"))["moving"]
    assert (move["adding"], move["removing"]) == ([2], [1])
    cancelled = json.loads(ottla(kafka, "reassign", "cancel", "--json"))
    assert cancelled["cancelled"] == [{"topic": "slow", "partition": 0}]


def test_replicas_leaders_and_log_dirs(kafka: ApacheCluster) -> None:
    ottla(kafka, "topic", "create", "v", "--replica-assignment", "1:2,2:3")
    ottla(kafka, "produce", "v", "-z", "lz4", stdin="".join(f"{number}\n" for number in range(200)))
    found = json.loads(ottla(kafka, "verify-replicas", "v", "--json"))
    assert [(each["same"], each["replicas"]) for each in found] == [(True, [1, 2]), (True, [2, 3])]
    assert sum(each["end_offset"] for each in found) == 200
    plan = {"version": 1, "partitions": [{"topic": "v", "partition": 0, "replicas": [2, 1]}]}
    ottla(kafka, "reassign", "execute", "-", "--wait", stdin=json.dumps(plan))
    ottla(kafka, "elect", "preferred", "v")
    until(lambda: json.loads(ottla(kafka, "cluster", "status", "-t", "v", "--json"))["partitions"][0]["leader"] == 2, "2 leads")
    brokers = json.loads(ottla(kafka, "log-dirs", "-t", "v", "--json"))
    assert [each["broker"] for each in brokers] == [1, 2, 3]
    assert [len(each["log_dirs"][0]["replicas"]) for each in brokers] == [1, 2, 1]
    assert all(0 < each["log_dirs"][0]["usable_bytes"] <= each["log_dirs"][0]["total_bytes"] for each in brokers)


def test_records_are_copied_and_deleted(kafka: ApacheCluster) -> None:
    ottla(kafka, "topic", "create", "from", "-p", "2", "-r", "3", "-c", "retention.ms=99999999")
    ottla(kafka, "produce", "from", "-K", ":", stdin="".join(f"k{number % 7}:{number}\n" for number in range(200)))
    assert "copied 200 records" in ottla(kafka, "topic", "copy", "from", "to", "--create")
    assert "copied 0 records" in ottla(kafka, "topic", "copy", "from", "to")
    template = "{partition} {key} {value} {time}\\n"
    assert sorted(ottla(kafka, "consume", "to", "-t", template).splitlines()) == sorted(
        ottla(kafka, "consume", "from", "-t", template).splitlines()
    )
    (document,) = json.loads(ottla(kafka, "topic", "describe", "to", "--json"))
    assert document["config"]["retention.ms"] == "99999999"
    assert "deleted" in ottla(kafka, "delete-records", "from", "--before", "end", "--yes")
    assert ottla(kafka, "consume", "from") == ""


def test_dead_letters_go_back_and_the_doctor_is_content(kafka: ApacheCluster) -> None:
    ottla(kafka, "topic", "create", "origin", "origin.dlq", "-p", "1", "-r", "3")
    letter = {"key": "k", "value": "v", "headers": {"ottla.topic": "origin", "ottla.flow": "f", "ottla.reason": "r"}}
    ottla(kafka, "produce", "origin.dlq", "--format", "json", stdin="\n".join([json.dumps(letter)] * 50))
    assert ottla(kafka, "dlq", "replay", "origin.dlq", "-n", "20", "--reason", "r") == "20 records replayed to origin\n"
    assert ottla(kafka, "dlq", "replay", "origin.dlq") == "30 records replayed to origin\n"
    assert ottla(kafka, "consume", "origin").split() == ["v"] * 50
    assert "no dead letters" in ottla(kafka, "dlq", "replay", "origin.dlq")
    words = ("--skip", "copies", "--skip", "disks", "--skip", "replicas", "--skip", "leaders", "--watch-groups", "1s")
    found = json.loads(ottla(kafka, "doctor", "--probe", "--json", *words))
    assert found["findings"] == []


def test_a_mirror_to_ottla_and_back(kafka: ApacheCluster) -> None:
    with Broker({"group.initial.rebalance.delay.ms": 0}) as broker:
        there = Ottla(broker.bootstrap_servers)
        ottla(kafka, "topic", "create", "mirrored", "-p", "3", "-r", "3", "-c", "retention.ms=99999999")
        ottla(kafka, "produce", "mirrored", "-K", ":", stdin="".join(f"k{number % 7}:{number}\n" for number in range(200)))
        ottla(kafka, "consume", "mirrored", "-g", "readers", "-n", "150")
        words = ("mirror", "mirrored", "-e", "--json", "--groups", "readers")
        report = json.loads(ottla(kafka, *words, "--to-bootstrap", broker.bootstrap_servers))
        assert (report["records"], set(report["groups"])) == (200, {"readers"})
        template = "{partition} {key} {value} {time}\\n"
        assert sorted(there.ok("consume", "mirrored", "-t", template).splitlines()) == sorted(
            ottla(kafka, "consume", "mirrored", "-t", template).splitlines()
        )
        assert sorted(there.ok("consume", "mirrored", "-g", "readers").split()) == sorted(
            ottla(kafka, "consume", "mirrored", "-g", "readers").split()
        )
        back = json.loads(there.ok(*words, "--to-bootstrap", kafka.bootstrap_servers))
        assert (back["records"], back["lag"]) == (0, {})
        there.ok("topic", "create", "of-ottla")
        there.ok("produce", "of-ottla", "a", "b")
        assert json.loads(there.ok("mirror", "of-*", "-e", "--json", "--to-bootstrap", kafka.bootstrap_servers))["records"] == 2
        assert ottla(kafka, "consume", "of-ottla").split() == ["a", "b"]
