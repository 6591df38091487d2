"""Compaction of one log: L07, L08, F13, and that readers, indexes and offsets stay right."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.records.batch import batch_crc_ok
from ottla.records.clean_batches import Uncleanable
from ottla.records.record import Record, read_records
from ottla.storage.compaction import Abandoned, Compaction, Limits
from ottla.storage.log import Log
from ottla.storage.names import LOG
from tests.kit.compaction import COMPACTED, Model, compact, dirt_of, pairs, put, records
from tests.kit.storage import NOW_MS, MemoryDisk, new_log, read_batches, reopen

A, B, C = b"a", b"b", b"c"


def fill(log: Log, rounds: int = 10) -> None:
    for number in range(rounds):
        put(log, (A, b"a%d" % number), (B, b"b%d" % number), (b"only-%d" % number, b"x"))


def test_l07_the_last_value_of_each_key_stays_at_its_offset() -> None:
    disk = MemoryDisk()
    _, log = new_log(disk, COMPACTED)
    fill(log)
    log.roll(NOW_MS)
    before = records(log)
    end = log.log_end_offset
    account = compact(disk, log)
    newest = {record.key: record for record in before}
    assert records(log) == sorted(newest.values(), key=lambda record: record.offset)
    assert (log.log_start_offset, log.log_end_offset, log.cleaned_offset) == (0, end, end)
    assert account.records_read == 30
    assert account.records_retained == 12
    assert log.size_bytes == sum(disk.size(segment.path(LOG)) for segment in log.segments)


def test_l07_the_active_segment_is_never_cleaned() -> None:
    disk = MemoryDisk()
    _, log = new_log(disk, replace(COMPACTED, segment_bytes=1 << 20))
    fill(log)
    assert not dirt_of(log).is_due
    before = records(log)
    compact(disk, log)
    assert records(log) == before


def test_l07_nothing_at_or_above_the_high_watermark_is_cleaned() -> None:
    disk = MemoryDisk()
    _, log = new_log(disk, COMPACTED)
    fill(log)
    log.roll(NOW_MS)
    before = records(log)
    bases = list(log.local.bases)
    log._high_watermark = bases[2] + 1
    assert dirt_of(log).end_offset == bases[2]
    compact(disk, log)
    assert log.cleaned_offset == bases[2]
    assert [record for record in records(log) if record.offset >= bases[2]] == before[bases[2] :]
    assert len(records(log)) < len(before)


def test_l07_nothing_that_is_not_flushed_is_cleaned_or_taken_for_the_newest() -> None:
    """A crash would take it, and with it the record it replaced, which was on the disk."""
    disk = MemoryDisk()
    _, log = new_log(disk, COMPACTED)
    put(log, (A, b"flushed"))
    log.roll(NOW_MS)
    flushed = log.log_end_offset
    log.flush(NOW_MS)
    put(log, (A, b"not flushed"))
    log.roll(NOW_MS)
    assert dirt_of(log, flush=False).end_offset == flushed
    log.flush(NOW_MS)
    assert dirt_of(log, flush=False).end_offset == log.log_end_offset


def test_l07_records_younger_than_min_compaction_lag_stay() -> None:
    disk = MemoryDisk()
    _, log = new_log(disk, replace(COMPACTED, min_compaction_lag_ms=5000))
    for number in range(8):
        put(log, (A, b"old%d" % number), (B, bytes(150)), timestamp_ms=NOW_MS - 10_000)
    log.roll(NOW_MS)
    young = log.log_end_offset
    for number in range(8):
        put(log, (A, b"new%d" % number), (B, bytes(150)), timestamp_ms=NOW_MS - 1000)
    log.roll(NOW_MS)
    assert dirt_of(log).end_offset == young
    compact(disk, log)
    assert [offset for offset, _, _ in pairs(log)] == [young - 2, young - 1, *range(young, young + 16)]
    # the same log once the time has passed
    compact(disk, log, NOW_MS + 10_000)
    assert [offset for offset, _, _ in pairs(log)] == [young + 14, young + 15]


def test_dirty_ratio_and_lag_say_when_a_log_is_due() -> None:
    disk = MemoryDisk()
    _, log = new_log(disk, replace(COMPACTED, min_cleanable_dirty_ratio=0.5))
    fill(log)
    log.roll(NOW_MS)
    assert dirt_of(log).ratio == 1.0
    assert dirt_of(log).is_due
    compact(disk, log)
    assert dirt_of(log).ratio == 0.0
    put(log, (A, b"more"))
    log.roll(NOW_MS)
    dirt = dirt_of(log)
    assert 0 < dirt.ratio < 0.5
    assert not dirt.is_due
    # max.compaction.lag.ms makes it due however little there is
    log.config = replace(log.config, max_compaction_lag_ms=1000)
    assert not dirt_of(log, NOW_MS + 1000).is_due
    assert dirt_of(log, NOW_MS + 1001).is_due


def test_max_compaction_lag_seals_a_segment_in_time() -> None:
    _, log = new_log(MemoryDisk(), replace(COMPACTED, segment_bytes=1 << 20, max_compaction_lag_ms=1000))
    put(log, (A, b"1"))
    put(log, (A, b"2"), timestamp_ms=NOW_MS + 1000)
    assert len(log.segments) == 1
    put(log, (A, b"3"), timestamp_ms=NOW_MS + 1001)
    assert len(log.segments) == 2


def test_small_segments_become_one_and_no_larger_than_allowed() -> None:
    disk = MemoryDisk()
    _, log = new_log(disk, COMPACTED)
    for number in range(60):
        put(log, (A, bytes(20)), (B, bytes(20)), (b"k%d" % (number % 20), b"x"))
    log.roll(NOW_MS)
    before = len(log.segments)
    compact(disk, log)
    compact_once = len(log.segments)
    put(log, (C, b"c"))
    log.roll(NOW_MS)
    compact(disk, log)  # now they are small, and find together
    assert len(log.segments) < compact_once <= before
    assert all(segment.size <= COMPACTED.segment_bytes for segment in log.segments)
    assert log.local.bases == sorted(log.local.bases)


def test_l08_a_tombstone_stays_for_delete_retention_behind_the_first_pass() -> None:
    disk = MemoryDisk()
    _, log = new_log(disk, COMPACTED)
    put(log, (A, b"1"), (B, b"1"))
    gone = put(log, (A, None))
    log.roll(NOW_MS)
    compact(disk, log, NOW_MS + 50)
    assert pairs(log) == [(1, B, b"1"), (gone, A, None)]
    (_, (info, _)) = read_batches(log)
    assert info.has_delete_horizon
    assert info.base_timestamp == NOW_MS + 50 + COMPACTED.delete_retention_ms
    assert records(log)[1].timestamp == NOW_MS
    put(log, (C, b"1"))
    log.roll(NOW_MS)
    compact(disk, log, NOW_MS + 1049)
    assert (gone, A, None) in pairs(log)
    put(log, (C, b"2"))
    log.roll(NOW_MS)
    compact(disk, log, NOW_MS + 1050)
    assert [key for _, key, _ in pairs(log)] == [B, C]


def test_l08_the_horizon_is_not_moved_by_later_passes() -> None:
    disk = MemoryDisk()
    _, log = new_log(disk, COMPACTED)
    put(log, (A, None), (B, b"1"))
    for step in range(5):
        put(log, (C, b"%d" % step))
        log.roll(NOW_MS)
        compact(disk, log, NOW_MS + step * 100)
        assert read_batches(log)[0][0].base_timestamp == NOW_MS + COMPACTED.delete_retention_ms


def test_the_last_batches_of_a_producer_stay_without_records() -> None:
    """All that it may have in flight: it may not have heard of any of them when the broker is killed (I01)."""
    disk = MemoryDisk()
    _, log = new_log(disk, COMPACTED)
    put(log, (A, b"0"), producer_id=7, producer_epoch=1, base_sequence=0)
    for sequence in range(6):
        put(log, (A, b"1"), producer_id=7, producer_epoch=2, base_sequence=sequence)
    put(log, (A, b"2"), (B, b"2"), producer_id=7, producer_epoch=2, base_sequence=6)
    put(log, (A, b"3"), (B, b"3"))
    log.roll(NOW_MS)
    compact(disk, log)
    *kept, last = (info for info, _ in read_batches(log))
    assert [(info.producer_id, info.producer_epoch, info.base_sequence, info.last_sequence) for info in kept] == [
        *((7, 2, sequence, sequence) for sequence in range(2, 6)),
        (7, 2, 6, 7),
    ]
    assert [(info.record_count, info.base_offset, info.last_offset, info.codec) for info in kept] == [
        *((0, offset, offset, 0) for offset in range(3, 7)),
        (0, 7, 8, 0),
    ]
    assert (last.base_offset, last.record_count) == (9, 2)
    # a later batch of the same producer frees it; so does its silence for a day
    put(log, (C, b"4"))
    log.roll(NOW_MS)
    compact(disk, log, NOW_MS + 86_400_002)
    assert [info.base_offset for info, _ in read_batches(log)] == [9, 11]


def test_the_last_batch_of_a_segment_stays_so_that_no_gap_shows() -> None:
    disk = MemoryDisk()
    data_dir, log = new_log(disk, replace(COMPACTED, segment_bytes=400))
    for number in range(12):
        put(log, (A, bytes(60)), (b"k%d" % number, bytes(60)))
    for _ in range(12):
        put(log, *((b"k%d" % number, b"new") for number in range(12)))
    log.roll(NOW_MS)
    compact(disk, log)
    segments = log.segments
    for segment in segments[:-1]:
        if segment.size:
            assert segment.find_end_offset() == segment.end_offset
    end = log.log_end_offset
    found = pairs(log)
    data_dir.close(clean=False)
    disk.remove("/data/recovery-point-offset-checkpoint") if disk.exists("/data/recovery-point-offset-checkpoint") else None
    # a recovery that believes nothing, of a broker that does not know the topic's settings yet, keeps all of it
    _, again = reopen(disk)
    assert (pairs(again), again.log_end_offset) == (found, end)


@pytest.mark.parametrize("codec", range(5))
def test_a_rewritten_batch_keeps_codec_offsets_and_its_crc_is_right(codec: int) -> None:
    disk = MemoryDisk()
    _, log = new_log(disk, replace(COMPACTED, segment_bytes=1 << 20))
    put(log, (A, b"1" * 50), (B, b"1" * 50), (A, b"2" * 50), (C, b"1" * 50), codec=codec, leader_epoch=0)
    put(log, (C, b"2"), codec=codec)
    log.roll(NOW_MS)
    compact(disk, log)
    (info, data), _ = read_batches(log)
    assert (info.codec, info.base_offset, info.last_offset, info.record_count) == (codec, 0, 3, 2)
    info.position = 0
    assert batch_crc_ok(data, info)
    assert [(record.offset, record.value) for record in read_records(data, info)] == [(1, b"1" * 50), (2, b"2" * 50)]
    assert info.max_timestamp == NOW_MS + 2


def test_batches_of_which_all_stays_are_not_touched() -> None:
    disk = MemoryDisk()
    _, log = new_log(disk, COMPACTED)
    for number in range(30):
        put(log, (b"k%d" % number, b"v"), codec=number % 5)
    log.roll(NOW_MS)
    before = [data for _, data in read_batches(log)]
    paths = {segment.path(LOG): disk.content(segment.path(LOG)) for segment in log.segments}
    compact(disk, log)
    assert [data for _, data in read_batches(log)] == before
    assert {segment.path(LOG): disk.content(segment.path(LOG)) for segment in log.segments} == paths
    assert not [name for name in disk.names if name.endswith((".cleaned", ".swap"))]


def test_keyless_records_of_a_log_that_was_not_always_compacted_go() -> None:
    disk = MemoryDisk()
    _, log = new_log(disk, COMPACTED)
    put(log, (None, b"1"), (A, b"1"), (None, b"2"))
    put(log, (B, b"1"))
    log.roll(NOW_MS)
    account = compact(disk, log)
    assert pairs(log) == [(1, A, b"1"), (3, B, b"1")]
    assert account.keyless == 2


@pytest.mark.parametrize("limits", [{"dedupe_bytes": 1, "dedupe_load_factor": 0.2}, {"dedupe_load_factor": 0.0001}])
def test_a_full_table_cleans_what_it_knows_and_the_next_pass_the_rest(limits: dict[str, Any]) -> None:
    disk = MemoryDisk()
    _, log = new_log(disk, replace(COMPACTED, segment_bytes=20_000))
    keys = [b"key-%d" % number for number in range(3000)]
    for value in (b"1", b"2"):
        for start in range(0, 3000, 250):
            put(log, *((key, value) for key in keys[start : start + 250]))
    log.roll(NOW_MS)
    passes = 0
    while dirt_of(log).is_due:
        before = log.cleaned_offset or 0
        account = compact(disk, log, **limits)
        passes += 1
        assert account.keys <= 1024
        assert log.cleaned_offset is not None
        assert log.cleaned_offset > before
    assert passes > 3
    # each pass knows only the keys it indexed: of every key the newest is left, and all of them are the second round's
    assert pairs(log) == [(3000 + index, key, b"2") for index, key in enumerate(keys)]


def test_readers_in_flight_keep_the_segments_they_read() -> None:
    disk = MemoryDisk()
    _, log = new_log(disk, COMPACTED)
    fill(log)
    log.roll(NOW_MS)
    (part,) = log.read(0, 1 << 20, log.log_end_offset, True).ranges
    before = part.file.read(part.position, part.size)
    compact(disk, log)
    for path in log.take_deleted(NOW_MS):
        disk.remove(path)
    assert part.file.read(part.position, part.size) == before


@pytest.mark.parametrize("how", ["retention", "truncate", "truncate_fully", "delete", "policy"])
def test_what_happens_to_the_log_meanwhile_makes_a_pass_give_up(how: str) -> None:
    disk = MemoryDisk()
    config = replace(COMPACTED, cleanup_policy=frozenset({"compact", "delete"}))
    data_dir, log = new_log(disk, config)
    fill(log)
    log.roll(NOW_MS)
    compaction = Compaction(disk, dirt_of(log), Limits(), NOW_MS)
    progress = compaction.advance(1 << 20)
    while progress.replacement is None:
        progress = compaction.advance(1 << 20)
    if how == "retention":
        log.advance_log_start(log.local.bases[1])
    elif how == "truncate":
        log.truncate_to(log.log_end_offset - 1)
    elif how == "truncate_fully":
        log.truncate_fully_and_start_at(100)
    elif how == "delete":
        data_dir.delete_log(log.topic_partition)
    else:
        log.config = replace(config, cleanup_policy=frozenset({"delete"}))
    before = [] if how == "delete" else pairs(log)
    with pytest.raises(Abandoned):
        compaction.swap(progress.replacement)
    compaction.abandon()
    if how != "delete":
        assert pairs(log) == before
        assert not [name for name in disk.names if name.endswith((".cleaned", ".swap"))]


def test_a_pass_may_be_given_up_at_every_slice() -> None:
    disk = MemoryDisk()
    _, log = new_log(disk, COMPACTED)
    fill(log)
    log.roll(NOW_MS)
    before = pairs(log)
    steps = 0
    while True:
        compaction = Compaction(disk, dirt_of(log), Limits(io_bytes=200), NOW_MS)
        if any(compaction.advance(1100).replacement is not None for _ in range(steps)):
            break
        compaction.abandon()
        assert pairs(log) == before
        assert not [name for name in disk.names if name.endswith(".cleaned")]
        steps += 1
    assert steps > 10


def test_damage_is_not_given_a_fresh_crc() -> None:
    disk = MemoryDisk()
    _, log = new_log(disk, COMPACTED)
    fill(log)
    log.roll(NOW_MS)
    path = log.segments[1].path(LOG)
    data = bytearray(disk.content(path))
    data[-20] ^= 1
    disk.put(path, bytes(data))
    with pytest.raises(Uncleanable, match="CRC"):
        compact(disk, log)


@pytest.mark.parametrize("cut", [5, 30, 61])
def test_a_segment_that_ends_in_the_middle_of_a_batch_is_uncleanable(cut: int) -> None:
    disk = MemoryDisk()
    _, log = new_log(disk, COMPACTED)
    fill(log)
    log.roll(NOW_MS)
    segment = log.segments[0]
    segment.size -= cut
    with pytest.raises(Uncleanable):
        compact(disk, log)


values = st.one_of(st.none(), st.binary(max_size=30))
batches = st.lists(st.tuples(st.sampled_from([b"%d" % number for number in range(12)]), values), min_size=1, max_size=8)
appends = st.tuples(batches, st.integers(0, 4), st.sampled_from([-1, -1, 5, 6]))
passes = st.tuples(st.integers(0, 1500), st.sampled_from([64, 700, 1 << 18]), st.sampled_from([1100, 1 << 20]))


@settings(max_examples=60)
@given(st.lists(st.one_of(appends, appends, appends, passes), min_size=4, max_size=40), st.booleans())
def test_compaction_equals_its_definition(steps: list[tuple[object, ...]], restarts: bool) -> None:
    """Any mix of appends and passes, for all codecs, with tombstones and their horizon, sequences, small buffers and slices."""
    disk = MemoryDisk()
    data_dir, log = new_log(disk, COMPACTED)
    model = Model(COMPACTED.delete_retention_ms)
    now_ms = NOW_MS
    sequences = {5: 0, 6: 0}
    for first, second, third in steps:
        if isinstance(first, list):
            options = {}
            if third in sequences:
                options = {"producer_id": third, "producer_epoch": 0, "base_sequence": sequences[third]}
                sequences[third] += len(first)
            offset = put(log, *first, codec=second, timestamp_ms=now_ms, **options)  # type: ignore[arg-type]
            model.append(
                [Record(offset + index, now_ms + index, key, value, [("h", b"v")]) for index, (key, value) in enumerate(first)]
            )
            continue
        now_ms += first  # type: ignore[operator]
        dirt = dirt_of(log, now_ms)
        compact(disk, log, now_ms, third, io_bytes=second)  # type: ignore[arg-type]
        assert log.cleaned_offset is not None
        model.compact(dirt.first_dirty_offset, log.cleaned_offset, now_ms)
        assert records(log) == model.records()
    if restarts:
        end = log.log_end_offset
        data_dir.close(clean=False)
        _, log = reopen(disk)
        assert log.log_end_offset == end
    expected = model.records()
    assert records(log) == expected
    known = {(batch.base_offset, batch.last_offset) for batch in model.batches}
    for info, data in read_batches(log):
        assert (info.base_offset, info.last_offset) in known
        info.position = 0
        assert batch_crc_ok(data, info)
    for offset in range(log.log_end_offset):
        found = records_from(log, offset)
        assert found == next((record.offset for record in expected if record.offset >= offset), None)
    for timestamp in {record.timestamp for record in expected}:
        by_time = log.offset_for_timestamp(timestamp)
        assert by_time is not None
        assert by_time.offset == next(record.offset for record in expected if record.timestamp >= timestamp)


def records_from(log: Log, offset: int) -> int | None:
    """The first offset a consumer gets that asks from `offset` on."""
    for info, data in read_batches(log, offset):
        info.position = 0
        for record in read_records(data, info):
            if record.offset >= offset:
                return record.offset
    return None
