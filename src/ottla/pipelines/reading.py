"""A source as a DataFrame: raw records, parsed columns, and the reason for each record that does not parse.

A stream counts bad records in an observed metric named after the source; `dead_letters` finds them if there are any. A record
without a value (a tombstone) is a row whose columns are null, not a bad record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ottla.pipelines import avro_columns as avro
from ottla.pipelines import change_events
from ottla.pipelines import registry_columns as registry
from ottla.pipelines.definitions import Files, Source
from ottla.pipelines.failure import PipelineError, Place
from ottla.pipelines.spark_errors import first_line
from ottla.pipelines.tables.databases import jdbc_options
from ottla.pipelines.values import Avro, Bytes, Debezium, Framed, Json, String

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

REASON = "_ottla_reason"
RAW = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
"""All columns of a record."""
RECORD = "_ottla_record"
"""The column of `traced_rows` that holds the whole record."""
_VALUE = "_ottla_value"
_KEY = "_ottla_key"
_CORRUPT = "_ottla_corrupt"


PACE = frozenset({"maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay"})
"""Options that only say how much is read at a time."""


def metric(source: Source) -> str:
    return f"ottla.bad.{source.name}"


def names_schemas(source: Source) -> bool:
    """Whether headers of the records may name schemas."""
    return isinstance(source.value, Framed) or isinstance(source.key, Framed)


def options_of(source: Source, kafka: Mapping[str, str], starting: str | None = None) -> dict[str, str]:
    """The options of `format("ottla")` for a source."""
    chosen = {"subscribePattern": source.pattern} if source.pattern is not None else {"subscribe": ",".join(source.topics)}
    options = {**kafka, **chosen, "startingOffsets": starting or source.starting, **dict(source.options)}
    if "headers" in source.columns or names_schemas(source):
        options["includeHeaders"] = "true"
    return options


def stream(spark: SparkSession, source: Source, options: Mapping[str, str]) -> DataFrame:
    """The records that parse, as a stream. Counts the others."""
    from ottla.pipelines.data_source.columns import schema_of

    # Spark does not tell a Python source which columns a query uses, so the schema does. All others would cross into the JVM.
    needed = ("value", *source.columns)
    if isinstance(source.value, Debezium) and "key" not in needed:
        needed = (*needed, "key")  # of tombstones
    if names_schemas(source):
        needed = (*needed, "headers")
    return rows(spark.readStream.format("ottla").schema(schema_of(needed)).options(**options).load(), source)


def shadow(spark: SparkSession, source: Source, folder: str) -> DataFrame:
    """The records of a directory of Parquet files with keys and values, as a stream."""
    return rows(spark.readStream.option("recursiveFileLookup", "true").schema("value binary").parquet(folder), source)


def rows(raw: DataFrame, source: Source) -> DataFrame:
    """The records that parse, with the columns that a flow sees. A stream counts the others."""
    from pyspark.sql import functions as F

    found = parsed(raw, source)
    if isinstance(source.value, Bytes) and isinstance(source.key, Bytes | None):
        return columns(found, source)  # all bytes parse
    observed = found.observe(metric(source), F.count_if(F.col(REASON).isNotNull()).alias("bad"))
    return columns(observed.where(F.col(REASON).isNull()), source)


def traced_rows(raw: DataFrame, source: Source) -> DataFrame:
    """The records that parse, such that `spark_jvm.traced` finds the record of a row in the column RECORD."""
    from pyspark.sql import functions as F

    record = F.struct(*(F.col(name) for name in ("topic", "partition", "offset", "key", "value", "headers")))
    found = parsed(raw, source).where(F.col(REASON).isNull())
    seen = columns(found, source)
    return columns(found, source, record.alias(RECORD)).select(*(F.col(f"`{name}`") for name in seen.columns))


def files(spark: SparkSession, given: Files) -> DataFrame:
    try:
        if given.static and given.format == "jdbc":
            options = jdbc_options(spark, given.options, f"table {given.path!r}", given.place)
            return spark.read.format("jdbc").options(**options).option("dbtable", given.path).load()
        if given.static:
            reader = spark.read.format(given.format).options(**dict(given.options))
            return (reader.schema(struct(given.schema, given.place)) if given.schema is not None else reader).load(given.path)
        # Files at any depth, and no partition columns from directory names: a stream's columns are fixed before the first file.
        stream = spark.readStream.format(given.format).options(**{"recursiveFileLookup": "true", **dict(given.options)})
        return stream.schema(struct(given.schema, given.place)).load(given.path)
    except PipelineError:
        raise
    except Exception as error:
        raise PipelineError(f"files {given.name!r}: {first_line(error)}", given.place) from None


def parsed(raw: DataFrame, source: Source) -> DataFrame:
    """The raw records with their parsed values, and with REASON, which is null for a record that parses."""
    from pyspark.sql import functions as F

    value = F.col("value")
    text = value.cast("string")
    no_reason = F.lit(None).cast("string")
    reason: Column
    if isinstance(source.value, Json):
        schema = struct(source.value.schema, source.place).add(_CORRUPT, "string")
        given = {**dict(source.value.options), "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
        found = raw.withColumn(_VALUE, F.from_json(text, schema, given))
        broken = F.col(_VALUE).isNull() | F.col(f"{_VALUE}.{_CORRUPT}").isNotNull()
        why = F.when(F.try_parse_json(text).isNull(), "the value is no JSON").otherwise("the value does not fit the schema")
        reason = F.when(value.isNull(), no_reason).when(~F.is_valid_utf8(text), "the value is no UTF-8").when(broken, why)
    elif isinstance(source.value, Avro):
        schema = avro.parse(source.value.schema, source.place)
        ddl = ", ".join(f"`{name}` {kind}" for name, kind in avro.ddl_fields(schema, source.place))
        returns = struct(ddl, source.place).add(_CORRUPT, "string")
        found = raw.withColumn(_VALUE, avro.decoder(source.value.schema, returns, _CORRUPT)(value))
        reason = F.when(value.isNull(), no_reason).otherwise(F.col(f"{_VALUE}.{_CORRUPT}"))
    elif isinstance(source.value, Debezium):
        if source.value.event is None:
            events = change_events.of_json(raw, struct(source.value.schema, source.place), dict(source.value.options), _CORRUPT)
        else:
            events = change_events.of_avro(raw, source.value, source.place, _CORRUPT)
        found, reason = change_events.read(events, source.value.columns, _VALUE)
    elif isinstance(source.value, Framed):
        header = registry.header_of(F.col("headers"), key=False) if "headers" in raw.columns else None
        found = raw.withColumn(_VALUE, registry.decoded(value, source.value, source.place, _CORRUPT, header)[0])
        reason = F.when(value.isNull(), no_reason).otherwise(F.col(f"{_VALUE}.{_CORRUPT}"))
    elif isinstance(source.value, String):
        found = raw.withColumn(_VALUE, F.struct(text.alias("value")))
        reason = F.when(value.isNotNull() & ~F.is_valid_utf8(text), "the value is no UTF-8").otherwise(no_reason)
    else:
        found = raw.withColumn(_VALUE, F.struct(value.alias("value")))
        reason = no_reason
    if isinstance(source.key, String):
        key_is_bad = F.col("key").isNotNull() & ~F.is_valid_utf8(F.col("key").cast("string"))
        reason = F.when(key_is_bad, "the key is no UTF-8").otherwise(reason)
    elif isinstance(source.key, Framed):
        header = registry.header_of(F.col("headers"), key=True) if "headers" in raw.columns else None
        decoded, kind = registry.decoded(F.col("key"), source.key, source.place, _CORRUPT, header)
        found = found.withColumn(_KEY, decoded)
        names = [name for name in kind.fieldNames() if name != _CORRUPT]
        # A key that is no record is a plain column.
        fields = [F.col(f"{_KEY}.`{name}`").alias(name) for name in names]
        key = fields[0] if names == ["value"] else F.when(F.col("key").isNotNull(), F.struct(*fields))
        key_reason = F.col(f"{_KEY}.{_CORRUPT}")
        reason = F.when(key_reason.isNotNull(), F.concat(F.lit("key: "), key_reason)).otherwise(reason)
        found = found.withColumn(REASON, reason)
        return found.withColumn(_KEY, key)
    return found.withColumn(REASON, reason)


def columns(parsed: DataFrame, source: Source, *more: Column) -> DataFrame:
    """The columns that a flow sees: the fields of the value, then the record columns that the source names, then `more`."""
    from pyspark.sql import functions as F

    schema = parsed.schema[_VALUE].dataType
    fields = [name for name in schema.fieldNames() if name != _CORRUPT]  # type: ignore[attr-defined]
    clash = sorted(set(fields) & set(source.columns))
    if clash:
        raise PipelineError(f"source {source.name!r}: {clash[0]!r} is a field of the value and in columns=", source.place)
    wanted = [F.col(f"{_VALUE}.`{name}`").alias(name) for name in fields]
    for name in source.columns:
        column = F.col(name)
        if name == "key" and isinstance(source.key, String):
            column = column.cast("string").alias(name)
        elif name == "key" and isinstance(source.key, Framed):
            column = F.col(_KEY).alias(name)
        wanted.append(column)
    return parsed.select(*wanted, *more)


def struct(schema: Any, place: Place) -> Any:
    """The schema as a StructType, from a StructType or Spark's DDL. PipelineError says what does not parse."""
    from pyspark.sql.types import StructType

    if isinstance(schema, StructType):
        # A copy, because StructType.add() changes its object.
        return StructType(list(schema.fields))
    if not isinstance(schema, str):
        raise PipelineError(f"schema {schema!r} is neither Spark DDL nor a StructType", place)
    try:
        found = StructType.fromDDL(schema)
    except Exception as error:
        raise PipelineError(f"schema {schema!r} does not parse: {first_line(error)}", place) from None
    if not isinstance(found, StructType):
        raise PipelineError(f"schema {schema!r} is not a list of columns", place, hint='write "id long, at timestamp"')
    return found
