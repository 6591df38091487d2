"""The files of a log, read without the product's code: a mistake there must not hide itself here."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from ottla.sim.kernel.disk import SimDisk
from ottla.sim.kernel.inode import Directory, Inode
from ottla.sim.violation import require

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = 61


@dataclass(frozen=True, slots=True)
class FoundBatch:
    base_offset: int
    last_offset: int
    leader_epoch: int
    max_timestamp: int
    segment: int
    position: int
    data: bytes


def scan(data: bytes, segment: int = 0) -> tuple[list[FoundBatch], int]:
    """The whole, CRC-valid batches at the beginning of a `.log` file, and where they end."""
    found: list[FoundBatch] = []
    position = 0
    while position + HEADER_BYTES <= len(data):
        base, length, epoch, magic, crc, _, delta, _, max_timestamp, *_ = _HEADER.unpack_from(data, position)
        end = position + 12 + length
        if length < HEADER_BYTES - 12 or end > len(data) or magic != 2 or delta < 0:
            break
        if crc32c(data[position + 21 : end]) != crc:
            break
        found.append(FoundBatch(base, base + delta, epoch, max_timestamp, segment, position, data[position:end]))
        position = end
    return found, position


def segments(names: Iterable[str]) -> list[int]:
    """Base offsets of the segments among the names in a partition's directory."""
    return sorted(int(name[:20]) for name in names if len(name) == 24 and name.endswith(".log") and name[:20].isdecimal())


def entries_of(disk: SimDisk, directory: str) -> dict[str, Inode | Directory]:
    node = disk.find(directory)
    return node.entries if isinstance(node, Directory) else {}


def stored_batches(disk: SimDisk, directory: str, log_start: int = 0) -> list[FoundBatch]:
    """All batches of a partition as its files hold them; the files of a live or cleanly recovered log have no other bytes.

    Segments wholly below the log start are left out: nobody reads them, and they need not be whole.
    """
    found: list[FoundBatch] = []
    bases = segments(entries_of(disk, directory))
    for slot, base in enumerate(bases):
        if slot + 1 < len(bases) and bases[slot + 1] <= log_start:
            continue
        data = disk.contents(f"{directory}/{base:020d}.log")
        batches, end = scan(data, base)
        require(end == len(data), "no-torn-batch", f"{directory} segment {base}: {len(data) - end} bytes behind its last batch")
        found += batches
    return found


def checkpoint_entries(disk: SimDisk, path: str) -> dict[tuple[str, int], int]:
    """The entries of a checkpoint file, which must be whole (L11)."""
    if disk.find(path) is None:
        return {}
    text = disk.contents(path).decode(errors="replace")
    lines = text.split("\n")
    whole = len(lines) >= 3 and lines[0] == "0" and lines[1].isdecimal() and lines[-1] == "" and len(lines) == int(lines[1]) + 3
    require(whole, "checkpoint-whole", f"{path} is not a whole checkpoint: {text!r}")
    entries = {}
    for line in lines[2:-1]:
        topic, partition, offset = line.split(" ")
        entries[topic, int(partition)] = int(offset)
    return entries


# --- what survives every crash


def guaranteed_bytes(inode: Inode) -> bytes:
    """How many bytes at the beginning of a file every crash leaves."""
    end = len(inode.data)
    for change in inode.unflushed:
        end = min(end, change.position, change.old_size, change.new_size)
    for position, _ in inode.doomed:
        end = min(end, position)
    return bytes(inode.data[:end])


def guaranteed_node(disk: SimDisk, path: str) -> Directory | None:
    node: Inode | Directory | None = disk.root
    for name in path.split("/"):
        if name:
            certain = isinstance(node, Directory) and node.durable.get(name) is node.entries.get(name)
            node = node.durable.get(name) if certain and isinstance(node, Directory) else None
    return node if isinstance(node, Directory) else None


def guaranteed_end(disk: SimDisk, directory: str, log_start: int, *, start_is_durable: bool = False) -> int:
    """The offset up to which a log survives a crash at this moment, by what was flushed.

    If the log start is durable, what is below does not matter. Otherwise it may come back torn, and end the log there.
    """
    node = guaranteed_node(disk, directory)
    if node is None:
        return log_start
    # A segment whose creation is not durable ends the certain part. One whose removal is not durable does not: if it comes back,
    # it is whole.
    present = sorted(set(segments(node.entries)) | set(segments(node.durable)))
    if start_is_durable:
        present = present[max(0, bisect_right(present, log_start) - 1) :]
    end: int | None = None
    for base in present:
        name = f"{base:020d}.log"
        inode = node.durable.get(name)
        if not isinstance(inode, Inode) or node.entries.get(name, inode) is not inode or end not in (None, base):
            break
        batches, whole = scan(guaranteed_bytes(inode), base)
        end = batches[-1].last_offset + 1 if batches else base
        if whole < len(inode.data) or inode.unflushed:
            break
    return log_start if end is None else max(log_start, end)
