"""The disk of one machine: its volumes, their faults and their crashes.

Owns: the tree of files and directories, its capacity, planned faults and crash points. `inode` says what survives a crash,
`disk_view` what a process sees.
Never: lets a dead process change anything.
"""

from __future__ import annotations

import errno
import posixpath
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from ottla.sim.kernel.disk_view import DiskView
from ottla.sim.kernel.inode import Directory, Inode, Journal
from ottla.sim.kernel.process import Process, ProcessDied


@dataclass(slots=True)
class Fault:
    """A planned failure: of which operation, below which path. `after` matching operations succeed first."""

    operation: str
    prefix: str
    error: int = errno.EIO
    after: int = 0
    times: int = 1 << 30
    raised: int = field(default=0, init=False)


class SimDisk:
    """The disk of one machine. Processes see it through `view`."""

    def __init__(self, rng: random.Random, *, page_bytes: int = 4096) -> None:
        self._rng = rng
        self._page_bytes = page_bytes
        self.root = Directory()
        self.journal = Journal()
        self.faults: list[Fault] = []
        self.operations = 0
        self.capacity_bytes: int | None = None
        self.used_bytes = 0
        self._numbers = 0
        self._crash_at: int | None = None
        self._on_crash_point: Callable[[], None] = lambda: None
        self._crash_behind: tuple[str, int] | None = None
        """(suffix, count): the crash point is so many changes after a name with this suffix appears."""
        self.interrupted = ""
        """Path that the last process was changing when it died inside a change."""
        self.observer: Callable[[str, str, int, int], None] | None = None
        """Called with (operation, path, position, count) after each successful change."""

    def view(self, process: Process) -> DiskView:
        self.interrupted = ""
        return DiskView(self, process)

    # --- what the simulator does to it

    def crash(self) -> str:
        """Power is lost and comes back. The processes must be dead. Returns a line for the trace."""
        seen: dict[int, str] = {}
        words: list[str] = []
        lost = self.journal.crash(self._rng)
        if lost:
            words.append(f"-{lost}names")
        self._crash_directory(self.root, "", seen, words)
        self.used_bytes = self._count_bytes(self.root, set())
        self.forget_crash_point()
        return " ".join(words)

    def _crash_directory(self, directory: Directory, path: str, seen: dict[int, str], words: list[str]) -> None:
        directory.entries = dict(directory.durable)
        for name in sorted(directory.entries):
            node = directory.entries[name]
            if isinstance(node, Directory):
                self._crash_directory(node, f"{path}/{name}", seen, words)
            elif node.number not in seen:
                node.locked_by = None
                seen[node.number] = node.crash(self._rng, self._page_bytes)
                if seen[node.number] != "kept":
                    words.append(f"{path}/{name}:{seen[node.number]}={len(node.data)}")

    def kill(self, process: Process) -> None:
        """Release the locks of a dead process. The machine runs on: the page cache stays."""
        assert not process.alive
        self._release_locks(self.root, process)

    def _release_locks(self, directory: Directory, process: Process) -> None:
        for node in directory.entries.values():
            if isinstance(node, Directory):
                self._release_locks(node, process)
            elif node.locked_by is process:
                node.locked_by = None

    def crash_after(self, operations: int, on_crash_point: Callable[[], None]) -> None:
        """The process dies inside the n-th change from now on; `on_crash_point` must kill it."""
        self._crash_at = self.operations + operations
        self._on_crash_point = on_crash_point

    def crash_behind(self, suffix: str, operations: int, on_crash_point: Callable[[], None]) -> None:
        """Like `crash_after`, counted from when a name with this suffix appears: meets steps that are rare."""
        self._crash_behind = suffix, operations
        self._on_crash_point = on_crash_point

    def forget_crash_point(self) -> None:
        self._crash_at = None
        self._crash_behind = None

    def made(self, path: str) -> None:
        if self._crash_behind is not None and path.endswith(self._crash_behind[0]):
            self._crash_at = self.operations + self._crash_behind[1]
            self._crash_behind = None

    def flip_bit(self, path: str, position: int, bit: int = 0) -> None:
        node = self.inode(path)
        node.data[position] ^= 1 << bit
        node.flush()  # the damage is on the disk, not in the cache

    def flush_all(self) -> None:
        """Make everything durable, as if the machine had been idle for long."""
        self.journal.commit()
        self._flush_below(self.root)

    def _flush_below(self, directory: Directory) -> None:
        for node in directory.entries.values():
            if isinstance(node, Directory):
                self._flush_below(node)
            else:
                node.flush()

    def contents(self, path: str) -> bytes:
        return bytes(self.inode(path).data)

    def paths(self, prefix: str = "/") -> list[str]:
        """Every file below a directory, sorted."""
        found: list[str] = []
        node = self.node(prefix)
        assert isinstance(node, Directory)
        self._walk(node, prefix.rstrip("/"), found)
        return sorted(found)

    def _walk(self, directory: Directory, path: str, found: list[str]) -> None:
        for name, node in directory.entries.items():
            if isinstance(node, Directory):
                self._walk(node, f"{path}/{name}", found)
            else:
                found.append(f"{path}/{name}")

    def _count_bytes(self, directory: Directory, seen: set[int]) -> int:
        total = 0
        for node in directory.entries.values():
            if isinstance(node, Directory):
                total += self._count_bytes(node, seen)
            elif node.number not in seen:
                seen.add(node.number)
                total += node.taken_bytes
        return total

    # --- the tree

    def find(self, path: str) -> Inode | Directory | None:
        node: Inode | Directory = self.root
        for name in path.split("/"):
            if not name or name == ".":
                continue
            if not isinstance(node, Directory):
                return None
            below = node.entries.get(name)
            if below is None:
                return None
            node = below
        return node

    def node(self, path: str) -> Inode | Directory:
        found = self.find(path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "no such file or directory", path)
        return found

    def inode(self, path: str) -> Inode:
        """The file at a path."""
        found = self.node(path)
        if not isinstance(found, Inode):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        return found

    def parent(self, path: str) -> tuple[Directory, str]:
        head, name = posixpath.split(path.rstrip("/"))
        node = self.node(head)
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", head)
        return node, name

    def new_inode(self) -> Inode:
        self._numbers += 1
        return Inode(self._numbers)

    # --- before and after each operation

    def check_fault(self, operation: str, path: str) -> None:
        for fault in self.faults:
            if fault.operation == operation and path.startswith(fault.prefix) and fault.raised < fault.times:
                if fault.after > 0:
                    fault.after -= 1
                    continue
                fault.raised += 1
                raise OSError(fault.error, errno.errorcode[fault.error], path)

    def crash_point(self, process: Process) -> bool:
        """Count a change. Returns whether the process dies inside it."""
        self.operations += 1
        return self._crash_at is not None and self.operations >= self._crash_at

    def die_here(self, process: Process, path: str) -> ProcessDied:
        self._crash_at = None
        self.interrupted = path
        self._on_crash_point()
        assert not process.alive, "a crash point must end the process"
        return ProcessDied(process.name)

    def room_for(self, growth: int) -> int:
        if self.capacity_bytes is None:
            return growth
        return max(0, min(growth, self.capacity_bytes - self.used_bytes))

    @property
    def rng(self) -> random.Random:
        return self._rng
