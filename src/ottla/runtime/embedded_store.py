"""The metadata tree of a single broker, in one SQLite file.

Once `multi` returns, the change survives a power failure (write-ahead log, synchronous=FULL), and no reader sees a change before
that. Only a broker that is starting, and has answered nobody yet, waits once for all its writes. The rules of the
tree are `cluster.node_tree`'s.

1. Every committed `multi` has a number (zxid) that grows, also over restarts.
2. An ephemeral node is kept in memory only: a restart finds none.

The whole tree is loaded at opening: reads touch no disk. A commit waits for the disk in a thread, so that the loop goes on;
readers and other writers wait for it.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Sequence
from typing import Final

from ottla.cluster.node_tree import Entry, NodeTree, Transaction
from ottla.ports import Change, Node, SessionEvent, StoreError, StoreUnavailable

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
_MAKE: Final = f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {_FORMAT}; COMMIT;"
_UPSERT: Final = "INSERT OR REPLACE INTO node VALUES (?, ?, ?, ?, ?)"


class EmbeddedStore:
    """`ports.MetadataStore` on SQLite. Build one with `open`."""

    multi_bytes_max = 1 << 62

    def __init__(self, path: str, connection: sqlite3.Connection, tree: NodeTree) -> None:
        self._path = path
        self._connection = connection
        self._tree = tree
        self._lock = asyncio.Lock()
        self._open = True
        self._watches: dict[str, list[Callable[[str], None]]] = {}

    @classmethod
    def open(cls, path: str, *, durable: bool = True) -> EmbeddedStore:
        """Open the file, or create it. StoreError if it cannot be used.

        Not `durable`: until `make_durable`, commits do not wait for the disk.
        """
        try:
            if not os.path.exists(path) or not os.path.getsize(path):
                _make(path)
            connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        except (OSError, sqlite3.Error) as error:
            raise StoreUnavailable(f"the metadata file {path} cannot be opened: {error}") from error
        try:
            tree = _load(connection)
        except sqlite3.Error as error:
            connection.close()
            reason = "another process uses it" if "locked" in str(error) else str(error)
            raise StoreUnavailable(f"the metadata file {path} cannot be used: {reason}") from error
        except StoreError as error:
            connection.close()
            raise StoreError(f"the metadata file {path} {error}") from None
        if not durable:
            connection.execute("PRAGMA synchronous = NORMAL")
        return cls(path, connection, tree)

    async def make_durable(self) -> None:
        """Wait until all commits are on the disk. From now on each commit waits."""
        async with self._lock:
            self._check_open()
            self._connection.execute("PRAGMA synchronous = FULL")
            # With a new zxid: SQLite does not sync a transaction that changes nothing.
            self._tree.zxid += 1
            await asyncio.to_thread(self._write, [], self._tree.zxid)

    async def get(self, path: str) -> Node | None:
        async with self._lock:
            self._check_open()
            return self._tree.get(path, self)

    async def children(self, path: str) -> list[str]:
        async with self._lock:
            self._check_open()
            return self._tree.names_below(path)

    async def multi(self, changes: Sequence[Change]) -> list[str]:
        async with self._lock:
            self._check_open()
            transaction = self._tree.begin(self)
            try:
                touched = [transaction.apply(change) for change in changes]
                if transaction.events:
                    await self._commit(transaction)
            except BaseException:
                transaction.undo()
                raise
        self._notify(transaction.events)
        return touched

    async def _commit(self, transaction: Transaction) -> None:
        # The change must end even if its caller is cancelled.
        commit = asyncio.ensure_future(asyncio.to_thread(self._write, list(transaction.kept_entries()), transaction.zxid))
        try:
            await asyncio.shield(commit)
        except asyncio.CancelledError:
            await asyncio.wait([commit])
            if commit.exception() is not None:
                raise
            transaction.commit()
            raise
        transaction.commit()

    def _write(self, rows: Sequence[tuple[str, Entry | None]], zxid: int) -> None:
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
            raise StoreUnavailable(f"the metadata file {self._path} could not be written: {error}") from error

    def watch(self, path: str, callback: Callable[[str], None]) -> None:
        self._watches.setdefault(path, []).append(callback)

    def unwatch(self, path: str, callback: Callable[[str], None]) -> None:
        self._watches[path].remove(callback)
        if not self._watches[path]:
            del self._watches[path]

    def on_session(self, callback: Callable[[SessionEvent], None]) -> None:
        """Never called: the session is this process."""

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


def _make(path: str) -> None:
    """Create the file atomically, with two fsyncs instead of SQLite's eight."""
    new = f"{path}.new"
    # Also the write-ahead log of a file that was removed: SQLite would apply it to this one.
    for remains in (new, f"{new}-wal", f"{path}-wal"):
        if os.path.exists(remains):
            os.unlink(remains)
    # The file will hold credentials: only its owner may read it.
    os.close(os.open(new, os.O_CREAT | os.O_RDWR, 0o600))
    connection = sqlite3.connect(new, isolation_level=None)
    try:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(_MAKE)
    finally:
        connection.close()  # moves the write-ahead log into the file
    _flush(new)
    os.replace(new, path)
    _flush(os.path.dirname(path) or ".")


def _flush(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _load(connection: sqlite3.Connection) -> NodeTree:
    # No other process may use the file. Without sharing, SQLite needs no shared-memory file either.
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    if found == 0:
        connection.executescript(_MAKE)
    elif found != _FORMAT:
        raise StoreError(f"has format {found}; this release supports {_FORMAT}")
    (zxid,) = connection.execute("SELECT value FROM counter WHERE name = 'zxid'").fetchone()
    entries: dict[str, Entry] = {}
    for path, data, version, czxid, children_made in connection.execute("SELECT * FROM node ORDER BY path"):
        entries[path] = Entry(data, version, czxid, children_made)
    return NodeTree(entries, zxid)
