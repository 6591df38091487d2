"""Room taken ahead of a file's end: on a file system that has use for it, and on others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.runtime import reservation
from ottla.runtime.files import OsDisk, OsFile

MOUNTS = b"""\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
23 22 0:21 / /proc rw,nosuid - proc proc rw
40 22 0:33 / /tmp rw shared:7 master:2 - tmpfs tmpfs rw,size=1g
41 22 259:3 /sub/dir /srv/a\\040b\xff rw,noatime shared:9 - xfs /dev/nvme0n1p3 rw
broken
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OsFile:
    monkeypatch.setattr(reservation, "_helps", {})
    file = OsDisk().open(f"{tmp_path}/log", create=True)
    file.write(0, [bytes(10_000)])
    return file


def mount(monkeypatch: pytest.MonkeyPatch, kind: str | None) -> None:
    monkeypatch.setattr(reservation, "file_system_of", lambda device: kind)


def taken_bytes(file: OsFile) -> int:
    return os.fstat(file.fileno()).st_blocks * 512


def test_the_kind_of_a_file_system_is_told_by_its_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_bytes(MOUNTS)
    monkeypatch.setattr(reservation, "_MOUNTS", str(mounts))
    assert reservation.file_system_of(os.makedev(254, 0)) == "ext4"
    assert reservation.file_system_of(os.makedev(0, 33)) == "tmpfs"
    assert reservation.file_system_of(os.makedev(259, 3)) == "xfs"
    assert reservation.file_system_of(os.makedev(25, 4)) is None
    monkeypatch.setattr(reservation, "_MOUNTS", f"{tmp_path}/nothing")
    assert reservation.file_system_of(os.makedev(254, 0)) is None


@pytest.mark.parametrize("kind", ["tmpfs", "xfs", "btrfs", "overlay", None])
def test_nothing_is_asked_of_other_file_systems(file: OsFile, monkeypatch: pytest.MonkeyPatch, kind: str | None) -> None:
    def never(*arguments: object) -> int:
        raise AssertionError

    mount(monkeypatch, kind)
    monkeypatch.setattr(reservation, "_fallocate", never)
    monkeypatch.setattr(os, "ftruncate", never)
    assert not file.reserve(10_000, 1 << 20)
    file.release()
    assert file.size() == 10_000


def test_a_device_is_looked_up_once(file: OsFile, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(reservation, "file_system_of", asked.append)
    for _ in range(3):
        assert not file.reserve(10_000, 1 << 20)
        file.release()
    assert asked == [os.fstat(file.fileno()).st_dev]


def test_a_refusal_of_the_system_is_no_error(file: OsFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """ENOSPC, EOPNOTSUPP, EPERM: they all come as -1."""
    mount(monkeypatch, "ext4")
    calls: list[tuple[int, ...]] = []

    def refuse(*arguments: int) -> int:
        calls.append(arguments)
        return -1

    monkeypatch.setattr(reservation, "_fallocate", refuse)
    assert not file.reserve(10_000, 1 << 20)
    assert calls == [(file.fileno(), 1, 10_000, (1 << 20) - 10_000)]
    file.write(10_000, [b"as before"])
    assert file.size() == 10_009


def test_a_system_without_the_call_is_no_error(file: OsFile, monkeypatch: pytest.MonkeyPatch) -> None:
    import ctypes

    mount(monkeypatch, "ext4")
    monkeypatch.setattr(reservation, "_fallocate", None)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert not file.reserve(10_000, 1 << 20)


def test_giving_back_never_fails(file: OsFile, monkeypatch: pytest.MonkeyPatch) -> None:
    mount(monkeypatch, "ext4")

    def broken(fd: int, size: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "ftruncate", broken)
    file.reserve(10_000, 1 << 20)
    file.release()
    file.close()
    file.release()
    assert not file.reserve(10_000, 1 << 20)


def test_reserved_blocks_stand_behind_the_end_and_go_back(file: OsFile) -> None:
    """On whatever the directory of tests is: either all of it happens, or nothing does."""
    reserved = file.reserve(10_000, 1 << 20)
    assert file.size() == 10_000
    assert file.read(9_990, 1 << 20) == bytes(10)
    assert taken_bytes(file) >= 1 << 20 or not reserved
    file.write(10_000, [b"x" * 5_000])
    assert file.size() == 15_000
    file.release()
    assert file.size() == 15_000
    block_bytes = os.fstat(file.fileno()).st_blksize
    assert taken_bytes(file) <= -(-15_000 // block_bytes) * block_bytes or not reserved
    assert file.read(10_000, 5_000) == b"x" * 5_000
    changed_ns = os.fstat(file.fileno()).st_ctime_ns
    file.release()
    assert os.fstat(file.fileno()).st_ctime_ns == changed_ns, "nothing to be given back, nothing is done"


def test_a_start_does_not_wait_for_it() -> None:
    code = "import sys, ottla.broker.app, ottla.runtime.loop; print({'ctypes', 'ottla.runtime.reservation'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert ran.stdout.strip() == "set()"
