"""The plan of a reassignment: allowed, even, and copying little (F56)."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.cli.failure import Failure
from ottla.cli.reassign.plan import document_of, parse_document, plan


def copies(current: dict[tuple[str, int], list[int]], target: dict[tuple[str, int], list[int]]) -> int:
    return sum(len(set(replicas) - set(current[key])) for key, replicas in target.items())


def test_what_stands_well_stays() -> None:
    current = {("t", 0): [1, 2], ("t", 1): [2, 3], ("t", 2): [3, 1]}
    assert plan(current, {1: None, 2: None, 3: None}) == current


def test_a_new_broker_gets_its_share_and_no_more_is_copied() -> None:
    current = {("t", index): [1 + index % 3, 1 + (index + 1) % 3] for index in range(12)}
    target = plan(current, dict.fromkeys([1, 2, 3, 4]))
    assert Counter(broker for replicas in target.values() for broker in replicas) == {1: 6, 2: 6, 3: 6, 4: 6}
    assert Counter(replicas[0] for replicas in target.values()) == {1: 3, 2: 3, 3: 3, 4: 3}
    assert copies(current, target) == 6


def test_a_broker_that_is_not_named_is_left() -> None:
    current = {("t", index): [1 + index % 3, 1 + (index + 1) % 3] for index in range(6)}
    target = plan(current, {1: None, 2: None})
    assert all(sorted(replicas) == [1, 2] for replicas in target.values())
    assert copies(current, target) == 4


def test_more_and_fewer_replicas() -> None:
    current = {("t", 0): [1], ("t", 1): [2]}
    more = plan(current, dict.fromkeys([1, 2, 3]), 3)
    assert all(sorted(replicas) == [1, 2, 3] for replicas in more.values())
    fewer = plan(more, dict.fromkeys([1, 2, 3]), 1)
    assert [len(replicas) for replicas in fewer.values()] == [1, 1]
    assert copies(more, fewer) == 0


def test_leaders_are_spread_also_by_way_of_a_third_broker() -> None:
    current = {("t", 0): [1, 2], ("t", 1): [1, 2], ("t", 2): [2, 3], ("t", 3): [3, 4], ("t", 4): [1, 4], ("t", 5): [4, 3]}
    target = plan(current, dict.fromkeys([1, 2, 3, 4]))
    leaders = Counter(replicas[0] for replicas in target.values())
    assert max(leaders.values()) - min(leaders[broker] for broker in (1, 2, 3, 4)) <= 1


def test_too_few_brokers_are_said() -> None:
    with pytest.raises(Failure, match="t-0 needs 3 brokers for its replicas, but only 2 are given"):
        plan({("t", 0): [1, 2, 3]}, {1: None, 2: None})


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_plan_keeps_its_rules(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 7))
    has_racks = data.draw(st.booleans())
    racks = {broker: data.draw(st.sampled_from("abc")) if has_racks else None for broker in range(1, count + 1)}
    everyone = list(range(1, 10))
    factor = data.draw(st.integers(1, count))
    current = {
        ("t", index): data.draw(st.lists(st.sampled_from(everyone), min_size=factor, max_size=factor, unique=True))
        for index in range(data.draw(st.integers(1, 20)))
    }
    target = plan(current, racks)
    assert target.keys() == current.keys()
    load = Counter(dict.fromkeys(racks, 0))
    for replicas in target.values():
        assert len(set(replicas)) == factor
        assert set(replicas) <= racks.keys()
        load.update(replicas)
        if has_racks:
            assert len({racks[broker] for broker in replicas}) == min(factor, len(set(racks.values())))
    if not has_racks:
        assert max(load.values()) - min(load.values()) <= 1
    assert plan(target, racks) == target


def test_kafkas_file_both_ways() -> None:
    assignment = {("t", 0): [1, 2], ("u", 3): [2]}
    document = document_of(assignment)
    assert document["version"] == 1
    assert document["partitions"][0] == {"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "any"]}
    assert parse_document(json.dumps(document), "f") == assignment


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not JSON"),
        ("[]", "`partitions` is missing"),
        ('{"version": 2, "partitions": []}', "version 2 is unknown"),
        ('{"partitions": []}', "lists no partitions"),
        ('{"partitions": [{"topic": "t", "partition": 0}]}', "needs topic, partition and replicas"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}', "not a list of different broker ids"),
        ('{"partitions": [{"topic": "t", "partition": true, "replicas": [1]}]}', "needs topic"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1]}, {"topic": "t", "partition": 0, "replicas": [2]}]}',
            "listed twice",
        ),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["/d"]}]}', "data directories"),
    ],
)
def test_a_file_that_is_none(text: str, says: str) -> None:
    with pytest.raises(Failure, match=says):
        parse_document(text, "f")
