"""The frozen definitions of a pipeline. Each knows the line that declared it.

A flow without `to` is a view: it is computed inside each flow that takes it. A flow into a topic that another flow takes is read
back from that topic, so each of the two has its own checkpoint, lag and transactions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ottla.pipelines.failure import Place
from ottla.pipelines.values import Value


@dataclass(frozen=True)
class Cluster:
    """A Kafka cluster that sources and sinks name. Its name identifies it in the pipeline."""

    name: str
    settings: tuple[tuple[str, str], ...] = field(compare=False, repr=False)
    """Client properties, with references to secrets. Those in the TOML file replace them."""
    place: Place = field(compare=False)


@dataclass(frozen=True)
class Source:
    """Topics as a streaming DataFrame."""

    name: str
    value: Value
    topics: tuple[str, ...]
    pattern: str | None
    key: Value | None
    columns: tuple[str, ...]
    dead_letter: str | None
    starting: str
    options: tuple[tuple[str, str], ...]
    place: Place = field(compare=False)
    cluster: Cluster | None = None
    """None: the pipeline's own."""

    def preview(self, n: int = 20, *, spark: Any = None, records: int = 1_000, **settings: Any) -> Any:
        """The rows of its last records, for pandas. Writes nothing. `settings` are those of `p.run`."""
        from ottla.pipelines.interactive import preview_table

        return preview_table(self, n, spark, records, settings)


@dataclass(frozen=True)
class Files:
    """A directory of files as a streaming DataFrame, or, with `static`, as a static one (the small side of a join)."""

    name: str
    path: str
    format: str
    schema: Any
    static: bool
    options: tuple[tuple[str, str], ...]
    place: Place = field(compare=False)
    refresh_ms: int | None = None
    """How often a static table is read anew. None: never. A database is, in each batch."""


@dataclass(frozen=True)
class Sink:
    """A topic that a flow writes exactly once."""

    topic: str
    value: Value
    key: str | None
    headers: str | None
    timestamp: str | None
    partition: str | None
    compression: str
    partitions: int | None
    """For a topic that is created; one that exists must have as many. None: the broker's default."""
    config: tuple[tuple[str, str], ...]
    """Settings of the topic, likewise."""
    place: Place = field(compare=False)
    delete_when: str | None = None
    """A column or condition: such a row becomes a tombstone."""
    key_format: Value | None = None
    cluster: Cluster | None = None
    """None: the pipeline's own."""


@dataclass(frozen=True)
class Table:
    """A table that a flow writes exactly once."""

    format: str
    path: str
    """The directory; for jdbc the table name, for iceberg the name in the catalog."""
    partition_by: tuple[str, ...]
    options: tuple[tuple[str, str], ...]
    place: Place = field(compare=False)
    mode: str = "append"
    """Or "upsert": a row replaces the one with the same key."""
    key: tuple[str, ...] = ()
    delete_when: str | None = None
    """A column or condition: such a row deletes the one with its key."""
    history: bool = False
    """Whether replaced and deleted rows stay, with the time in which they were valid."""


Target = Sink | Table


@dataclass(frozen=True)
class Expectation:
    """A condition that every row of a flow's result should meet."""

    name: str
    condition: str
    """In SQL. A row meets it if it is true: neither false nor null."""
    on_fail: str
    """What happens to other rows: WARN, DROP, DEAD_LETTER or STOP. All are counted."""
    place: Place = field(compare=False)


WARN, DROP, DEAD_LETTER, STOP = "warn", "drop", "dead_letter", "stop"


@dataclass(frozen=True)
class Flow:
    """Inputs, the function or SQL query over them, and the target of the result. Call it as its function, with DataFrames."""

    name: str
    inputs: tuple[Input, ...]
    function: Callable[..., Any] | None
    query: str | None
    to: Target | None
    output_mode: str
    place: Place = field(compare=False)
    expectations: tuple[Expectation, ...] = ()
    late: str | None = None
    """The topic of records that come too late for the watermark."""

    def __call__(self, *frames: Any) -> Any:
        if self.function is None:
            raise TypeError(f"flow {self.name!r} is a query, not a function: try it with ottla.testing.run_flow")
        return self.function(*frames)

    def preview(self, n: int = 20, *, spark: Any = None, records: int = 1_000, **settings: Any) -> Any:
        """What it makes of the last records of its sources, for pandas. Writes nothing. `settings` are those of `p.run`."""
        from ottla.pipelines.interactive import preview_table

        return preview_table(self, n, spark, records, settings)


Input = Source | Files | Flow | str
