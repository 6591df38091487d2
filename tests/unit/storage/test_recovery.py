"""What a log is after a crash, and what of damaged files can be believed (L01, L02, L03, L04's files, F14)."""

from __future__ import annotations

import errno
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch import scan_batches
from ottla.storage.config import LogConfig
from ottla.storage.log import Log
from tests.kit.storage import (
    NOW_MS,
    TP,
    MemoryDisk,
    all_offsets,
    append,
    batch,
    new_log,
    read_batches,
    records_of,
    recovered,
    reopen,
)

SMALL = LogConfig(segment_bytes=700, index_interval_bytes=100)
DIR = f"/data/{TP}"


def path(base: int, suffix: str = ".log") -> str:
    return f"{DIR}/{base:020d}{suffix}"


def crashed(disk: MemoryDisk, config: LogConfig = SMALL) -> Log:
    """The log of a broker that starts after a kill."""
    disk.die()
    return reopen(disk, config)[1]


def filled(config: LogConfig = SMALL, batches: int = 20) -> tuple[MemoryDisk, Log]:
    """Batches of two records, each with the leader epoch of its number // 5."""
    disk = MemoryDisk()
    _, log = new_log(disk, config)
    for number in range(batches):
        append(log, 1000 + 2 * number, 1001 + 2 * number, leader_epoch=number // 5)
    return disk, log


def assert_indexes_hold(disk: MemoryDisk, log: Log) -> None:
    """Each entry of each index file points to what is in the log file."""
    for base in log.local.bases:
        data = disk.content(path(base))
        batches, _ = scan_batches(data)
        at = {info.position: info for info in batches}
        index = disk.content(path(base, ".index"))
        for relative, position in struct.iter_unpack(">ii", index):
            assert at[position].last_offset == base + relative
        largest = -1
        for timestamp, relative in struct.iter_unpack(">qi", disk.content(path(base, ".timeindex"))):
            (owner,) = [info for info in batches if info.last_offset == base + relative]
            assert owner.max_timestamp == timestamp > largest
            largest = timestamp


def test_l01_last_batch_cut_at_every_byte() -> None:
    disk, log = filled()
    base = log.local.bases[-1]
    whole = disk.content(path(base))
    batches, _ = scan_batches(whole)
    last = batches[-1]
    epochs = log.epochs.entries()
    assert epochs[-1] == (3, 30)
    for cut in range(last.position, last.end):
        disk.put(path(base), whole[:cut])
        log = crashed(disk)
        assert log.log_end_offset == last.base_offset, cut
        assert len(disk.content(path(base))) == last.position
        assert all_offsets(log) == list(range(last.base_offset))
        assert log.epochs.entries() == epochs
        assert append(log, 1, leader_epoch=9) == last.base_offset
        disk.put(path(base), whole)


def test_l01_epochs_that_lost_their_first_batch_are_forgotten() -> None:
    disk, log = filled(batches=16)
    base = log.local.bases[-1]
    whole = disk.content(path(base))
    last = scan_batches(whole)[0][-1]
    assert (log.latest_epoch, last.base_offset) == (3, 30)
    disk.put(path(base), whole[:-1])
    assert crashed(disk).epochs.entries() == [(0, 0), (1, 10), (2, 20)]


@pytest.mark.parametrize("tail", [bytes(5), bytes(300), b"\xff" * 300, bytes(batch(1))[:70], b"\x00" * 16 + b"\x02" + bytes(80)])
def test_l01_bytes_behind_the_last_batch_are_dropped(tail: bytes) -> None:
    disk, log = filled()
    whole = disk.content(path(log.local.bases[-1]))
    disk.put(path(log.local.bases[-1]), whole + tail)
    log = crashed(disk)
    assert (log.log_end_offset, all_offsets(log)) == (40, list(range(40)))
    assert disk.content(path(log.local.bases[-1])) == whole


def test_l01_power_loss_keeps_what_was_flushed_and_all_before_the_first_gap() -> None:
    disk = MemoryDisk()
    data_dir, log = new_log(disk, SMALL)
    for number in range(12):
        append(log, number)
    log.flush(NOW_MS)
    data_dir.write_checkpoints()
    assert log.recovery_point == 12
    for number in range(12, 20):
        append(log, number)
    disk.lose_power()
    log = reopen(disk, SMALL)[1]
    assert log.log_end_offset >= 12
    assert all_offsets(log) == list(range(log.log_end_offset))
    assert log.recovery_point <= log.log_end_offset


@pytest.mark.parametrize(("in_service", "end_offset"), [(True, 6), (False, 12)])
def test_a_compacted_log_that_was_never_compacted_ends_where_a_crash_took_records(in_service: bool, end_offset: int) -> None:
    """Readers would skip them, and a follower would never fetch them again. Where no checkpoint names the log, nobody knows
    whether it was compacted, and nothing is cut."""
    config = replace(SMALL, cleanup_policy=frozenset({"compact"}))
    disk = MemoryDisk()
    data_dir, log = new_log(disk, config)
    if in_service:
        data_dir.write_checkpoints()
    for number in range(12):
        append(log, number)
    base = log.local.bases[0]
    batches, _ = scan_batches(disk.content(path(base)))
    assert batches[-1].base_offset == 6
    disk.put(path(base), disk.content(path(base))[: batches[-1].position])
    log = crashed(disk, config)
    assert log.log_end_offset == end_offset
    assert all_offsets(log) == [offset for offset in range(end_offset) if offset != 6]


def test_l02_any_flipped_bit_behind_the_recovery_point_ends_the_log_before_it() -> None:
    disk, log = filled()
    bases = list(log.local.bases)
    assert len(bases) >= 4
    middle = bases[1]
    whole = {base: disk.content(path(base)) for base in bases}
    batches, _ = scan_batches(whole[middle])
    victim = batches[1]
    harmless = 0
    for byte in range(victim.position, victim.end):
        for bit in (0, 6):
            for base in bases:
                disk.put(path(base), whole[base])
            broken = bytearray(whole[middle])
            broken[byte] ^= 1 << bit
            disk.put(path(middle), bytes(broken))
            log = crashed(disk)
            if 12 <= byte - victim.position < 16:  # the leader epoch is not summed; its batch is readable
                harmless += 1
                continue
            assert log.log_end_offset == victim.base_offset, (byte - victim.position, bit)
            assert log.local.bases == bases[:2]
            assert all_offsets(log) == list(range(victim.base_offset))
            assert not disk.exists(path(bases[2]))
            assert not disk.exists(path(bases[2], ".index"))
            assert log.latest_epoch == (victim.base_offset - 1) // 10
    assert harmless == 8


def test_l02_damage_before_the_recovery_point_is_not_searched_for() -> None:
    disk, log = filled()
    log.flush()
    disk.put("/data/recovery-point-offset-checkpoint", f"0\n1\n{TP.topic} 0 40\n".encode())
    broken = bytearray(disk.content(path(0)))
    broken[-1] ^= 1
    disk.put(path(0), bytes(broken))
    assert crashed(disk).log_end_offset == 40


def test_f14_clean_stop_is_trusted_and_the_mark_goes_at_the_next_start() -> None:
    disk = MemoryDisk()
    data_dir, log = new_log(disk, SMALL)
    for number in range(20):
        append(log, number)
    data_dir.close()
    assert disk.exists("/data/.kafka_cleanshutdown")
    disk.reads = 0
    data_dir, log = reopen(disk, SMALL)
    assert data_dir.was_clean
    assert (log.log_end_offset, log.recovery_point) == (20, 20)
    assert not disk.exists("/data/.kafka_cleanshutdown")
    data_dir.close(clean=False)
    assert not reopen(disk, SMALL)[0].was_clean


def test_a_stop_that_claims_to_be_clean_but_tore_a_batch_is_recovered() -> None:
    disk = MemoryDisk()
    data_dir, log = new_log(disk, SMALL)
    for number in range(20):
        append(log, number)
    base = log.local.bases[-1]
    data_dir.close()
    disk.put(path(base), disk.content(path(base))[:-1])
    _, log = reopen(disk, SMALL)
    assert (log.log_end_offset, all_offsets(log)) == (19, list(range(19)))


def damage(kind: str) -> Callable[[bytes], bytes | None]:
    return {
        "missing": lambda data: None,
        "empty": lambda data: b"",
        "short": lambda data: data[: len(data) // 24 * 12 if len(data) % 12 == 0 and len(data) % 8 else len(data) // 16 * 8],
        "odd": lambda data: data[:-1],
        "garbage": lambda data: bytes((value * 7 + 13) % 256 for value in range(len(data))),
        "reversed": lambda data: data[::-1],
        "large": lambda data: data + b"\x7f" * 24,
        "preallocated": lambda data: data + bytes(1000 * 24),
    }[kind]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("kind", ["missing", "empty", "short", "odd", "garbage", "reversed", "large", "preallocated"])
@pytest.mark.parametrize("suffixes", [(".index",), (".timeindex",), (".index", ".timeindex")])
def test_l03_damaged_indexes_are_built_again(kind: str, suffixes: tuple[str, ...], clean: bool) -> None:
    disk = MemoryDisk()
    data_dir, log = new_log(disk, SMALL)
    for number in range(40):
        append(log, 1000 + number)
    bases = list(log.local.bases)
    data_dir.close(clean)
    for base in bases:
        for suffix in suffixes:
            damaged = damage(kind)(disk.content(path(base, suffix)))
            if damaged is None:
                del disk.names[path(base, suffix)]
            else:
                disk.put(path(base, suffix), damaged)
    data_dir, log = reopen(disk, SMALL)
    assert all_offsets(log) == list(range(40))
    for offset in range(40):
        found = log.offset_for_timestamp(1000 + offset)
        assert found is not None
        assert (found.timestamp_ms, found.offset) == (1000 + offset, offset)
        first, _ = read_batches(log, offset)[0]
        assert first.base_offset == offset
    assert log.offset_for_timestamp(1040) is None
    newest = log.offset_of_max_timestamp()
    assert newest is not None
    assert newest.offset == 39
    append(log, 2000)
    data_dir.close()
    if kind not in ("empty", "short"):
        assert_indexes_hold(disk, log)


def test_l03_indexes_written_by_append_and_by_recovery_are_the_same() -> None:
    disk, log = filled()
    log.flush()
    log.close()
    suffixes = (".index", ".timeindex")
    written = {(base, suffix): disk.content(path(base, suffix)) for base in log.local.bases for suffix in suffixes}
    assert_indexes_hold(disk, log)
    assert sum(len(data) for data in written.values()) > 200
    for base, suffix in written:
        del disk.names[path(base, suffix)]
    log = crashed(disk)
    assert {key: disk.content(path(*key)) for key in written} == written


@given(
    timestamps=st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=4), min_size=1, max_size=30),
    interval=st.integers(0, 400),
    start=st.integers(0, 20),
    codec=st.sampled_from([0, 1]),
    restart=st.sampled_from(["no", "clean", "crash"]),
)
@settings(max_examples=80, deadline=None)
def test_w06_lookup_by_time_equals_a_linear_scan(
    timestamps: list[list[int]], interval: int, start: int, codec: int, restart: str
) -> None:
    disk = MemoryDisk()
    config = LogConfig(segment_bytes=600, index_interval_bytes=interval)
    data_dir, log = new_log(disk, config)
    for stamps in timestamps:
        append(log, *stamps, codec=codec)
    log.high_watermark = log.log_end_offset
    log.advance_log_start(min(start, log.log_end_offset))
    if restart != "no":
        data_dir.write_checkpoints()
        data_dir.close(clean=restart == "clean")
        _, log = reopen(disk, config)
    records = [record for record in records_of(read_batches(log)) if record.offset >= log.log_start_offset]
    for target in range(52):
        first = next(((record.timestamp, record.offset) for record in records if record.timestamp >= target), None)
        found = log.offset_for_timestamp(target)
        assert (found and (found.timestamp_ms, found.offset)) == first
    everything = records_of(read_batches(log, log.first_base_offset) if log.log_start_offset == log.first_base_offset else [])
    if everything:
        newest = log.offset_of_max_timestamp()
        assert newest is not None
        top = max(record.timestamp for record in everything)
        assert newest.timestamp_ms == top
        assert newest.offset == next(record.offset for record in everything if record.timestamp == top)


def test_leftovers_of_deletion_and_cleaning_are_thrown_away() -> None:
    disk, log = filled()
    junk = [
        path(0, ".log.deleted"),
        path(0, ".index.deleted"),
        path(0, ".log.cleaned"),
        path(0, ".timeindex.cleaned"),
        path(99, ".index"),
        path(99, ".timeindex"),
    ]
    for name in junk:
        disk.put(name, b"junk")
    log = crashed(disk)
    assert all_offsets(log) == list(range(40))
    assert not [name for name in junk if disk.exists(name)]


def test_l04_swap_is_completed_and_what_it_replaces_goes() -> None:
    disk, log = filled()
    bases = list(log.local.bases)
    merged = disk.content(path(bases[0])) + disk.content(path(bases[1]))
    disk.put(path(0, ".log.swap"), merged)
    disk.put(path(0, ".index.swap"), b"")
    disk.put(path(0, ".timeindex.swap"), b"")
    log = crashed(disk, LogConfig(segment_bytes=100_000, index_interval_bytes=100))
    assert log.local.bases == [0, *bases[2:]]
    assert disk.content(path(0)) == merged
    assert all_offsets(log) == list(range(40))


def test_l04_swap_behind_an_unfinished_cleaning_is_not_used() -> None:
    disk, log = filled()
    bases = list(log.local.bases)
    disk.put(path(0, ".log.cleaned"), b"half")
    disk.put(path(bases[1], ".log.swap"), b"junk")
    log = crashed(disk)
    assert log.local.bases == bases
    assert all_offsets(log) == list(range(40))
    assert not disk.exists(path(bases[1], ".log.swap"))


def test_files_of_transactions_and_producers_go_with_their_records() -> None:
    disk, log = filled()
    second, last = log.local.bases[1], log.local.bases[-1]
    disk.put(path(last, ".txnindex"), b"")
    disk.put(path(41, ".snapshot"), b"state")
    log = crashed(disk)
    assert not disk.exists(path(last, ".txnindex")), "there is none without an entry"
    assert disk.exists(path(second, ".snapshot"))
    assert not disk.exists(path(41, ".snapshot"))
    log.truncate_to(second + 1)
    assert [name for name in disk.list(DIR) if "snapshot" in name] == [f"{second:020d}.snapshot"]


def test_checkpoints_that_cannot_be_believed_mean_full_recovery() -> None:
    for content in (b"", b"1\n0\n", b"0\n2\norders 0 40\n", b"0\n1\norders 0\n", b"0\nx\n", b"0\n1\norders 0 x\n", b"\xff\xfe"):
        disk, log = filled()
        first = log.local.bases[0]
        data = bytearray(disk.content(path(first)))
        data[-1] ^= 1
        disk.put(path(first), bytes(data))
        for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint"):
            disk.put(f"/data/{name}", content)
        disk.put(f"{DIR}/leader-epoch-checkpoint", content)
        log = crashed(disk)
        assert log.log_end_offset == scan_batches(bytes(data))[0][-1].base_offset
        assert log.epochs.entries()[0] == (0, 0)


def test_log_start_beyond_all_that_is_left_starts_an_empty_log_there() -> None:
    disk, _ = filled()
    disk.put("/data/log-start-offset-checkpoint", f"0\n1\n{TP.topic} 0 50\n".encode())
    log = crashed(disk)
    assert (log.log_start_offset, log.log_end_offset, list(log.local.bases)) == (50, 50, [50])
    assert append(log, 1) == 50


def test_messages_of_old_formats_are_not_mistaken_for_damage() -> None:
    disk, _ = filled(batches=1)
    body = struct.pack(">bbqi", 1, 0, 1000, -1) + struct.pack(">i", 3) + b"old"
    message = struct.pack(">I", zlib.crc32(body)) + body
    old = struct.pack(">qi", 2, len(message)) + message
    whole = disk.content(path(0)) + old
    disk.put(path(0), whole)
    with pytest.raises(OSError, match="format v1"):
        crashed(disk)
    assert disk.content(path(0)) == whole


def test_truncate_forgets_whole_batches_and_everything_about_them() -> None:
    for target in range(41):
        disk, log = filled()
        log.high_watermark = 40
        log.flush()
        epochs = log.epochs.entries()
        assert log.truncate_to(target) == (target < 40)
        kept = target - target % 2 if target < 40 else 40
        assert log.log_end_offset == target
        assert log.high_watermark == log.recovery_point == target
        assert all_offsets(log) == list(range(kept))
        assert log.epochs.entries() == [entry for entry in epochs if entry[1] < target]
        assert log.size_bytes == sum(len(disk.content(path(base))) for base in log.local.bases)
        assert append(log, 5000, leader_epoch=7) == target
        assert log.offset_for_timestamp(5000) is not None
        log.close()
        log = crashed(disk)
        assert all_offsets(log) == [*range(kept), target]


def test_truncate_below_the_first_segment_starts_over() -> None:
    _, log = filled()
    log.truncate_fully_and_start_at(100, NOW_MS)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset, list(log.local.bases)) == (100, 100, 100, [100])
    assert log.epochs.entries() == []
    assert append(log, 1, leader_epoch=8) == 100
    log.truncate_to(50)
    assert (log.log_start_offset, log.log_end_offset, list(log.local.bases)) == (50, 50, [50])


def test_flush_that_ran_while_the_log_was_cut_moves_no_recovery_point() -> None:
    _, log = filled()
    plan = log.flushes.plan()
    assert plan is not None
    log.truncate_to(10)
    for _ in range(20):
        append(log, 1, leader_epoch=8)
    plan.run()
    log.flushes.completed(plan)
    assert log.recovery_point <= 10


def test_f14_flush_covers_all_segments_since_the_recovery_point_once() -> None:
    disk, log = filled()
    disk.steps.clear()
    log.flush(NOW_MS)
    flushed = [step for step in disk.steps if step.startswith("flush ") and step.endswith(".log")]
    assert len(flushed) == len(log.segments)
    assert log.flushes.plan() is None
    assert log.recovery_point == 40
    append(log, 1, leader_epoch=4)
    disk.steps.clear()
    log.flush(NOW_MS)
    assert len([step for step in disk.steps if step.startswith("flush ") and step.endswith(".log")]) == 1


def test_flush_interval_settings_say_when() -> None:
    _, log = new_log(MemoryDisk(), LogConfig(flush_messages=3, flush_ms=1000))
    assert not log.due_to_flush(NOW_MS + 5000)
    append(log, 1, 2)
    assert not log.due_to_flush(NOW_MS + 999)
    assert log.due_to_flush(NOW_MS + 1000)
    append(log, 3)
    assert log.due_to_flush(NOW_MS)


def test_a_broken_batch_hides_no_others_and_is_looked_for_once() -> None:
    """Found with one bit of a segment flipped: the index was built again at every fetch, and ended before the broken place."""
    config = LogConfig(segment_bytes=4000, index_interval_bytes=100)
    disk = MemoryDisk()
    data_dir, log = new_log(disk, config)
    for number in range(60):
        append(log, 1000 + number)
    end_offset = log.local.bases[1]
    data_dir.close()
    whole = bytearray(disk.content(path(0)))
    batches, _ = scan_batches(whole)
    broken = batches[len(batches) // 2]
    whole[broken.position + 16] ^= 1
    disk.put(path(0), bytes(whole))
    index = disk.content(path(0, ".index"))
    _, log = reopen(disk, config)
    log.high_watermark = log.log_end_offset

    def read(offset: int) -> list[int]:
        (part,) = log.read(offset, 1, end_offset, True).ranges
        return [info.base_offset for info in scan_batches(part.file.read(part.position, part.size))[0]]

    for attempt in range(3):
        before = disk.read_bytes
        with pytest.raises(KafkaError, match="no record batch at position") as caught:
            read(broken.base_offset)
        assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
        assert attempt == 0 or disk.read_bytes - before < 1000
    for offset in range(end_offset):
        if abs(offset - broken.base_offset) > 3:
            assert read(offset) == [offset]
    assert disk.content(path(0, ".index")) == index


def with_broken_batch(disk: MemoryDisk, base: int, number: int) -> None:
    data = bytearray(disk.content(path(base)))
    data[scan_batches(data)[0][number].position + 16] ^= 1
    disk.put(path(base), bytes(data))


@pytest.mark.parametrize("number", [0, 3])
def test_a_segment_with_a_broken_batch_goes_when_its_time_comes(number: int) -> None:
    """Found by reading: its age could not be told, so it stayed for ever; and retention ended with it, for all other logs."""
    config = LogConfig(segment_bytes=700, retention_ms=1000)
    disk = MemoryDisk()
    data_dir, log = new_log(disk, config)
    for timestamp in [NOW_MS, *[NOW_MS - 500] * 12]:  # the time index has the first batch, and nothing behind it
        append(log, timestamp)
    bases = list(log.local.bases)
    data_dir.close()
    with_broken_batch(disk, 0, number)
    _, log = reopen(disk, config)
    log.high_watermark = log.log_end_offset
    assert log.apply_retention(NOW_MS + 1000) == []
    assert log.apply_retention(NOW_MS + 1001) == bases


@pytest.mark.parametrize("number", [0, 3])
def test_a_broken_batch_in_the_active_segment_is_no_reason_to_refuse_records(number: int) -> None:
    """Found by reading: after a clean stop the first append was written, and refused for what stands before it."""
    config = LogConfig(index_interval_bytes=100)
    disk = MemoryDisk()
    data_dir, log = new_log(disk, config)
    for timestamp in [NOW_MS, *[NOW_MS - 500] * 6]:
        append(log, timestamp)
    data_dir.close()
    with_broken_batch(disk, 0, number)
    _, log = reopen(disk, config)
    assert append(log, NOW_MS - 500) == 7
    assert append(log, NOW_MS + 500) == 8
    assert log.active.max_timestamp == NOW_MS + 500
    assert all_offsets_from(log, 5) == [5, 6, 7, 8]


def all_offsets_from(log: Log, start: int) -> list[int]:
    return [record.offset for record in records_of(read_batches(log, start))]


def test_a_log_that_cannot_be_cut_at_a_broken_batch_stays_as_it_was() -> None:
    """Found by reading: the segments behind it were gone, and the log believed that it still ended behind them."""
    config = LogConfig(segment_bytes=700)
    disk = MemoryDisk()
    _, log = new_log(disk, config)
    for number in range(20):
        append(log, 1000 + number)
    bases, size = list(log.local.bases), log.size_bytes
    with_broken_batch(disk, bases[1], 1)
    with pytest.raises(KafkaError, match="no record batch at position"):
        log.truncate_to(bases[1] + 3)
    assert (list(log.local.bases), log.size_bytes, log.log_end_offset) == (bases, size, 20)
    assert append(log, 2000) == 20
    assert all_offsets_from(log, bases[2]) == list(range(bases[2], 21))
    assert log.truncate_to(bases[1])
    assert (list(log.local.bases), log.log_end_offset) == (bases[:2], bases[1])


@pytest.mark.parametrize("slot", [0, 1])
def test_a_segment_that_does_not_begin_with_a_batch_is_not_sent(slot: int) -> None:
    """Found with Kafka's own test of DeleteRecords on a damaged segment: its bytes went out as they were."""
    config = LogConfig(segment_bytes=4000, index_interval_bytes=100)
    disk = MemoryDisk()
    _, log = new_log(disk, config)
    for number in range(120):
        append(log, 1000 + number)
    log.high_watermark = log.log_end_offset
    base, end_offset = log.local.bases[slot : slot + 2]
    file = log.read(base + 1, 1, end_offset, True).ranges[0].file
    file.write(0, [bytes(12)])  # no offset, no length
    for max_bytes in (1, 1 << 20):
        with pytest.raises(KafkaError, match="no record batch at position 0") as caught:
            log.read(base, max_bytes, end_offset, True)
        assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    assert log.read(end_offset, 1 << 20, log.log_end_offset, True).size


def cut_files(disk: MemoryDisk) -> dict[str, bytes]:
    """What recovery kept, by name. A batch is intact in it."""
    return {name.rpartition("/")[2]: disk.content(name) for name in disk.names if ".log.cut" in name}


def test_intact_batches_behind_an_invalid_one_are_counted_and_kept() -> None:
    disk, log = filled(LogConfig(segment_bytes=1 << 20))
    whole = disk.content(path(0))
    batches, _ = scan_batches(whole)
    victim = batches[3]
    broken = bytearray(whole)
    broken[victim.end - 1] ^= 1
    disk.put(path(0), bytes(broken))
    log, loading = recovered(disk, LogConfig(segment_bytes=1 << 20))
    assert log.log_end_offset == victim.base_offset == 6
    assert cut_files(disk) == {f"{6:020d}.log.cut": bytes(broken[victim.position :])}
    (told,) = loading.notices
    assert "16 intact batches with 32 records lay behind, kept in " in told


def test_segments_behind_an_invalid_batch_are_kept_for_an_operator() -> None:
    disk, log = filled()
    bases = list(log.local.bases)
    whole = {base: disk.content(path(base)) for base in bases}
    broken = bytearray(whole[bases[1]])
    broken[-1] ^= 1
    disk.put(path(bases[1]), bytes(broken))
    log = crashed(disk)
    assert log.log_end_offset < bases[2]
    assert cut_files(disk) == {f"{base:020d}.log.cut": whole[base] for base in bases[2:]}
    assert crashed(disk).log_end_offset == log.log_end_offset, "they are no part of the log"


def test_a_torn_tail_without_an_intact_batch_is_not_kept() -> None:
    disk, log = filled()
    base = log.local.bases[-1]
    disk.put(path(base), disk.content(path(base))[:-1])
    crashed(disk)
    assert cut_files(disk) == {}


def test_recovery_on_a_full_volume_tells_that_intact_batches_are_lost() -> None:
    config = LogConfig(segment_bytes=1 << 20)
    disk, log = filled(config)
    broken = bytearray(disk.content(path(0)))
    broken[100] ^= 1
    disk.put(path(0), bytes(broken))
    disk.broken = lambda kind, name: kind == "write" and ".cut" in name
    disk.broken_errno = errno.ENOSPC
    log, loading = recovered(disk, config)
    assert log.log_end_offset == 0
    assert cut_files(disk) == {}
    assert "are lost: the volume has no space to keep them" in loading.notices[0]


def test_a_log_that_ends_before_its_checkpointed_high_watermark_tells_what_is_lost() -> None:
    disk, log = filled()
    log.high_watermark = 38
    disk.put("/data/replication-offset-checkpoint", b"0\n1\norders 0 38\n")
    for base in log.local.bases[1:]:
        disk.remove(path(base))
    disk.put(path(0), b"")
    log, loading = recovered(disk, SMALL)
    assert log.log_end_offset == 0
    (told,) = loading.losses
    assert told.startswith(
        "orders-0 lost offsets 0 to 37 (38 in all): the log in /data/orders-0 ends at offset 0, the checkpointed"
    )
    assert "high watermark was 38, the recovery point 0" in told
    disk.put("/data/replication-offset-checkpoint", b"0\n1\norders 0 0\n")
    assert recovered(disk, SMALL)[1].losses == []
