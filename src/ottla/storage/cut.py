"""What recovery cuts off a log.

Recovery ends a log at the first invalid batch, as Kafka does. Intact batches may lie behind it: then they are kept beside the log
in `.log.cut` files, which only `ottla log dump` reads. The broker never removes them; they go with their log.

1. A file is truncated or removed only after what is kept of it is durable.
2. Segments are removed durably: after a crash they would reappear behind records that are written at their offsets.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from typing import Final

from ottla.ports import Disk
from ottla.storage.names import CUT, DELETED, LOG, SEGMENT_SUFFIXES, offset_file
from ottla.storage.offset_index import INT32_MAX
from ottla.storage.salvage import intact_batches
from ottla.storage.segment import Segment

_COPY_BYTES: Final = 4 << 20


@dataclass(slots=True)
class Cut:
    disk: Disk
    dir: str
    batches: int = 0
    """The intact ones."""
    records: int = 0
    paths: list[str] = field(default_factory=list)
    """The files that keep them. Fewer, if the volume is full."""

    def keep_tail(self, segment: Segment, position: int, next_offset: int, offset_limit: int) -> None:
        """Copy the bytes of a segment from a position on. The caller then truncates it."""
        if self._count(segment, position, next_offset, offset_limit):
            partial = f"{self.dir}/{offset_file(next_offset, LOG + CUT + DELETED)}"
            try:
                self._copy(segment, position, partial)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                self.disk.remove(partial)
            else:
                self._keep(partial, next_offset)

    def take_out(self, segments: list[Segment]) -> None:
        """Rename the `.log` files of segments, and remove their indexes. Those without an intact batch are removed."""
        for segment in segments:
            if self._count(segment, 0, segment.base_offset, segment.base_offset + INT32_MAX + 1):
                segment.close()
                self._keep(segment.path(LOG), segment.base_offset)
        remove_segments(self.disk, segments)

    def _count(self, segment: Segment, position: int, next_offset: int, offset_limit: int) -> int:
        found = 0
        for info in intact_batches(segment.file.read, segment.size, position, next_offset, offset_limit):
            found += 1
            self.records += info.record_count
        self.batches += found
        return found

    def _keep(self, source: str, offset: int) -> None:
        """Rename a file to a free name, durably."""
        name = path = f"{self.dir}/{offset_file(offset, LOG + CUT)}"
        number = 1
        while self.disk.exists(path):
            number += 1
            path = f"{name}{number}"
        self.disk.rename(source, path)
        self.disk.flush_dir(self.dir)
        self.paths.append(path)

    def _copy(self, segment: Segment, position: int, path: str) -> None:
        copy = self.disk.open(path, create=True)
        try:
            copy.truncate(0)
            for start in range(position, segment.size, _COPY_BYTES):
                chunk = segment.file.read(start, min(_COPY_BYTES, segment.size - start))
                copy.write(start - position, [chunk])
            copy.flush()
        finally:
            copy.close()


def remove_segments(disk: Disk, segments: list[Segment]) -> None:
    for segment in segments:
        segment.close()
        for suffix in SEGMENT_SUFFIXES:
            if disk.exists(segment.path(suffix)):
                disk.remove(segment.path(suffix))
    if segments:
        disk.flush_dir(segments[0].files.dir)
