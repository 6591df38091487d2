"""A compacted log through many lives: appends, passes in slices, flushes, truncations, kills and power losses, against the model.

L04 and L07 together: whatever was flushed is there after a crash, except what compaction may leave out; nothing is doubled; a
pass that a crash cut short is as if it had never been, or done in part.
"""

from __future__ import annotations

import random

import pytest

from ottla.records.record import Record, read_records
from ottla.sim.kernel.disk import SimDisk
from ottla.sim.kernel.process import Process, ProcessDied
from ottla.storage.checkpoint import write_offsets
from ottla.storage.compaction import Compaction, Limits
from ottla.storage.compaction_plan import find_log_to_clean
from ottla.storage.config import LogConfig
from ottla.storage.data_dir import DataDir
from ottla.storage.log import Log
from ottla.storage.names import CLEANED_OFFSETS
from tests.kit.compaction import COMPACTED, Model, ModelBatch, pairs, put
from tests.kit.storage import NOW_MS, TOPIC_ID, TP, read_batches, seeded_random

Pair = tuple[int, bytes | None, bytes | None]


def pairs_of(model: Model, end_offset: int) -> set[Pair]:
    return {(record.offset, record.key, record.value) for record in model.records() if record.offset < end_offset}


class CompactedWorld:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disk = SimDisk(self.rng)
        self.now_ms = NOW_MS
        self.model = Model(COMPACTED.delete_retention_ms)
        self.planned: Model | None = None
        """What the pass that runs will leave."""
        self.may_return: set[Pair] = set()
        """Left out by a pass that was given up: its swaps are in the page cache only, and a power loss undoes them."""
        self.guaranteed = 0
        self.ended = 0
        self.passes = self.crashes = 0
        self.start()

    def start(self) -> None:
        self.process = Process("broker")
        self.view = self.disk.view(self.process)
        self.data_dir = DataDir.open(self.view, "/data", 1, "cluster", seeded_random())
        # as a broker does it: before it knows the topic's settings
        self.data_dir.load(lambda topic: LogConfig(), self.now_ms)
        self.log: Log = self.data_dir.create_log(TP, TOPIC_ID, COMPACTED, self.now_ms)
        self.log.config = COMPACTED
        self.log.high_watermark = self.log.log_end_offset

    def live(self, steps: int) -> None:
        actions = [self.append] * 8 + [self.roll, self.flush, self.flush, self.checkpoint, self.wait] + [self.compact] * 3
        actions += [self.truncate] if self.rng.random() < 0.3 else []
        dies_at = self.rng.randrange(20, 700)
        self.disk.crash_after(dies_at, self.process.die)
        try:
            for _ in range(steps):
                self.rng.choice(actions)()
        except ProcessDied:
            self.crashes += 1
        else:
            self.disk.forget_crash_point()
            self.process.die()
        if self.rng.random() < 0.6:
            self.disk.crash()
            self.restart(self.guaranteed)
        else:
            self.disk.kill(self.process)
            self.restart(self.ended)

    def restart(self, guaranteed: int) -> None:
        self.start()
        log = self.log
        assert guaranteed <= log.log_end_offset, "flushed records are gone"
        found = pairs(log)
        assert [offset for offset, _, _ in found] == sorted({offset for offset, _, _ in found}), "doubled or out of order"
        end = log.log_end_offset
        least = pairs_of(self.planned or self.model, end)
        assert least <= set(found), "lost"
        assert set(found) <= pairs_of(self.model, end) | self.in_flight | self.may_return, "invented"
        self.may_return = set()
        self.adopt()

    in_flight: frozenset[Pair] | set[Pair] = frozenset()
    """Of an append that did not return."""

    def adopt(self) -> None:
        """What was found is what is, from now on."""
        self.planned = None
        self.in_flight = frozenset()
        self.model.batches = []
        for info, data in read_batches(self.log):
            info.position = 0
            horizon_ms = info.base_timestamp if info.has_delete_horizon else None
            self.model.batches.append(ModelBatch(read_records(data, info), info.base_offset, info.last_offset, horizon_ms))
        self.ended = max((batch.last_offset + 1 for batch in self.model.batches), default=0)
        self.guaranteed = min(self.guaranteed, self.ended)

    # --- what may happen

    def append(self) -> None:
        offset = self.log.log_end_offset
        drawn = [
            (b"k%d" % self.rng.randrange(15), None if self.rng.random() < 0.2 else self.rng.randbytes(self.rng.randrange(40)))
            for _ in range(self.rng.randint(1, 4))
        ]
        self.in_flight = {(offset + index, key, value) for index, (key, value) in enumerate(drawn)}
        options: dict[str, int] = {}
        if self.rng.random() < 0.3:
            options = {"producer_id": self.rng.randrange(3), "producer_epoch": 0, "base_sequence": 0}
        put(self.log, *drawn, codec=self.rng.randrange(5), timestamp_ms=self.now_ms, **options)
        self.in_flight = frozenset()
        self.ended = self.log.log_end_offset
        stamped = [Record(offset + i, self.now_ms + i, key, value, [("h", b"v")]) for i, (key, value) in enumerate(drawn)]
        self.model.append(stamped)
        if self.planned is not None:
            self.planned.append(list(stamped))

    def roll(self) -> None:
        self.log.roll(self.now_ms)

    def flush(self) -> None:
        self.log.flush(self.now_ms)
        self.guaranteed = self.ended

    def checkpoint(self) -> None:
        self.data_dir.write_checkpoints()

    def wait(self) -> None:
        self.now_ms += self.rng.randrange(700)

    def truncate(self) -> None:
        offset = self.rng.choice([batch.base_offset for batch in self.model.batches[-3:]] or [0])
        self.guaranteed = min(self.guaranteed, offset)
        self.ended = min(self.ended, offset)
        self.log.truncate_to(offset, self.now_ms)
        self.data_dir.write_checkpoints()
        self.adopt()

    def compact(self) -> None:
        log = self.log
        dirt = find_log_to_clean(log, log.high_watermark, self.now_ms)
        if not dirt.is_due:
            return
        limits = Limits(io_bytes=self.rng.choice((64, 500, 1 << 18)))
        compaction = Compaction(self.view, dirt, limits, self.now_ms)
        self.planned = self.model.copy()
        # what is not flushed replaces nothing: a power loss would take both
        self.planned.compact(dirt.first_dirty_offset, min(dirt.end_offset, self.guaranteed), self.now_ms)
        gives_up = self.rng.random() < 0.2
        while True:
            progress = compaction.advance(self.rng.choice((1100, 1 << 20)))
            if progress.replacement is not None:
                compaction.swap(progress.replacement)
            if progress.done:
                break
            if gives_up and self.rng.random() < 0.1:
                compaction.abandon()
                self.check_between()
                self.may_return |= pairs_of(self.model, self.ended)
                self.adopt()
                return
            if self.rng.random() < 0.1:
                self.rng.choice((self.append, self.append, self.roll, self.flush))()
        assert compaction.cleaned_offset == dirt.end_offset
        log.cleaned_offset = compaction.cleaned_offset
        self.model, self.planned = self.planned, None
        self.passes += 1
        self.may_return = set()
        assert pairs(log) == [(record.offset, record.key, record.value) for record in self.model.records()]
        if self.rng.random() < 0.5:
            write_offsets(self.view, f"/data/{CLEANED_OFFSETS}", {TP: compaction.cleaned_offset})

    def check_between(self) -> None:
        assert self.planned is not None
        found = pairs(self.log)
        assert pairs_of(self.planned, self.ended) <= set(found) <= pairs_of(self.model, self.ended)
        assert len(set(found)) == len(found)


@pytest.mark.parametrize("seed", range(12))
def test_l04_l07_a_compacted_log_through_many_lives(seed: int) -> None:
    passes = crashes = 0
    for life in range(4):
        world = CompactedWorld(seed * 10 + life)
        for _ in range(6):
            world.live(steps=80)
        passes += world.passes
        crashes += world.crashes
    assert passes > 3
    assert crashes > 3
