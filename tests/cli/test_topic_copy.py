"""`ottla topic clone` and `ottla topic copy`: exactly once, also when killed (F69, T08)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ottla.testing import Broker
from tests.kit.ottla_command import Ottla
from tests.kit.wait import until


def records(ottla: Ottla, topic: str) -> list[dict[str, Any]]:
    lines = ottla.ok("consume", topic, "--json").splitlines()
    return sorted((json.loads(line) for line in lines), key=lambda each: (each["partition"], each["offset"]))


def contents(ottla: Ottla, topic: str) -> list[tuple[Any, ...]]:
    """Of each record all but its offset."""
    names = ("partition", "key", "value", "headers", "timestamp")
    return [tuple(str(each[name]) for name in names) for each in records(ottla, topic)]


@pytest.fixture
def filled(ottla: Ottla, topic: str) -> str:
    """Thirty records with keys, headers and times of 2023, ten in each of three partitions; and a null key and value."""
    lines = [
        {
            "key": f"k{number}",
            "value": f"v{number}",
            "headers": {"n": str(number)},
            "partition": number % 3,
            "timestamp": 1_680_000_000_000 + number,
        }
        for number in range(30)
    ]
    lines.append({"key": None, "value": None, "partition": 2, "timestamp": 1_680_000_100_000})
    ottla.ok("produce", topic, "--format", "json", stdin="\n".join(map(json.dumps, lines)))
    return topic


@pytest.fixture
def target(ottla: Ottla) -> str:
    return f"copy-{uuid.uuid4().hex[:8]}"


def test_a_clone_has_partitions_and_settings(ottla: Ottla, topic: str, target: str) -> None:
    ottla.ok("config", "set", "topic", topic, "retention.ms=99999", "max.message.bytes=2000000")
    done = ottla.ok("topic", "clone", topic, target)
    assert done == f"topic {target} created like {topic}: 3 partitions, 1 replica, 2 settings of its own\n"
    (document,) = json.loads(ottla.ok("topic", "describe", target, "--json"))
    assert len(document["partitions"]) == 3
    assert document["config"] == {"retention.ms": "99999", "max.message.bytes": "2000000"}
    other = json.loads(ottla.ok("topic", "clone", topic, f"{target}-2", "-p", "5", "-c", "retention.ms=1000", "--json"))
    assert (other["partitions"], other["config"]["retention.ms"]) == (5, "1000")
    assert f"topic {target} exists already" in ottla.fails("topic", "clone", topic, target)
    assert f"did you mean {topic}" in ottla.fails("topic", "clone", topic[:-1], f"{target}-3")


def test_a_copy_keeps_everything_and_continues(ottla: Ottla, filled: str, target: str) -> None:
    assert "copied 31 records" in ottla.ok("topic", "copy", filled, target, "--create", "-z", "lz4")
    assert contents(ottla, target) == contents(ottla, filled)
    ottla.ok("produce", filled, "later", "-p", "1")
    again = json.loads(ottla.ok("topic", "copy", filled, target, "--json"))
    assert (again["records"], again["continued"]) == (1, True)
    assert contents(ottla, target) == contents(ottla, filled)
    (group,) = json.loads(ottla.ok("group", "describe", again["group"], "--json"))
    assert group["lag"] == 0
    assert "copied 0 records" in ottla.ok("topic", "copy", filled, target)


def test_a_target_that_was_made_anew_gets_all(ottla: Ottla, filled: str, target: str) -> None:
    ottla.ok("topic", "copy", filled, target, "--create")
    ottla.ok("topic", "delete", target)
    until(lambda: target not in ottla.ok("topic", "list"), "the topic is deleted")
    assert "copied 31 records" in ottla.ok("topic", "copy", filled, target, "--create")


def test_fewer_partitions_keep_the_order_of_keys(ottla: Ottla, filled: str, target: str) -> None:
    for value in ("first", "second", "third"):
        ottla.ok("produce", filled, value, "-k", "same", "-p", "2")
    ottla.ok("topic", "create", target, "-p", "2")
    ottla.ok("topic", "copy", filled, target)
    copied = records(ottla, target)
    assert len(copied) == 34
    assert [each["value"] for each in copied if each["key"] == "same"] == ["first", "second", "third"]
    ottla.ok("produce", target, "where producers put it", "-k", "same")
    assert len({each["partition"] for each in records(ottla, target) if each["key"] == "same"}) == 1


def test_another_cluster(ottla: Ottla, filled: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker() as broker:
        there = Ottla(broker.bootstrap_servers)
        assert "copied 31 records" in ottla.ok(
            "topic", "copy", filled, filled, "--create", "--to-bootstrap", broker.bootstrap_servers
        )
        assert contents(there, filled) == contents(ottla, filled)
        again = json.loads(ottla.ok("topic", "copy", filled, filled, "--to-bootstrap", broker.bootstrap_servers, "--json"))
        assert (again["records"], again["continued"]) == (0, True)
        there.ok("topic", "create", target, "-p", "2")
        few = ottla.fails("topic", "copy", filled, target, "--to-bootstrap", broker.bootstrap_servers, code=2)
        assert f"topic {target} has 2 partitions, fewer than the 3 of {filled}" in few

        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
        ottla.ok("profile", "add", "there", "-b", broker.bootstrap_servers, "--protected")
        words = ("topic", "clone", filled, f"{target}-2", "--to-profile", "there")
        assert "profile there is protected" in ottla.fails(*words, code=2)
        ottla.ok(*words, "--yes")
        assert f"{target}-2" in there.ok("topic", "list")


def test_what_cannot_be(ottla: Ottla, filled: str, target: str) -> None:
    assert "cannot be copied to itself" in ottla.fails("topic", "copy", filled, filled, code=2)
    missing = ottla.fails("topic", "copy", filled, target)
    assert f"create it with `ottla topic clone {filled} {target}`, or pass --create" in missing
    assert f"did you mean {filled}" in ottla.fails("topic", "copy", filled[:-1], target)
    assert "not an amount of data" in ottla.fails("topic", "copy", filled, target, "--throttle", "fast", code=2)
    assert "no broker answers" in ottla.fails("topic", "copy", filled, target, "--to-bootstrap", "127.0.0.1:1")


def test_killed_again_and_again_each_record_once(ottla: Ottla, topic: str, target: str) -> None:
    count = 30_000
    ottla.ok("produce", topic, stdin="\n".join(f"{number:06d}{'x' * 100}" for number in range(count)))
    ottla.ok("topic", "clone", topic, target)
    words = ottla.command("topic", "copy", topic, target, "--throttle", "400000")

    def written() -> int:
        """Records in the copy, also of an open transaction."""
        (document,) = json.loads(ottla.ok("topic", "describe", target, "--json"))
        return int(document["records"])

    def committed() -> int:
        done = ottla.run("group", "describe", f"ottla-copy.{topic}.{target}", "--json")
        return sum(each["committed"] or 0 for each in json.loads(done.stdout)[0]["partitions"]) if done.returncode == 0 else 0

    for kill in range(2):
        before = committed()
        process = subprocess.Popen(words, env=ottla.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            until(lambda before=before: committed() > before, f"copy {kill} has committed")
            until(lambda: written() > committed() + 500, f"copy {kill} is in the midst of a transaction")
            assert process.poll() is None
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.communicate()
    done = json.loads(ottla.ok("topic", "copy", topic, target, "--json"))
    assert 0 < done["records"] < count
    values = Counter(each["value"] for each in records(ottla, target))
    assert len(values) == count
    assert set(values.values()) == {1}
