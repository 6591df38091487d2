"""The producer snapshots of a log, in Kafka's format (version 1): `<offset>.snapshot` has the state before that offset.

A snapshot is not replaced atomically: its CRC detects a torn one, and an older one plus the log give the same state. It has only
the last batch of each producer.
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
"""The CRC covers the bytes behind it, including the number of entries."""
_ENTRY: Final = struct.Struct(">qhiqiqiq")


class CorruptSnapshot(Exception):
    """The content of a snapshot is invalid."""


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
        raise CorruptSnapshot(f"{len(data)} bytes are too few for a snapshot")
    version, crc, count = _HEAD.unpack_from(data)
    if version != VERSION:
        raise CorruptSnapshot(f"version {version} is not supported, only {VERSION} is")
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
        """`offsets`: of the existing files; None: list the directory."""
        self._disk = disk
        self.dir = dir
        if offsets is None:
            found = (parse_offset_file(name) for name in disk.list(dir))
            offsets = sorted(parsed[0] for parsed in found if parsed is not None and parsed[1] == SNAPSHOT)
        self.offsets = offsets
        self.unflushed: list[int] = []
        """Paths of files that may not be flushed."""

    def path(self, offset: int) -> str:
        return f"{self.dir}/{offset_file(offset, SNAPSHOT)}"

    @property
    def latest_offset(self) -> int:
        """NO_OFFSET: there is no snapshot."""
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
        """The newest valid snapshot up to an offset. Corrupt ones are removed."""
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
            pass  # removed by retention

    def remove_behind(self, offset: int) -> bool:
        """Remove snapshots behind an offset. True: there were some."""
        gone = self.offsets[bisect_right(self.offsets, offset) :]
        for each in gone:
            self.remove(each)
        return bool(gone)

    def remove_strays(self, log_start_offset: int, bases: Iterable[int]) -> None:
        """Remove snapshots that are at no segment's base offset, except the last, and those before the log start offset.

        (Kafka removes the one at the log start offset too, and forgets the producers of records that retention removed.)
        """
        known = set(bases)
        for each in self.offsets[: bisect_left(self.offsets, log_start_offset)]:
            self.remove(each)
        for each in self.offsets[:-1]:
            if each not in known:
                self.remove(each)

    def mark_deleted(self, offset: int) -> str | None:
        """The segment with this base offset was removed: rename its snapshot. Returns the new path."""
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
