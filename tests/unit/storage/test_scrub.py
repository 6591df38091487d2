"""What the scrubber finds in a closed segment (L02)."""

from __future__ import annotations

from ottla.records.batch import scan_batches
from ottla.storage.config import LogConfig
from ottla.storage.scrub import STEP_BYTES, Damage, SegmentCheck
from tests.kit.storage import MemoryDisk, append, new_log

PATH = "/data/orders-0/00000000000000000000.log"


def filled(batches: int) -> tuple[MemoryDisk, bytes]:
    disk = MemoryDisk()
    _, log = new_log(disk, LogConfig(segment_bytes=1 << 30))
    for number in range(batches):
        append(log, 1000 + number, 1001 + number)
    return disk, disk.content(PATH)


def check(disk: MemoryDisk, end_offset: int) -> SegmentCheck:
    found = SegmentCheck(disk, PATH, 0, end_offset)
    steps = 0
    while not found.done:
        before = found.bytes
        found.step()
        assert found.bytes - before < 2 * STEP_BYTES
        steps += 1
    assert steps >= found.bytes // (2 * STEP_BYTES)
    assert found.bytes == len(disk.content(PATH))
    return found


def test_an_intact_segment_is_read_in_steps() -> None:
    disk, _ = filled(3000)
    assert check(disk, 6000).damages == []


def test_every_damaged_place_is_found_with_its_offsets() -> None:
    disk, whole = filled(2000)
    batches, _ = scan_batches(whole)
    broken = bytearray(whole)
    first, second, third = batches[10], batches[11], batches[1500]
    for victim in (first, second, third):
        broken[victim.end - 1] ^= 1
    disk.put(PATH, bytes(broken))
    assert check(disk, 4000).damages == [
        Damage(first.position, second.end, 20, 24),
        Damage(third.position, third.end, 3000, 3002),
    ]


def test_a_damaged_end_reaches_to_the_next_segment() -> None:
    disk, whole = filled(20)
    batches, _ = scan_batches(whole)
    disk.put(PATH, whole[:-1])
    assert check(disk, 40).damages == [Damage(batches[-1].position, len(whole) - 1, 38, 40)]
