"""One Kafka transaction per micro-batch, shared by all tasks: `write` is what foreachBatch calls.

1. InitProducerId: what a dead driver left is completed or aborted, its tasks are fenced, sequences begin anew.
2. Read the marker: an offset of the flow's group whose metadata names the checkpoint and the last batch that is in.
   This batch is in: let Spark's state follow, write nothing.
3. The target takes the rows: a topic in tasks that write with our (producer id, epoch), a table by the batch's id.
4. Records that did not parse go to the dead letters in the same transaction, or stop the flow.
5. TxnOffsetCommit (the source's offsets, the marker on the first of them), EndTxn.

The marker is read after InitProducerId, never before: only then can nobody else still write it (a transaction whose commit was
decided but not yet carried out is waited for; a driver that slept meanwhile is fenced). It is keyed by the checkpoint's query id,
because a new checkpoint counts from 0 again, and carries a fingerprint of the batch's offsets, because a checkpoint restored from
an older copy counts the same numbers for other records.

Owns: the transaction. Never retries a task; a batch that must run again runs whole, under a new epoch, a bounded number of times.
"""

from __future__ import annotations

import logging
import re
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ottla.client.blocking import BrokerAway, Client
from ottla.client.offsets import committed_offsets
from ottla.client.options import ClientOptions
from ottla.client.transactions import CommittedOffset, add_offsets, end_txn, init_producer_id, txn_offset_commit
from ottla.errors import ErrorCode, KafkaError
from ottla.pipelines import producing, scratch
from ottla.pipelines.checkpoint import BatchOffsets, Checkpoint, Offsets
from ottla.pipelines.definitions import Flow, Sink, Source
from ottla.pipelines.failure import PipelineError
from ottla.pipelines.session import is_local
from ottla.records.batch import SEQUENCE_MAX
from ottla.records.compression import CODEC_NAMES
from ottla.types import ProducerIdAndEpoch, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger("ottla.pipelines")

ATTEMPTS = 5
_MARKER = re.compile(r"ottla/1 ([0-9a-f-]+) (\d+) ([0-9a-f]+)")
_FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
# What Spark says when a worker died under a task.
_LOST = ("exited unexpectedly", "ExecutorLostFailure", "Python worker failed to connect back", "FetchFailed", "Connection reset")


class Closing(Exception):
    """The pipeline is being stopped: this batch was not begun, and runs at the next start."""


class Marker(NamedTuple):
    query_id: str
    batch_id: int
    fingerprint: str

    def __str__(self) -> str:
        return f"ottla/1 {self.query_id} {self.batch_id} {self.fingerprint}"


def marker_in(text: str) -> Marker | None:
    match = _MARKER.fullmatch(text)
    return Marker(match[1], int(match[2]), match[3]) if match else None


@dataclass
class Totals:
    """What a flow's sink did since it was started."""

    batches: int = 0
    records: int = 0
    bytes: int = 0
    dead_letters: int = 0
    again: int = 0
    already_in: int = 0
    transaction_ms: float = 0.0
    """Of the last batch: all that is not the job itself."""
    last_error: str | None = None


@dataclass
class Transaction:
    """An open transaction. `client` belongs to the driver; tasks have their own."""

    client: Client
    transactional_id: str
    producer: ProducerIdAndEpoch
    sequences: dict[str, dict[int, int]] = field(default_factory=dict)
    """Of each topic's partitions: the next one. Two sources may have the same dead letters."""

    def writing(self, topic: str, codec: str, shared: str | None = None) -> producing.Writing:
        partitions = len(self.client.topic(topic, create=True).partitions)
        return producing.Writing(
            self.client.options,
            topic,
            partitions,
            self.transactional_id,
            self.producer,
            CODEC_NAMES.index(codec),
            dict(self.sequences.get(topic, {})),
            shared,
        )

    def send(self, records: DataFrame, topic: str, codec: str) -> tuple[int, int]:
        """Rows (key, value, …) into a topic, by tasks; how many records and bytes."""
        from pyspark.sql import functions as F

        # Functions, not methods: PySpark asks for a signature with one argument.
        if _in_one_task(records):
            writing = self.writing(topic, codec)
            # They are in one task already; this only says that it must stay so.
            written = records.coalesce(1).mapInArrow(lambda batches: writing.write(batches), producing.WRITTEN).collect()
        elif is_local(str(records.sparkSession.sparkContext.master)):
            with tempfile.TemporaryDirectory(prefix="turns-", dir=scratch.directory(), ignore_cleanup_errors=True) as shared:
                writing = self.writing(topic, codec, shared)
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


def _in_one_task(frame: DataFrame) -> bool:
    """Whether these are the rows of a micro-batch of a single task. A batch of a stream is an RDD to Spark, so that is known."""
    leaves = cast(Any, frame._jdf).queryExecution().logical().collectLeaves()
    if leaves.size() != 1 or leaves.head().nodeName() != "LogicalRDD":
        return False
    return int(leaves.head().rdd().getNumPartitions()) == 1


Target = Callable[["DataFrame", Marker, Transaction], tuple[int, int]]
"""Takes a batch's rows; how many records and bytes it wrote."""
Letters = Callable[["DataFrame", BatchOffsets, Transaction], int]
"""Sends the records of a batch that did not parse; how many. Raises PipelineError where there is nowhere to send them."""


@dataclass
class ExactlyOnce:
    """The sink of one flow's query."""

    flow: Flow
    group_id: str
    options: ClientOptions
    checkpoint: Checkpoint
    target: Target
    letters: Letters
    starting: Offsets = field(default_factory=dict)
    transaction_timeout_ms: int = 600_000
    totals: Totals = field(default_factory=Totals)
    stop: PipelineError | None = None
    """Why the flow ended, in the user's words; what Spark reports has gone through Java and back."""
    closing: threading.Event = field(default_factory=threading.Event)
    """Set: no further batch is begun."""
    _client: Client | None = None
    _batch_id: int = -1
    """The batch that was begun last."""

    def write(self, frame: DataFrame, batch_id: int) -> None:
        """One micro-batch. Returns when it is in, exactly once; raises when it is not, with nothing of it visible."""
        if self.closing.is_set():
            raise Closing
        self._batch_id = batch_id
        try:
            self._write(frame, batch_id)
        except PipelineError as error:
            self.stop = error
            raise
        except (KafkaError, OSError) as error:
            self.stop = self._explained(error)
            raise self.stop from error

    def settled(self, query: Any) -> bool:
        """Whether Spark has taken note of the batch that was begun last."""
        if self._batch_id < 0:
            return True
        progress = query.lastProgress
        return progress is not None and int(progress["batchId"]) >= self._batch_id

    def _write(self, frame: DataFrame, batch_id: int) -> None:
        query_id = self.checkpoint.query_id()
        if query_id is None:
            raise PipelineError(f"{self.checkpoint.location}/metadata is missing")
        offsets = self.checkpoint.batch_offsets(batch_id, self.starting)
        marker = Marker(query_id, batch_id, offsets.fingerprint)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._attempt(frame, marker, offsets)
                self.totals.last_error = None
                return
            except PipelineError:
                raise
            except Exception as error:
                self._close()
                reason = _reason(error)
                if reason is None or attempt == ATTEMPTS:
                    raise
                self.totals.again += 1
                self.totals.last_error = reason
                logger.warning("%s: batch %d runs again (attempt %d): %s", self.flow.name, batch_id, attempt + 1, reason)
                time.sleep(min(0.1 * 2**attempt, 5.0))

    def _attempt(self, frame: DataFrame, marker: Marker, offsets: BatchOffsets) -> None:
        began = time.monotonic()
        client = self._connected()
        producer = init_producer_id(client, self.group_id, self.transaction_timeout_ms)
        transaction = Transaction(client, self.group_id, producer)
        if self._is_in(client, marker):
            # The state stores must reach this batch's version too, or the next batch finds none to begin with.
            frame.write.format("noop").mode("overwrite").save()
            self.totals.already_in += 1
            return
        prepared = time.monotonic()
        try:
            records, size = self.target(frame, marker, transaction)
            dead = self.letters(frame, offsets, transaction)
            worked = time.monotonic()
            self._commit(transaction, marker, offsets)
        except BaseException:
            self._abort(transaction)
            took_ms = (time.monotonic() - began) * 1000
            if took_ms > self.transaction_timeout_ms:
                logger.warning(
                    "%s: batch %d took %.0f s, longer than its transaction may (%.0f s): raise transaction_timeout",
                    self.flow.name,
                    marker.batch_id,
                    took_ms / 1000,
                    self.transaction_timeout_ms / 1000,
                )
            raise
        ended = time.monotonic()
        if (ended - began) * 1000 > 0.8 * self.transaction_timeout_ms:
            logger.warning(
                "%s: batch %d took %.0f s of the %.0f s its transaction may take: raise transaction_timeout",
                self.flow.name,
                marker.batch_id,
                ended - began,
                self.transaction_timeout_ms / 1000,
            )
        totals = self.totals
        totals.batches += 1
        totals.records += records
        totals.bytes += size
        totals.dead_letters += dead
        totals.transaction_ms = ((prepared - began) + (ended - worked)) * 1000

    def _is_in(self, client: Client, marker: Marker) -> bool:
        """Whether this batch was committed before. PipelineError where what was committed contradicts the checkpoint."""
        committed = committed_offsets(client, self.group_id, require_stable=True)
        found = [each for each in (marker_in(entry.metadata) for entry in committed.values()) if each is not None]
        last = max((each for each in found if each.query_id == marker.query_id), key=lambda each: each.batch_id, default=None)
        if last is None or last.batch_id < marker.batch_id:
            return False
        if last.batch_id > marker.batch_id:
            raise PipelineError(
                f"flow {self.flow.name!r}: batch {last.batch_id} is in already, and the checkpoint {self.checkpoint.location} is "
                f"only at batch {marker.batch_id}",
                self.flow.place,
                hint="another driver runs this flow, or the checkpoint is an old copy: then `ottla pipeline reset`",
            )
        if last.fingerprint != marker.fingerprint:
            raise PipelineError(
                f"flow {self.flow.name!r}: batch {marker.batch_id} is in already, but with other offsets than the checkpoint "
                f"{self.checkpoint.location} has for it",
                self.flow.place,
                hint="the checkpoint is an old copy: `ottla pipeline reset` begins anew",
            )
        return True

    def _commit(self, transaction: Transaction, marker: Marker, offsets: BatchOffsets) -> None:
        places = sorted(offsets.end)
        committed = {where: CommittedOffset(offsets.end[where]) for where in places}
        if places:
            committed[places[0]] = CommittedOffset(offsets.end[places[0]], str(marker))
        elif isinstance(self.flow.to, Sink):
            # A flow that reads no topic (files) keeps its marker on the topic it writes.
            committed[TopicPartition(self.flow.to.topic, 0)] = CommittedOffset(marker.batch_id, str(marker))
        client, producer = transaction.client, transaction.producer
        if committed:
            add_offsets(client, self.group_id, producer, self.group_id)
            txn_offset_commit(client, self.group_id, producer, self.group_id, committed)
        end_txn(client, self.group_id, producer, commit=True)

    def _abort(self, transaction: Transaction) -> None:
        """Best effort: the next InitProducerId, or the transaction's timeout, does it otherwise."""
        try:
            end_txn(transaction.client, self.group_id, transaction.producer, commit=False)
        except (KafkaError, OSError) as error:
            logger.info("%s: the transaction was not aborted at once: %s", self.flow.name, error)

    def _connected(self) -> Client:
        if self._client is None:
            self._client = Client(self.options)
        return self._client

    def _close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def close(self) -> None:
        self._close()

    def _explained(self, error: Exception) -> PipelineError:
        if isinstance(error, BrokerAway):
            return PipelineError(f"flow {self.flow.name!r}: no broker answers: {error}", hint="nothing is lost: run it again")
        target = f" (topic {self.flow.to.topic!r})" if isinstance(self.flow.to, Sink) else ""
        place = self.flow.to.place if self.flow.to is not None else self.flow.place
        return PipelineError(f"flow {self.flow.name!r}{target}: {error}", place)


def _reason(error: Exception) -> str | None:
    """Why a batch may run again; None where it may not."""
    text = str(error)
    at = text.find(producing.AGAIN)
    if at >= 0:
        return text[at + len(producing.AGAIN) + 2 :].split("\n", 1)[0]
    if isinstance(error, KafkaError | OSError):
        return str(error) if producing.may_pass(error) else None
    for lost in _LOST:
        if lost in text:
            return f"a worker was lost ({lost})"
    return None


def observed(spark: SparkSession, sources: Mapping[str, Source], query_id: str) -> dict[str, int]:
    """How many records of each source did not parse in the batch that just ran, by the metric's name."""
    # Asked of the session that started the query: a batch's own session is a copy that knows no queries.
    query: Any = spark.streams.get(query_id)
    assert query is not None, f"no query {query_id} is running"
    metrics = query._jsq.streamingQuery().lastExecution().observedMetrics()
    return {name: int(metrics.get(name).get().getLong(0)) for name in sources if metrics.contains(name)}
