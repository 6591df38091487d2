"""Tables as targets: every batch is in them once, whatever is run again.

Files: a batch is written aside and renamed into `ottla_batch=<checkpoint>-<number>`; a directory of that name means it is in.
JDBC: a batch is written into a staging table, then moved with its number in one transaction of the database.
Delta: its own (txnAppId, txnVersion). Iceberg: the batch's name in the snapshot's summary.

The table comes first, the Kafka transaction with the offsets and dead letters after it: a batch that is in the table but whose
transaction was lost is found there and not written again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ottla.pipelines.definitions import Flow, Table
from ottla.pipelines.exactly_once import Marker, Target, Transaction
from ottla.pipelines.failure import PipelineError
from ottla.pipelines.reading import first_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCHES = "ottla_batches"
"""The table of a database that remembers the last batch of each flow."""
_CLASSES = {
    "delta": ("io.delta.sql.DeltaSparkSessionExtension", "delta-spark, and its two settings in [spark.conf]"),
    "iceberg": ("org.apache.iceberg.spark.SparkCatalog", "iceberg-spark-runtime, and a catalog in [spark.conf]"),
}
_SNAPSHOT = "ottla-batch"
_UNFIT = ("NoSuchMethodError", "NoSuchFieldError", "AbstractMethodError", "IncompatibleClassChangeError", "NoClassDefFoundError")


def check(spark: SparkSession, table: Table) -> None:
    """PipelineError where what the table needs is not installed."""
    wanted = _CLASSES.get(table.format)
    driver = dict(table.options).get("driver") if table.format == "jdbc" else None
    name, hint = wanted if wanted is not None else (driver, "the database's jar: spark.jars in [spark.conf]")
    if name is not None and not _has_class(spark, name):
        raise PipelineError(f"{table.format} is not installed: Spark finds no {name}", table.place, hint=f"it needs {hint}")
    if table.format == "iceberg":
        try:
            spark.catalog.tableExists(table.path)
        except Exception as error:
            raise _failed(spark, table, error) from error


def _failed(spark: SparkSession, table: Table, error: BaseException, flow: str = "") -> PipelineError:
    """Jars of Delta and Iceberg fit one release of Spark; with another one they fail somewhere inside."""
    unfit = any(kind in str(error) for kind in _UNFIT) and table.format in _CLASSES
    hint = f"these jars of {table.format} were made for another Spark than {spark.version}" if unfit else None
    if table.format == "jdbc" and "driver" not in dict(table.options) and "driver" in first_line(error).lower():
        hint = 'a driver that came with spark.jars is named: options={"driver": "org.postgresql.Driver"}'
    return PipelineError(f"{flow}table {table.path!r}: {first_line(error)}", table.place, hint=hint)


def target(spark: SparkSession, flow: Flow, table: Table, group_id: str) -> Target:
    def write(frame: DataFrame, marker: Marker, transaction: Transaction) -> tuple[int, int]:
        from pyspark.sql import functions as F

        # Counted on the way: a second pass over the batch would run it again.
        frame = frame.observe(counted := _counter(), F.count(F.lit(1)).alias("rows"))
        try:
            done = _write(frame, marker)
        except PipelineError:
            raise
        except Exception as error:
            if "ottla:" in str(error):
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


def _counter() -> Any:
    from pyspark.sql import Observation

    return Observation()


def batch_name(marker: Marker) -> str:
    return f"{marker.query_id[:8]}-{marker.batch_id:09d}"


def _files(spark: SparkSession, frame: DataFrame, table: Table, marker: Marker) -> bool:
    jvm = cast(Any, spark._jvm)
    root = table.path.rstrip("/")
    done = jvm.org.apache.hadoop.fs.Path(f"{root}/ottla_batch={batch_name(marker)}")
    # Readers skip what begins with an underscore.
    draft = jvm.org.apache.hadoop.fs.Path(f"{root}/_ottla_draft/{batch_name(marker)}")
    files = done.getFileSystem(spark._jsc.hadoopConfiguration())
    if files.exists(done):
        frame.write.format("noop").mode("overwrite").save()
        return False
    writer = frame.write.format(table.format).mode("overwrite").options(**dict(table.options))
    (writer.partitionBy(*table.partition_by) if table.partition_by else writer).save(draft.toString())
    if not files.rename(draft, done):
        raise PipelineError(f"{draft.toString()} could not be renamed to {done.toString()}", table.place)
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
    jvm = cast(Any, spark._jvm)
    staging = f"{table.path}_ottla_{marker.query_id[:8]}"
    properties = jvm.java.util.Properties()
    for name, value in options.items():
        if name not in ("url", "driver"):
            properties.setProperty(name, value)
    frame.write.format("jdbc").options(**options).option("dbtable", staging).mode("overwrite").save()
    if "driver" in options:
        jvm.org.apache.spark.sql.execution.datasources.jdbc.DriverRegistry.register(options["driver"])
    connection = jvm.java.sql.DriverManager.getConnection(options["url"], properties)
    try:
        connection.setAutoCommit(False)
        tables = connection.getMetaData()
        statement = connection.createStatement()
        if not _exists(tables, BATCHES):
            statement.executeUpdate(
                f"CREATE TABLE {BATCHES} (flow VARCHAR(400) NOT NULL PRIMARY KEY, query_id VARCHAR(40), batch_id BIGINT)"
            )
        if not _exists(tables, table.path):
            frame.limit(0).write.format("jdbc").options(**options).option("dbtable", table.path).mode("append").save()
        find = connection.prepareStatement(f"SELECT query_id, batch_id FROM {BATCHES} WHERE flow = ?")
        find.setString(1, group_id)
        found = find.executeQuery()
        known = found.next()
        if known and found.getString(1) == marker.query_id and found.getLong(2) >= marker.batch_id:
            connection.rollback()
            return False
        # As Spark itself wrote them when it made the table: MySQL wants other marks than everybody else.
        dialect = jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(options["url"])
        columns = ", ".join(dialect.quoteIdentifier(name) for name in frame.columns)
        statement.executeUpdate(f"INSERT INTO {table.path} ({columns}) SELECT {columns} FROM {staging}")
        change = connection.prepareStatement(
            f"UPDATE {BATCHES} SET query_id = ?, batch_id = ? WHERE flow = ?"
            if known
            else f"INSERT INTO {BATCHES} (query_id, batch_id, flow) VALUES (?, ?, ?)"
        )
        change.setString(1, marker.query_id)
        change.setLong(2, marker.batch_id)
        change.setString(3, group_id)
        change.executeUpdate()
        connection.commit()
        return True
    except BaseException:
        connection.rollback()
        raise
    finally:
        connection.close()


def _exists(tables: Any, name: str) -> bool:
    """Databases keep names in the case they like."""
    for spelt in {name, name.upper(), name.lower()}:
        found = tables.getTables(None, None, spelt, None)
        try:
            if found.next():
                return True
        finally:
            found.close()
    return False


def _has_class(spark: SparkSession, name: str) -> bool:
    jvm = cast(Any, spark._jvm)
    try:
        jvm.org.apache.spark.util.Utils.classForName(name, True, False)
        return True
    except Exception as error:
        if any(kind in str(error) for kind in _UNFIT):
            return True  # there, but made for another Spark: whatever uses it first says so
        try:
            jvm.java.lang.Class.forName(name)
            return True
        except Exception:
            return False
