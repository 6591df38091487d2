"""Files of a log that are renamed to `.deleted`: removed after `file.delete.delay.ms`, or when the log closes."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.ports import Disk
from ottla.storage.segment import Segment


@dataclass(slots=True)
class _Deleted:
    paths: list[str]
    segment: Segment | None
    """Keeps the descriptors open until the files are removed."""
    due_ms: int | None = None


class DeletedFiles:
    def __init__(self) -> None:
        self._waiting: list[_Deleted] = []

    def add(self, paths: list[str], segment: Segment | None = None) -> None:
        for earlier in self._waiting:  # a truncated log may give a new segment the base offset of a deleted one
            earlier.paths = [path for path in earlier.paths if path not in paths]
        self._waiting.append(_Deleted(paths, segment))

    def take_due(self, now_ms: int, delay_ms: int) -> list[str]:
        """The paths to remove now. The delay starts with the first call that sees a file."""
        due: list[str] = []
        waiting: list[_Deleted] = []
        for deleted in self._waiting:
            if deleted.due_ms is None:
                deleted.due_ms = now_ms + delay_ms
            if deleted.due_ms <= now_ms:
                due += deleted.paths
            else:
                waiting.append(deleted)
        self._waiting = waiting
        return due

    def remove_all(self, disk: Disk) -> None:
        for deleted in self._waiting:
            for path in deleted.paths:
                try:
                    disk.remove(path)
                except FileNotFoundError:
                    continue
        self._waiting.clear()

    def clear(self) -> None:
        self._waiting.clear()

    def rename_dir(self, source: str, target: str) -> None:
        for deleted in self._waiting:
            deleted.paths = [target + path.removeprefix(source) for path in deleted.paths]
            if deleted.segment is not None:
                deleted.segment.files.dir = target
