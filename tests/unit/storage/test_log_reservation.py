"""Room reserved ahead of the log: how much, when, and that it is given back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ottla.runtime.files import OsDisk
from ottla.storage.config import LogConfig
from ottla.storage.log import Log
from ottla.storage.reservation import AHEAD_BYTES_MAX, BEGIN_BYTES, reserve_until
from tests.kit import ROOT
from tests.kit.storage import NOW_MS, TP, MemoryDisk, append, new_log, open_dir, reopen

MB = 1 << 20
RECORD = 200_000
CONFIG = LogConfig(segment_bytes=20 * MB)


def fill(log: Log, size: int) -> None:
    """Up to at least so many bytes in the active segment."""
    while log.active.size < size:
        append(log, NOW_MS, size=RECORD)


def reserved_bytes(disk: MemoryDisk) -> int:
    return sum(max(inode.reserved_end - len(inode.data), 0) for inode in disk.names.values())


@pytest.mark.parametrize(
    ("written", "segment_bytes", "end"),
    [
        (MB, 1 << 30, 2 * MB),
        (3 * MB, 1 << 30, 6 * MB),
        (100 * MB, 1 << 30, 108 * MB),
        (1020 * MB, 1 << 30, 1024 * MB),
        (1024 * MB, 1 << 30, 1024 * MB),
        (5 * MB, MB, MB),
    ],
)
def test_as_much_again_but_not_too_much_and_not_past_the_segment(written: int, segment_bytes: int, end: int) -> None:
    assert reserve_until(written, segment_bytes) == end


def test_a_small_log_takes_nothing_a_larger_one_at_most_as_much_again() -> None:
    disk = MemoryDisk()
    _, log = new_log(disk, CONFIG)
    fill(log, BEGIN_BYTES - RECORD - 1000)
    assert log.active.size < BEGIN_BYTES
    assert disk.reservations == []
    while len(log.segments) == 1:
        append(log, NOW_MS, size=RECORD)
        assert reserved_bytes(disk) <= min(log.active.size, AHEAD_BYTES_MAX)
    ends = [end for _, end in disk.reservations]
    assert ends == sorted(ends)
    assert [start for start, _ in disk.reservations[1:]] == ends[:-1], "each goes on where the last ended"
    assert ends[-1] == CONFIG.segment_bytes
    assert len(ends) <= 6
    assert reserved_bytes(disk) == 0, "a sealed segment keeps nothing"


def test_nothing_is_taken_where_little_is_free() -> None:
    disk = MemoryDisk()
    disk.free_bytes = (1 << 40) // 20 - 1
    _, log = new_log(disk, CONFIG)
    fill(log, 2 * MB)
    assert disk.reservations == []
    disk.free_bytes += 1
    fill(log, 2 * MB + AHEAD_BYTES_MAX)
    assert len(disk.reservations) == 1, "asked again after a while"


def test_a_volume_that_cannot_is_asked_now_and_then() -> None:
    disk = MemoryDisk()
    disk.reserves = False
    _, log = new_log(disk, CONFIG)
    fill(log, 12 * MB)
    assert len(disk.reservations) == 2
    assert log.active.size >= 12 * MB


def test_what_is_reserved_goes_back_when_nothing_was_written_for_a_while() -> None:
    disk = MemoryDisk()
    _, log = new_log(disk, CONFIG)
    fill(log, 3 * MB)
    log.local.release_if_idle()
    assert reserved_bytes(disk), "it was written to just now"
    append(log, NOW_MS)
    log.local.release_if_idle()
    assert reserved_bytes(disk)
    log.local.release_if_idle()
    assert reserved_bytes(disk) == 0
    append(log, NOW_MS)
    assert reserved_bytes(disk), "and is taken again when more comes"


def test_what_is_reserved_goes_back_when_the_log_is_closed_or_deleted() -> None:
    disk = MemoryDisk()
    data_dir, log = new_log(disk, CONFIG)
    fill(log, 2 * MB)
    assert reserved_bytes(disk)
    data_dir.close()
    assert reserved_bytes(disk) == 0
    data_dir, log = reopen(disk, CONFIG)
    append(log, NOW_MS, size=RECORD)
    assert reserved_bytes(disk)
    data_dir.delete_log(TP)
    assert reserved_bytes(disk) == 0


def test_it_goes_back_before_the_last_flush() -> None:
    """So that a crash of the machine after a clean stop, which nobody would look behind, cannot bring it back."""
    disk = MemoryDisk()
    _, log = new_log(disk, CONFIG)
    fill(log, 2 * MB)
    log.flushes.closing_plan()
    assert reserved_bytes(disk) == 0


def test_a_truncation_gives_it_back_and_appends_reserve_anew() -> None:
    disk = MemoryDisk()
    _, log = new_log(disk, CONFIG)
    fill(log, 4 * MB)
    log.truncate_to(8)
    assert reserved_bytes(disk) == 0
    disk.reservations.clear()
    append(log, NOW_MS, size=RECORD)
    assert disk.reservations == [(log.active.size - len_of(log), 2 * log.active.size)]
    log.truncate_fully_and_start_at(5)
    assert reserved_bytes(disk) == 0
    disk.reservations.clear()
    append(log, NOW_MS, size=RECORD)
    assert disk.reservations == []


def len_of(log: Log) -> int:
    return log.active.size // (log.log_end_offset - log.active.base_offset)


def test_a_failed_write_gives_it_back() -> None:
    disk = MemoryDisk()
    _, log = new_log(disk, CONFIG)
    fill(log, 2 * MB)
    size = log.active.size
    disk.fail(0, OSError(28, "No space left on device"))
    with pytest.raises(OSError):
        append(log, NOW_MS, size=RECORD)
    assert (log.active.size, reserved_bytes(disk)) == (size, 0)
    append(log, NOW_MS, size=RECORD)
    assert log.active.size > size


def test_what_a_killed_broker_reserved_goes_back_at_the_next_start() -> None:
    disk = MemoryDisk()
    _, log = new_log(disk, CONFIG)
    fill(log, 3 * MB)
    end = log.log_end_offset
    assert reserved_bytes(disk)
    disk.die()
    _, log = reopen(disk, CONFIG)
    assert (reserved_bytes(disk), log.log_end_offset) == (0, end)


def test_a_segment_sealed_at_the_recovery_point_is_looked_at_too() -> None:
    """The machine stopped after the roll, and what the roll gave back was not on the disk."""
    disk = MemoryDisk()
    data_dir, log = new_log(disk, CONFIG)
    fill(log, 2 * MB)
    log.flush(NOW_MS)
    data_dir.write_checkpoints()
    log.roll(NOW_MS)
    disk.names[f"{log.dir}/00000000000000000000.log"].reserved_end = 9 * MB
    disk.die()
    reopen(disk, CONFIG)
    assert reserved_bytes(disk) == 0


# --- on the operating system's files


class RoomyDisk:
    """However full the machine is that runs the tests."""

    def __init__(self) -> None:
        self._disk = OsDisk()

    def usage(self, path: str) -> tuple[int, int]:
        return 1 << 40, 1 << 39

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)


def volume_reserves(path: Path) -> bool:
    """Asked of the port itself, which is tested elsewhere."""
    probe = OsDisk().open(f"{path}/probe", create=True)
    try:
        return probe.reserve(0, MB)
    finally:
        probe.close()
        os.unlink(f"{path}/probe")


def excess_bytes(path: Path) -> int:
    """What the files take of the volume behind their ends."""
    found = 0
    for file in path.rglob("*.log"):
        stats = file.stat()
        found += max(stats.st_blocks * 512 - -(-stats.st_size // stats.st_blksize) * stats.st_blksize, 0)
    return found


def open_log(path: Path) -> tuple[Any, Log]:
    data_dir = open_dir(RoomyDisk(), str(path / "data"))
    data_dir.load(lambda topic: CONFIG, NOW_MS)
    return data_dir, data_dir.create_log(TP, bytes(range(16)), CONFIG, NOW_MS)


def test_on_real_files_it_is_there_while_active_and_gone_after_roll_and_close(tmp_path: Path) -> None:
    reserves = volume_reserves(tmp_path)
    data_dir, log = open_log(tmp_path)
    fill(log, 3 * MB)
    assert excess_bytes(tmp_path) > MB // 2 or not reserves
    assert (tmp_path / "data/orders-0/00000000000000000000.log").stat().st_size == log.active.size
    log.roll(NOW_MS)
    assert excess_bytes(tmp_path) == 0 or not reserves
    fill(log, 3 * MB)
    assert excess_bytes(tmp_path) > MB // 2 or not reserves
    data_dir.close()
    assert excess_bytes(tmp_path) == 0 or not reserves


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.unit.storage import test_log_reservation as it
_, log = it.open_log(Path(sys.argv[1]))
it.fill(log, 3 << 20)
print(log.log_end_offset, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_on_real_files_a_kill_leaves_it_and_the_next_start_gives_it_back(tmp_path: Path) -> None:
    reserves = volume_reserves(tmp_path)
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert excess_bytes(tmp_path) > MB // 2 or not reserves
    data_dir, log = open_log(tmp_path)
    assert log.log_end_offset == int(killed.stdout)
    assert excess_bytes(tmp_path) == 0 or not reserves
    data_dir.close()
