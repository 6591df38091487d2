"""Compaction of a log with transactions (L09): aborted records go, markers stay as long as they must, sequences survive."""

from __future__ import annotations

import random
from typing import Any

import pytest

from ottla.records.batch import BatchInfo
from ottla.records.record import build_batch, read_records
from ottla.records.validate import check
from ottla.storage.compaction import Compaction, Limits
from ottla.storage.compaction_plan import find_log_to_clean
from ottla.storage.log import Log
from tests.kit.compaction import COMPACTED
from tests.kit.present import present
from tests.kit.storage import NOW_MS, RULES, MemoryDisk, new_log, read_batches, reopen

KEEP_MS = COMPACTED.delete_retention_ms


def send(log: Log, producer: int, sequence: int, *pairs: tuple[bytes, bytes | None], transactional: bool = True) -> None:
    batch = build_batch(
        [(key, value, (), NOW_MS) for key, value in pairs],
        producer_id=producer,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=transactional,
    )
    log.append(check(bytearray(batch), RULES, NOW_MS), 0, NOW_MS, verified=True)
    log.high_watermark = log.log_end_offset


def end_txn(log: Log, producer: int, *, commit: bool) -> None:
    log.append_marker(producer, 0, commit=commit, coordinator_epoch=0, leader_epoch=0, now_ms=NOW_MS)
    log.high_watermark = log.log_end_offset


def compact(disk: MemoryDisk, log: Log, now_ms: int = NOW_MS, slice_bytes: int = 1 << 20, **limits: Any) -> None:
    log.roll(now_ms)
    log.flush(now_ms)
    compaction = Compaction(disk, find_log_to_clean(log, log.last_stable_offset, now_ms), Limits(**limits), now_ms)
    while not (progress := compaction.advance(slice_bytes)).done:
        if progress.replacement is not None:
            compaction.swap(progress.replacement)
    log.cleaned_offset = compaction.cleaned_offset


def batches(log: Log) -> list[tuple[BatchInfo, bytes]]:
    found = read_batches(log)
    for info, _ in found:
        info.position = 0
    return found


def markers(log: Log) -> list[int]:
    return [info.base_offset for info, _ in batches(log) if info.is_control and info.record_count]


def committed(log: Log) -> dict[bytes, bytes]:
    """What a reader of committed data knows in the end, by the rules of clients."""
    aborted = sorted((txn.first_offset, txn.producer_id) for txn in log.aborted(0, log.log_end_offset))
    active: set[int] = set()
    state: dict[bytes, bytes] = {}
    for info, data in batches(log):
        if info.last_offset >= log.last_stable_offset:
            break
        while aborted and aborted[0][0] <= info.last_offset:
            active.add(aborted.pop(0)[1])
        if info.is_control:
            active.discard(info.producer_id)
        elif not (info.is_transactional and info.producer_id in active):
            for record in read_records(data, info):
                assert record.key is not None
                if record.value is None:
                    state.pop(record.key, None)
                else:
                    state[record.key] = record.value
    return state


def sequences(log: Log) -> dict[int, tuple[int, int]]:
    return {producer.producer_id: (producer.epoch, producer.next_sequence) for producer in log.producers}


def test_l09_aborted_records_go_and_replace_nothing() -> None:
    disk = MemoryDisk()
    _, log = new_log(disk, COMPACTED)
    send(log, 1, 0, (b"a", b"old"), (b"b", b"old"))
    end_txn(log, 1, commit=True)
    send(log, 1, 2, (b"a", b"never"), (b"c", b"never"))
    end_txn(log, 1, commit=False)
    send(log, 1, 4, (b"b", b"new"))
    end_txn(log, 1, commit=True)
    expected = {b"a": b"old", b"b": b"new"}
    assert committed(log) == expected
    compact(disk, log)
    assert committed(log) == expected
    values = [record.value for info, data in batches(log) if not info.is_control for record in read_records(data, info)]
    assert values == [b"old", b"new"]
    assert markers(log) == [2, 5, 7]


def test_l09_markers_stay_while_data_is_before_them_then_for_a_horizon_then_go() -> None:
    disk = MemoryDisk()
    _, log = new_log(disk, COMPACTED)
    send(log, 1, 0, (b"a", b"1"))
    end_txn(log, 1, commit=False)
    send(log, 2, 0, (b"a", b"2"))
    end_txn(log, 2, commit=True)
    send(log, 1, 1, (b"a", b"3"))
    end_txn(log, 1, commit=True)
    send(log, 2, 1, (b"b", b"4"))
    end_txn(log, 2, commit=True)
    compact(disk, log)
    assert markers(log) == [1, 3, 5, 7], "the pass met batches before each of them"
    send(log, 3, 0, (b"x", b"x"))
    end_txn(log, 3, commit=True)
    compact(disk, log)
    assert markers(log) == [1, 3, 5, 7, 9], "two have nothing before them now: from here on their time runs"
    horizons = {info.base_offset: info.base_timestamp for info, _ in batches(log) if info.has_delete_horizon}
    assert horizons == {1: NOW_MS + KEEP_MS, 3: NOW_MS + KEEP_MS}
    send(log, 3, 1, (b"x", b"y"))
    end_txn(log, 3, commit=True)
    compact(disk, log, NOW_MS + KEEP_MS - 1)
    assert markers(log)[:2] == [1, 3]
    send(log, 3, 2, (b"x", b"z"))
    end_txn(log, 3, commit=True)
    compact(disk, log, NOW_MS + KEEP_MS)
    assert markers(log)[:2] == [5, 7]
    assert committed(log) == {b"a": b"3", b"b": b"4", b"x": b"z"}


def test_l09_the_index_of_aborted_transactions_follows_the_new_segments() -> None:
    disk = MemoryDisk()
    _, log = new_log(disk, COMPACTED)
    for number in range(6):
        send(log, 1, number, (b"%d" % number, b"v"))
        end_txn(log, 1, commit=number % 2 == 0)
        log.roll(NOW_MS)
    before = log.aborted(0, log.log_end_offset)
    compact(disk, log)
    assert len(log.segments) < 5
    assert log.aborted(0, log.log_end_offset) == before, "who reads now may have fetched their records before"
    compact(disk, log)
    send(log, 2, 0, (b"x", b"y"))
    end_txn(log, 2, commit=True)
    compact(disk, log)
    assert log.aborted(0, log.log_end_offset) == before[-1:], "the last batch of the producer is still there, empty"


def test_l09_the_last_sequence_of_a_producer_survives() -> None:
    disk = MemoryDisk()
    _, log = new_log(disk, COMPACTED)
    send(log, 1, 0, (b"a", b"1"), (b"b", b"1"))
    end_txn(log, 1, commit=False)
    send(log, 2, 0, (b"a", b"2"), (b"b", b"2"))
    end_txn(log, 2, commit=True)
    send(log, 3, 0, (b"a", b"3"), (b"b", b"3"), transactional=False)
    before = sequences(log)
    compact(disk, log)
    for name in disk.list(log.dir):
        if name.endswith(".snapshot"):
            disk.remove(f"{log.dir}/{name}")
    disk.die()
    disk.remove("/data/recovery-point-offset-checkpoint") if disk.exists("/data/recovery-point-offset-checkpoint") else None
    assert sequences(reopen(disk, COMPACTED)[1]) == before == {1: (0, 2), 2: (0, 2), 3: (0, 2)}


@pytest.mark.parametrize("seed", range(25))
def test_l09_any_history_reads_the_same_before_and_after(seed: int) -> None:
    dice = random.Random(seed)
    disk = MemoryDisk()
    _, log = new_log(disk, COMPACTED)
    next_sequence = [0] * 4
    now_ms = NOW_MS
    for _ in range(120):
        producer = dice.randrange(4)
        action = dice.random()
        if action < 0.6:
            pairs = [(b"%d" % dice.randrange(8), None if dice.random() < 0.2 else b"%d" % dice.randrange(1000)) for _ in range(2)]
            transactional = log.producers.has_ongoing_transaction(producer, 0) or dice.random() < 0.7
            send(log, producer, next_sequence[producer], *pairs, transactional=transactional)
            next_sequence[producer] += 2
        elif action < 0.85:
            end_txn(log, producer, commit=dice.random() < 0.5)
        elif action < 0.9:
            log.roll(now_ms)
        else:
            now_ms += dice.choice([0, 300, 2000])
            view, known, stable = committed(log), sequences(log), log.last_stable_offset
            compact(disk, log, now_ms, slice_bytes=dice.choice([64, 1 << 20]))
            assert (committed(log), sequences(log), log.last_stable_offset) == (view, known, stable)
            if dice.random() < 0.5:
                disk.die()
                cleaned_offset = log.cleaned_offset
                log = reopen(disk, COMPACTED)[1]
                log.cleaned_offset = cleaned_offset
                log.high_watermark = log.log_end_offset
                assert (committed(log), log.last_stable_offset) == (view, stable)
                assert sequences(log) == known
    for producer in range(4):
        assert (
            log.producers.get(producer) is None or present(log.producers.get(producer)).next_sequence == next_sequence[producer]
        )
