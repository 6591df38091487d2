"""A tree of nodes with ZooKeeper's rules, in memory; the embedded store and the simulator's store share it.

1. A parent exists before its children and cannot be deleted before them. An ephemeral node (one with an owner) has no children.
2. A transaction has one zxid: the `czxid` of the nodes it creates. `commit` makes it the zxid of the tree, which only grows.
3. Until `commit`, `undo` restores the tree as it was before the first `apply`.
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
    """How many children were ever created: the sequence number of the next sequential child."""
    owner: object | None = None
    """The session of an ephemeral node."""


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
        """`reader`: the session that reads."""
        entry = self.entries.get(path)
        if entry is None:
            return None
        return Node(entry.data, entry.version, entry.czxid, mine=entry.owner is not None and entry.owner is reader)

    def names_below(self, path: str) -> list[str]:
        return sorted(self.children.get(path, ()))

    def begin(self, owner: object) -> Transaction:
        """A transaction of the session `owner`, which owns the ephemeral nodes it creates."""
        return Transaction(self, owner)

    def removal_of(self, owner: object) -> Transaction:
        """A transaction that has removed the ephemeral nodes of a session."""
        transaction = Transaction(self, owner)
        for path in sorted(path for path, entry in self.entries.items() if entry.owner is owner):
            transaction.apply(Delete(path))
        return transaction


class Transaction:
    """Changes applied to the tree one by one. They are visible at once, so nobody may read before `commit`."""

    def __init__(self, tree: NodeTree, owner: object) -> None:
        self._tree = tree
        self._owner = owner
        self.zxid = tree.zxid + 1
        self.events: list[str] = []
        """Paths whose watches fire: each changed node, and the parent of each created or deleted one."""
        self._undo: list[Callable[[], None]] = []

    def apply(self, change: Change) -> str:
        """The path of the changed node; StoreError if a rule forbids the change."""
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
            raise StoreError(f"a path must begin with /: {change.path!r}")
        entries, children = self._tree.entries, self._tree.children
        parent, name = _split(change.path)
        above = entries.get(parent)
        if above is None:
            raise NoNode(parent)
        if above.owner is not None:
            raise StoreError(f"{parent} is ephemeral and cannot have children")
        if change.sequential:
            name = f"{name}{above.children_made:010d}"
        if not name:
            raise StoreError(f"the path has no name: {change.path!r}")
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

        self._applied(undo, path, parent)
        return path

    def _set(self, change: SetData, entry: Entry) -> None:
        data, version = entry.data, entry.version
        entry.data, entry.version = bytes(change.data), version + 1

        def undo() -> None:
            entry.data, entry.version = data, version

        self._applied(undo, change.path)

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

        self._applied(undo, path, parent)

    def _applied(self, undo: Callable[[], None], *paths: str) -> None:
        self._undo.append(undo)
        self.events += paths

    def kept_entries(self) -> Iterable[tuple[str, Entry | None]]:
        """What has to be stored: each changed path with its entry, None if it is deleted or ephemeral."""
        for path in dict.fromkeys(self.events):
            entry = self._tree.entries.get(path)
            yield path, None if entry is None or entry.owner is not None else entry

    def commit(self) -> None:
        self._undo.clear()
        if self.events:
            self._tree.zxid = self.zxid

    def undo(self) -> None:
        """Does nothing after `commit`."""
        while self._undo:
            self._undo.pop()()


def _split(path: str) -> tuple[str, str]:
    parent, _, name = path.rpartition("/")
    return parent or "/", name
