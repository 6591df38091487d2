"""A cluster, its topics, groups and pipelines, as objects that ask it when they are used."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Generic, TypeVar, overload

from ottla.cli.connection import Connection
from ottla.cli.find.bounds import only_of_key, partition_counts, scan_bounds
from ottla.cli.find.scan import Scan
from ottla.cli.forms import table_of
from ottla.cli.options import DEFAULT_BOOTSTRAP_SERVERS
from ottla.cli.output import size_text
from ottla.cli.profile.chosen import Chosen, choose, in_use
from ottla.cli.selection import Selection, select
from ottla.notebook.html import needed, table_html
from ottla.notebook.records import Record, Records

T = TypeVar("T")

_SERVERS = "OTTLA_BOOTSTRAP_SERVERS"


def connect(
    bootstrap_servers: str | None = None,
    *,
    profile: str | None = None,
    properties: dict[str, str] | None = None,
    **props: Any,
) -> Cluster:
    """A cluster: of these brokers, else of OTTLA_BOOTSTRAP_SERVERS, of the profile, of the current profile, or 127.0.0.1:9092.

    `properties` are client properties by their names; `security_protocol="SSL"` is short for one.
    """
    servers = bootstrap_servers or os.environ.get(_SERVERS) or DEFAULT_BOOTSTRAP_SERVERS
    named = bool(bootstrap_servers or os.environ.get(_SERVERS))
    given = {name.replace("_", "."): _property_text(value) for name, value in props.items()}
    with in_use(Chosen(choose(profile, other_cluster=named), servers_named=named)):
        return Cluster(Connection(servers, None, {**(properties or {}), **given}))


def _property_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class Listing(Sequence[T], Generic[T]):
    """A list that notebooks show as a table. `document` says what its rows are."""

    def __init__(self, caption: str, items: Sequence[T], document: Callable[[T], dict[str, Any]]) -> None:
        self.caption = caption
        self._items = list(items)
        self._document = document

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Listing[T]: ...
    def __getitem__(self, index: int | slice) -> T | Listing[T]:
        if isinstance(index, slice):
            return Listing(self.caption, self._items[index], self._document)
        return self._items[index]

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"<{self.caption}: {', '.join(map(str, self._items))}>"

    def _documents(self) -> list[dict[str, Any]]:
        return [self._document(item) for item in self._items]

    def _repr_html_(self) -> str:
        return document_html(self.caption, self._documents())

    def to_pandas(self) -> Any:
        return needed("pandas", "to_pandas()").DataFrame(table_of(self._documents())[1])


def document_html(caption: str, document: Any) -> str:
    columns, rows = table_of(document)
    return table_html(caption, columns, ([row.get(column) for column in columns] for row in rows), len(rows))


class Cluster:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __repr__(self) -> str:
        return f"<cluster at {self._connection.bootstrap_servers}>"

    def topics(self, *, internal: bool = False) -> Listing[Topic]:
        from ottla.cli.topic import topic_rows

        rows = {row["topic"]: row for row in topic_rows(self._connection, internal=internal)}
        items = [Topic(self._connection, name) for name in rows]
        return Listing(f"{len(rows)} topics", items, lambda topic: rows[topic.name])

    def topic(self, name: str) -> Topic:
        """The topic. A Failure names similar ones if it does not exist."""
        self._connection.topic(name)
        return Topic(self._connection, name)

    def groups(self) -> Listing[Group]:
        from ottla.cli.group.view import list_groups

        rows = {row["group"]: row for row in list_groups(self._connection)}
        items = [Group(self._connection, name) for name in rows]
        return Listing(f"{len(rows)} groups", items, lambda group: dict(rows[group.name]))

    def group(self, name: str) -> Group:
        group = Group(self._connection, name)
        group.describe()
        return group

    def pipelines(self) -> Listing[dict[str, Any]]:
        """What pipelines have published of their plan and progress."""
        from ottla.cli.pipeline.published import documents

        found = documents(self._connection)
        return Listing(f"{len(found)} pipelines", found, lambda document: document)


class Topic:
    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self.name = name

    def __repr__(self) -> str:
        return f"<topic {self.name}>"

    __str__ = __repr__

    def describe(self) -> dict[str, Any]:
        """Partitions, leaders, replicas, offsets and settings, as of now."""
        from ottla.cli.topic import topic_document

        return topic_document(self._connection, self._connection.topic(self.name))

    def _repr_html_(self) -> str:
        document = self.describe()
        caption = f"topic {self.name}: {len(document['partitions'])} partitions, {document['records']:,} offsets"
        settings = "".join(f", {name}={value}" for name, value in document["config"].items())
        return document_html(caption + settings, document["partitions"])

    def head(self, n: int = 10) -> Records:
        """The oldest records."""
        return self.read(limit=n)

    def tail(self, n: int = 10) -> Records:
        """The newest records, in order of time."""
        return self._read(Selection(), "beginning", None, n, newest_first=True, reverse=True)

    def read(self, start: str = "beginning", until: str | None = None, *, limit: int | None = 10_000) -> Records:
        """Records from one position (an offset, "10m" ago, an ISO time, "-5") to another, in order of time."""
        return self._read(Selection(), start, until, limit, newest_first=False)

    def search(
        self,
        text: str | None = None,
        *,
        where: str | None = None,
        key: str | None = None,
        regex: bool = False,
        ignore_case: bool = False,
        start: str = "beginning",
        until: str | None = None,
        limit: int | None = 1_000,
        newest_first: bool = True,
        all_partitions: bool = False,
    ) -> Records:
        """Records with a text in key, value or headers, for which an expression of the filter language is true, or with a key.

        A key is looked for in the partitions where producers put it, unless `all_partitions`.
        """
        selection = select(where, text, key, regex=regex, ignore_case=ignore_case)
        of_key = None if all_partitions else selection.key
        return self._read(selection, start, until, limit, newest_first=newest_first, of_key=of_key)

    def to_arrow(self, start: str = "beginning", until: str | None = None, *, limit: int | None = None) -> Any:
        """All records between the positions as a table of pyarrow."""
        needed("pyarrow", "to_arrow()")
        return self.read(start, until, limit=limit).to_arrow()

    def to_pandas(
        self, start: str = "beginning", until: str | None = None, *, limit: int | None = None, fields: bool = False
    ) -> Any:
        """All records between the positions as a data frame of pandas."""
        needed("pandas", "to_pandas()")
        return self.read(start, until, limit=limit).to_pandas(fields=fields)

    def _read(
        self,
        selection: Selection,
        start: str,
        until: str | None,
        limit: int | None,
        *,
        newest_first: bool,
        of_key: bytes | None = None,
        reverse: bool = False,
    ) -> Records:
        isolation = "read_committed"
        bounds = scan_bounds(self._connection, [self.name], start, until, isolation)
        if of_key is not None:
            bounds, _ = only_of_key(bounds, of_key, partition_counts(self._connection, bounds))
        with Scan(self._connection, bounds, selection, newest_first=newest_first, isolation=isolation) as scan:
            found = [Record.of(each) for each in _first(scan, limit)]
        return Records(found[::-1] if reverse else found, _summary(self.name, scan, len(found)), scan.document())


def _first(scan: Scan, limit: int | None) -> Iterator[Any]:
    return iter(scan) if limit is None else islice(scan, limit)


def _summary(topic: str, scan: Scan, found: int) -> str:
    how = "all scanned" if scan.complete else "stopped at the limit"
    return f"{topic}: {found:,} of {scan.tally.records:,} records ({size_text(scan.tally.size_bytes)}), {how}"


class Group:
    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self.name = name

    def __repr__(self) -> str:
        return f"<group {self.name}>"

    __str__ = __repr__

    def describe(self) -> dict[str, Any]:
        """State, members, and lag of each partition, as of now."""
        from ottla.cli.group.view import find_groups, with_partitions

        (found,) = find_groups(self._connection, [self.name])
        return with_partitions(self._connection, found).document()

    @property
    def lag(self) -> int | None:
        lag: int | None = self.describe()["lag"]
        return lag

    def _repr_html_(self) -> str:
        document = self.describe()
        lag = "unknown" if document["lag"] is None else f"{document['lag']:,}"
        caption = f"group {self.name}: {document['type']}, {document['state']}, {len(document['members'])} members, lag {lag}"
        return document_html(caption, document["partitions"])

    def to_pandas(self) -> Any:
        """The partitions as a data frame of pandas."""
        return needed("pandas", "to_pandas()").DataFrame(self.describe()["partitions"])
