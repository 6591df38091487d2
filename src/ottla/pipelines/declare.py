"""The functions that declare a pipeline: `cluster`, `source`, `files`, `sink`, `table`, `jdbc`, `flow`, `sql`, `expect`.

They check each definition by itself; `graph` checks the definitions together. They start no Spark, import no pyspark and talk to
no broker. `collecting` returns the flows that a file declares.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from ottla.client.options import PREFIX, InvalidOption
from ottla.pipelines.data_source.options import check_stream, source_options
from ottla.pipelines.ddl import mistake_in
from ottla.pipelines.definitions import (
    DEAD_LETTER,
    DROP,
    STOP,
    WARN,
    Cluster,
    Expectation,
    Files,
    Flow,
    Input,
    Sink,
    Source,
    Table,
    Target,
)
from ottla.pipelines.failure import PipelineError, Place
from ottla.pipelines.project import duration_ms
from ottla.pipelines.values import Avro, Bytes, Debezium, Framed, Json, String, Value, option_text

_HERE = __name__.rpartition(".")[0]
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_COLUMNS = ("key", "headers", "topic", "partition", "offset", "timestamp", "timestampType")
_OUTPUT_MODES = ("append", "update", "complete")
_ON_FAIL = (WARN, DROP, DEAD_LETTER, STOP)
_FILE_TABLE_FORMATS = ("parquet", "orc", "json", "csv", "delta", "iceberg")
_UPSERT_FORMATS = ("delta", "iceberg")

_declared: ContextVar[list[Flow] | None] = ContextVar("ottla_pipeline_flows", default=None)
_in_notebook: dict[str, Cluster] = {}
_clusters: ContextVar[dict[str, Cluster]] = ContextVar("ottla_pipeline_clusters", default=_in_notebook)


@contextmanager
def collecting() -> Iterator[list[Flow]]:
    """The list that receives the flows declared inside the block."""
    flows: list[Flow] = []
    tokens = _declared.set(flows), _clusters.set({})
    try:
        yield flows
    finally:
        _declared.reset(tokens[0])
        _clusters.reset(tokens[1])


def cluster(name: str, settings: Mapping[str, object]) -> Cluster:
    """Declare a cluster beside the pipeline's own: `p.cluster("east", {"bootstrap.servers": "east:9092"})`.

    `settings` are client properties by the names of Kafka's Java clients; a value may refer to a secret (`${NAME}`). Sources and
    sinks name it: `cluster="east"`. The section [clusters.east] of the TOML file declares one too, or changes its settings.
    """
    place = _place()
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise PipelineError(f"cluster {name!r}: a name has letters, digits and _ only", place)
    found = Cluster(name, _options(settings, place, "settings"), place)
    declared = _clusters.get()
    other = declared.get(name)
    if other is not None and declared is not _in_notebook:
        raise PipelineError(f"cluster {name!r} is declared twice, first at {other.place}", place)
    declared[name] = found
    return found


def _cluster(given: str | Cluster | None, place: Place) -> Cluster | None:
    """The cluster that a source or sink names. One that the file does not declare may be in the TOML file."""
    if given is None or isinstance(given, Cluster):
        return given
    if not isinstance(given, str):
        raise PipelineError(f"cluster={given!r} is not a cluster", place, hint='write cluster="east"')
    return _clusters.get().get(given) or Cluster(given, (), place)


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
    cluster: str | Cluster | None = None,
) -> Source:
    """Read a topic, a list of topics, or all topics whose name matches `pattern`.

    The fields of the value become columns. `columns` adds columns of the record: key, headers, topic, partition, offset,
    timestamp, timestampType. `key` says how to read the key (default: bytes). Records that do not parse go to the topic
    `dead_letter`; without one, the first of them stops the flow. `starting` is `earliest`, `latest` or a value of Spark's
    `startingOffsets`; it counts for the first run, later runs continue from the checkpoint. `options` are those of
    `format("ottla")`: `maxOffsetsPerTrigger`, `failOnDataLoss`, … `cluster` is one of `p.cluster`, by default the pipeline's own.
    The dead letters of a flow go where its results go.
    """
    place = _place()
    topics = (topic,) if isinstance(topic, str) else tuple(topic or ())
    if bool(topics) == bool(pattern):
        raise PipelineError("a source takes either a topic or a pattern", place)
    for each in (*topics, *((dead_letter,) if dead_letter is not None else ())):
        _check_topic(each, place)
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise PipelineError(f"pattern {pattern!r} is not a regular expression: {error}", place) from None
    value = String() if value is None else value
    _check_value(value, place, "value")
    if isinstance(value, Json) and value.schema is None:
        raise PipelineError(
            "a JSON source needs a schema", place, hint='give one in Spark\'s DDL: p.json("id long, at timestamp")'
        )
    if isinstance(value, Json | Debezium):
        _check_ddl(value.schema, place)
    if key is not None:
        _check_value(key, place, "key")
        if not isinstance(key, String | Bytes | Framed):
            raise PipelineError("a key is p.string(), p.bytes() or has a schema of a registry", place)
        columns = ("key", *(column for column in columns if column != "key"))
    unknown = [column for column in columns if column not in _COLUMNS]
    if unknown:
        raise PipelineError(f"a record has no column {unknown[0]!r}", place, hint=f"its columns are {', '.join(_COLUMNS)}")
    if name is None and pattern is not None:
        raise PipelineError("a source by pattern needs a name", place, hint="add name=…")
    name = name or re.sub(r"[^A-Za-z0-9_]", "_", topics[0])
    _check_name(name, "source", place)
    if any(str(option).lower() == "kafka.bootstrap.servers" for option in options or ()):
        raise PipelineError(
            f"source {name!r}: kafka.bootstrap.servers is not an option of a source",
            place,
            hint='declare the cluster, p.cluster("east", {"bootstrap.servers": …}), and name it: cluster="east"',
        )
    given = _options(options, place)
    _check_source_options(name, topics, pattern, str(starting), given, place)
    return Source(
        name,
        value,
        topics,
        pattern,
        key,
        tuple(columns),
        dead_letter,
        str(starting),
        given,
        place,
        _cluster(cluster, place),
    )


def files(
    path: str,
    schema: Any = None,
    *,
    format: str = "parquet",
    name: str | None = None,
    static: bool = False,
    refresh: str | None = None,
    options: Mapping[str, object] | None = None,
) -> Files:
    """Read files as they arrive in a directory. `static=True` reads the files that exist when the flow starts, for a join.

    `refresh="10 minutes"` lists static files anew at this interval; later batches see what is new. With `format="jdbc"` a static
    input is a table of a database, `path` its name and `url` an option. It is read anew in each batch.
    """
    place = _place()
    refresh_ms = None
    if refresh is not None:
        if not static or format == "jdbc":
            why = "a database is read anew in each batch" if static else "files that arrive are read anyway"
            raise PipelineError(f"refresh={refresh!r} is for static files: {why}", place)
        try:
            refresh_ms = duration_ms(refresh)
        except ValueError as error:
            raise PipelineError(f"refresh: {error}", place) from None
    if format == "jdbc" and (not static or "url" not in (options or {})):
        raise PipelineError(
            "a table of a database is static and has a url", place, hint='write static=True, options={"url": "jdbc:…"}'
        )
    name = name or re.sub(r"[^A-Za-z0-9_]", "_", path.rstrip("/").rpartition("/")[2])
    _check_name(name, "source", place)
    if schema is None and not static:
        raise PipelineError(
            f"files {name!r} need a schema", place, hint='give one in Spark\'s DDL: p.files(path, "id long, at timestamp")'
        )
    _check_ddl(schema, place)
    return Files(name, path, format, schema, static, _options(options, place), place, refresh_ms)


def sink(
    topic: str,
    *,
    key: str | None = None,
    value: Value | None = None,
    key_format: Value | None = None,
    headers: str | None = None,
    timestamp: str | None = None,
    partition: str | None = None,
    compression: str = "lz4",
    partitions: int | None = None,
    config: Mapping[str, object] | None = None,
    delete_when: str | None = None,
    cluster: str | Cluster | None = None,
) -> Sink:
    """Write to a topic. `key` names the key column, which chooses the partition as in Kafka's Java producer.
    `key_format=p.avro(subject=…)` and its like give the key a schema of a registry; by default it is text or bytes.

    The value is a JSON object of all columns by default. `p.string()` and `p.bytes()` take the column `value`, or the only column
    beside the key. `headers` (array of struct<key string, value binary>), `timestamp` and `partition` name columns that become
    the record's headers, timestamp and partition; they are not part of the value.

    `partitions` and `config` (`{"retention.ms": 86400000}`) are those of the topic: `run` creates it so, and refuses to write to
    one that differs.

    With a key, a row becomes a tombstone, a record with its key and no value which compaction takes for a removal, if
    `delete_when` holds for it, a column or a condition in SQL, or if all its columns except the key are null.

    `cluster` is one of `p.cluster`, by default the pipeline's own.
    """
    place = _place()
    _check_topic(topic, place)
    roles = {"key": key, "headers": headers, "timestamp": timestamp, "partition": partition, "delete_when": delete_when}
    for role, column in roles.items():
        if column is not None and not isinstance(column, str):
            hint = "make one column of several: F.struct(…)" if role == "key" else None
            raise PipelineError(f"{role}={column!r} is not the name of a column", place, hint=hint)
    if delete_when is not None and key is None:
        raise PipelineError("delete_when needs a key", place, hint="a tombstone is a key without a value: add key=…")
    value = Json() if value is None else value
    _check_value(value, place, "value")
    if isinstance(value, Debezium):
        raise PipelineError("p.debezium(…) reads change events and does not write them", place, hint="use p.json()")
    if key_format is not None and not (isinstance(key_format, Framed) and key is not None):
        hint = "write key=… and key_format=p.avro(subject=…), p.json_schema(…) or p.protobuf(…)"
        raise PipelineError("key_format needs a key and a schema of a registry", place, hint=hint)
    if compression not in ("none", "gzip", "snappy", "lz4", "zstd"):
        raise PipelineError(f"compression {compression!r} is unknown", place, hint="use none, gzip, snappy, lz4 or zstd")
    if partitions is not None and (isinstance(partitions, bool) or not isinstance(partitions, int) or partitions < 1):
        raise PipelineError(f"partitions={partitions!r} is not a number of partitions", place, hint="write partitions=6")
    settings = _options(config, place, "config")
    return Sink(
        topic,
        value,
        key,
        headers,
        timestamp,
        partition,
        compression,
        partitions,
        settings,
        place,
        delete_when,
        key_format,
        _cluster(cluster, place),
    )


def table(
    path: str,
    format: str = "parquet",
    *,
    mode: str = "append",
    key: str | list[str] | tuple[str, ...] = (),
    delete_when: str | None = None,
    history: bool = False,
    partition_by: str | list[str] | tuple[str, ...] = (),
    options: Mapping[str, object] | None = None,
) -> Table:
    """Write a table: `path` is the directory of Parquet, ORC, JSON, CSV or Delta files, or the name of an Iceberg table.

    Delta and Iceberg tables take `mode="upsert"`, `key`, `delete_when` and `history` as `jdbc` does.
    """
    place = _place()
    if format not in _FILE_TABLE_FORMATS:
        raise PipelineError(
            f"table format {format!r} is unknown",
            place,
            hint=f"use {', '.join(_FILE_TABLE_FORMATS)}, or p.jdbc(…) for a database",
        )
    if not path:
        raise PipelineError("a table needs a path", place)
    if mode == "upsert" and format not in _UPSERT_FORMATS:
        raise PipelineError(
            f"a {format} table cannot be upserted", place, hint=f"use {' or '.join(_UPSERT_FORMATS)}, or p.jdbc(…) for a database"
        )
    keys = _upsert_key(mode, key, delete_when, place, history=history)
    columns = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    return Table(format, path, columns, _options(options, place), place, mode, keys, delete_when, history)


def jdbc(
    url: str,
    table: str,
    *,
    mode: str = "append",
    key: str | list[str] | tuple[str, ...] = (),
    delete_when: str | None = None,
    history: bool = False,
    options: Mapping[str, object] | None = None,
) -> Table:
    """Write a table of a database. `options` are Spark's JDBC options (`driver`, `user`, `password`, …).

    With `mode="upsert"` a row replaces the one with the same `key`; the last row of a key in a batch wins. A row for which
    `delete_when` holds, a column or a condition in SQL, deletes; so does a row with nothing but its key (a tombstone).
    `history=True` keeps what was replaced or deleted: each row then has `valid_from`, `valid_to` and `current`.
    """
    place = _place()
    if not url.startswith(("jdbc:", "${")):
        raise PipelineError(f"{url!r} is not a JDBC URL", place, hint="write jdbc:postgresql://host/database")
    columns = _upsert_key(mode, key, delete_when, place, history=history)
    given = (("url", url), *_options(options, place))
    return Table("jdbc", table, (), given, place, mode, columns, delete_when, history)


def _upsert_key(
    mode: str, key: str | list[str] | tuple[str, ...], delete_when: str | None, place: Place, *, history: bool
) -> tuple[str, ...]:
    """The columns of the key. PipelineError if it does not fit the mode."""
    if mode not in ("append", "upsert"):
        raise PipelineError(f"mode={mode!r} is unknown", place, hint="use append or upsert")
    columns = (key,) if isinstance(key, str) else tuple(key)
    if mode == "upsert" and not columns:
        raise PipelineError('mode="upsert" needs a key', place, hint='name the columns that identify a row: key="id"')
    if mode == "append" and (columns or delete_when is not None or history):
        raise PipelineError("key, delete_when and history belong to an upsert", place, hint='add mode="upsert"')
    return columns


def flow(
    *inputs: Input, to: Target | None = None, name: str | None = None, output_mode: str = "append", late: str | None = None
) -> Callable[[Callable[..., Any]], Flow]:
    """Declare a flow: the decorated function takes one DataFrame for each input and returns one.

    An input is a source, files, another flow, or the name of one. Without `to` the flow is a view for other flows. Records whose
    rows the watermark drops go to the topic `late`, if it is given.
    """
    place = _place()

    def declare(function: Callable[..., Any] | _Expected) -> Flow:
        expected = function if isinstance(function, _Expected) else _Expected(function, ())
        function = expected.function
        _check_parameters(function, inputs, place)
        return _declare(
            Flow(name or function.__name__, inputs, function, None, to, output_mode, place, expected.expectations, late)
        )

    if len(inputs) == 1 and to is None and callable(inputs[0]) and not isinstance(inputs[0], Flow):
        raise PipelineError("a flow needs its inputs", place, hint="write @p.flow(orders, to=p.sink(…))")
    return declare


def _check_parameters(function: Callable[..., Any], inputs: Sequence[object], place: Place) -> None:
    """PipelineError if the function does not take one DataFrame for each input."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # not a function of Python
    try:
        signature.bind(*inputs)
    except TypeError as error:
        names = ", ".join(str(getattr(each, "name", each)) for each in inputs)
        called = getattr(function, "__name__", "a function")
        raise PipelineError(
            f"flow {called!r} has {len(inputs)} inputs and its function takes {signature}: {error}",
            place,
            hint=f"write one parameter for each input: def {called}({names})",
        ) from None
    named = [str(getattr(each, "name", each)) for each in inputs]
    if list(signature.parameters) != named and set(signature.parameters) == set(named):
        called = getattr(function, "__name__", "a function")
        raise PipelineError(
            f"flow {called!r} takes its inputs in another order than its function has parameters",
            place,
            hint=f"inputs are given by position: write def {called}({', '.join(named)})",
        )


@dataclass(frozen=True)
class _Expected:
    """The function of a flow that is not declared yet, with its expectations. Can be called as the function."""

    function: Callable[..., Any]
    expectations: tuple[Expectation, ...]

    def __call__(self, *frames: Any) -> Any:
        return self.function(*frames)


def expect(name: str, condition: str, *, on_fail: str = WARN) -> Expect:
    """Expect a condition of every row of a flow: `@p.expect("positive", "amount > 0", on_fail="drop")` at the flow's function.

    The condition is SQL over the columns of the result. A row for which it is not true (false, or null) is counted, and
    - `warn`: written all the same;
    - `drop`: not written;
    - `dead_letter`: not written; the record that it came from goes to the `dead_letter` topic of its source;
    - `stop`: stops the flow, and nothing of its batch is written.
    Several expectations stack. An SQL flow takes them as `expect=[p.expect(…), …]`.
    """
    place = _place()
    _check_name(name, "expectation", place)
    if not isinstance(condition, str) or not condition.strip():
        raise PipelineError(f"expectation {name!r} has no condition", place, hint='write SQL: p.expect("positive", "amount > 0")')
    if on_fail not in _ON_FAIL:
        raise PipelineError(f"expectation {name!r}: on_fail={on_fail!r} is unknown", place, hint=f"use {', '.join(_ON_FAIL)}")
    return Expect(Expectation(name, condition, on_fail, place))


@dataclass(frozen=True)
class Expect:
    """What `expect` returns: a decorator of a flow's function, or of the flow."""

    expectation: Expectation

    def __call__(self, function: Any) -> Any:
        """The function, the flow or the view with this expectation before those it has."""
        if isinstance(function, Flow):
            return _declare(replace(function, expectations=(self.expectation, *function.expectations)), instead_of=function)
        if isinstance(function, _Expected):
            return _Expected(function.function, (self.expectation, *function.expectations))
        if not callable(function):
            raise PipelineError(f"{function!r} is not a function of a flow", self.expectation.place)
        return _Expected(function, (self.expectation,))


def sql(
    *inputs: Input,
    query: str,
    to: Target | None = None,
    name: str | None = None,
    output_mode: str = "append",
    expect: Expect | Sequence[Expect] = (),
    late: str | None = None,
) -> Flow:
    """Declare a flow in SQL. Its inputs are tables by their names. `expect` is `p.expect(…)`, or several, `late` as of `flow`."""
    place = _place()
    if name is None:
        if to is None:
            raise PipelineError("an SQL flow without `to` needs a name", place, hint="add name=…")
        name = re.sub(r"[^A-Za-z0-9_]", "_", to.topic if isinstance(to, Sink) else to.path.rstrip("/").rpartition("/")[2])
    if not isinstance(query, str) or not query.strip():
        raise PipelineError(f"flow {name!r} has no query", place, hint='write query="SELECT …"')
    given = tuple(expect) if isinstance(expect, Sequence) else (expect,)
    for each in given:
        if not isinstance(each, Expect):
            raise PipelineError(
                f"flow {name!r}: {each!r} is not an expectation", place, hint='write expect=[p.expect("name", "condition")]'
            )
    return _declare(Flow(name, inputs, None, query, to, output_mode, place, tuple(each.expectation for each in given), late))


def _declare(flow: Flow, *, instead_of: Flow | None = None) -> Flow:
    _check_name(flow.name, "flow", flow.place)
    if not flow.inputs:
        raise PipelineError(f"flow {flow.name!r} has no input", flow.place)
    for each in flow.inputs:
        if not isinstance(each, Source | Files | Flow | str):
            raise PipelineError(
                f"flow {flow.name!r}: {each!r} is not an input",
                flow.place,
                hint="an input is a source, files, another flow, or the name of one",
            )
    if flow.to is not None and not isinstance(flow.to, Sink | Table):
        raise PipelineError(
            f"flow {flow.name!r}: to={flow.to!r} is not a target", flow.place, hint="use p.sink(…), p.table(…) or p.jdbc(…)"
        )
    if flow.output_mode not in _OUTPUT_MODES:
        raise PipelineError(
            f"flow {flow.name!r}: output mode {flow.output_mode!r} is unknown", flow.place, hint=f"use {', '.join(_OUTPUT_MODES)}"
        )
    if flow.late is not None:
        _check_topic(flow.late, flow.place)
        if flow.to is None:
            raise PipelineError(f"flow {flow.name!r} is a view: give late=… to the flow that takes it", flow.place)
    names = [expected.name for expected in flow.expectations]
    for expected in flow.expectations:
        if names.count(expected.name) > 1:
            raise PipelineError(f"flow {flow.name!r} has two expectations {expected.name!r}", expected.place, hint="rename one")
    declared = _declared.get()
    if declared is not None:
        if instead_of is not None:
            declared[:] = [each for each in declared if each is not instead_of]
        declared.append(flow)
    return flow


def _place() -> Place:
    """The line of the user's code that called into this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith(_HERE):
        frame = frame.f_back
    return Place(frame.f_code.co_filename, frame.f_lineno)


def _check_name(name: str, what: str, place: Place) -> None:
    if not _NAME.fullmatch(name):
        raise PipelineError(
            f"{what} {name!r}: a name has letters, digits and _ only", place, hint="it is a table in SQL; give one with name=…"
        )


def _check_topic(topic: object, place: Place) -> None:
    if not isinstance(topic, str) or not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise PipelineError(
            f"{topic!r} is not a topic name", place, hint="use letters, digits, '.', '_' and '-', at most 249 of them"
        )


def _check_ddl(schema: object, place: Place) -> None:
    if schema is not None and not isinstance(schema, str) and not hasattr(schema, "jsonValue"):
        hint = 'write Spark\'s DDL: "id long, at timestamp"'
        raise PipelineError(f"schema {schema!r} is neither Spark DDL nor a StructType", place, hint=hint)
    mistake = mistake_in(schema) if isinstance(schema, str) else None
    if mistake is not None:
        raise PipelineError(f"schema {schema!r}: {mistake}", place, hint='write Spark\'s DDL: "id long, at timestamp"')


def _check_value(value: object, place: Place, what: str) -> None:
    if not isinstance(value, Json | Avro | Framed | String | Bytes | Debezium):
        hint = "use p.json(…), p.avro(…), p.json_schema(…), p.protobuf(…), p.debezium(…), p.string() or p.bytes()"
        raise PipelineError(f"{what}={value!r} is not a format", place, hint=hint)


def _check_source_options(
    name: str, topics: Sequence[str], pattern: str | None, starting: str, options: Sequence[tuple[str, str]], place: Place
) -> None:
    """PipelineError if `format("ottla")` would refuse them. The client's properties may name files of other machines."""
    own = {option: value for option, value in options if not option.lower().startswith(PREFIX)}
    chosen = {"subscribePattern": pattern} if pattern is not None else {"subscribe": ",".join(topics)}
    try:
        check_stream(source_options({f"{PREFIX}bootstrap.servers": "any", "startingOffsets": starting, **chosen, **own}))
    except InvalidOption as error:
        hint = None
        if error.name == "startingOffsets" and "startingOffsets" not in own:
            hint = 'starting= is "earliest", "latest", or offsets as JSON'
        raise PipelineError(f"source {name!r}: {error}", place, hint=hint) from None


def _options(options: Mapping[str, object] | None, place: Place, what: str = "options") -> tuple[tuple[str, str], ...]:
    if options is not None and not isinstance(options, Mapping):
        raise PipelineError(f"{what}={options!r} is not a dict", place)
    return tuple((str(name), option_text(value)) for name, value in (options or {}).items())
