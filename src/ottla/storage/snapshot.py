"""The `.snapshot` files of a log: what it knew of its producers at an offset, in Kafka's format (version 1).

Owns: their bytes, their names, and when one is needed. A snapshot `<offset>.snapshot` holds the state of all records before the
offset. It is written without ceremony, as Kafka does it: the CRC tells a torn one, and an older one and the log do as well. The
file has of each producer only the last batch.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from typing import Final

from ottla.ports import Disk
from ottla.records.batch import SEQUENCE_MAX
from ottla.records.crc import crc32c
from ottla.storage.names import DELETED, SNAPSHOT, offset_file, parse_offset_file
from ottla.storage.producer_state import Producer, Written
from ottla.types import NO_OFFSET

VERSION: Final = 1
_HEAD: Final = struct.Struct(">hIi")
_CRC_END: Final = 6
"""The CRC covers what stands behind it: the number of entries too."""
_ENTRY: Final = struct.Struct(">qhiqiqiq")


class CorruptSnapshot(Exception):
    """A file that cannot be believed."""


def encode(producers: Iterable[Producer]) -> bytes:
    entries = bytearray()
    count = 0
    for producer in producers:
        last = producer.batches[-1] if producer.batches else None
        entries += _ENTRY.pack(
            producer.producer_id,
            producer.epoch,
            producer.last_sequence,
            producer.last_data_offset,
            last.last_offset - last.first_offset if last is not None else 0,
            producer.last_timestamp,
            producer.coordinator_epoch,
            producer.txn_first_offset,
        )
        count += 1
    body = struct.pack(">i", count) + entries
    return struct.pack(">hI", VERSION, crc32c(body)) + body


def decode(data: bytes) -> list[Producer]:
    if len(data) < _HEAD.size:
        raise CorruptSnapshot(f"{len(data)} bytes are no snapshot")
    version, crc, count = _HEAD.unpack_from(data)
    if version != VERSION:
        raise CorruptSnapshot(f"version {version}, {VERSION} is known")
    if crc32c(data[_CRC_END:]) != crc:
        raise CorruptSnapshot("the CRC is wrong")
    if len(data) - _HEAD.size != count * _ENTRY.size:
        raise CorruptSnapshot(f"{count} entries in {len(data)} bytes")
    return [_producer(fields) for fields in _ENTRY.iter_unpack(data[_HEAD.size :])]


def _producer(fields: tuple[int, ...]) -> Producer:
    producer_id, epoch, last_sequence, last_offset, offset_delta, timestamp, coordinator_epoch, txn_first_offset = fields
    producer = Producer(producer_id, epoch)
    producer.coordinator_epoch = coordinator_epoch
    producer.txn_first_offset = txn_first_offset if txn_first_offset >= 0 else NO_OFFSET
    producer.last_timestamp = timestamp
    if last_offset >= 0:
        first_sequence = (last_sequence - offset_delta) & SEQUENCE_MAX if last_sequence >= 0 else last_sequence
        producer.add(Written(first_sequence, last_sequence, last_offset - offset_delta, last_offset, timestamp))
    return producer


class Snapshots:
    """The snapshot files in one partition's directory."""

    __slots__ = ("_disk", "dir", "offsets", "unflushed")

    def __init__(self, disk: Disk, dir: str, offsets: list[int] | None = None) -> None:
        """`offsets`: those that are there; None: look."""
        self._disk = disk
        self.dir = dir
        if offsets is None:
            found = (parse_offset_file(name) for name in disk.list(dir))
            offsets = sorted(parsed[0] for parsed in found if parsed is not None and parsed[1] == SNAPSHOT)
        self.offsets = offsets
        self.unflushed: list[int] = []
        """Written, and perhaps not on the disk."""

    def path(self, offset: int) -> str:
        return f"{self.dir}/{offset_file(offset, SNAPSHOT)}"

    @property
    def latest_offset(self) -> int:
        """NO_OFFSET where there is none."""
        return self.offsets[-1] if self.offsets else NO_OFFSET

    def write(self, offset: int, producers: Iterable[Producer]) -> None:
        file = self._disk.open(self.path(offset), create=True)
        try:
            file.truncate(0)
            file.write(0, [encode(producers)])
        finally:
            file.close()
        if offset not in self.offsets:
            insort(self.offsets, offset)
        self.unflushed.append(offset)

    def load(self, limit: int) -> tuple[int, list[Producer]] | None:
        """The newest of those up to an offset that can be believed; the others among them go."""
        while self.offsets:
            slot = bisect_right(self.offsets, limit) - 1
            if slot < 0:
                return None
            offset = self.offsets[slot]
            try:
                file = self._disk.open(self.path(offset))
                try:
                    return offset, decode(file.read(0, file.size()))
                finally:
                    file.close()
            except (CorruptSnapshot, FileNotFoundError):
                self.remove(offset)
        return None

    def remove(self, offset: int) -> None:
        self._forget(offset)
        try:
            self._disk.remove(self.path(offset))
        except FileNotFoundError:
            pass  # retention was here before

    def remove_behind(self, offset: int) -> bool:
        """Those of records that are gone. True if there were any."""
        gone = self.offsets[bisect_right(self.offsets, offset) :]
        for each in gone:
            self.remove(each)
        return bool(gone)

    def remove_strays(self, log_start_offset: int, bases: Iterable[int]) -> None:
        """Those that no segment begins with, but for the last; and those before the start of the log. (Kafka takes the one at the
        start with them, and forgets who wrote what retention removed.)"""
        known = set(bases)
        for each in self.offsets[: bisect_left(self.offsets, log_start_offset)]:
            self.remove(each)
        for each in self.offsets[:-1]:
            if each not in known:
                self.remove(each)

    def mark_deleted(self, offset: int) -> str | None:
        """The segment that begins there goes. Returns the renamed file, to be removed later."""
        slot = bisect_left(self.offsets, offset)
        if slot == len(self.offsets) or self.offsets[slot] != offset:
            return None
        self._forget(offset)
        path = self.path(offset)
        try:
            self._disk.rename(path, path + DELETED)
        except FileNotFoundError:
            return None
        return path + DELETED

    def take_unflushed(self) -> list[str]:
        offsets, self.unflushed = self.unflushed, []
        return [self.path(offset) for offset in offsets]

    def _forget(self, offset: int) -> None:
        self.offsets.remove(offset)
        if offset in self.unflushed:
            self.unflushed.remove(offset)
