"""What has to reach the disk before a log's recovery point may advance.

`Unflushed` collects it on the loop; a `FlushPlan` is run by any thread.
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla.ports import Disk, File
from ottla.storage.names import OFFSET_INDEX, PARTITION_METADATA, TIME_INDEX
from ottla.storage.segment import Segment


@dataclass(slots=True)
class FlushPlan:
    """The files and directories to flush. `run` touches no state of the log."""

    end_offset: int
    truncations: int
    disk: Disk
    files: list[File]
    paths: list[str]
    """Indexes, snapshots, partition.metadata: opened for the flush."""
    dirs: list[str]

    def run(self) -> None:
        for file in self.files:
            file.flush()
        for path in self.paths:
            try:
                file = self.disk.open(path)
            except FileNotFoundError:
                continue  # deleted by retention
            try:
                file.flush()
            finally:
                file.close()
        for path in self.dirs:
            try:
                self.disk.flush_dir(path)
            except FileNotFoundError:
                continue  # the log was deleted


class Unflushed:
    """Files and names that may not be on the disk, besides the records behind the recovery point."""

    def __init__(self, sealed: list[Segment]) -> None:
        self.sealed = sealed
        """Segments sealed since the last flush: their index files are complete."""
        self.dir = True
        """A file was created, renamed or removed in the log's directory."""
        self.parent_dir = True
        """The directory itself was created or renamed."""
        self.metadata = False
        """partition.metadata was written."""
        self._running: FlushPlan | None = None
        """The last plan, until `completed`: it may never have run to its end."""

    @property
    def is_empty(self) -> bool:
        return not (self.sealed or self.dir or self.parent_dir or self._running is not None)

    def plan(
        self, disk: Disk, log_dir: str, end_offset: int, truncations: int, segments: list[Segment], paths: list[str]
    ) -> FlushPlan:
        """A plan that flushes everything collected here, the .log files of `segments`, and `paths`."""
        sealed, self.sealed = self.sealed, []
        dirs = [log_dir] if self.dir else []
        if self.parent_dir:
            dirs.append(log_dir.rpartition("/")[0])
        paths = [segment.path(suffix) for segment in sealed for suffix in (OFFSET_INDEX, TIME_INDEX)] + paths
        if self.metadata:
            paths.append(f"{log_dir}/{PARTITION_METADATA}")
        self.dir = self.parent_dir = self.metadata = False
        if self._running is not None:
            paths = list(dict.fromkeys(self._running.paths + paths))
            dirs = list(dict.fromkeys(self._running.dirs + dirs))
        self._running = FlushPlan(end_offset, truncations, disk, [segment.file for segment in segments], paths, dirs)
        return self._running

    def completed(self, plan: FlushPlan) -> None:
        if plan is self._running:
            self._running = None
