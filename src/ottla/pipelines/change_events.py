"""Change events of Debezium as rows: the columns of the table, and DELETED, which upserts understand.

The event of a removal has the row's former columns, often its key only; a tombstone has the key of its record. An event is JSON,
as Kafka Connect's JsonConverter writes it: bare, or as `payload` beside its `schema`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.pipelines.deletes import DELETED

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_EVENT, _KEY = "_ottla_event", "_ottla_key"
_OPERATIONS = ("c", "u", "r", "d")


def read(
    raw: DataFrame, row: Any, parts: tuple[str, ...], options: dict[str, str], value_name: str, corrupt: str
) -> tuple[DataFrame, Column]:
    """The raw records with the struct `value_name`, and why an event is none. `row` is the schema of the table's rows."""
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

    tombstone, removal = value.isNull(), part("op") == "d"
    of_key = F.struct(*(key_field(name).alias(name) for name in row.fieldNames()))
    state = F.when(tombstone, of_key).when(removal, F.coalesce(part("before"), of_key)).otherwise(part("after"))
    deleted = (tombstone | F.coalesce(removal, F.lit(False))).alias(DELETED)
    fields = [state.getField(name).alias(name) for name in row.fieldNames()]
    reason = (
        F.when(tombstone & key.isNull(), "a tombstone without a key")
        .when(tombstone, F.lit(None).cast("string"))
        .when(~F.is_valid_utf8(text), "the value is no UTF-8")
        .when(F.try_parse_json(text).isNull(), "the value is no JSON")
        .when(F.col(_EVENT).isNull() | F.col(f"{_EVENT}.{corrupt}").isNotNull(), "the value does not fit the schema")
        .when(part("op") == "t", "the table was truncated: no row says which rows are gone")
        .when(part("op").isNull() | ~part("op").isin(*_OPERATIONS), "the value is no change event of Debezium")
        .when(~removal & part("after").isNull(), "the change event has no row")
        .otherwise(F.lit(None).cast("string"))
    )
    made = F.struct(*fields, deleted, *(part(name).alias(name) for name in parts))
    return found.withColumn(value_name, made), reason
