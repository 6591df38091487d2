from __future__ import annotations

import errno
import random
from typing import Any

import pytest

from ottla.runtime.files import OsDisk
from ottla.sim.kernel.disk import Fault, SimDisk
from ottla.sim.kernel.process import Process, ProcessDied


def new_disk(seed: Any = 1, **options: Any) -> Any:
    disk = SimDisk(random.Random(seed), **options)
    process = Process("broker")
    return disk, process, disk.view(process)


@pytest.fixture(params=["real", "virtual"])
def any_disk(request: Any, tmp_path: Any) -> Any:
    """The simulated and the real disk: what the product relies on is the same on both."""
    if request.param == "real":
        return OsDisk(), str(tmp_path)
    _, _, view = new_disk()
    view.make_dirs("/v")
    return view, "/v"


def test_files_read_and_write_at_positions(any_disk: Any) -> None:
    disk, root = any_disk
    with pytest.raises(FileNotFoundError):
        disk.open(f"{root}/a")
    file = disk.open(f"{root}/a", create=True)
    file.write(0, [b"abc", bytearray(b"def"), memoryview(b"ghi")])
    file.write(2, [b"XY"])
    assert file.read(0, 100) == b"abXYefghi"
    assert file.read(7, 1) == b"h"
    assert file.read(100, 1) == b""
    file.write(11, [b"z"])
    assert file.read(0, 100) == b"abXYefghi\0\0z"
    file.truncate(3)
    assert (file.size(), disk.size(f"{root}/a")) == (3, 3)
    file.truncate(5)
    assert file.read(0, 100) == b"abX\0\0"
    file.flush()
    file.close()
    file.close()
    with pytest.raises(OSError):
        file.read(0, 1)


def test_names_rename_remove_and_list(any_disk: Any) -> None:
    disk, root = any_disk
    disk.make_dirs(f"{root}/d/e")
    disk.make_dirs(f"{root}/d/e")
    assert disk.is_dir(f"{root}/d/e")
    for name in ("b", "a"):
        disk.open(f"{root}/d/{name}", create=True).write(0, [name.encode()])
    assert disk.list(f"{root}/d") == ["a", "b", "e"]
    open_file = disk.open(f"{root}/d/b")
    disk.rename(f"{root}/d/a", f"{root}/d/b")
    assert disk.open(f"{root}/d/b").read(0, 9) == b"a"
    assert open_file.read(0, 9) == b"b", "a replaced file stays readable for those who have it open"
    disk.flush_dir(f"{root}/d")
    disk.rename(f"{root}/d", f"{root}/d2")
    assert not disk.exists(f"{root}/d")
    disk.remove(f"{root}/d2/b")
    with pytest.raises(FileNotFoundError):
        disk.remove(f"{root}/d2/b")
    with pytest.raises(FileNotFoundError):
        disk.list(f"{root}/nowhere")
    disk.remove_tree(f"{root}/d2")
    assert disk.list(root) == []


def test_a_lock_is_held_until_closed(any_disk: Any) -> None:
    disk, root = any_disk
    held = disk.lock(f"{root}/.lock")
    with pytest.raises(BlockingIOError):
        disk.lock(f"{root}/.lock")
    held.close()
    disk.lock(f"{root}/.lock").close()


def test_flushed_bytes_and_names_survive_every_crash() -> None:
    for seed in range(200):
        disk, process, view = new_disk(seed)
        view.make_dirs("/d")
        view.flush_dir("/")
        file = view.open("/d/f", create=True)
        file.write(0, [b"durable"])
        file.flush()
        view.flush_dir("/d")
        file.write(7, [b"x" * 50])
        view.open("/d/new", create=True)
        process.die()
        disk.crash()
        assert disk.contents("/d/f")[:7] == b"durable"


def test_a_crash_shows_every_fate_of_unflushed_bytes() -> None:
    fates = set()
    for seed in range(300):
        disk, process, view = new_disk(seed, page_bytes=16)
        view.make_dirs("/d")
        file = view.open("/d/f", create=True)
        disk.flush_all()
        for number in range(4):
            file.write(number * 10, [bytes([65 + number]) * 10])
        process.die()
        disk.crash()
        after = disk.contents("/d/f")
        assert len(after) <= 40
        whole = b"".join(bytes([65 + number]) * 10 for number in range(4))
        if b"\0" in after:
            assert all(a in (b, 0) for a, b in zip(after, whole, strict=True))
            fates.add("holes")
        else:
            assert whole.startswith(after)
            fates.add("whole" if after == whole else "nothing" if not after else "torn" if len(after) % 10 else "first part")
    assert fates == {"holes", "whole", "nothing", "torn", "first part"}


def test_a_crash_may_undo_a_truncation_but_gives_old_bytes_back() -> None:
    sizes = set()
    for seed in range(100):
        disk, process, view = new_disk(seed)
        view.make_dirs("/d")
        file = view.open("/d/f", create=True)
        file.write(0, [b"0123456789"])
        disk.flush_all()
        file.truncate(4)
        process.die()
        disk.crash()
        assert b"0123456789".startswith(disk.contents("/d/f"))
        sizes.add(len(disk.contents("/d/f")))
    assert sizes == {4, 10}


def test_names_are_lost_from_the_end_only_and_a_rename_is_never_half() -> None:
    found = set()
    for seed in range(300):
        disk, process, view = new_disk(seed)
        view.make_dirs("/d")
        file = view.open("/d/checkpoint", create=True)
        file.write(0, [b"old"])
        disk.flush_all()
        temporary = view.open("/d/checkpoint.tmp", create=True)
        temporary.write(0, [b"new"])
        temporary.flush()
        view.rename("/d/checkpoint.tmp", "/d/checkpoint")
        process.die()
        disk.crash()
        names = tuple(path.rsplit("/", 1)[1] for path in disk.paths("/d"))
        found.add((names, disk.contents("/d/checkpoint")))
    assert found == {
        (("checkpoint",), b"old"),
        (("checkpoint", "checkpoint.tmp"), b"old"),
        (("checkpoint",), b"new"),
    }


def test_a_kill_loses_nothing_and_frees_the_lock() -> None:
    disk, process, view = new_disk()
    view.make_dirs("/d")
    view.lock("/d/.lock")
    view.open("/d/f", create=True).write(0, [b"cached"])
    process.die()
    disk.kill(process)
    assert disk.contents("/d/f") == b"cached"
    again = disk.view(Process("next life"))
    again.lock("/d/.lock").close()


def test_the_dead_cannot_touch_the_disk() -> None:
    _, process, view = new_disk()
    view.make_dirs("/d")
    file = view.open("/d/f", create=True)
    process.die()
    for act in (
        lambda: file.write(0, [b"x"]),
        file.flush,
        file.size,
        lambda: view.open("/d/f"),
        lambda: view.exists("/d"),
        lambda: view.rename("/d/f", "/d/g"),
    ):
        with pytest.raises(ProcessDied):
            act()


def test_a_full_volume_takes_what_fits_and_then_says_so() -> None:
    disk, _, view = new_disk()
    view.make_dirs("/d")
    file = view.open("/d/f", create=True)
    disk.capacity_bytes = 10
    file.write(0, [b"12345678"])
    with pytest.raises(OSError) as full:
        file.write(8, [b"abcdef"])
    assert full.value.errno == errno.ENOSPC
    assert file.read(0, 99) == b"12345678ab"
    assert view.usage("/d") == (10, 0)
    file.write(0, [b"XX"])
    view.remove("/d/f")
    assert view.usage("/d") == (10, 10)


def test_reserved_room_is_taken_from_others_until_it_is_given_back() -> None:
    disk, _, view = new_disk()
    view.make_dirs("/d")
    disk.capacity_bytes = 100
    file = view.open("/d/f", create=True)
    other = view.open("/d/g", create=True)
    file.write(0, [bytes(10)])
    assert file.reserve(10, 60)
    assert (file.size(), view.size("/d/f"), view.usage("/d")) == (10, 10, (100, 40))
    assert not other.reserve(0, 41)
    with pytest.raises(OSError):
        other.write(0, [bytes(50)])
    file.write(10, [bytes(50)])  # into what it has, though the volume is full
    assert view.usage("/d") == (100, 0)
    other.truncate(0)
    assert file.reserve(60, 90)
    file.release()
    assert (file.size(), view.usage("/d")) == (60, (100, 40))
    assert file.reserve(60, 90)
    file.truncate(20)
    assert view.usage("/d") == (100, 80)
    assert file.reserve(20, 90)
    view.remove("/d/f")
    assert view.usage("/d") == (100, 100)


def test_reserved_room_outlives_a_kill_and_perhaps_a_crash() -> None:
    fates = set()
    for seed in range(20):
        disk, process, view = new_disk(seed)
        view.make_dirs("/d")
        disk.capacity_bytes = 100
        file = view.open("/d/f", create=True)
        file.write(0, [bytes(10)])
        file.flush()
        view.flush_dir("/")
        view.flush_dir("/d")
        assert file.reserve(10, 60)
        process.die()
        disk.kill(process)
        assert disk.view(Process("next")).usage("/d") == (100, 40)
        disk.crash()
        after = disk.view(Process("last"))
        fates.add(after.usage("/d")[1])
        found = after.open("/d/f")
        found.release()
        assert (found.size(), after.usage("/d")) == (10, (100, 90))
    assert fates == {40, 90}


def test_faults_come_when_and_where_they_were_ordered() -> None:
    disk, _, view = new_disk()
    view.make_dirs("/a")
    view.make_dirs("/b")
    bad, good = view.open("/a/f", create=True), view.open("/b/f", create=True)
    disk.faults.append(Fault("write", "/a/", after=1))
    bad.write(0, [b"first goes well"])
    for _ in range(2):
        with pytest.raises(OSError) as broken:
            bad.write(0, [b"x"])
        assert broken.value.errno == errno.EIO
    good.write(0, [b"x"])


def test_after_a_failed_flush_the_next_one_lies() -> None:
    disk, process, view = new_disk()
    view.make_dirs("/d")
    file = view.open("/d/f", create=True)
    disk.flush_all()
    file.write(0, [b"lost"])
    disk.faults.append(Fault("flush", "/d", times=1))
    with pytest.raises(OSError):
        file.flush()
    file.flush()
    assert file.read(0, 9) == b"lost"
    process.die()
    disk.crash()
    assert disk.contents("/d/f") == bytes(4)


def test_a_crash_point_stops_inside_an_operation() -> None:
    outcomes = set()
    for seed in range(60):
        disk, process, view = new_disk(seed)
        view.make_dirs("/d")
        file = view.open("/d/f", create=True)
        disk.crash_after(2, process.die)
        file.write(0, [b"one"])
        with pytest.raises(ProcessDied):
            file.write(3, [b"two"])
        disk.kill(process)
        outcomes.add(disk.contents("/d/f"))
    assert outcomes == {b"one", b"onet", b"onetw", b"onetwo"}
