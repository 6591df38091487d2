"""Delta and Iceberg tables. Both record the name of a batch with its data: a batch that runs again is found there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.pipelines.definitions import Table
from ottla.pipelines.marker import Marker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SNAPSHOT = "ottla-batch"


def write_delta(frame: DataFrame, table: Table, marker: Marker) -> bool:
    writer = frame.write.format("delta").mode("append").options(**dict(table.options))
    writer = writer.option("txnAppId", marker.query_id).option("txnVersion", str(marker.batch_id))
    (writer.partitionBy(*table.partition_by) if table.partition_by else writer).save(table.path)
    return True


def write_iceberg(spark: SparkSession, frame: DataFrame, table: Table, marker: Marker) -> bool:
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
