"""Spark's types as Arrow's, with times in UTC. Spark 4.1 takes UTC by itself and has no parameter for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.pipelines.data_source.read_limits import ARE_KNOWN

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType


def arrow_type(kind: DataType) -> pa.DataType:
    from pyspark.sql.pandas.types import to_arrow_type

    return to_arrow_type(kind, timezone="UTC") if ARE_KNOWN else to_arrow_type(kind)


def arrow_schema(schema: StructType) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC") if ARE_KNOWN else to_arrow_schema(schema)
