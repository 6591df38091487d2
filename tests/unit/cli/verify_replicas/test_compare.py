"""What differs between batches of two replicas."""

from __future__ import annotations

from dataclasses import replace

from ottla.cli.verify_replicas.compare import Batch, damaged, differences

LOG = [Batch(0, 4, 0xA, True, True), Batch(5, 5, 0xB, True, True), Batch(6, 9, 0xC, True, True)]


def found(batches: list[Batch], *, end: int = 10, compacted: bool = False) -> list[tuple[int, str]]:
    return [(each.offset, each.what) for each in differences(1, LOG, 2, batches, end, compacted=compacted)]


def test_the_same() -> None:
    assert found(list(LOG)) == []


def test_only_what_is_before_the_end_is_compared() -> None:
    assert found(LOG[:2], end=6) == []
    assert found(LOG[:2], end=9) == []  # the last batch reaches behind it
    assert found([LOG[0], replace(LOG[1], crc=0xD)], end=5) == []


def test_another_crc() -> None:
    assert found([LOG[0], replace(LOG[1], crc=0xD), LOG[2]]) == [(5, "offset 5: CRC 0000000d, in replica 1 0000000b")]


def test_missing_and_surplus_batches() -> None:
    assert found([LOG[0], LOG[2]]) == [(5, "offset 5: replica 1 has this batch, replica 2 has not")]
    split = [LOG[0], LOG[1], Batch(6, 7, 0xC, True, True), Batch(8, 9, 0xC, True, True)]
    assert found(split) == [
        (6, "the batch ends at 7, in replica 1 at 9"),
        (8, "offsets 8 to 9: replica 2 has this batch, replica 1 has not"),
    ]


def test_damage_is_told_instead_of_a_difference() -> None:
    bad = replace(LOG[1], is_intact=False, crc=0xD)
    assert found([LOG[0], bad, LOG[2]]) == [(5, "offset 5: the content does not have the CRC of the batch")]
    assert [each.replica for each in damaged(1, [LOG[0], bad])] == [1]


def test_what_compaction_has_cleaned_is_not_comparable() -> None:
    cleaned = replace(LOG[0], crc=0xE, is_original=False)
    assert found([cleaned, LOG[2]], compacted=True) == []
    assert found([cleaned, LOG[2]]) != []
    assert found([cleaned, replace(LOG[1], crc=0xD)], compacted=True) == [(5, "offset 5: CRC 0000000d, in replica 1 0000000b")]
