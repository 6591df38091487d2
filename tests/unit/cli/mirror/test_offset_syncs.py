"""Offsets of a source and of its mirror: never past an unread record, and small enough for a committed offset."""

from __future__ import annotations

import json
import random

import pytest

from ottla.cli.copying.transfer import Committed
from ottla.cli.mirror.offset_syncs import RUNS_MAX, OffsetSyncs
from ottla.cli.mirror.progress import Progress


def mirrored(seed: int, transactions: int) -> tuple[OffsetSyncs, dict[int, int], int]:
    """Runs of random transactions, the target offset of each source record, and the next source offset."""
    chance = random.Random(seed)
    syncs = OffsetSyncs()
    truth: dict[int, int] = {}
    source, target = chance.randrange(1000), 0
    for _ in range(transactions):
        for _ in range(chance.randrange(1, 4)):
            count = chance.randrange(1, 50)
            syncs.add(source, target, count)
            truth.update((source + number, target + number) for number in range(count))
            source, target = source + count + chance.randrange(0, 3), target + count
        target += 1  # the marker of the transaction
    return syncs, truth, source


@pytest.mark.parametrize("seed", range(20))
def test_a_translated_offset_is_never_past_an_unread_record(seed: int) -> None:
    syncs, truth, end = mirrored(seed, 400)
    unread = None
    for offset in reversed(range(min(truth), end)):
        unread = truth.get(offset, unread)
        found = syncs.translate(offset)
        if found is not None and unread is not None:
            assert found <= unread
    assert syncs.translate(min(truth) - 1) is None
    recent = [(source, target) for source, target in truth.items() if source >= syncs.runs[-10].source]
    assert all(syncs.translate(source) == target for source, target in recent)


def test_old_runs_are_thinned_and_fit_into_the_metadata_of_an_offset() -> None:
    syncs = OffsetSyncs()
    for number in range(5_000):
        syncs.add(number * 1_000_000_007, number * 1_000_000_009, 1_000_000_000)
    assert len(syncs.runs) <= RUNS_MAX
    assert syncs.runs[0].source < syncs.runs[-1].source // 2
    progress = Progress(10**14, "c" * 22, "d" * 22, ("a" * 22, "b" * 22), syncs)
    committed = progress.committed()
    assert len(committed.metadata) < 4096
    assert Progress.read(committed) == progress


def test_runs_that_follow_each_other_are_one() -> None:
    syncs = OffsetSyncs()
    syncs.add(0, 0, 5)
    syncs.add(5, 5, 5)
    syncs.add(10, 11, 5)
    assert [(run.source, run.target, run.count) for run in syncs.runs] == [(0, 0, 10), (10, 11, 5)]


@pytest.mark.parametrize("metadata", ["", "ottla-copy/1 a b", "{}", "[]", json.dumps({"mirror": 2}), '{"mirror":1,"source":"a"}'])
def test_metadata_of_others_is_no_progress(metadata: str) -> None:
    assert Progress.read(Committed(7, metadata)) is None
