"""`ports.Disk` on real files."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from ottla.ports import Disk
from ottla.runtime.files import OsDisk, OsFile


@pytest.fixture
def disk() -> Disk:
    return OsDisk()


def test_reads_and_writes_name_their_position(disk: Disk, tmp_path: Path) -> None:
    file = disk.open(f"{tmp_path}/a", create=True)
    file.write(3, [b"de", bytearray(b"f"), memoryview(b"gh")])
    file.write(0, [b"abc"])
    assert (file.size(), disk.size(f"{tmp_path}/a")) == (8, 8)
    assert file.read(0, 100) == b"abcdefgh"
    assert file.read(2, 3) == b"cde"
    assert file.read(8, 3) == b""
    file.truncate(2)
    assert file.read(0, 10) == b"ab"
    file.flush()
    file.close()
    file.close()
    with pytest.raises(OSError):
        file.write(0, [b"x"])
    with pytest.raises(OSError):
        file.fileno()


def test_more_parts_than_the_kernel_takes_at_once(disk: Disk, tmp_path: Path) -> None:
    file = disk.open(f"{tmp_path}/a", create=True)
    parts = [b"%04d" % number for number in range(3000)]
    file.write(0, parts)
    assert file.read(0, 20000) == b"".join(parts)


def test_short_writes_and_reads_are_continued(disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite, pwritev, pread = os.pwrite, os.pwritev, os.pread
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, bytes(data)[:3], at))
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, at: pwritev(fd, [bytes(parts[0])[:2]], at))
    monkeypatch.setattr(os, "pread", lambda fd, count, at: pread(fd, min(count, 3), at))
    file = disk.open(f"{tmp_path}/a", create=True)
    file.write(0, [b"0123456789"])
    file.write(10, [b"abcde", b"", b"fg"])
    assert file.read(0, 100) == b"0123456789abcdefg"


def test_a_missing_file_is_not_made_by_accident(disk: Disk, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open(f"{tmp_path}/none")
    with pytest.raises(FileNotFoundError):
        disk.size(f"{tmp_path}/none")
    assert disk.list(str(tmp_path)) == []


@pytest.mark.skipif(not hasattr(os, "O_NOATIME"), reason="only Linux has it")
def test_a_read_leaves_no_trace_in_the_file_unless_it_is_anothers(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flags() -> int:
        file = disk.open(f"{tmp_path}/a", create=True)
        return fcntl.fcntl(file.fileno(), fcntl.F_GETFL)

    assert flags() & os.O_NOATIME
    theirs = os.open

    def refuse(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_NOATIME:
            raise PermissionError(errno.EPERM, "not the owner", path)
        return theirs(path, flags, mode)

    monkeypatch.setattr(os, "open", refuse)
    assert not flags() & os.O_NOATIME


def test_directories(disk: Disk, tmp_path: Path) -> None:
    disk.make_dirs(f"{tmp_path}/x/y")
    disk.make_dirs(f"{tmp_path}/x/y")
    for name in ("b", "a"):
        disk.open(f"{tmp_path}/x/{name}", create=True).close()
    assert disk.list(f"{tmp_path}/x") == ["a", "b", "y"]
    assert disk.is_dir(f"{tmp_path}/x/y")
    assert not disk.is_dir(f"{tmp_path}/x/a")
    disk.rename(f"{tmp_path}/x/a", f"{tmp_path}/x/b")
    disk.flush_dir(f"{tmp_path}/x")
    assert disk.list(f"{tmp_path}/x") == ["b", "y"]
    assert (disk.exists(f"{tmp_path}/x/a"), disk.exists(f"{tmp_path}/x/b"), disk.exists(f"{tmp_path}/x/y")) == (False, True, True)
    disk.remove(f"{tmp_path}/x/b")
    disk.remove_tree(f"{tmp_path}/x")
    assert not disk.exists(f"{tmp_path}/x")
    total, usable = disk.usage(str(tmp_path))
    assert 0 < usable <= total


def test_a_removed_file_stays_readable_while_somebody_refers_to_it(disk: Disk, tmp_path: Path) -> None:
    file = disk.open(f"{tmp_path}/a", create=True)
    file.write(0, [b"abc"])
    fd = file.fileno()
    disk.remove(f"{tmp_path}/a")
    assert file.read(0, 3) == b"abc"
    del file
    with pytest.raises(OSError):
        os.fstat(fd)


def test_lock_is_held_until_closed_against_this_and_other_processes(disk: Disk, tmp_path: Path) -> None:
    path = f"{tmp_path}/.lock"
    lock = disk.lock(path)
    with pytest.raises(BlockingIOError):
        disk.lock(path)
    # a Java broker takes a record lock
    attempt = "import fcntl,sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    command = [sys.executable, "-c", attempt, path]
    assert subprocess.run(command, capture_output=True).returncode != 0
    lock.close()
    assert subprocess.run(command, capture_output=True).returncode == 0
    again = disk.lock(path)
    assert isinstance(again, OsFile)
    again.close()


def test_flushes_made_at_once_all_end_before_an_error_of_one_is_told(disk: Disk) -> None:
    ended: list[int] = []

    def flush(number: int) -> None:
        ended.append(number)
        if number == 3:
            raise OSError(5, "Input/output error")

    with pytest.raises(OSError):
        disk.at_once([partial(flush, number) for number in range(50)])
    assert sorted(ended) == list(range(50))
