"""`ports.Disk` and `ports.File` for one process, on a `SimDisk`.

Every operation that changes something may fail (a fault, a full volume), and may be the one inside of which the process dies.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from ottla.ports import File
from ottla.sim.kernel.inode import Directory, Inode
from ottla.sim.kernel.process import Process, ProcessDied
from ottla.types import Buffer

if TYPE_CHECKING:
    from ottla.sim.kernel.disk import SimDisk

OP_CREATE: Final = "create"
OP_WRITE: Final = "write"
OP_READ: Final = "read"
OP_FLUSH: Final = "flush"
OP_TRUNCATE: Final = "truncate"
OP_RENAME: Final = "rename"
OP_REMOVE: Final = "remove"
OP_FLUSH_DIR: Final = "flush_dir"


class SimFile:
    """An open file of one process. It stays readable when its name is gone."""

    __slots__ = ("_closed", "_disk", "_inode", "_process", "path")

    def __init__(self, disk: SimDisk, inode: Inode, path: str, process: Process) -> None:
        self._disk = disk
        self._inode = inode
        self._process = process
        self._closed = False
        self.path = path

    def _check(self) -> None:
        if not self._process.alive:
            raise ProcessDied(self._process.name)
        if self._closed:
            raise OSError(errno.EBADF, "the file is closed", self.path)

    @property
    def inode(self) -> Inode:
        return self._inode

    def size(self) -> int:
        self._check()
        return len(self._inode.data)

    def read(self, position: int, count: int) -> bytes:
        self._check()
        disk = self._disk
        if disk.faults:
            disk.check_fault(OP_READ, self.path)
        return bytes(self._inode.data[position : position + count])

    def write(self, position: int, parts: Sequence[Buffer]) -> None:
        self._check()
        disk = self._disk
        new = b"".join(parts)
        if disk.faults:
            disk.check_fault(OP_WRITE, self.path)
        dies = disk.crash_point(self._process)
        inode = self._inode
        taken_before = inode.taken_bytes
        growth = max(0, position + len(new) - taken_before)
        room = disk.room_for(growth)
        taken = new if room == growth else new[: max(0, len(new) - (growth - room))]
        if dies:
            taken = taken[: disk.rng.randint(0, len(taken))]
        if taken:
            inode.apply_write(position, taken)
            disk.used_bytes += inode.taken_bytes - taken_before
            if disk.observer is not None:
                disk.observer(OP_WRITE, self.path, position, len(taken))
        if dies:
            raise disk.die_here(self._process, self.path)
        if len(taken) < len(new):
            raise OSError(errno.ENOSPC, "no space left on device", self.path)

    def truncate(self, size: int) -> None:
        self._check()
        disk = self._disk
        if disk.faults:
            disk.check_fault(OP_TRUNCATE, self.path)
        dies = disk.crash_point(self._process)
        before = self._inode.taken_bytes
        if size - before > disk.room_for(max(0, size - before)):
            raise OSError(errno.ENOSPC, "no space left on device", self.path)
        if not (dies and disk.rng.random() < 0.5):
            self._inode.apply_truncate(size)
            disk.used_bytes += self._inode.taken_bytes - before
            if disk.observer is not None:
                disk.observer(OP_TRUNCATE, self.path, size, 0)
        if dies:
            raise disk.die_here(self._process, self.path)

    def reserve(self, start: int, end: int) -> bool:
        self._process.check()
        disk, inode = self._disk, self._inode
        growth = max(0, end - inode.taken_bytes)
        if self._closed or disk.room_for(growth) < growth:
            return False
        disk.used_bytes += growth
        inode.reserved_end = max(inode.reserved_end, end)
        return True

    def release(self) -> None:
        self._process.check()
        if self._closed:
            return
        before = self._inode.taken_bytes
        self._inode.reserved_end = 0
        self._disk.used_bytes += self._inode.taken_bytes - before

    def flush(self) -> None:
        self._check()
        disk = self._disk
        if disk.faults:
            try:
                disk.check_fault(OP_FLUSH, self.path)
            except OSError:
                self._inode.doom()
                raise
        dies = disk.crash_point(self._process)
        if not (dies and disk.rng.random() < 0.5):
            self._inode.flush()
            if disk.observer is not None:
                disk.observer(OP_FLUSH, self.path, 0, len(self._inode.data))
        if dies:
            raise disk.die_here(self._process, self.path)

    def fileno(self) -> int:
        raise OSError(errno.EBADF, "a virtual file has no descriptor", self.path)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._inode.locked_by is self._process and self._process.alive:
            self._inode.locked_by = None


class DiskView:
    """`ports.Disk` for one process."""

    __slots__ = ("_disk", "_process")

    def __init__(self, disk: SimDisk, process: Process) -> None:
        self._disk = disk
        self._process = process

    def open(self, path: str, *, create: bool = False) -> File:
        self._process.check()
        disk = self._disk
        node = disk.find(path)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file or directory", path)
            directory, name = disk.parent(path)
            node = disk.new_inode()
            inode = node

            def put() -> None:
                disk.journal.put(directory, name, inode)

            self._change(OP_CREATE, path, put)
            disk.made(path)
        elif isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        return SimFile(disk, node, path, self._process)

    def exists(self, path: str) -> bool:
        self._process.check()
        return self._disk.find(path) is not None

    def size(self, path: str) -> int:
        self._process.check()
        node = self._disk.node(path)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        return len(node.data)

    def list(self, path: str) -> list[str]:
        self._process.check()
        node = self._disk.node(path)
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
        if self._disk.faults:
            self._disk.check_fault(OP_READ, path)
        return sorted(node.entries)

    def is_dir(self, path: str) -> bool:
        self._process.check()
        return isinstance(self._disk.find(path), Directory)

    def make_dirs(self, path: str) -> None:
        self._process.check()
        disk = self._disk
        here = ""
        for name in path.split("/"):
            if not name:
                continue
            above = here or "/"
            here = f"{here}/{name}"
            node = disk.find(here)
            if node is None:
                directory = disk.node(above)
                if not isinstance(directory, Directory):
                    raise NotADirectoryError(errno.ENOTDIR, "not a directory", above)
                self._change(OP_CREATE, here, lambda d=directory, n=name: disk.journal.put(d, n, Directory()))  # type: ignore[misc]
            elif not isinstance(node, Directory):
                raise FileExistsError(errno.EEXIST, "file exists", here)

    def rename(self, source: str, target: str) -> None:
        self._process.check()
        disk = self._disk
        disk.node(source)
        directory, name = disk.parent(source)
        target_directory, target_name = disk.parent(target)
        # The product renames within a directory only; the model has nothing else.
        assert directory is target_directory, f"rename across directories: {source} -> {target}"
        replaced = directory.entries.get(target_name)
        if isinstance(replaced, Directory) and replaced.entries:
            raise OSError(errno.ENOTEMPTY, "directory not empty", target)

        def move() -> None:
            gone = disk.journal.move(directory, name, target_name)
            if isinstance(gone, Inode):
                disk.used_bytes -= gone.taken_bytes

        self._change(OP_RENAME, source, move)
        disk.made(target)

    def remove(self, path: str) -> None:
        self._process.check()
        disk = self._disk
        node = disk.node(path)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        directory, name = disk.parent(path)
        inode = node

        def drop() -> None:
            disk.journal.drop(directory, name)
            disk.used_bytes -= inode.taken_bytes

        self._change(OP_REMOVE, path, drop)

    def remove_tree(self, path: str) -> None:
        self._process.check()
        node = self._disk.node(path)
        if isinstance(node, Directory):
            for name in sorted(node.entries):
                self.remove_tree(f"{path.rstrip('/')}/{name}")
            directory, name = self._disk.parent(path)
            self._change(OP_REMOVE, path, lambda: self._disk.journal.drop(directory, name))
        else:
            self.remove(path)

    def flush_dir(self, path: str) -> None:
        self._process.check()
        node = self._disk.node(path)
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
        self._change(OP_FLUSH_DIR, path, self._disk.journal.commit)

    def at_once(self, calls: Sequence[Callable[[], object]]) -> None:
        """Run the calls in order. A crash between two of them leaves what a crash in a batch may leave."""
        for call in calls:
            call()

    def lock(self, path: str) -> File:
        file = self.open(path, create=True)
        assert isinstance(file, SimFile)
        owner = file.inode.locked_by
        if owner is not None and owner.alive:
            raise BlockingIOError(errno.EAGAIN, "held by another process", path)
        file.inode.locked_by = self._process
        return file

    def usage(self, path: str) -> tuple[int, int]:
        self._process.check()
        disk = self._disk
        total = disk.capacity_bytes if disk.capacity_bytes is not None else 1 << 40
        return total, max(0, total - disk.used_bytes)

    def _change(self, operation: str, path: str, change: Callable[[], object]) -> None:
        disk = self._disk
        if disk.faults:
            disk.check_fault(operation, path)
        dies = disk.crash_point(self._process)
        if not (dies and disk.rng.random() < 0.5):
            change()
            if disk.observer is not None:
                disk.observer(operation, path, 0, 0)
        if dies:
            raise disk.die_here(self._process, path)
