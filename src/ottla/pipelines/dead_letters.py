"""Records that do not parse.

A stream only counts them (`reading`). If a batch has any, its offsets are read and parsed again, and the bad records go to the
dead-letter topic in the batch's transaction: key, value and headers unchanged, plus the five headers below. Without a dead-letter
topic the first bad record stops the flow.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.pipelines import reading
from ottla.pipelines.checkpoint import BatchOffsets, Checkpoint
from ottla.pipelines.data_source.offsets import nested
from ottla.pipelines.definitions import Flow, Source
from ottla.pipelines.exactly_once import BatchTransaction, SendDeadLetters
from ottla.pipelines.failure import PipelineError
from ottla.pipelines.graph import reads
from ottla.pipelines.spark_jvm import observed_metrics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HEADERS = ("ottla.topic", "ottla.partition", "ottla.offset", "ottla.flow", "ottla.reason")
_OFFSET_OPTIONS = frozenset(
    [
        "startingoffsets",
        "startingtimestamp",
        "startingoffsetsbytimestamp",
        "endingoffsets",
        "maxoffsetspertrigger",
        "minoffsetspertrigger",
        "maxtriggerdelay",
        "subscribe",
        "subscribepattern",
        "assign",
        "groupid",
    ]
)


def sender(
    spark: SparkSession, flow: Flow, sources: Sequence[Source], kafka: Mapping[str, str], checkpoint: Checkpoint
) -> SendDeadLetters:
    """The function that `exactly_once` calls after the rows of a batch are written."""
    by_metric = {reading.metric(source): source for source in sources}

    def send(frame: DataFrame, offsets: BatchOffsets, transaction: BatchTransaction) -> int:
        if not by_metric:
            return 0
        counts = observed_metrics(spark, str(checkpoint.query_id()), by_metric)
        return sum(
            _send(spark, flow, source, kafka, offsets, transaction) for name, source in by_metric.items() if counts.get(name)
        )

    return send


def _send(
    spark: SparkSession,
    flow: Flow,
    source: Source,
    kafka: Mapping[str, str],
    offsets: BatchOffsets,
    transaction: BatchTransaction,
) -> int:
    from pyspark.sql import functions as F

    mine = [where for where in offsets.end if reads(source, where.topic) and offsets.start[where] < offsets.end[where]]
    starting = nested({where: offsets.start[where] for where in mine})
    options = {name: value for name, value in source.options if name.lower() not in _OFFSET_OPTIONS}
    raw = (
        spark.read.format("ottla")
        .options(**{**kafka, **options})
        .option("assign", json.dumps({topic: sorted(map(int, parts)) for topic, parts in starting.items()}))
        .option("startingOffsets", json.dumps(starting))
        .option("endingOffsets", json.dumps(nested({where: offsets.end[where] for where in mine})))
        .option("includeHeaders", "true")
        # Retention may have removed records since the batch read them; its good rows are written already.
        .option("failOnDataLoss", "false")
        .load()
    )
    bad = reading.parsed(raw, source).where(F.col(reading.REASON).isNotNull())
    if source.dead_letter is None:
        first = bad.select("topic", "partition", "offset", reading.REASON).orderBy("topic", "partition", "offset").first()
        if first is None:
            return 0
        raise PipelineError(
            f"flow {flow.name!r} stops at topic {first['topic']}, partition {first['partition']}, offset {first['offset']}: "
            f"{first[reading.REASON]}",
            source.place,
            hint=f"give source {source.name!r} a dead_letter topic for such records",
        )
    added = [
        F.struct(F.lit(name).alias("key"), column.cast("string").cast("binary").alias("value"))
        for name, column in zip(
            HEADERS, (F.col("topic"), F.col("partition"), F.col("offset"), F.lit(flow.name), F.col(reading.REASON)), strict=True
        )
    ]
    none = F.array().cast("array<struct<key:string,value:binary>>")
    headers = F.concat(F.coalesce(F.col("headers"), none), F.array(*added)).alias("headers")
    count, _ = transaction.send(bad.select("key", "value", headers), source.dead_letter, "none")
    return count
