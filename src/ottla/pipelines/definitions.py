"""The words of a pipeline: `source`, `files`, `sink`, `table`, `jdbc`, `flow`, `sql`.

Owns: frozen definitions, each with the place that declared it, and the list of flows that a file declares while it is loaded.
Never starts Spark, never imports pyspark, never talks to a broker.

Invariants
1. What is wrong with a single word is refused where it is written; what is wrong between words is `graph`'s to refuse.
2. A flow without `to` is a view: it is computed inside each flow that takes it. A flow into a topic that another flow takes is
   read back from that topic, so each of the two has its own checkpoint, lag and transaction.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from ottla.pipelines.failure import PipelineError, Place
from ottla.pipelines.values import Avro, Bytes, Json, String, Value

_HERE = __name__.rpartition(".")[0]
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_COLUMNS = ("key", "headers", "topic", "partition", "offset", "timestamp", "timestampType")
_OUTPUT_MODES = ("append", "update", "complete")
_TABLE_FORMATS = ("parquet", "orc", "json", "csv", "delta", "iceberg", "jdbc")


@dataclass(frozen=True)
class Source:
    """A topic (or several) as a table that grows."""

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


@dataclass(frozen=True)
class Files:
    """A directory of files as a table that grows, or, with `static`, as one that is read whole (the small side of a join)."""

    name: str
    path: str
    format: str
    schema: Any
    static: bool
    options: tuple[tuple[str, str], ...]
    place: Place = field(compare=False)


@dataclass(frozen=True)
class Sink:
    """A topic that a flow writes to, exactly once."""

    topic: str
    value: Value
    key: str | None
    headers: str | None
    timestamp: str | None
    partition: str | None
    compression: str
    place: Place = field(compare=False)


@dataclass(frozen=True)
class Table:
    """A table that a flow writes to: each batch is in it once."""

    format: str
    path: str
    """The directory; for jdbc the name of the table, for iceberg the name in the catalog."""
    partition_by: tuple[str, ...]
    options: tuple[tuple[str, str], ...]
    place: Place = field(compare=False)


Target = Sink | Table


@dataclass(frozen=True)
class Flow:
    """Inputs, what is made of them, and where it goes."""

    name: str
    inputs: tuple[Source | Files | Flow | str, ...]
    function: Callable[..., Any] | None
    query: str | None
    to: Target | None
    output_mode: str
    place: Place = field(compare=False)


Input = Source | Files | Flow | str

_declared: ContextVar[list[Flow] | None] = ContextVar("ottla_pipeline_flows", default=None)


def source(
    topic: str | list[str] | tuple[str, ...] | None = None,
    value: Value | None = None,
    *,
    pattern: str | None = None,
    name: str | None = None,
    key: Value | None = None,
    columns: tuple[str, ...] | list[str] = (),
    dead_letter: str | None = None,
    starting: str = "earliest",
    options: Mapping[str, object] | None = None,
) -> Source:
    """A topic, a list of topics, or all whose name matches `pattern`.

    The value's fields become columns; `columns` asks for more of the record: key, headers, topic, partition, offset, timestamp,
    timestampType. `key` says how the key is read (default: bytes). What does not parse goes to the topic `dead_letter`; without
    one it stops the flow. `starting` is `earliest`, `latest` or what Spark's `startingOffsets` takes, used where there is no
    checkpoint yet. `options` are those of `format("ottla")`: `maxOffsetsPerTrigger`, `failOnDataLoss`, …
    """
    place = _place()
    topics = (topic,) if isinstance(topic, str) else tuple(topic or ())
    if bool(topics) == bool(pattern):
        raise PipelineError("a source takes a topic or a pattern, one of them", place)
    for each in (*topics, *((dead_letter,) if dead_letter is not None else ())):
        _check_topic(each, place)
    if pattern is not None:
        _check_pattern(pattern, place)
    value = String() if value is None else value
    _check_value(value, place, "value")
    if isinstance(value, Json) and value.schema is None:
        raise PipelineError(
            "a JSON source needs a schema", place, hint='p.json("id long, at timestamp"): names and types as in Spark\'s DDL'
        )
    if key is not None:
        _check_value(key, place, "key")
        if not isinstance(key, String | Bytes):
            raise PipelineError("a key is read as p.string() or p.bytes()", place)
        columns = ("key", *(column for column in columns if column != "key"))
    unknown = [column for column in columns if column not in _COLUMNS]
    if unknown:
        raise PipelineError(f"a record has no column {unknown[0]!r}", place, hint=f"it has {', '.join(_COLUMNS)}")
    if name is None and pattern is not None:
        raise PipelineError("a source by pattern needs a name", place, hint="add name=…")
    name = name or re.sub(r"[^A-Za-z0-9_]", "_", topics[0])
    _check_name(name, "source", place)
    return Source(name, value, topics, pattern, key, tuple(columns), dead_letter, str(starting), _options(options, place), place)


def files(
    path: str,
    schema: Any = None,
    *,
    format: str = "parquet",
    name: str | None = None,
    static: bool = False,
    options: Mapping[str, object] | None = None,
) -> Files:
    """Files as they arrive in a directory; `static=True` reads what is there when the flow starts, as the side of a join."""
    place = _place()
    name = name or re.sub(r"[^A-Za-z0-9_]", "_", path.rstrip("/").rpartition("/")[2])
    _check_name(name, "source", place)
    if schema is None and not static:
        raise PipelineError(
            f"files {name!r} need a schema", place, hint='p.files(path, "id long, at timestamp"): a stream must know it before'
        )
    return Files(name, path, format, schema, static, _options(options, place), place)


def sink(
    topic: str,
    *,
    key: str | None = None,
    value: Value | None = None,
    headers: str | None = None,
    timestamp: str | None = None,
    partition: str | None = None,
    compression: str = "lz4",
) -> Sink:
    """A topic. `key` names the column that becomes the key and so chooses the partition, as Java's producer would.

    Default value: a JSON object of all columns. `p.string()` and `p.bytes()` take the column `value`, or the only one beside the
    key. `headers` (array of struct<key string, value binary>), `timestamp` and `partition` name columns that go into the record's
    own places and not into the value.
    """
    place = _place()
    _check_topic(topic, place)
    value = Json() if value is None else value
    _check_value(value, place, "value")
    if compression not in ("none", "gzip", "snappy", "lz4", "zstd"):
        raise PipelineError(f"compression {compression!r} is not known", place, hint="none, gzip, snappy, lz4 or zstd")
    return Sink(topic, value, key, headers, timestamp, partition, compression, place)


def table(
    path: str,
    format: str = "parquet",
    *,
    partition_by: str | list[str] | tuple[str, ...] = (),
    options: Mapping[str, object] | None = None,
) -> Table:
    """A directory of Parquet, ORC, JSON or CSV files; a Delta table's directory; an Iceberg table's name."""
    place = _place()
    if format not in _TABLE_FORMATS or format == "jdbc":
        raise PipelineError(
            f"a table cannot be {format!r}", place, hint="parquet, orc, json, csv, delta, iceberg; databases with p.jdbc(…)"
        )
    if not path:
        raise PipelineError("a table needs a path", place)
    columns = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    return Table(format, path, columns, _options(options, place), place)


def jdbc(url: str, table: str, *, options: Mapping[str, object] | None = None) -> Table:
    """A table of a database. `options` are Spark's JDBC options (`driver`, `user`, `password`, …)."""
    place = _place()
    if not url.startswith("jdbc:"):
        raise PipelineError(f"{url!r} is no JDBC address", place, hint="jdbc:postgresql://host/database")
    return Table("jdbc", table, (), (("url", url), *_options(options, place)), place)


def flow(
    *inputs: Input, to: Target | None = None, name: str | None = None, output_mode: str = "append"
) -> Callable[[Callable[..., Any]], Flow]:
    """A function of as many DataFrames as there are inputs, that returns one.

    An input is a source, another flow, or the name of one. Without `to` the flow is a view for other flows.
    """
    place = _place()

    def declare(function: Callable[..., Any]) -> Flow:
        return _declare(Flow(name or function.__name__, inputs, function, None, to, output_mode, place))

    if len(inputs) == 1 and to is None and callable(inputs[0]) and not isinstance(inputs[0], Flow):
        raise PipelineError("a flow needs its inputs", place, hint="@p.flow(orders, to=p.sink(…)), with brackets")
    return declare


def sql(*inputs: Input, query: str, to: Target | None = None, name: str | None = None, output_mode: str = "append") -> Flow:
    """A flow written in SQL; its inputs are tables under their names."""
    place = _place()
    if name is None:
        if to is None:
            raise PipelineError("an SQL flow without `to` needs a name", place, hint="add name=…")
        name = re.sub(r"[^A-Za-z0-9_]", "_", to.topic if isinstance(to, Sink) else to.path.rstrip("/").rpartition("/")[2])
    return _declare(Flow(name, inputs, None, query, to, output_mode, place))


def _declare(flow: Flow) -> Flow:
    _check_name(flow.name, "flow", flow.place)
    if not flow.inputs:
        raise PipelineError(f"flow {flow.name!r} has no input", flow.place)
    for each in flow.inputs:
        if not isinstance(each, Source | Files | Flow | str):
            raise PipelineError(
                f"flow {flow.name!r}: {each!r} is no input", flow.place, hint="a source, files, another flow, or the name of one"
            )
    if flow.to is not None and not isinstance(flow.to, Sink | Table):
        raise PipelineError(
            f"flow {flow.name!r}: to={flow.to!r} is no sink", flow.place, hint="p.sink(…), p.table(…) or p.jdbc(…)"
        )
    if flow.output_mode not in _OUTPUT_MODES:
        raise PipelineError(
            f"flow {flow.name!r}: output mode {flow.output_mode!r} is not known", flow.place, hint=", ".join(_OUTPUT_MODES)
        )
    declared = _declared.get()
    if declared is not None:
        declared.append(flow)
    return flow


def _place() -> Place:
    """The line outside this package that called."""
    frame = sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith(_HERE):
        frame = frame.f_back
    return Place(frame.f_code.co_filename, frame.f_lineno)


def _check_name(name: str, what: str, place: Place) -> None:
    if not _NAME.fullmatch(name):
        raise PipelineError(
            f"{what} {name!r}: a name is letters, digits and _", place, hint="it is also a table in SQL; give one with name=…"
        )


def _check_topic(topic: object, place: Place) -> None:
    if not isinstance(topic, str) or not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise PipelineError(f"{topic!r} is no topic name", place, hint="letters, digits, '.', '_' and '-', 249 at most")


def _check_pattern(pattern: str, place: Place) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise PipelineError(f"pattern {pattern!r} is no regular expression: {error}", place) from None


def _check_value(value: object, place: Place, what: str) -> None:
    if not isinstance(value, Json | Avro | String | Bytes):
        raise PipelineError(
            f"{what}={value!r} does not say how it is read or written",
            place,
            hint="p.json(…), p.avro(…), p.string() or p.bytes()",
        )


def _options(options: Mapping[str, object] | None, place: Place) -> tuple[tuple[str, str], ...]:
    if options is not None and not isinstance(options, Mapping):
        raise PipelineError(f"options={options!r} is no dict", place)
    return tuple(
        (str(name), str(value).lower() if isinstance(value, bool) else str(value)) for name, value in (options or {}).items()
    )
