"""Spark's own Kafka connector at work, in a process of its own (its jars must be there when the JVM starts).

`connector.py options prefix jars scratch`: runs every case and prints one line of JSON with what each found.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

RECORDS = 300


def session(jars: str) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # In Real-Time Mode each partition has a task that stays: as many slots as partitions, and one for the reading beside it.
    builder = SparkSession.builder.master("local[5]").appName("connector")
    conf = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "700m",
        "spark.sql.shuffle.partitions": "2",
        "spark.jars": jars,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.log.level": "ERROR",
        "spark.sql.streaming.realTimeMode.minBatchDuration": "1000",
    }
    for name, value in conf.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main() -> None:
    text, prefix, jars, scratch = sys.argv[1:]
    options = {f"kafka.{name}": value for name, value in json.loads(text).items()}
    spark = session(jars)
    found: dict[str, Any] = {}

    def read(topic: str, **more: Any) -> Any:
        return spark.read.format("kafka").options(**options, **more).option("subscribe", prefix + topic).load()

    def stream(topic: str, **more: Any) -> Any:
        reader = spark.readStream.format("kafka").options(**options, **more).option("subscribe", prefix + topic)
        return reader.option("startingOffsets", "earliest").load()

    def write(frame: Any, topic: str, name: str) -> Any:
        writer = frame.writeStream.format("kafka").options(**options).option("topic", prefix + topic)
        return writer.option("checkpointLocation", str(Path(scratch, name)))

    rows = spark.range(RECORDS).selectExpr(
        "CAST(id AS STRING) AS key",
        "CAST(id * id AS STRING) AS value",
        "array(named_struct('key', 'n', 'value', CAST(CAST(id AS STRING) AS BINARY))) AS headers",
    )
    writer = rows.write.format("kafka").options(**options).option("includeHeaders", "true")
    writer.option("topic", f"{prefix}in").save()

    number = "CAST(CAST({} AS STRING) AS INT)".format
    batch = read("in", includeHeaders="true").selectExpr(
        f"{number('key')} AS k",
        f"{number('value')} AS v",
        "partition",
        "offset",
        "CAST(headers[0].value AS STRING) AS n",
    )
    collected = batch.collect()
    found["batch_rows"] = len(collected)
    found["batch_right"] = all(row.v == row.k * row.k and int(row.n) == row.k for row in collected)
    found["partitions"] = sorted({row.partition for row in collected})
    ends = json.dumps({f"{prefix}in": {str(number): 3 for number in found["partitions"]}})
    found["batch_until_3"] = read("in", endingOffsets=ends).count()
    found["by_time"] = read("in", startingTimestamp="0").count()

    copy = stream("in", maxOffsetsPerTrigger="100").select("key", "value")
    query = write(copy, "copied", "copy").trigger(availableNow=True).start()
    query.awaitTermination(120)
    found["stream_batches"] = len([progress for progress in query.recentProgress if progress["numInputRows"]])
    found["copied"] = sorted(int(row[0]) for row in read("copied").selectExpr("CAST(CAST(key AS STRING) AS INT)").collect())

    now = stream("in").selectExpr("key", "CAST(CAST(CAST(value AS STRING) AS INT) + 1 AS STRING) AS value")
    query = write(now, "realtime", "realtime").outputMode("update").trigger(realTime="3 seconds").start()
    until = time.monotonic() + 120

    def arrives(count: int) -> None:
        while query.isActive and read("realtime").count() < count and time.monotonic() < until:
            query.awaitTermination(0.5)

    arrives(RECORDS)
    rows.limit(10).drop("headers").write.format("kafka").options(**options).option("topic", f"{prefix}in").save()
    arrives(RECORDS + 10)
    failure = query.exception()
    found["realtime_failure"] = str(failure) if failure else None
    query.stop()
    sums = read("realtime").selectExpr(f"{number('key')} AS k", f"{number('value')} AS v").collect()
    found["realtime_rows"] = len(sums)
    found["realtime_right"] = all(row.v == row.k * row.k + 1 for row in sums)
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main()
