"""The open Kafka transaction of one micro-batch, and how its rows get into a topic."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.client.blocking import Client
from ottla.pipelines import producing, scratch
from ottla.pipelines.session import is_local
from ottla.pipelines.spark_jvm import is_in_one_task
from ottla.records.batch import SEQUENCE_MAX
from ottla.records.compression import CODEC_NAMES
from ottla.types import ProducerIdAndEpoch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass
class BatchTransaction:
    """An open transaction. `client` is the driver's; each task has its own."""

    client: Client
    transactional_id: str
    producer: ProducerIdAndEpoch
    sequences: dict[str, dict[int, int]] = field(default_factory=dict)
    """By topic and partition, the next sequence: two sources may share a dead-letter topic."""

    def writing(self, topic: str, codec: str, turns: str | None = None) -> producing.Writing:
        partitions = len(self.client.topic(topic, create=True).partitions)
        return producing.Writing(
            self.client.options,
            topic,
            partitions,
            self.transactional_id,
            self.producer,
            CODEC_NAMES.index(codec),
            dict(self.sequences.get(topic, {})),
            turns,
        )

    def send(self, records: DataFrame, topic: str, codec: str) -> tuple[int, int]:
        """Write rows (key, value, …) to a topic, in tasks. Returns the number of records and of bytes."""
        from pyspark.sql import functions as F

        # Lambdas, not bound methods: PySpark inspects the signature and wants one argument.
        if is_in_one_task(records):
            writing = self.writing(topic, codec)
            # `coalesce` moves nothing here; it keeps Spark from adding tasks.
            written = records.coalesce(1).mapInArrow(lambda batches: writing.write(batches), producing.WRITTEN).collect()
        elif is_local(str(records.sparkSession.sparkContext.master)):
            with tempfile.TemporaryDirectory(prefix="turns-", dir=scratch.directory(), ignore_cleanup_errors=True) as turns:
                writing = self.writing(topic, codec, turns)
                written = records.mapInArrow(lambda batches: writing.write(batches), producing.WRITTEN).collect()
        else:
            writing = self.writing(topic, codec)
            packed = records.mapInArrow(lambda batches: writing.encode(batches), producing.PACKED)
            shuffled = packed.repartitionById(writing.partitions, F.col("partition"))
            written = shuffled.mapInArrow(lambda batches: writing.produce(batches), producing.WRITTEN).collect()
        following = self.sequences.setdefault(topic, {})
        for row in written:
            following[row["partition"]] = (following.get(row["partition"], 0) + row["records"]) & SEQUENCE_MAX
        return sum(row["records"] for row in written), sum(row["bytes"] for row in written)
