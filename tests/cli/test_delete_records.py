"""`ottla delete-records` (F12, F69)."""

from __future__ import annotations

import json

import pytest

from tests.kit.ottla_command import Ottla


def starts(ottla: Ottla, topic: str) -> list[int]:
    (document,) = json.loads(ottla.ok("topic", "describe", topic, "--json"))
    return [row["start_offset"] for row in document["partitions"]]


@pytest.fixture
def filled(ottla: Ottla, topic: str) -> str:
    """Ten records in partition 0, of the years 2001 to 2010; four in partition 1, of now."""
    lines = [json.dumps({"value": str(year), "partition": 0, "timestamp": f"{year}-01-01T00:00Z"}) for year in range(2001, 2011)]
    ottla.ok("produce", topic, "--format", "json", stdin="\n".join(lines))
    ottla.ok("produce", topic, "a", "b", "c", "d", "-p", "1")
    return topic


def test_what_goes_is_shown_and_then_deleted(ottla: Ottla, filled: str) -> None:
    shown = ottla.ok("delete-records", filled, "--before", "4", "-p", "0", "--dry-run").splitlines()
    assert shown[0].split() == ["TOPIC", "PARTITION", "START", "NEW-START", "END", "DELETED", "KEPT"]
    assert shown[1:] == [f"{filled}          0      0          4   10        4     6"]
    assert starts(ottla, filled) == [0, 0, 0]
    assert ottla.ok("delete-records", filled, "--before", "4", "-p", "0").endswith(f"4 offsets of topic {filled} deleted\n")
    assert starts(ottla, filled) == [4, 0, 0]
    assert ottla.ok("consume", filled, "-p", "0").split() == [str(year) for year in range(2005, 2011)]


@pytest.mark.parametrize(
    ("before", "expected"),
    [("2004-01-01T00:00Z", [3, 0, 0]), ("-3", [7, 1, 0]), ("end", [10, 4, 0]), ("beginning", [0, 0, 0]), ("365d", [10, 0, 0])],
)
def test_positions(ottla: Ottla, filled: str, before: str, expected: list[int]) -> None:
    documents = json.loads(ottla.ok("delete-records", filled, "--before", before, "--json"))
    assert [each["new_start_offset"] for each in documents] == expected == starts(ottla, filled)
    assert [each["deleted"] for each in documents] == [offset > 0 for offset in expected]
    assert [each["offsets"] for each in documents] == expected


def test_again_deletes_nothing(ottla: Ottla, filled: str) -> None:
    ottla.ok("delete-records", filled, "--before", "end")
    assert ottla.ok("delete-records", filled, "--before", "end").endswith("nothing to delete\n")
    assert ottla.ok("delete-records", filled, "--before", "2", "-p", "1").endswith("nothing to delete\n")
    assert starts(ottla, filled) == [10, 4, 0]


def test_what_cannot_be(ottla: Ottla, filled: str) -> None:
    assert "--before is missing" in ottla.fails("delete-records", filled, code=2)
    assert "'soon' is not a position" in ottla.fails("delete-records", filled, "--before", "soon", code=2)
    behind = ottla.fails("delete-records", filled, "--before", "7")
    assert f"offset 7 is behind the end: {filled}-1 ends at 4, {filled}-2 ends at 0" in behind
    assert starts(ottla, filled) == [0, 0, 0]
    assert "has no partition 9" in ottla.fails("delete-records", filled, "--before", "end", "-p", "9")
    assert f"did you mean {filled}" in ottla.fails("delete-records", filled[:-1], "--before", "end")


def test_a_compacted_topic_keeps_its_records(ottla: Ottla, topic: str) -> None:
    ottla.ok("config", "set", "topic", topic, "cleanup.policy=compact")
    ottla.ok("produce", topic, "-k", "key", "value", "-p", "0")
    refused = ottla.fails("delete-records", topic, "--before", "end", "--json")
    error = json.loads(refused)["error"]
    assert error["code"] == "POLICY_VIOLATION"
    assert "only cleanup.policy=delete allows it" in error["hint"]
