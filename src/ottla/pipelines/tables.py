"""Tables as targets. Each batch is written once, also if it runs again.

Files: a batch is written to a draft directory and renamed to `ottla_batch=<checkpoint>-<number>`, which marks it as written.
JDBC: a batch is written to a staging table, then copied together with its number in one database transaction.
Delta: txnAppId and txnVersion. Iceberg: the batch's name in the snapshot summary.

The table is written before the Kafka transaction commits. If that transaction is lost, the batch is found in the table and is not
written again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.pipelines.definitions import Flow, Table
from ottla.pipelines.exactly_once import BatchTransaction, WriteRows
from ottla.pipelines.failure import PipelineError
from ottla.pipelines.marker import Marker
from ottla.pipelines.spark_errors import first_line, is_incompatible_class, is_missing_jdbc_driver, retry_reason
from ottla.pipelines.spark_jvm import FileSystem, JdbcConnection, has_class

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCHES = "ottla_batches"
"""The database table that holds the last batch of each flow."""
_CLASSES = {
    "delta": ("io.delta.sql.DeltaSparkSessionExtension", "delta-spark, and its two settings in [spark.conf]"),
    "iceberg": ("org.apache.iceberg.spark.SparkCatalog", "iceberg-spark-runtime, and a catalog in [spark.conf]"),
}
_SNAPSHOT = "ottla-batch"


def check(spark: SparkSession, table: Table) -> None:
    """PipelineError if the jars that the table needs are not installed."""
    wanted = _CLASSES.get(table.format)
    driver = dict(table.options).get("driver") if table.format == "jdbc" else None
    name, hint = wanted if wanted is not None else (driver, "the database's jar: spark.jars in [spark.conf]")
    if name is not None and not has_class(spark, name):
        raise PipelineError(f"{table.format} is not installed: Spark finds no class {name}", table.place, hint=f"install {hint}")
    if table.format == "iceberg":
        try:
            spark.catalog.tableExists(table.path)
        except Exception as error:
            raise _failed(spark, table, error) from error


def _failed(spark: SparkSession, table: Table, error: BaseException, flow: str = "") -> PipelineError:
    """The error at the table's line. Jars of Delta and Iceberg fit one Spark release and fail somewhere inside with another."""
    hint = None
    if table.format in _CLASSES and is_incompatible_class(error):
        hint = f"use {table.format} jars that are made for Spark {spark.version}"
    elif table.format == "jdbc" and "driver" not in dict(table.options) and is_missing_jdbc_driver(error):
        hint = 'name the driver class of a jar in spark.jars: options={"driver": "org.postgresql.Driver"}'
    return PipelineError(f"{flow}table {table.path!r}: {first_line(error)}", table.place, hint=hint)


def writer(spark: SparkSession, flow: Flow, table: Table, group_id: str) -> WriteRows:
    def write(frame: DataFrame, marker: Marker, transaction: BatchTransaction) -> tuple[int, int]:
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        # Counts while the batch is written: `count()` would run the batch a second time.
        counted = Observation()
        frame = frame.observe(counted, F.count(F.lit(1)).alias("rows"))
        try:
            done = _write(frame, marker)
        except PipelineError:
            raise
        except Exception as error:
            if retry_reason(error) is not None:
                raise
            raise _failed(spark, table, error, f"flow {flow.name!r}, ") from error
        return (int(counted.get["rows"]) if done else 0), 0

    def _write(frame: DataFrame, marker: Marker) -> bool:
        if table.format == "delta":
            writer = frame.write.format("delta").mode("append").options(**dict(table.options))
            writer = writer.option("txnAppId", marker.query_id).option("txnVersion", str(marker.batch_id))
            (writer.partitionBy(*table.partition_by) if table.partition_by else writer).save(table.path)
            return True
        if table.format == "iceberg":
            return _iceberg(spark, frame, table, marker)
        if table.format == "jdbc":
            return _jdbc(spark, frame, table, marker, group_id)
        return _files(spark, frame, table, marker)

    return write


def batch_name(marker: Marker) -> str:
    return f"{marker.query_id[:8]}-{marker.batch_id:09d}"


def _files(spark: SparkSession, frame: DataFrame, table: Table, marker: Marker) -> bool:
    root = table.path.rstrip("/")
    done = f"{root}/ottla_batch={batch_name(marker)}"
    # Spark's readers skip directories that begin with an underscore.
    draft = f"{root}/_ottla_draft/{batch_name(marker)}"
    files = FileSystem(spark, root)
    if files.exists(done):
        frame.write.format("noop").mode("overwrite").save()
        return False
    writer = frame.write.format(table.format).mode("overwrite").options(**dict(table.options))
    (writer.partitionBy(*table.partition_by) if table.partition_by else writer).save(draft)
    if not files.rename(draft, done):
        raise PipelineError(f"{draft} could not be renamed to {done}", table.place)
    return True


def _iceberg(spark: SparkSession, frame: DataFrame, table: Table, marker: Marker) -> bool:
    from pyspark.sql import functions as F

    name = f"{marker.query_id}/{marker.batch_id}"
    if spark.catalog.tableExists(table.path):
        snapshots = spark.table(f"{table.path}.snapshots").where(F.col("summary").getItem(_SNAPSHOT) == name)
        if snapshots.limit(1).count():
            frame.write.format("noop").mode("overwrite").save()
            return False
        writer = frame.writeTo(table.path).option(f"snapshot-property.{_SNAPSHOT}", name)
        writer.options(**dict(table.options)).append()
        return True
    create = frame.writeTo(table.path).using("iceberg").option(f"snapshot-property.{_SNAPSHOT}", name)
    for column in table.partition_by:
        create = create.partitionedBy(F.col(column))
    create.options(**dict(table.options)).create()
    return True


def _jdbc(spark: SparkSession, frame: DataFrame, table: Table, marker: Marker, group_id: str) -> bool:
    options = dict(table.options)
    staging = f"{table.path}_ottla_{marker.query_id[:8]}"
    frame.write.format("jdbc").options(**options).option("dbtable", staging).mode("overwrite").save()
    connection = JdbcConnection(spark, options)
    try:
        if not connection.has_table(BATCHES):
            connection.execute(
                f"CREATE TABLE {BATCHES} (flow VARCHAR(400) NOT NULL PRIMARY KEY, query_id VARCHAR(40), batch_id BIGINT)"
            )
        if not connection.has_table(table.path):
            frame.limit(0).write.format("jdbc").options(**options).option("dbtable", table.path).mode("append").save()
        last = connection.text_and_number(f"SELECT query_id, batch_id FROM {BATCHES} WHERE flow = ?", group_id)
        if last is not None and last[0] == marker.query_id and last[1] >= marker.batch_id:
            connection.rollback()
            return False
        columns = connection.quoted(frame.columns)
        connection.execute(f"INSERT INTO {table.path} ({columns}) SELECT {columns} FROM {staging}")
        connection.execute(
            f"UPDATE {BATCHES} SET query_id = ?, batch_id = ? WHERE flow = ?"
            if last is not None
            else f"INSERT INTO {BATCHES} (query_id, batch_id, flow) VALUES (?, ?, ?)",
            marker.query_id,
            marker.batch_id,
            group_id,
        )
        connection.commit()
        return True
    except BaseException:
        connection.rollback()
        raise
    finally:
        connection.close()
