from __future__ import annotations

import random

import pytest

from ottla.cli.dlq.progress import METADATA_MAX, Progress


def test_letters_in_order_move_the_offset() -> None:
    progress = Progress(10)
    progress.add(10, 12)
    progress.add(12, 13)
    assert (progress.next_offset, progress.metadata(), progress.count_behind()) == (13, "ottla-dlq/1", 0)


def test_letters_between_others_are_remembered() -> None:
    progress = Progress(10)
    for first, end in ((12, 13), (15, 18), (13, 14)):
        progress.add(first, end)
    assert (progress.next_offset, progress.metadata(), progress.count_behind()) == (10, "ottla-dlq/1 2-3 5-7", 5)
    assert [offset for offset in range(8, 20) if progress.done(offset)] == [8, 9, 12, 13, 15, 16, 17]
    progress.add(10, 12)
    assert (progress.next_offset, progress.metadata()) == (14, "ottla-dlq/1 1-3")
    progress.add(14, 15)
    assert (progress.next_offset, progress.metadata()) == (18, "ottla-dlq/1")


@pytest.mark.parametrize("seed", range(20))
def test_any_order_is_a_set_of_offsets_and_survives_its_text(seed: int) -> None:
    chance = random.Random(seed)
    progress, expected = Progress(5), set(range(5))
    for _ in range(40):
        first = chance.randrange(0, 60)
        end = first + chance.randrange(0, 4)
        progress.add(first, end)
        expected |= set(range(first, end))
        progress = Progress(progress.next_offset, progress.metadata())
        assert {offset for offset in range(80) if progress.done(offset)} == expected
        assert progress.next_offset == min(set(range(81)) - expected)


def test_the_metadata_of_others_is_ignored() -> None:
    assert Progress(7, "some consumer's own").metadata() == "ottla-dlq/1"
    assert Progress(7, "ottla-dlq/1 2 x").count_behind() == 0


def test_five_hundred_separate_letters_fit() -> None:
    progress = Progress(1_000_000_000)
    for number in range(1, 501):
        progress.add(1_000_000_000 + number * 7, 1_000_000_000 + number * 7 + 1)
    assert len(progress.metadata()) < METADATA_MAX
