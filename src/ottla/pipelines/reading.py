"""A source as a DataFrame.

Owns: the raw records, the parsed columns, and the reason beside each record that does not parse. A stream counts such records in
an observed metric named after the source, so a batch without any costs nothing more; `dead_letters` finds out which.

A record without a value (a tombstone) is no bad record: it is a row whose columns are null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from ottla.pipelines import avro_columns as avro
from ottla.pipelines.definitions import Files, Source
from ottla.pipelines.failure import PipelineError, Place
from ottla.pipelines.values import Avro, Json, String

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

REASON = "_ottla_reason"
_VALUE = "_ottla_value"
_CORRUPT = "_ottla_corrupt"


def metric(source: Source) -> str:
    return f"ottla.bad.{source.name}"


def options_of(source: Source, kafka: Mapping[str, str], starting: str | None = None) -> dict[str, str]:
    """For `format("ottla")`."""
    chosen = {"subscribePattern": source.pattern} if source.pattern is not None else {"subscribe": ",".join(source.topics)}
    options = {**kafka, **chosen, "startingOffsets": starting or source.starting, **dict(source.options)}
    if "headers" in source.columns:
        options["includeHeaders"] = "true"
    return options


def stream(spark: SparkSession, source: Source, options: Mapping[str, str]) -> DataFrame:
    """The good records, as a stream; the bad ones are counted."""
    from pyspark.sql import functions as F

    from ottla.pipelines.source import schema_of

    # Spark does not tell a Python source which columns a query uses: unasked, all of them would go through the JVM, row by row.
    raw = spark.readStream.format("ottla").schema(schema_of(("value", *source.columns))).options(**options).load()
    parsed = judge(raw, source)
    observed = parsed.observe(metric(source), F.count_if(F.col(REASON).isNotNull()).alias("bad"))
    return columns(observed.where(F.col(REASON).isNull()), source)


def files(spark: SparkSession, given: Files) -> DataFrame:
    try:
        if given.static:
            reader = spark.read.format(given.format).options(**dict(given.options))
            return (reader.schema(struct(given.schema, given.place)) if given.schema is not None else reader).load(given.path)
        # Files at any depth, columns from the files alone: what directories say is only known once there are some, too late for a
        # stream, whose columns are fixed before.
        stream = spark.readStream.format(given.format).options(**{"recursiveFileLookup": "true", **dict(given.options)})
        return stream.schema(struct(given.schema, given.place)).load(given.path)
    except PipelineError:
        raise
    except Exception as error:
        raise PipelineError(f"files {given.name!r}: {first_line(error)}", given.place) from None


def make_directory(spark: SparkSession, path: str) -> None:
    jvm = cast(Any, spark._jvm)
    place = jvm.org.apache.hadoop.fs.Path(path)
    place.getFileSystem(spark._jsc.hadoopConfiguration()).mkdirs(place)


def judge(raw: DataFrame, source: Source) -> DataFrame:
    """The raw records, what was parsed of each, and the reason where it could not be (else null)."""
    from pyspark.sql import functions as F

    value = F.col("value")
    text = value.cast("string")
    no_reason = F.lit(None).cast("string")
    reason: Column
    if isinstance(source.value, Json):
        schema = struct(source.value.schema, source.place).add(_CORRUPT, "string")
        given = {**dict(source.value.options), "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
        parsed = raw.withColumn(_VALUE, F.from_json(text, schema, given))
        broken = F.col(_VALUE).isNull() | F.col(f"{_VALUE}.{_CORRUPT}").isNotNull()
        why = F.when(F.try_parse_json(text).isNull(), "the value is no JSON").otherwise("the value does not fit the schema")
        reason = F.when(value.isNull(), no_reason).when(~F.is_valid_utf8(text), "the value is no UTF-8").when(broken, why)
    elif isinstance(source.value, Avro):
        schema = avro.parse(source.value.schema, source.place)
        returns = struct(", ".join(f"`{name}` {kind}" for name, kind in avro.ddl_fields(schema, source.place)), source.place).add(
            _CORRUPT, "string"
        )
        parsed = raw.withColumn(_VALUE, avro.decoder(schema, returns, _CORRUPT)(value))
        reason = F.when(value.isNull(), no_reason).otherwise(F.col(f"{_VALUE}.{_CORRUPT}"))
    elif isinstance(source.value, String):
        parsed = raw.withColumn(_VALUE, F.struct(text.alias("value")))
        reason = F.when(value.isNotNull() & ~F.is_valid_utf8(text), "the value is no UTF-8").otherwise(no_reason)
    else:
        parsed = raw.withColumn(_VALUE, F.struct(value.alias("value")))
        reason = no_reason
    if isinstance(source.key, String):
        key_is_bad = F.col("key").isNotNull() & ~F.is_valid_utf8(F.col("key").cast("string"))
        reason = F.when(key_is_bad, "the key is no UTF-8").otherwise(reason)
    return parsed.withColumn(REASON, reason)


def columns(parsed: DataFrame, source: Source) -> DataFrame:
    """What a flow sees: the value's fields, then the columns of the record that were asked for."""
    from pyspark.sql import functions as F

    schema = parsed.schema[_VALUE].dataType
    fields = [name for name in schema.fieldNames() if name != _CORRUPT]  # type: ignore[attr-defined]
    clash = sorted(set(fields) & set(source.columns))
    if clash:
        raise PipelineError(f"source {source.name!r}: the value has a field {clash[0]!r} too", source.place)
    wanted = [F.col(f"{_VALUE}.`{name}`").alias(name) for name in fields]
    for name in source.columns:
        column = F.col(name)
        wanted.append(column.cast("string").alias(name) if name == "key" and isinstance(source.key, String) else column)
    return parsed.select(*wanted)


def struct(schema: Any, place: Place) -> Any:
    """A StructType from one, or from Spark's DDL. PipelineError says what does not parse."""
    from pyspark.sql.types import StructType

    if isinstance(schema, StructType):
        # A copy: add() changes the one it is called on.
        return StructType(list(schema.fields))
    if not isinstance(schema, str):
        raise PipelineError(f"schema {schema!r}: Spark's DDL or a StructType is wanted", place)
    try:
        found = StructType.fromDDL(schema)
    except Exception as error:
        raise PipelineError(f"schema {schema!r} does not parse: {first_line(error)}", place) from None
    if not isinstance(found, StructType):
        raise PipelineError(f"schema {schema!r} is no list of columns", place, hint='"id long, at timestamp"')
    return found


def first_line(error: BaseException) -> str:
    """What Spark says, without its stack and its plan."""
    text = str(error).strip()
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    if lines and lines[0].startswith("An error occurred while calling") and len(lines) > 1:
        lines = [lines[1].removeprefix(": ")]
    return (lines[0] if lines else type(error).__name__)[:600]
