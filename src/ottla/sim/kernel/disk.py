"""A disk in memory that knows what would survive.

Owns: files, directories, which of their bytes and names are durable, the faults they may have, and what is found after a crash.
Never: lets a dead process change anything.

The model. It is as hostile as Linux with ext4 (ordered mode, delayed allocation) may be to bytes, and as `fsync(2)`'s manual page
allows to be to names; it is not more hostile than that:

1. A write is in the page cache when it returns: every process reads it, a *kill* of the process loses nothing of it.
2. Bytes are durable once `flush` of their file returned. After a *crash* (power loss), the writes and truncations of a file since
   its last flush are found: all; none; a first part of them with the next one torn at any byte; or all by size but with some
   pages full of zeros (an extent that was allocated, not written). Files are independent of each other.
3. Names (creations, renames, removals) become durable in their order, whatever the directory: a crash keeps a first part of those
   since the last `flush_dir`, which is one commit of the journal. A rename is never half done. A flush of a file does not make
   its name durable: ext4 would, but the manual page does not promise it.
4. What was durable is never damaged (only `flip_bit` does that, on purpose).
5. A failed `flush` leaves the pages clean, as Linux does: the next flush succeeds without having written them, and a crash shows
   zeros there. So a failed flush must be final for those who ask for it.
6. A full volume takes the part of a write that fits and then says ENOSPC; freed bytes may be used again. A broken one says EIO.
   Room reserved for a file is taken from all others, until it is given back; it outlives the process, and may outlive a crash.
7. A crash may happen inside any operation that changes something (`crash_after`): before it, after it, in the middle of a write.
"""

from __future__ import annotations

import errno
import posixpath
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla.ports import File
from ottla.sim.kernel.process import Process, ProcessDied
from ottla.types import Buffer

OP_CREATE: Final = "create"
OP_WRITE: Final = "write"
OP_READ: Final = "read"
OP_FLUSH: Final = "flush"
OP_TRUNCATE: Final = "truncate"
OP_RENAME: Final = "rename"
OP_REMOVE: Final = "remove"
OP_FLUSH_DIR: Final = "flush_dir"


@dataclass(slots=True)
class _Change:
    """One unflushed change of a file: enough to undo it and to do it again in part."""

    position: int
    new: bytes  # empty for a truncation
    old: bytes
    old_size: int
    new_size: int


class Inode:
    """The bytes of a file, whatever its names."""

    __slots__ = ("data", "doomed", "locked_by", "number", "reserved_end", "unflushed")

    def __init__(self, number: int) -> None:
        self.number = number
        self.data = bytearray()
        self.reserved_end = 0
        self.unflushed: list[_Change] = []
        self.doomed: list[tuple[int, int]] = []
        self.locked_by: Process | None = None

    @property
    def taken_bytes(self) -> int:
        """Of the volume."""
        return max(len(self.data), self.reserved_end)

    def apply_write(self, position: int, new: bytes) -> None:
        old_size = len(self.data)
        if position > old_size:
            self.data.extend(bytes(position - old_size))
        if self.doomed:
            self._redeem(position, position + len(new))
        old = bytes(self.data[position : position + len(new)])
        self.data[position : position + len(new)] = new
        self.unflushed.append(_Change(position, new, old, old_size, len(self.data)))

    def apply_truncate(self, size: int) -> None:
        old_size = len(self.data)
        old = bytes(self.data[size:])
        if self.doomed:
            self._redeem(size, 1 << 62)
        if size <= old_size:
            del self.data[size:]
            self.reserved_end = 0
        else:
            self.data.extend(bytes(size - old_size))
        self.unflushed.append(_Change(size, b"", old, old_size, size))

    def flush(self) -> None:
        self.unflushed.clear()

    def _redeem(self, start: int, end: int) -> None:
        """Bytes written again are dirty again, and the next flush does write them."""
        left: list[tuple[int, int]] = []
        for position, count in self.doomed:
            if position < start:
                left.append((position, min(count, start - position)))
            if position + count > end:
                left.append((max(position, end), position + count - max(position, end)))
        self.doomed = left

    def doom(self) -> None:
        """A failed flush: these pages count as clean from now on, and were not written."""
        for change in self.unflushed:
            if change.new:
                self.doomed.append((change.position, len(change.new)))
        self.unflushed.clear()

    def crash(self, rng: random.Random, page_bytes: int) -> str:
        """Become what is found after power came back; says in a word what happened."""
        outcome = "kept"
        if self.unflushed:
            outcome = self._crash_unflushed(rng, page_bytes)
        for position, count in self.doomed:
            end = min(position + count, len(self.data))
            if end > position:
                self.data[position:end] = bytes(end - position)
        self.doomed.clear()
        self.unflushed.clear()
        if self.reserved_end and rng.random() < 0.5:
            self.reserved_end = 0
        return outcome

    def _crash_unflushed(self, rng: random.Random, page_bytes: int) -> str:
        changes = self.unflushed
        kind = rng.random()
        if kind < 0.15:
            return "kept"
        if kind < 0.35:
            first_position = min(change.position for change in changes)
            for page in range(first_position // page_bytes, len(self.data) // page_bytes + 1):
                if rng.random() < 0.4:
                    self._zero_unflushed(page * page_bytes, (page + 1) * page_bytes)
            return "holes"
        for change in reversed(changes):
            self._undo(change)
        if kind < 0.5:
            return "lost"
        # The later the cut the more interesting: most crashes tear the last write.
        count = len(changes) - 1 if rng.random() < 0.5 else rng.randrange(len(changes))
        for change in changes[:count]:
            self._redo(change, len(change.new))
        torn = changes[count]
        if torn.new:
            self._redo(torn, rng.randrange(len(torn.new)))
        return "torn"

    def _undo(self, change: _Change) -> None:
        if change.new:
            self.data[change.position : change.position + len(change.old)] = change.old
            del self.data[change.old_size :]
        else:
            del self.data[min(change.position, change.old_size) :]
            self.data.extend(change.old)

    def _redo(self, change: _Change, count: int) -> None:
        if change.new:
            if count == 0:
                return
            if change.position > len(self.data):
                self.data.extend(bytes(change.position - len(self.data)))
            self.data[change.position : change.position + count] = change.new[:count]
        elif change.new_size < len(self.data):
            del self.data[change.new_size :]
        else:
            self.data.extend(bytes(change.new_size - len(self.data)))

    def _zero_unflushed(self, start: int, end: int) -> None:
        """Zero what was written since the last flush inside one page. Bytes that were durable before stay as they are."""
        for change in self.unflushed:
            first = max(start, change.position, change.old_size)
            last = min(end, change.position + len(change.new), len(self.data))
            if first < last:
                self.data[first:last] = bytes(last - first)


class Directory:
    """Names as they are, and as they are durable."""

    __slots__ = ("durable", "entries")

    def __init__(self) -> None:
        self.entries: dict[str, Inode | Directory] = {}
        self.durable: dict[str, Inode | Directory] = {}


class Journal:
    """Changes of names that are not durable yet, of all directories, oldest first."""

    __slots__ = ("_changes",)

    def __init__(self) -> None:
        self._changes: list[tuple[Directory, str | None, str | None, Inode | Directory]] = []
        """(directory, name that goes, name that comes, what it names)"""

    def __len__(self) -> int:
        return len(self._changes)

    def put(self, directory: Directory, name: str, node: Inode | Directory) -> None:
        directory.entries[name] = node
        self._changes.append((directory, None, name, node))

    def drop(self, directory: Directory, name: str) -> None:
        self._changes.append((directory, name, None, directory.entries.pop(name)))

    def move(self, directory: Directory, source: str, target: str) -> Inode | Directory | None:
        replaced = directory.entries.get(target)
        node = directory.entries.pop(source)
        directory.entries[target] = node
        self._changes.append((directory, source, target, node))
        return replaced

    def commit(self, count: int | None = None) -> None:
        """Make the first changes durable; None: all."""
        for directory, gone, came, node in self._changes[:count]:
            if gone is not None:
                directory.durable.pop(gone, None)
            if came is not None:
                directory.durable[came] = node
        del self._changes[:count]

    def crash(self, rng: random.Random) -> int:
        """Keep a first part; returns how many changes were lost. The directories still show what was."""
        kind = rng.random()
        total = len(self._changes)
        self.commit(0 if kind < 0.3 else rng.randint(0, total) if kind < 0.7 else total)
        lost = len(self._changes)
        self._changes.clear()
        return lost


@dataclass(slots=True)
class Fault:
    """What goes wrong, where, and when. `after` operations that match go well before the first that fails."""

    operation: str
    prefix: str
    error: int = errno.EIO
    after: int = 0
    times: int = 1 << 30
    raised: int = field(default=0, init=False)


class SimDisk:
    """The volumes of one machine. Processes see it through `view`."""

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
        """How a name ends that is waited for, and the crash point from then on."""
        self.interrupted = ""
        """What the last process that died inside a change was about to change."""
        self.observer: Callable[[str, str, int, int], None] | None = None
        """(operation, path, position, count) of each change that succeeded: what a checker may want to know."""

    def view(self, process: Process) -> DiskView:
        self.interrupted = ""
        return DiskView(self, process)

    # -- what the simulator does to it

    def crash(self) -> str:
        """Power loss and return. The processes must be dead already. Returns a line for the trace."""
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
        """A process died, the machine did not: the page cache stays, its locks go."""
        assert not process.alive
        self._release_locks(self.root, process)

    def _release_locks(self, directory: Directory, process: Process) -> None:
        for node in directory.entries.values():
            if isinstance(node, Directory):
                self._release_locks(node, process)
            elif node.locked_by is process:
                node.locked_by = None

    def crash_after(self, operations: int, on_crash_point: Callable[[], None]) -> None:
        """Inside the n-th change from now on the process dies: `on_crash_point` must see to that."""
        self._crash_at = self.operations + operations
        self._on_crash_point = on_crash_point

    def crash_behind(self, suffix: str, operations: int, on_crash_point: Callable[[], None]) -> None:
        """The same, counted from when a name appears that ends so: a step that is rare is met, too."""
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
        node = self.node(path)
        assert isinstance(node, Inode)
        node.data[position] ^= 1 << bit
        node.flush()  # it is the disk that has it so, not the cache

    def settle(self) -> None:
        """Everything is durable: as if the machine had been idle for long."""
        self.journal.commit()
        self._settle(self.root)

    def _settle(self, directory: Directory) -> None:
        for node in directory.entries.values():
            if isinstance(node, Directory):
                self._settle(node)
            else:
                node.flush()

    def contents(self, path: str) -> bytes:
        node = self.node(path)
        if not isinstance(node, Inode):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        return bytes(node.data)

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

    # -- the tree

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

    def parent(self, path: str) -> tuple[Directory, str]:
        head, name = posixpath.split(path.rstrip("/"))
        node = self.node(head)
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", head)
        return node, name

    def new_inode(self) -> Inode:
        self._numbers += 1
        return Inode(self._numbers)

    # -- before and after each operation

    def check_fault(self, operation: str, path: str) -> None:
        for fault in self.faults:
            if fault.operation == operation and path.startswith(fault.prefix) and fault.raised < fault.times:
                if fault.after > 0:
                    fault.after -= 1
                    continue
                fault.raised += 1
                raise OSError(fault.error, errno.errorcode[fault.error], path)

    def crash_point(self, process: Process) -> bool:
        """Count a change. True: the process dies in the middle of this one."""
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
        # Nobody moves a file to another directory, so the model has no word for it.
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
        """One after the other: a crash between two of them is what a crash among all of them may leave."""
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
