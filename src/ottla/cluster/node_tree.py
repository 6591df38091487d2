"""A tree of nodes with ZooKeeper's rules, in memory.

Owns: what a transaction may do to the tree, and undoing it as a whole. Both stores (`runtime.embedded_store`, `sim.metadata`)
keep their tree here, so that they cannot differ in a rule.
Never: knows what the nodes mean, who waits for a change, or where the tree is kept.

1. A parent exists before its child and cannot go while it has one; an ephemeral node (one with an owner) has no children.
2. A transaction has one number: `czxid` of what it creates. `commit` makes it the tree's, which only grows.
3. Until `commit`, `undo` leaves the tree as it was before the first `apply`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ottla.ports import BadVersion, Change, Check, Create, Delete, Node, NodeExists, NoNode, SetData, StoreError


@dataclass(slots=True)
class Entry:
    data: bytes
    version: int
    czxid: int
    children_made: int = 0
    """How many children were ever made here: the number a sequential child gets."""
    owner: object | None = None
    """The session an ephemeral node goes with."""


class NodeTree:
    def __init__(self, entries: dict[str, Entry] | None = None, zxid: int = 0) -> None:
        self.entries: dict[str, Entry] = {"/": Entry(b"", 0, 0)} if entries is None else entries
        self.children: dict[str, set[str]] = {path: set() for path in self.entries}
        self.zxid = zxid
        for path in self.entries:
            if path != "/":
                parent, name = _split(path)
                self.children[parent].add(name)

    def get(self, path: str, reader: object | None = None) -> Node | None:
        """`reader`: the session that asks."""
        entry = self.entries.get(path)
        if entry is None:
            return None
        return Node(entry.data, entry.version, entry.czxid, mine=entry.owner is not None and entry.owner is reader)

    def names_below(self, path: str) -> list[str]:
        return sorted(self.children.get(path, ()))

    def begin(self, owner: object) -> Transaction:
        """A transaction of the session `owner`, to whom the ephemeral nodes it creates belong."""
        return Transaction(self, owner)

    def removal_of(self, owner: object) -> Transaction:
        """A transaction that has removed all that goes with a session."""
        transaction = Transaction(self, owner)
        for path in sorted(path for path, entry in self.entries.items() if entry.owner is owner):
            transaction.apply(Delete(path))
        return transaction


class Transaction:
    """Changes of the tree, applied one by one; the reader of the tree sees them at once, so nobody may read before `commit`."""

    def __init__(self, tree: NodeTree, owner: object) -> None:
        self._tree = tree
        self._owner = owner
        self.zxid = tree.zxid + 1
        self.events: list[str] = []
        """The paths to wake watchers of: each node changed, and the parent of each that came or went."""
        self._undo: list[Callable[[], None]] = []

    def apply(self, change: Change) -> str:
        """The path it touched; a StoreError where a rule forbids the change."""
        if isinstance(change, Create):
            return self._create(change)
        entry = self._tree.entries.get(change.path)
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
        entries, children = self._tree.entries, self._tree.children
        parent, name = _split(change.path)
        above = entries.get(parent)
        if above is None:
            raise NoNode(parent)
        if above.owner is not None:
            raise StoreError(f"{parent} is ephemeral and can have no children")
        if change.sequential:
            name = f"{name}{above.children_made:010d}"
        if not name:
            raise StoreError(f"a path needs a name: {change.path!r}")
        path = f"{parent.rstrip('/')}/{name}"
        if path in entries:
            raise NodeExists(path)
        above.children_made += 1
        entries[path] = Entry(bytes(change.data), 0, self.zxid, owner=self._owner if change.ephemeral else None)
        children[path] = set()
        children[parent].add(name)

        def undo() -> None:
            above.children_made -= 1
            del entries[path], children[path]
            children[parent].discard(name)

        self._did(undo, path, parent)
        return path

    def _set(self, change: SetData, entry: Entry) -> None:
        data, version = entry.data, entry.version
        entry.data, entry.version = bytes(change.data), version + 1

        def undo() -> None:
            entry.data, entry.version = data, version

        self._did(undo, change.path)

    def _delete(self, path: str, entry: Entry) -> None:
        if path == "/":
            raise StoreError("the root cannot be deleted")
        entries, children = self._tree.entries, self._tree.children
        if children[path]:
            raise StoreError(f"{path} has children")
        parent, name = _split(path)
        del entries[path], children[path]
        children[parent].discard(name)

        def undo() -> None:
            entries[path] = entry
            children[path] = set()
            children[parent].add(name)

        self._did(undo, path, parent)

    def _did(self, undo: Callable[[], None], *paths: str) -> None:
        self._undo.append(undo)
        self.events += paths

    def kept_entries(self) -> Iterable[tuple[str, Entry | None]]:
        """What must be written down: each path changed, with its entry, or None where none is (any more). No ephemeral ones."""
        for path in dict.fromkeys(self.events):
            entry = self._tree.entries.get(path)
            yield path, None if entry is None or entry.owner is not None else entry

    def commit(self) -> None:
        self._undo.clear()
        if self.events:
            self._tree.zxid = self.zxid

    def undo(self) -> None:
        """Nothing, once committed."""
        while self._undo:
            self._undo.pop()()


def _split(path: str) -> tuple[str, str]:
    parent, _, name = path.rpartition("/")
    return parent or "/", name
