"""The metadata tree of a single broker, in one SQLite file.

Owns: ZooKeeper's rules on the tree (parents before children, versions, czxid, sequential names, ephemeral nodes) and durable
commits: once `multi` returns, the change survives a power cut (write-ahead log, synchronous=FULL).
Never: knows what the nodes mean; lets a reader see a change before it is durable.

1. A parent exists before its child and cannot go while it has one; an ephemeral node has no children.
2. Every committed `multi` is one transaction: `czxid` of what it creates is its number, which only grows, over restarts too.
3. An ephemeral node lives as long as the process that made it: it is kept in memory only, so a restart finds none.

The whole tree is read at opening and kept in memory: reads touch no disk. A commit waits for the disk in a thread of its own, so
that the loop goes on; readers and other writers wait for it.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.ports import BadVersion, Change, Check, Create, Delete, Node, NodeExists, NoNode, SetData, StoreError, StoreUnavailable

FILE_NAME: Final = "ottla-metadata.db"
_FORMAT: Final = 1
_SCHEMA: Final = """
CREATE TABLE node (
    path TEXT PRIMARY KEY,
    data BLOB NOT NULL,
    version INTEGER NOT NULL,
    czxid INTEGER NOT NULL,
    children_made INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO node VALUES ('/', x'', 0, 0, 0);
INSERT INTO counter VALUES ('zxid', 0);
"""
_UPSERT: Final = "INSERT OR REPLACE INTO node VALUES (?, ?, ?, ?, ?)"


@dataclass(slots=True)
class _Entry:
    data: bytes
    version: int
    czxid: int
    children_made: int
    """How many children were ever made here: the number a sequential child gets."""
    ephemeral: bool = False


class EmbeddedStore:
    """`ports.MetadataStore` on SQLite. Build one with `open`."""

    def __init__(self, connection: sqlite3.Connection, entries: dict[str, _Entry], zxid: int) -> None:
        self._connection = connection
        self._entries = entries
        self._children: dict[str, set[str]] = {path: set() for path in entries}
        for path in entries:
            if path != "/":
                parent, name = _split(path)
                self._children[parent].add(name)
        self._zxid = zxid
        self._lock = asyncio.Lock()
        self._open = True
        self._watches: dict[str, list[Callable[[str], None]]] = {}

    @classmethod
    def open(cls, path: str) -> EmbeddedStore:
        """Open the file, or make it. A StoreError says in one sentence why it cannot be used."""
        try:
            # The file will hold credentials: nobody but the owner reads it.
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        except (OSError, sqlite3.Error) as error:
            raise StoreUnavailable(f"the metadata file {path} cannot be opened: {error}") from error
        try:
            entries, zxid = _load(connection)
        except sqlite3.Error as error:
            connection.close()
            reason = "another process uses it" if "locked" in str(error) else str(error)
            raise StoreUnavailable(f"the metadata file {path} cannot be used: {reason}") from error
        except StoreError as error:
            connection.close()
            raise StoreError(f"the metadata file {path} {error}") from None
        return cls(connection, entries, zxid)

    async def get(self, path: str) -> Node | None:
        async with self._lock:
            self._check_open()
            entry = self._entries.get(path)
            return None if entry is None else Node(entry.data, entry.version, entry.czxid)

    async def children(self, path: str) -> list[str]:
        async with self._lock:
            self._check_open()
            return sorted(self._children.get(path, ()))

    async def multi(self, changes: Sequence[Change]) -> list[str]:
        async with self._lock:
            self._check_open()
            transaction = _Transaction(self._entries, self._children, self._zxid + 1)
            try:
                touched = [transaction.apply(change) for change in changes]
                if transaction.events:
                    await self._commit(transaction)
            except BaseException:
                transaction.undo()
                raise
        self._notify(transaction.events)
        return touched

    async def _commit(self, transaction: _Transaction) -> None:
        # The change must end as a whole, known to us, even if whoever asked for it no longer waits.
        commit = asyncio.ensure_future(asyncio.to_thread(self._write, transaction.rows(), transaction.zxid))
        try:
            await asyncio.shield(commit)
        except asyncio.CancelledError:
            await asyncio.wait([commit])
            if commit.exception() is not None:
                raise
            self._zxid = transaction.zxid
            transaction.keep()
            raise
        self._zxid = transaction.zxid

    def _write(self, rows: Sequence[tuple[str, _Entry | None]], zxid: int) -> None:
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            try:
                for path, entry in rows:
                    if entry is None:
                        connection.execute("DELETE FROM node WHERE path = ?", (path,))
                    else:
                        connection.execute(_UPSERT, (path, entry.data, entry.version, entry.czxid, entry.children_made))
                connection.execute("UPDATE counter SET value = ? WHERE name = 'zxid'", (zxid,))
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise StoreUnavailable(f"the metadata could not be written: {error}") from error

    def watch(self, path: str, callback: Callable[[str], None]) -> None:
        self._watches.setdefault(path, []).append(callback)

    def _notify(self, paths: Sequence[str]) -> None:
        loop = asyncio.get_running_loop()
        for path in dict.fromkeys(paths):
            for callback in self._watches.get(path, ()):
                loop.call_soon(callback, path)

    async def close(self) -> None:
        async with self._lock:
            if self._open:
                self._open = False
                self._connection.close()

    def _check_open(self) -> None:
        if not self._open:
            raise StoreUnavailable("the store is closed")


class _Transaction:
    """One `multi` on the tree in memory: applied step by step, undone as a whole."""

    def __init__(self, entries: dict[str, _Entry], children: dict[str, set[str]], zxid: int) -> None:
        self._entries = entries
        self._children = children
        self.zxid = zxid
        self.events: list[str] = []
        self._undo: list[Callable[[], None]] = []
        self._changed: dict[str, None] = {}

    def apply(self, change: Change) -> str:
        if isinstance(change, Create):
            return self._create(change)
        entry = self._entries.get(change.path)
        if entry is None:
            raise NoNode(change.path)
        if change.version not in (-1, entry.version):
            raise BadVersion(f"{change.path}: version {entry.version}, not {change.version}")
        if isinstance(change, SetData):
            self._set(change, entry)
        elif isinstance(change, Delete):
            self._delete(change.path, entry)
        else:
            assert isinstance(change, Check), change
        return change.path

    def _create(self, change: Create) -> str:
        if not change.path.startswith("/"):
            raise StoreError(f"a path begins with /: {change.path!r}")
        parent, name = _split(change.path)
        above = self._entries.get(parent)
        if above is None:
            raise NoNode(parent)
        if above.ephemeral:
            raise StoreError(f"{parent} is ephemeral and can have no children")
        if change.sequential:
            name = f"{name}{above.children_made:010d}"
        if not name:
            raise StoreError(f"a path needs a name: {change.path!r}")
        path = f"{parent.rstrip('/')}/{name}"
        if path in self._entries:
            raise NodeExists(path)
        above.children_made += 1
        self._entries[path] = _Entry(bytes(change.data), 0, self.zxid, 0, change.ephemeral)
        self._children[path] = set()
        self._children[parent].add(name)

        def undo() -> None:
            above.children_made -= 1
            del self._entries[path], self._children[path]
            self._children[parent].discard(name)

        self._did(undo, path, parent)
        return path

    def _set(self, change: SetData, entry: _Entry) -> None:
        data, version = entry.data, entry.version
        entry.data, entry.version = bytes(change.data), version + 1

        def undo() -> None:
            entry.data, entry.version = data, version

        self._did(undo, change.path)

    def _delete(self, path: str, entry: _Entry) -> None:
        if path == "/":
            raise StoreError("the root cannot be deleted")
        if self._children[path]:
            raise StoreError(f"{path} has children")
        parent, name = _split(path)
        del self._entries[path], self._children[path]
        self._children[parent].discard(name)

        def undo() -> None:
            self._entries[path] = entry
            self._children[path] = set()
            self._children[parent].add(name)

        self._did(undo, path, parent)

    def _did(self, undo: Callable[[], None], *paths: str) -> None:
        self._undo.append(undo)
        self.events += paths
        self._changed.update(dict.fromkeys(paths))

    def rows(self) -> list[tuple[str, _Entry | None]]:
        """What the file must hold: an entry, or None where there is none (any more)."""
        rows: list[tuple[str, _Entry | None]] = []
        for path in self._changed:
            entry = self._entries.get(path)
            rows.append((path, None if entry is None or entry.ephemeral else entry))
        return rows

    def keep(self) -> None:
        self._undo.clear()

    def undo(self) -> None:
        for step in reversed(self._undo):
            step()


def _split(path: str) -> tuple[str, str]:
    parent, _, name = path.rpartition("/")
    return parent or "/", name


def _load(connection: sqlite3.Connection) -> tuple[dict[str, _Entry], int]:
    # Nobody else may use the file, and without sharing SQLite needs no shared-memory file beside it.
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    if found == 0:
        connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {_FORMAT}; COMMIT;")
    elif found != _FORMAT:
        raise StoreError(f"has format {found}, which this release does not know; it knows {_FORMAT}")
    (zxid,) = connection.execute("SELECT value FROM counter WHERE name = 'zxid'").fetchone()
    entries: dict[str, _Entry] = {}
    for path, data, version, czxid, children_made in connection.execute("SELECT * FROM node ORDER BY path"):
        entries[path] = _Entry(data, version, czxid, children_made)
    return entries, zxid
