"""SourceOffsets of a query: their JSON, shares of a limit, pieces of ranges (F78)."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from ottla.pipelines.checkpoint import offsets_of
from ottla.pipelines.data_source.offsets import (
    OffsetRange,
    SourceOffsets,
    available,
    group_ranges,
    limited,
    split_ranges,
    topic_id_text,
)
from ottla.types import TopicPartition

wheres = st.builds(TopicPartition, st.sampled_from(["a", "b", "c.d-e_f"]), st.integers(0, 20))
positions = st.dictionaries(wheres, st.integers(0, 1 << 40))


@given(positions, st.dictionaries(st.sampled_from(["a", "b"]), st.text("abc", min_size=1)))
def test_f78_offsets_survive_json_and_have_one_text(found: dict[TopicPartition, int], ids: dict[str, str]) -> None:
    offsets = SourceOffsets(found, ids)
    text = json.dumps(offsets.document())
    assert SourceOffsets.of(json.loads(text)) == offsets
    backwards = SourceOffsets(dict(reversed(found.items())), dict(reversed(ids.items())))
    assert json.dumps(backwards.document()) == text
    assert offsets_of(text) == found, "whoever reads a checkpoint sees the same"


def test_f78_partitions_are_in_the_order_of_their_numbers() -> None:
    offsets = SourceOffsets({TopicPartition("t", number): number for number in (10, 2, 1)})
    assert json.dumps(offsets.document()) == '{"t": {"1": 1, "2": 2, "10": 10}}'


@given(positions, positions, st.integers(1, 1 << 30))
def test_f78_a_limit_is_shared_out_and_nobody_starves(
    start: dict[TopicPartition, int], latest: dict[TopicPartition, int], count_max: int
) -> None:
    ends = limited(start, latest, count_max)
    sizes = available(start, latest)
    assert ends.keys() == latest.keys()
    taken = available(start, ends)
    for where, size in sizes.items():
        assert 0 <= taken[where] <= size
        assert (taken[where] > 0) == (size > 0)
    total = sum(sizes.values())
    if total <= count_max:
        assert ends == latest
    else:
        assert sum(taken.values()) <= max(count_max, 0) + sum(size > 0 for size in sizes.values())


def test_f78_a_limit_follows_the_sizes() -> None:
    a, b = TopicPartition("t", 0), TopicPartition("t", 1)
    assert limited({a: 100, b: 0}, {a: 400, b: 100}, 40) == {a: 130, b: 10}


@given(
    st.dictionaries(wheres, st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=6),
    st.none() | st.integers(1, 30),
    st.none() | st.integers(1, 50),
)
def test_f78_pieces_cover_the_ranges(
    given_ranges: dict[TopicPartition, tuple[int, int]], pieces_min: int | None, records_max: int | None
) -> None:
    ranges = [OffsetRange(where, begin, begin + size) for where, (begin, size) in given_ranges.items()]
    pieces = split_ranges(ranges, pieces_min, records_max)
    wanted = [(entry.where, offset) for entry in ranges for offset in range(entry.start, entry.end)]
    assert [(entry.where, offset) for entry in pieces for offset in range(entry.start, entry.end)] == wanted
    assert all(entry.size > 0 for entry in pieces)
    if records_max is not None:
        assert all(entry.size <= records_max for entry in pieces)
    if pieces_min is None and records_max is None:
        assert len(pieces) == sum(entry.size > 0 for entry in ranges)


def test_f78_at_least_so_many_pieces() -> None:
    ranges = [OffsetRange(TopicPartition("t", 0), 0, 900), OffsetRange(TopicPartition("t", 1), 50, 150)]
    pieces = split_ranges(ranges, 10, None)
    assert [entry.where.partition for entry in pieces] == [0] * 9 + [1]
    assert pieces[0] == OffsetRange(TopicPartition("t", 0), 0, 100)


@given(st.lists(st.integers(1, 30), max_size=20), st.integers(1, 60))
def test_f78_small_ranges_are_put_together_in_their_order(sizes: list[int], records_max: int) -> None:
    ranges = [OffsetRange(TopicPartition("t", number), number, number + size) for number, size in enumerate(sizes)]
    groups = group_ranges(ranges, records_max)
    assert [entry for group in groups for entry in group] == ranges
    totals = [sum(entry.size for entry in group) for group in groups]
    assert all(total <= records_max or len(group) == 1 for group, total in zip(groups, totals, strict=True))
    # None could have had its first range in the group before.
    assert all(total + after[0].size > records_max for total, after in zip(totals, groups[1:], strict=False))


def test_topic_ids_as_kafkas_tools_print_them() -> None:
    assert topic_id_text(bytes(16)) is None
    assert topic_id_text(bytes(range(16))) == "AAECAwQFBgcICQoLDA0ODw"
