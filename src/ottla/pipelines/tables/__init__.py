"""Tables as targets. Each batch is written once, also if it runs again.

`files`: Parquet, ORC, JSON and CSV; `compaction` makes few large files of many small ones. `databases`: JDBC, with the SQL of
`merge`. `lakes`: Delta and Iceberg.

The table is written before the Kafka transaction commits. If that transaction is lost, the batch is found in the table and is not
written again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.pipelines.definitions import Flow, Table
from ottla.pipelines.exactly_once import BatchTransaction, WriteRows
from ottla.pipelines.failure import PipelineError
from ottla.pipelines.marker import Marker
from ottla.pipelines.spark_errors import first_line, is_incompatible_class, is_missing_jdbc_driver, retry_reason
from ottla.pipelines.spark_jvm import has_class, observed
from ottla.pipelines.tables import files
from ottla.pipelines.tables.databases import BATCHES, DatabaseTable, jdbc_options
from ottla.pipelines.tables.lakes import LakeTable
from ottla.types import ProducerIdAndEpoch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["BATCHES", "check", "last_batch", "prepare", "writer"]

WriteBatch = Callable[["DataFrame", Marker, BatchTransaction], bool]
"""Writes a batch unless the table has it. Returns whether it was written."""
_DRIVERS_CLASS = re.compile(r"^(?:[a-z]\w*\.)+[A-Z]\w*: ")
"""The class of a driver's exception, before its message."""
_CLASSES = {
    "delta": ("io.delta.sql.DeltaSparkSessionExtension", "delta-spark, and its two settings in [spark.conf]"),
    "iceberg": ("org.apache.iceberg.spark.SparkCatalog", "iceberg-spark-runtime, and a catalog in [spark.conf]"),
}


def check(spark: SparkSession, table: Table) -> None:
    """PipelineError if the jars that the table needs are not installed."""
    options = jdbc_options(spark, table.options, f"table {table.path!r}", table.place) if table.format == "jdbc" else {}
    wanted = _CLASSES.get(table.format)
    name, hint = wanted if wanted is not None else (options.get("driver"), "the database's jar: spark.jars in [spark.conf]")
    if name is not None and not has_class(spark, name):
        raise PipelineError(f"{table.format} is not installed: Spark finds no class {name}", table.place, hint=f"install {hint}")
    if table.format == "iceberg":
        try:
            spark.catalog.tableExists(table.path)
        except Exception as error:
            raise _failed(spark, table, error) from error


def prepare(spark: SparkSession, flow: Flow, table: Table, frame: DataFrame, group_id: str) -> WriteRows:
    """What writes the flow's batches. Before it returns, the table is created or compared with the flow's result `frame`."""
    try:
        if table.format == "jdbc":
            database = DatabaseTable(spark, flow, table, group_id)
            database.prepare(frame)
            return writer(spark, flow, table, database.write)
        if table.format in _CLASSES:
            lake = LakeTable(spark, flow, table, group_id)
            lake.prepare(frame)
            return writer(spark, flow, table, lake.write)
        directory = files.FileTable(spark, flow, table, group_id)
        directory.prepare(frame)
        return writer(spark, flow, table, directory.write)
    except PipelineError:
        raise
    except Exception as error:
        raise _failed(spark, table, error, f"flow {flow.name!r}, ") from error


def last_batch(
    spark: SparkSession,
    flow: Flow,
    table: Table,
    group_id: str,
    producer: ProducerIdAndEpoch,
    marker: Marker,
    planned: int | None,
) -> int:
    """The last batch of a held flow that the table has or will ever have. PipelineError if that cannot be known.

    `planned` is the last batch in Spark's offset log.
    """
    if table.format == "jdbc":
        last = DatabaseTable(spark, flow, table, group_id).fence(producer)
        return marker.batch_id if last is None or last[0] != marker.query_id else max(last[1], marker.batch_id)
    if planned is not None and planned > marker.batch_id:
        raise PipelineError(
            f"flow {flow.name!r}: batch {planned} is under way, and a {table.format} table cannot refuse it",
            table.place,
            hint="stop the pipeline, run its live version once more with `run --once`, then upgrade",
        )
    return marker.batch_id


def _failed(spark: SparkSession, table: Table, error: BaseException, flow: str = "") -> PipelineError:
    """The error at the table's line. Jars of Delta and Iceberg fit one Spark release and fail somewhere inside with another."""
    hint = None
    if table.format in _CLASSES and is_incompatible_class(error):
        hint = f"use {table.format} jars that are made for Spark {spark.version}"
    elif table.format == "jdbc" and "driver" not in dict(table.options) and is_missing_jdbc_driver(error):
        hint = 'name the driver class of a jar in spark.jars: options={"driver": "org.postgresql.Driver"}'
    said = first_line(error)
    if table.format == "jdbc":
        said = _DRIVERS_CLASS.sub("", said)
    return PipelineError(f"{flow}table {table.path!r}: {said}", table.place, hint=hint)


def writer(spark: SparkSession, flow: Flow, table: Table, write_batch: WriteBatch) -> WriteRows:
    def write(frame: DataFrame, marker: Marker, transaction: BatchTransaction) -> tuple[int, int]:
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        # Counts while the batch is written: `count()` would run the batch a second time.
        counted = Observation()
        frame = frame.observe(counted, F.count(F.lit(1)).alias("rows"))
        try:
            done = write_batch(frame, marker, transaction)
        except PipelineError:
            raise
        except Exception as error:
            if retry_reason(error) is not None:
                raise
            raise _failed(spark, table, error, f"flow {flow.name!r}, ") from error
        return (int(observed(counted).get("rows", 0)) if done else 0), 0

    return write
