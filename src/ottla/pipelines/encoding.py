"""A flow's result as the columns of records: key, value and, if the sink names them, headers, timestamp, partition.

Spark's own expressions make the bytes; `producing` makes the record batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.pipelines import avro_columns as avro
from ottla.pipelines import deletes
from ottla.pipelines import registry_columns as registry
from ottla.pipelines.definitions import Sink
from ottla.pipelines.failure import PipelineError
from ottla.pipelines.registry_columns import Encoded
from ottla.pipelines.values import Avro, Framed, Json
from ottla.schemas.framing import KEY_HEADER, VALUE_HEADER

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_HEADERS = "array<struct<key:string,value:binary>>"


def columns(frame: DataFrame, sink: Sink, flow: str) -> list[Column]:
    """The columns to select from the flow's result, or from any batch of it. Made once: they take dozens of calls into the JVM.

    PipelineError if the sink names a column that does not exist or has the wrong type.
    """
    from pyspark.sql import functions as F

    roles = {"key": sink.key, "headers": sink.headers, "timestamp": sink.timestamp, "partition": sink.partition}
    for role, name in roles.items():
        if name is not None and name not in frame.columns:
            raise PipelineError(
                f"flow {flow!r} has no column {name!r} for the {role} of topic {sink.topic!r}",
                sink.place,
                hint=f"its columns are {', '.join(frame.columns) or 'none'}",
            )
    apart = {name for name in (sink.headers, sink.timestamp, sink.partition) if name is not None}
    flags: tuple[str, ...] = ()
    has_value = F.lit(True)
    if sink.key is not None:
        flags = deletes.flags(frame, sink.delete_when)
        has_value = ~deletes.condition(frame.drop(*apart), (sink.key,), sink.delete_when, sink.place)
    fields = [name for name in frame.columns if name not in apart and name not in flags]
    key, value = _key(frame, sink), _value(frame, sink, fields, flow, has_value)
    made: list[Column] = [key.column.alias("key"), value.column.alias("value")]
    headers: Column | None = None
    if sink.headers is not None:
        kind = frame.schema[sink.headers].dataType.simpleString()
        if kind != _HEADERS:
            raise PipelineError(f"headers {sink.headers!r} are {kind}, not array<struct<key string, value binary>>", sink.place)
        headers = F.col(f"`{sink.headers}`")
    if key.header is not None:
        headers = _with_header(headers, KEY_HEADER, key.header, F.col(f"`{sink.key}`").isNotNull())
    if value.header is not None:
        headers = _with_header(headers, VALUE_HEADER, value.header, has_value)
    if headers is not None:
        made.append(headers.alias("headers"))
    if sink.timestamp is not None:
        kind = frame.schema[sink.timestamp].dataType.simpleString()
        if kind not in ("timestamp", "timestamp_ntz", "bigint"):
            raise PipelineError(f"timestamp {sink.timestamp!r} is {kind}, not timestamp or bigint (ms)", sink.place)
        column = F.col(f"`{sink.timestamp}`")
        made.append((column if kind == "bigint" else F.unix_millis(column.cast("timestamp"))).alias("timestamp"))
    if sink.partition is not None:
        made.append(F.col(f"`{sink.partition}`").cast("int").alias("partition"))
    return made


def _with_header(headers: Column | None, name: str, value: bytes, where: Column) -> Column:
    """The headers with one more in rows where `where` holds."""
    from pyspark.sql import functions as F

    none = F.array().cast(_HEADERS)
    given = none if headers is None else F.coalesce(headers, none)
    return F.when(where, F.concat(given, F.array(F.struct(F.lit(name).alias("key"), F.lit(value).alias("value"))))).otherwise(
        given
    )


def _key(frame: DataFrame, sink: Sink) -> Encoded:
    from pyspark.sql import functions as F

    if sink.key is None:
        return Encoded(F.lit(None).cast("binary"))
    kind = frame.schema[sink.key].dataType.simpleString()
    column = F.col(f"`{sink.key}`")
    if isinstance(sink.key_format, Framed):
        fields = frame.schema[sink.key].dataType.fieldNames() if kind.startswith("struct") else []  # type: ignore[attr-defined]
        named = {name: column[name] for name in fields} or {"value": column}
        return registry.encoded(named, sink.key_format, sink, "key", column.isNotNull())
    if kind.startswith(("struct", "array", "map")):
        column = F.to_json(column)
    return Encoded(column if kind == "binary" else column.cast("string").cast("binary"))


def _value(frame: DataFrame, sink: Sink, fields: list[str], flow: str, has_value: Column) -> Encoded:
    """The bytes of the value, null without one. Spark calls an encoder in Python for every row, even within `when`: it must get
    null for such a row, not its fields."""
    from pyspark.sql import functions as F

    if isinstance(sink.value, Json):
        row = F.when(has_value, F.struct(*(F.col(f"`{name}`") for name in fields)))
        return Encoded(F.to_json(row, dict(sink.value.options)).cast("binary"))
    if isinstance(sink.value, Avro):
        schema = avro.parse(sink.value.schema, sink.place)
        wanted = [name for name, _ in avro.ddl_fields(schema, sink.place)]
        absent = [name for name in wanted if name not in fields]
        if absent:
            raise PipelineError(f"flow {flow!r} has no column {absent[0]!r}, which the Avro schema has", sink.place)
        return Encoded(avro.encoder(schema)(F.when(has_value, F.struct(*(F.col(f"`{name}`") for name in wanted)))))
    if isinstance(sink.value, Framed):
        return registry.encoded({name: F.col(f"`{name}`") for name in fields}, sink.value, sink, f"flow {flow!r}", has_value)
    rest = [name for name in fields if name != sink.key]
    if "value" in fields:
        name = "value"
    elif len(rest) == 1:
        name = rest[0]
    else:
        raise PipelineError(
            f"flow {flow!r} has the columns {', '.join(fields)}, but no column `value` for topic {sink.topic!r}",
            sink.place,
            hint="rename one to `value`, or use p.json()",
        )
    kind = frame.schema[name].dataType.simpleString()
    if kind not in ("string", "binary"):
        raise PipelineError(f"column {name!r} is {kind}, not string or binary", sink.place, hint="cast it, or use p.json()")
    return Encoded(F.when(has_value, F.col(f"`{name}`").cast("binary")))
