from __future__ import annotations

from collections import Counter

import pytest

from ottla.cluster.placement import place

NO_RACKS: dict[int, str | None] = dict.fromkeys(range(5))


def test_round_robin_as_the_kafka_notes_show_it() -> None:
    placed = place(NO_RACKS, 10, 3, start=0, shift=0)
    assert placed == [
        (0, 1, 2),
        (1, 2, 3),
        (2, 3, 4),
        (3, 4, 0),
        (4, 0, 1),
        (0, 2, 3),
        (1, 3, 4),
        (2, 4, 0),
        (3, 0, 1),
        (4, 1, 2),
    ]


def test_racks_alternate_and_none_gets_a_second_replica_before_each_has_one() -> None:
    racks: dict[int, str | None] = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}
    placed = place(racks, 6, 3, start=2, shift=0)
    for replicas in placed:
        assert len({racks[broker] for broker in replicas}) == 3
    assert Counter(broker for replicas in placed for broker in replicas) == dict.fromkeys(range(6), 3)
    assert Counter(replicas[0] for replicas in placed) == dict.fromkeys(range(6), 1)


def test_more_replicas_than_racks_fill_the_racks_first() -> None:
    racks: dict[int, str | None] = {0: "a", 1: "a", 2: "a", 3: "b"}
    for replicas in place(racks, 8, 3, start=1, shift=3):
        assert 3 in replicas
        assert len(set(replicas)) == 3


def test_some_brokers_without_a_rack_count_as_no_racks() -> None:
    assert place({0: "a", 1: None}, 2, 2, start=0, shift=0) == [(0, 1), (1, 0)]


@pytest.mark.parametrize("racks", [dict.fromkeys((3, 7, 9)), {3: "x", 7: "y", 9: "x"}])
def test_added_partitions_go_on_where_the_topic_began(racks: dict[int, str | None]) -> None:
    assert {len(set(replicas)) for replicas in place(racks, 8, 2, start=1, shift=1)} == {2}
    one_by_one = [place(racks, 1, 1, start=2, shift=0, first_partition=number)[0] for number in range(8)]
    assert one_by_one == place(racks, 8, 1, start=2, shift=0)


def test_one_broker() -> None:
    assert place({1001: None}, 3, 1, start=0, shift=0) == [(1001,), (1001,), (1001,)]
