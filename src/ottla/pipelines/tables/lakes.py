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
from ottla.pipelines.failure import PipelineError
from ottla.pipelines.marker import Marker
from ottla.pipelines.spark_jvm import IcebergTable, computed, delta_transaction, observed
from ottla.pipelines.tables.databases import is_assignable
from ottla.pipelines.tables.merge import ORDER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SNAPSHOT = "ottla-batch"
"""The property of a snapshot with the name of its batch."""
_SNAPSHOT_CONF = f"spark.sql.iceberg.snapshot-property.{_SNAPSHOT}"
_APP_ID, _VERSION = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"
_CHANGES, _DELETES = "ottla_changes", "_ottla_deletes"


class LakeTable:
    """The target of one flow. `prepare` is called before the first batch."""

    def __init__(self, spark: SparkSession, flow: Flow, table: Table, group_id: str) -> None:
        self.spark, self.flow, self.table = spark, flow, table
        self._prefix = f"ottla_{crc32(group_id.encode()):08x}_"
        self._columns: tuple[str, ...] = ()
        """The columns of the flow that an upsert writes."""
        self._swept = False

    # Before the first batch

    def prepare(self, frame: DataFrame) -> None:
        """Create the table, or compare it with what the flow upserts. PipelineError says what does not fit."""
        table = self.table
        upserts = table.mode != "append"
        if upserts:
            missing = [name for name in table.key if name not in frame.columns]
            if missing:
                raise PipelineError(
                    f"flow {self.flow.name!r} has no column {missing[0]!r} for the key of table {table.path!r}",
                    table.place,
                    hint=f"its columns are {', '.join(frame.columns) or 'none'}",
                )
            deletes.condition(frame, table.key, table.delete_when, table.place)
        if not upserts and table.format == "delta":
            return  # the first batch makes it
        if not self._exists():
            self._create(frame, deletes.data_columns(frame, table.delete_when) if upserts else tuple(frame.columns))
        if table.format == "iceberg" and IcebergTable(self.spark, table.path).head() is None:
            # A branch needs a snapshot to begin at.
            self.spark.table(table.path).limit(0).writeTo(table.path).append()
        if upserts:
            self._columns = self._compared(frame)

    def _exists(self) -> bool:
        if self.table.format == "iceberg":
            return bool(self.spark.catalog.tableExists(self.table.path))
        return delta_transaction(self.spark, self.table.path, "") is not None

    def _create(self, frame: DataFrame, columns: tuple[str, ...]) -> None:
        from pyspark.sql import functions as F
        from pyspark.sql.types import StructType

        table = self.table
        kept = StructType([field for field in frame.schema.fields if field.name in columns])
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

    def _compared(self, frame: DataFrame) -> tuple[str, ...]:
        """The columns to write: those of the flow, but a flag that deletes only where the table has it."""
        table = self.table
        found = {field.name: field.dataType.simpleString() for field in self._rows().schema.fields}
        flags = deletes.flags(frame, table.delete_when)
        columns = []
        for field in frame.schema.fields:
            name, kind = field.name, field.dataType.simpleString()
            if name not in found:
                if name in flags:
                    continue
                raise PipelineError(
                    f"table {table.path!r} has no column {name!r}, which flow {self.flow.name!r} writes",
                    table.place,
                    hint=f"its columns are {', '.join(found)}; add it with ALTER TABLE, or leave it out of the flow",
                )
            if not is_assignable(kind, found[name]):
                raise PipelineError(
                    f"column {name!r} of table {table.path!r} is {found[name]}, flow {self.flow.name!r} writes {kind}",
                    table.place,
                    hint=f'cast it in the flow: F.col("{name}").cast("{found[name]}")',
                )
            columns.append(name)
        return tuple(columns)

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
        with _set(session, {_APP_ID: marker.query_id, _VERSION: str(marker.batch_id)}), self._changes(frame) as changes:
            self._merge(changes, f"delta.`{table.path}`")
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
                with self._changes(frame) as changes:
                    self._merge(changes, target)
        reason = found.publish(branch)
        if reason is not None:
            found.remove_branches(branch)
            raise spark_errors.retry_batch(f"table {table.path} has changed meanwhile: {reason}")
        return True

    @contextmanager
    def _changes(self, frame: DataFrame) -> Iterator[DataFrame]:
        """The last row of each key in the batch, and whether it deletes. Computed once: a merge reads them twice."""
        from pyspark.sql import Observation, Window
        from pyspark.sql import functions as F

        table = self.table
        deleted = deletes.condition(frame, table.key, table.delete_when, table.place).alias(_DELETES)
        data = [F.col(f"`{name}`") for name in self._columns]
        no_key = F.lit(False)
        for name in table.key:
            no_key = no_key | F.col(f"`{name}`").isNull()
        keyless = Observation()
        # Tasks read topics and partitions in their order, and the records of each by offset.
        rows = frame.select(*data, deleted, F.monotonically_increasing_id().alias(ORDER))
        rows = rows.observe(keyless, F.count_if(no_key).alias("rows"))
        newest_first = Window.partitionBy(*(F.col(f"`{name}`") for name in table.key)).orderBy(F.col(ORDER).desc())
        latest = rows.withColumn(ORDER, F.row_number().over(newest_first)).where(F.col(ORDER) == 1).drop(ORDER)
        with computed(latest) as changes:
            found = observed(keyless)
            without = found["rows"] if found else changes.where(no_key).count()
            if without:
                key = ", ".join(table.key)
                raise PipelineError(
                    f"flow {self.flow.name!r}: {without} rows of the batch have no {key}, the key of table {table.path!r}",
                    table.place,
                    hint='filter them out; a tombstone has its key in the record only: take it from there with columns=("key",)',
                )
            yield changes

    def _merge(self, changes: DataFrame, target: str) -> None:
        table = self.table
        changes.createOrReplaceTempView(_CHANGES)
        names = [f"`{name}`" for name in self._columns]
        same_key = " AND ".join(f"t.`{name}` = s.`{name}`" for name in table.key)
        sets = ", ".join(f"{name} = s.{name}" for name in names if name.strip("`") not in table.key)
        changes.sparkSession.sql(
            f"MERGE INTO {target} AS t USING {_CHANGES} AS s ON {same_key} WHEN MATCHED AND s.{_DELETES} THEN DELETE "
            + (f"WHEN MATCHED THEN UPDATE SET {sets} " if sets else "")
            + f"WHEN NOT MATCHED AND NOT s.{_DELETES} THEN INSERT ({', '.join(names)}) "
            f"VALUES ({', '.join(f's.{name}' for name in names)})"
        )


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
