"""Delta and Iceberg tables. The name of a batch is in the commit that has its rows, so a batch that runs again is found there.

Invariants
1. Delta: a commit has the transaction (query id, batch id). Delta refuses a second one, also of a driver that looked before.
2. Iceberg: a batch is written to a branch of its attempt, which begins at the snapshot that was searched for the batch. The last
   step moves the main branch there, and fails if anyone has moved it since.
3. A batch that is in runs without output: the state stores of the query need its version.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from zlib import crc32

from ottla.pipelines import deletes, spark_errors
from ottla.pipelines.definitions import Flow, Table
from ottla.pipelines.exactly_once import BatchTransaction
from ottla.pipelines.marker import Marker
from ottla.pipelines.spark_jvm import IcebergTable, computed, delta_transaction, observed
from ottla.pipelines.tables import changes
from ottla.pipelines.tables.changes import DELETES
from ottla.pipelines.tables.merge import CURRENT, FROM, ORDER, TO, VALID_FROM, VALID_TO

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SNAPSHOT = "ottla-batch"
"""The property of a snapshot with the name of its batch."""
_SNAPSHOT_CONF = f"spark.sql.iceberg.snapshot-property.{_SNAPSHOT}"
_APP_ID, _VERSION = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"
_CHANGES, _ENDS = "ottla_changes", "_ottla_ends"


class LakeTable:
    """The target of one flow. `prepare` is called before the first batch."""

    def __init__(self, spark: SparkSession, flow: Flow, table: Table, group_id: str) -> None:
        self.spark, self.flow, self.table = spark, flow, table
        self._prefix = f"ottla_{crc32(group_id.encode()):08x}_"
        self._columns: dict[str, str] = {}
        """The table's columns that an upsert writes, by the flow's names."""
        self._swept = False

    # Before the first batch

    def prepare(self, frame: DataFrame) -> None:
        """Create the table, or compare it with what the flow upserts. PipelineError says what does not fit."""
        table = self.table
        upserts = table.mode != "append"
        if upserts:
            changes.check(self.flow, table, frame)
        if not upserts and table.format == "delta":
            return  # the first batch makes it
        if not self._exists():
            self._create(frame, deletes.data_columns(frame, table.delete_when) if upserts else tuple(frame.columns))
        if table.format == "iceberg" and IcebergTable(self.spark, table.path).head() is None:
            # A branch needs a snapshot to begin at.
            self.spark.table(table.path).limit(0).writeTo(table.path).append()
        if upserts:
            found = {field.name: field.dataType.simpleString() for field in self._rows().schema.fields}
            is_exact = self.spark.conf.get("spark.sql.caseSensitive") == "true"
            self._columns = changes.columns_of(self.flow, table, frame, found, str if is_exact else str.lower)

    def _exists(self) -> bool:
        if self.table.format == "iceberg":
            return bool(self.spark.catalog.tableExists(self.table.path))
        return delta_transaction(self.spark, self.table.path, "") is not None

    def _create(self, frame: DataFrame, columns: tuple[str, ...]) -> None:
        from pyspark.sql import functions as F
        from pyspark.sql.types import StructType

        table = self.table
        kept = StructType([field for field in frame.schema.fields if field.name in columns])
        if table.history:
            kept = kept.add(VALID_FROM, "timestamp").add(VALID_TO, "timestamp").add(CURRENT, "boolean")
        empty = self.spark.createDataFrame([], kept)
        try:
            if table.format == "delta":
                writer = empty.write.format("delta").options(**dict(table.options))
                (writer.partitionBy(*table.partition_by) if table.partition_by else writer).save(table.path)
                return
            create = empty.writeTo(table.path).using("iceberg").options(**dict(table.options))
            for column in table.partition_by:
                create = create.partitionedBy(F.col(column))
            create.create()
        except Exception:
            # Another flow has made it meanwhile.
            if not self._exists():
                raise

    def _rows(self) -> DataFrame:
        if self.table.format == "iceberg":
            return self.spark.table(self.table.path)
        return self.spark.read.format("delta").load(self.table.path)

    # A batch

    def write(self, frame: DataFrame, marker: Marker, transaction: BatchTransaction) -> bool:
        """Write the batch, unless the table has it. Returns whether it was written."""
        written = self._write_delta if self.table.format == "delta" else self._write_iceberg
        if written(frame, marker, transaction):
            return True
        frame.write.format("noop").mode("overwrite").save()
        return False

    def _write_delta(self, frame: DataFrame, marker: Marker, transaction: BatchTransaction) -> bool:
        table, session = self.table, frame.sparkSession
        last = delta_transaction(session, table.path, marker.query_id)
        if last is not None and last >= marker.batch_id:
            return False
        if table.mode == "append":
            writer = frame.write.format("delta").mode("append").options(**dict(table.options))
            writer = writer.option("txnAppId", marker.query_id).option("txnVersion", str(marker.batch_id))
            (writer.partitionBy(*table.partition_by) if table.partition_by else writer).save(table.path)
            return True
        with _set(session, {_APP_ID: marker.query_id, _VERSION: str(marker.batch_id)}):
            self._merge(frame, f"delta.`{table.path}`")
        return True

    def _write_iceberg(self, frame: DataFrame, marker: Marker, transaction: BatchTransaction) -> bool:
        table, session = self.table, frame.sparkSession
        found = IcebergTable(session, table.path)
        if not self._swept:
            found.remove_branches(self._prefix)
            self._swept = True
        head = found.head()
        assert head is not None, f"{table.path} has no snapshot"
        last = found.last_batch(head, _SNAPSHOT, f"{marker.query_id}/")
        if last is not None and int(last) >= marker.batch_id:
            return False
        producer = transaction.producer
        branch = f"{self._prefix}{producer.producer_id:x}_{producer.producer_epoch}"
        found.create_branch(branch, head)
        target = f"{table.path}.branch_{branch}"
        with _set(session, {_SNAPSHOT_CONF: f"{marker.query_id}/{marker.batch_id}"}):
            if table.mode == "append":
                frame.writeTo(target).options(**dict(table.options)).append()
            else:
                self._merge(frame, target)
        reason = found.publish(branch)
        if reason is not None:
            found.remove_branches(branch)
            raise spark_errors.retry_batch(f"table {table.path} has changed meanwhile: {reason}")
        return True

    def _merge(self, frame: DataFrame, target: str) -> None:
        key = [self._columns[name] for name in self.table.key]
        columns = list(self._columns.values())
        with self._changes(frame, columns, key) as found:
            found.createOrReplaceTempView(_CHANGES)
            made = history if self.table.history else upsert
            found.sparkSession.sql(made(target, columns, key))

    @contextmanager
    def _changes(self, frame: DataFrame, columns: list[str], key: list[str]) -> Iterator[DataFrame]:
        """The last change of each key in the batch, or with history all of them. Computed once: a merge reads them twice."""
        from pyspark.sql import Observation, Window
        from pyspark.sql import functions as F

        table = self.table
        no_key = F.lit(False)
        for name in key:
            no_key = no_key | F.col(f"`{name}`").isNull()
        keyless = Observation()
        rows = changes.ordered(table, frame, self._columns).observe(keyless, F.count_if(no_key).alias("rows"))
        if table.history:
            rows = changes.versions(rows, columns, key)
        else:
            newest_first = Window.partitionBy(*(F.col(f"`{name}`") for name in key)).orderBy(F.col(ORDER).desc())
            rows = rows.withColumn(ORDER, F.row_number().over(newest_first)).where(F.col(ORDER) == 1).drop(ORDER)
        with computed(rows) as found:
            counts = observed(keyless)
            count = counts["rows"] if counts else found.where(no_key).count()
            if count:
                raise changes.without_key(self.flow, table, count)
            yield found


def upsert(target: str, columns: list[str], key: list[str]) -> str:
    """The MERGE of a view with the last change of each key."""
    names = [f"`{name}`" for name in columns]
    sets = ", ".join(f"`{name}` = s.`{name}`" for name in columns if name not in key)
    return (
        f"MERGE INTO {target} AS t USING {_CHANGES} AS s ON {_same(key)} WHEN MATCHED AND s.{DELETES} THEN DELETE "
        + (f"WHEN MATCHED THEN UPDATE SET {sets} " if sets else "")
        + f"WHEN NOT MATCHED AND NOT s.{DELETES} THEN INSERT ({', '.join(names)}) "
        f"VALUES ({', '.join(f's.{name}' for name in names)})"
    )


def history(target: str, columns: list[str], key: list[str]) -> str:
    """The MERGE of a view with the versions of each key. A version that equals the row in the table is left out.

    A key has one row that ends its current version, and one for each version that begins.
    """
    names = [f"`{name}`" for name in columns]
    values = " AND ".join(f"t.`{name}` <=> s.`{name}`" for name in columns if name not in key) or "true"
    said = f"SELECT 1 FROM {target} AS t WHERE {_same(key)} AND t.`{CURRENT}` AND {values} AND s.{ORDER} = 1 AND NOT s.{DELETES}"
    fresh = f"SELECT * FROM {_CHANGES} AS s WHERE NOT EXISTS ({said})"
    keys = ", ".join(f"`{name}`" for name in key)
    nothing = ", ".join(name if name.strip("`") in key else f"NULL AS {name}" for name in names)
    rows = (
        f"SELECT {nothing}, MIN({FROM}) AS {FROM}, NULL AS {TO}, true AS {_ENDS} FROM ({fresh}) GROUP BY {keys} UNION ALL "
        f"SELECT {', '.join(names)}, {FROM}, {TO}, false AS {_ENDS} FROM ({fresh}) WHERE NOT {DELETES}"
    )
    return (
        f"MERGE INTO {target} AS t USING ({rows}) AS s ON s.{_ENDS} AND t.`{CURRENT}` AND {_same(key)} "
        f"WHEN MATCHED THEN UPDATE SET `{VALID_TO}` = s.{FROM}, `{CURRENT}` = false "
        f"WHEN NOT MATCHED AND NOT s.{_ENDS} THEN INSERT ({', '.join(names)}, `{VALID_FROM}`, `{VALID_TO}`, `{CURRENT}`) "
        f"VALUES ({', '.join(f's.{name}' for name in names)}, s.{FROM}, s.{TO}, s.{TO} IS NULL)"
    )


def _same(key: list[str]) -> str:
    return " AND ".join(f"t.`{name}` = s.`{name}`" for name in key)


@contextmanager
def _set(session: SparkSession, conf: dict[str, str]) -> Iterator[None]:
    """Settings of the query's own session, for one write."""
    for name, value in conf.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name in conf:
            session.conf.unset(name)
