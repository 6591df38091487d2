"""The bytes of files and the names of directories, and what of both survives a crash.

The model. It is as hostile as Linux with ext4 (ordered mode, delayed allocation) may be to bytes, and as `fsync(2)`'s manual page
allows for names; not more hostile than that:

1. A write is in the page cache when it returns: every process reads it, a *kill* of the process loses nothing of it.
2. Bytes are durable once `flush` of their file returned. After a *crash* (power loss), the writes and truncations of a file since
   its last flush are found: all; none; a first part of them with the next one torn at any byte; or all by size but with some
   pages full of zeros (an extent that was allocated, not written). Files are independent of each other.
3. Names (creations, renames, removals) become durable in their order, whatever the directory: a crash keeps a first part of those
   since the last `flush_dir`, which is one commit of the journal. A rename is never half done. A flush of a file does not make
   its name durable: ext4 would, but the manual page does not promise it.
4. What was durable is never damaged (only `flip_bit` does that, on purpose).
5. A failed `flush` leaves the pages clean, as Linux does: the next flush succeeds without having written them, and a crash shows
   zeros there. So a failed flush must be final for the caller.
6. A full volume takes the part of a write that fits and then says ENOSPC; freed bytes may be used again. A broken one says EIO.
   Space reserved for a file is taken from all others until it is released; it outlives the process, and may outlive a crash.
7. A crash may happen inside any operation that changes something (`crash_after`): before it, after it, in the middle of a write.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from ottla.sim.kernel.process import Process


@dataclass(slots=True)
class _Change:
    """One unflushed change of a file, with what is needed to undo it and to redo a part of it."""

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
        """Bytes taken from the volume, reserved ones included."""
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
        """Bytes that are written again are dirty again: the next flush writes them."""
        left: list[tuple[int, int]] = []
        for position, count in self.doomed:
            if position < start:
                left.append((position, min(count, start - position)))
            if position + count > end:
                left.append((max(position, end), position + count - max(position, end)))
        self.doomed = left

    def doom(self) -> None:
        """After a failed flush the pages count as clean, and were not written."""
        for change in self.unflushed:
            if change.new:
                self.doomed.append((change.position, len(change.new)))
        self.unflushed.clear()

    def crash(self, rng: random.Random, page_bytes: int) -> str:
        """Become what is found after a crash. Returns a word for what happened."""
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
        # Most crashes tear the last write: late ones find more.
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
    """Names as processes see them, and as they are durable."""

    __slots__ = ("durable", "entries")

    def __init__(self) -> None:
        self.entries: dict[str, Inode | Directory] = {}
        self.durable: dict[str, Inode | Directory] = {}


class Journal:
    """Changes of names in all directories that are not durable yet, oldest first."""

    __slots__ = ("_changes",)

    def __init__(self) -> None:
        self._changes: list[tuple[Directory, str | None, str | None, Inode | Directory]] = []
        """(directory, removed name, added name, what it names)"""

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
        """Make a first part durable and drop the rest. Returns how many changes were lost."""
        kind = rng.random()
        total = len(self._changes)
        self.commit(0 if kind < 0.3 else rng.randint(0, total) if kind < 0.7 else total)
        lost = len(self._changes)
        self._changes.clear()
        return lost
