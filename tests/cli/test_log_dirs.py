"""`ottla log-dirs` (F6)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.testing import Broker
from tests.kit.ottla_command import Ottla


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Ottla, Path, Path]]:
    """A broker with two data directories, and topic `t` with records in the first one."""
    folder = tmp_path_factory.mktemp("disks")
    first, second = folder / "first", folder / "second"
    with Broker({"log.dirs": f"{first},{second}", "broker.id": 7}) as broker:
        ottla = Ottla(broker.bootstrap_servers)
        ottla.ok("topic", "create", "t", "-p", "2")
        ottla.ok("produce", "t", stdin="x" * 1000 + "\n" + "y" * 1000)
        ottla.ok("log-dirs", "move", "t", "--broker", "7", "--to", str(first), "--wait")
        yield ottla, first, second


def test_directories_and_replicas(two: tuple[Ottla, Path, Path]) -> None:
    ottla, first, second = two
    lines = [line.split() for line in ottla.ok("log-dirs").splitlines()]
    assert lines[0] == ["BROKER", "DIRECTORY", "STATE", "REPLICAS", "SIZE", "FREE", "TOTAL"]
    assert [line[:4] for line in lines[1:]] == [["7", str(first), "online", "2"], ["7", str(second), "online", "0"]]
    (broker,) = json.loads(ottla.ok("log-dirs", "--broker", "7", "--json"))
    full, empty = broker["log_dirs"]
    assert (full["path"], full["error"], empty["replicas"]) == (str(first), None, [])
    assert 0 < full["usable_bytes"] <= full["total_bytes"]
    assert [(each["topic"], each["partition"], each["future"]) for each in full["replicas"]] == [("t", 0, False), ("t", 1, False)]
    assert full["size_bytes"] == sum(each["size_bytes"] for each in full["replicas"]) > 2000
    listed = ottla.ok("log-dirs", "describe", "--topic", "t")
    assert [line.split()[:4] for line in listed.splitlines()[-2:]] == [["t", "0", "7", str(first)], ["t", "1", "7", str(first)]]


def test_a_replica_moves(two: tuple[Ottla, Path, Path]) -> None:
    ottla, first, second = two
    words = ("log-dirs", "move", "t:1", "--broker", "7", "--wait")
    assert ottla.ok(*words, "--to", str(second)) == f"1 replica of broker 7: move to {second} done\n"
    (broker,) = json.loads(ottla.ok("log-dirs", "--json"))
    assert {each["path"]: [replica["partition"] for replica in each["replicas"]] for each in broker["log_dirs"]} == {
        str(first): [0],
        str(second): [1],
    }
    assert (second / "t-1").is_dir()
    assert ottla.ok(*words, "--to", str(second)) == f"1 replica of broker 7: already in {second}\n"
    assert json.loads(ottla.ok(*words, "--to", str(first), "--json")) == {
        "broker": 7, "log_dir": str(first), "moved": 1, "there_before": 0, "done": True,
    }  # fmt: skip


def test_what_cannot_be(two: tuple[Ottla, Path, Path]) -> None:
    ottla, first, second = two
    words = ("log-dirs", "move", "t", "--broker", "7")
    unknown = ottla.fails(*words, "--to", "/nowhere")
    assert "/nowhere is no data directory of broker 7" in unknown
    assert f"it has {first}, {second}" in unknown
    assert "broker 8 does not exist" in ottla.fails("log-dirs", "move", "t", "--broker", "8", "--to", str(second))
    assert "broker 8 does not exist" in ottla.fails("log-dirs", "--broker", "8")
    assert "topic u does not exist" in ottla.fails("log-dirs", "--topic", "u")
    assert "has no partition 5" in ottla.fails("log-dirs", "move", "t:5", "--broker", "7", "--to", str(second))
