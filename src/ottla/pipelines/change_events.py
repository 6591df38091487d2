"""Change events of Debezium as rows: the columns of the table, and DELETED, which upserts understand.

The event of a removal has the row's former columns, often its key only; a tombstone has the key of its record. An event is JSON,
as Kafka Connect's JsonConverter writes it: bare, or as `payload` beside its `schema`. Or it is Avro with the id of its schema, as
the converters for a schema registry write it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.pipelines import registry_columns as registry
from ottla.pipelines.deletes import DELETED
from ottla.pipelines.failure import PipelineError, Place
from ottla.pipelines.values import Debezium

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_EVENT, _KEY = "_ottla_event", "_ottla_key"
_OPERATIONS = ("c", "u", "r", "d")


@dataclass(frozen=True)
class Events:
    """Raw records with their parsed events."""

    records: DataFrame
    fields: list[str]
    """The columns of the table."""
    part: Callable[[str], Column]
    """A part of the event: before, after, op, …"""
    key_field: Callable[[str], Column]
    """A column of the table in the record's key."""
    unread: Column
    """Why an event does not parse. Null for one that does."""
    unread_key: Column
    """Why the key of a tombstone does not parse."""


def of_json(raw: DataFrame, row: Any, options: dict[str, str], corrupt: str) -> Events:
    """`row` is the schema of the table's rows."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import LongType, MapType, StringType, StructType

    def event() -> StructType:
        found = StructType().add("before", row).add("after", row).add("op", StringType()).add("ts_ms", LongType())
        return found.add("source", MapType(StringType(), StringType()))

    value, key = F.col("value"), F.col("key")
    text = value.cast("string")
    schema = event().add("payload", event()).add(corrupt, StringType())
    given = {**options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": corrupt}
    key_schema = StructType(list(row.fields)).add("payload", row)
    found = raw.withColumn(_EVENT, F.from_json(text, schema, given)).withColumn(
        _KEY, F.from_json(key.cast("string"), key_schema, options)
    )

    def part(name: str) -> Column:
        return F.coalesce(F.col(f"{_EVENT}.payload.{name}"), F.col(f"{_EVENT}.{name}"))

    def key_field(name: str) -> Column:
        return F.coalesce(F.col(f"{_KEY}.payload.`{name}`"), F.col(f"{_KEY}.`{name}`"))

    unread = (
        F.when(~F.is_valid_utf8(text), "the value is no UTF-8")
        .when(F.try_parse_json(text).isNull(), "the value is no JSON")
        .when(F.col(_EVENT).isNull() | F.col(f"{_EVENT}.{corrupt}").isNotNull(), "the value does not fit the schema")
    )
    return Events(found, row.fieldNames(), part, key_field, unread, F.lit(None).cast("string"))


def of_avro(raw: DataFrame, value: Debezium, place: Place, corrupt: str) -> Events:
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    assert value.event is not None
    assert value.key is not None
    event, kind = registry.decoded(F.col("value"), value.event, place, corrupt)
    absent = [name for name in ("before", "after", "op", *value.columns) if name not in kind.fieldNames()]
    row = kind["after"].dataType if not absent else None
    if not isinstance(row, StructType):
        lacks = f"has no field {absent[0]!r}" if absent else "has no record in the field 'after'"
        raise PipelineError(
            f"the schema of {value.event.subject!r} {lacks}: it is no change event",
            place,
            hint="if the connector unwraps its events, read them with p.avro(subject=…)",
        )
    # Only the keys of these are needed.
    needed = F.col("value").isNull() | ((F.col(f"{_EVENT}.op") == "d") & F.col(f"{_EVENT}.before").isNull())
    key, key_kind = registry.decoded(F.when(needed, F.col("key")), value.key, place, corrupt)
    found = raw.withColumn(_EVENT, event).withColumn(_KEY, key)

    def key_field(name: str) -> Column:
        column = F.col(f"{_KEY}.`{name}`") if name in key_kind.fieldNames() else F.lit(None)
        return column.cast(row[name].dataType)

    return Events(
        found,
        row.fieldNames(),
        lambda name: F.col(f"{_EVENT}.{name}"),
        key_field,
        F.col(f"{_EVENT}.{corrupt}"),
        F.col(f"{_KEY}.{corrupt}"),
    )


def read(events: Events, parts: tuple[str, ...], value_name: str) -> tuple[DataFrame, Column]:
    """The records with the struct `value_name`, and why an event is none."""
    from pyspark.sql import functions as F

    part = events.part
    tombstone, removal = F.col("value").isNull(), part("op") == "d"
    of_key = F.struct(*(events.key_field(name).alias(name) for name in events.fields))
    state = F.when(tombstone, of_key).when(removal, F.coalesce(part("before"), of_key)).otherwise(part("after"))
    deleted = (tombstone | F.coalesce(removal, F.lit(False))).alias(DELETED)
    fields = [state.getField(name).alias(name) for name in events.fields]
    reason = (
        F.when(tombstone & F.col("key").isNull(), "a tombstone without a key")
        .when(tombstone, events.unread_key)
        .when(events.unread.isNotNull(), events.unread)
        .when(part("op") == "t", "the table was truncated: no row says which rows are gone")
        .when(part("op").isNull() | ~part("op").isin(*_OPERATIONS), "the value is no change event of Debezium")
        .when(~removal & part("after").isNull(), "the change event has no row")
        .otherwise(F.lit(None).cast("string"))
    )
    made = F.struct(*fields, deleted, *(part(name).alias(name) for name in parts))
    return events.records.withColumn(value_name, made), reason
