"""The files of one segment: `<base offset>.log`, `.index`, `.timeindex` and `.txnindex`.

Owns their names and the short operations on index files, each of which opens and closes the file.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.ports import Disk
from ottla.storage.checkpoint import flush_file
from ottla.storage.names import DELETED, SEGMENT_SUFFIXES, TXN_INDEX, offset_file


class SegmentFiles:
    def __init__(self, disk: Disk, dir: str, base_offset: int) -> None:
        self.disk = disk
        self.dir = dir
        self.base_offset = base_offset

    def path(self, suffix: str) -> str:
        return f"{self.dir}/{offset_file(self.base_offset, suffix)}"

    def exists(self, suffix: str) -> bool:
        return self.disk.exists(self.path(suffix))

    def read(self, suffix: str) -> bytes:
        file = self.disk.open(self.path(suffix))
        try:
            return file.read(0, file.size())
        finally:
            file.close()

    def write(self, suffix: str, position: int, data: bytes) -> None:
        """Write at a position and end the file there."""
        file = self.disk.open(self.path(suffix), create=True)
        try:
            file.write(position, [data])
            file.truncate(position + len(data))
        finally:
            file.close()

    def update(self, suffix: str, new: bytes, entry_bytes: int) -> None:
        """Give a file new content.

        If the file has the first entries of it, the rest is appended, unflushed. Otherwise the content is replaced and flushed:
        the segment may soon lie below the recovery point, where old content that a crash brings back would be trusted.
        """
        file = self.disk.open(self.path(suffix), create=True)
        try:
            old = file.read(0, file.size())
            if not new.startswith(old) or len(old) % entry_bytes:
                file.truncate(0)
                file.write(0, [new])
                file.flush()
            elif len(old) < len(new):
                file.write(len(old), [new[len(old) :]])
        finally:
            file.close()

    def shrink(self, suffix: str, size: int) -> None:
        file = self.disk.open(self.path(suffix), create=True)
        try:
            if file.size() > size:
                file.truncate(size)
        finally:
            file.close()

    def flush(self, suffix: str) -> None:
        flush_file(self.disk, self.path(suffix))

    def rename(self, source: str, target: str, suffixes: Iterable[str]) -> None:
        """Replace the ending `source` of the file names with `target`, in the order given. A .txnindex is optional."""
        for suffix in suffixes:
            path = self.path(suffix)
            if suffix != TXN_INDEX or self.disk.exists(path + source):
                self.disk.rename(path + source, path + target)

    def mark_deleted(self) -> list[str]:
        """Rename the files to `.deleted`. Returns the new paths."""
        marked = []
        for suffix in SEGMENT_SUFFIXES:
            path = self.path(suffix)
            if self.disk.exists(path):
                self.disk.rename(path, path + DELETED)
                marked.append(path + DELETED)
        return marked
