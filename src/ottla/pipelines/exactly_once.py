"""One Kafka transaction per micro-batch, shared by all tasks of the batch. Spark calls `write` from foreachBatch.

1. InitProducerId: completes or aborts the transaction of a dead driver, fences its tasks, restarts the sequences.
2. Read the marker of the last committed batch from the flow's group. If another version of the pipeline is live, end
   (`takeover`). If this batch is committed, let Spark's state stores follow and write nothing.
3. The target takes the rows: a topic through tasks that write with this (producer id, epoch), a table by the batch's id.
4. Records that did not parse go to the dead-letter topic in the same transaction, or stop the flow.
5. TxnOffsetCommit of the source's offsets, with the marker on the first of them, and EndTxn.

The marker is read after InitProducerId: from then on no other driver can write it. InitProducerId waits for a transaction whose
commit is decided, and fences a driver that was suspended meanwhile.

A task is never retried. A batch that must run again runs as a whole, under a new producer epoch, at most ATTEMPTS times.
"""

from __future__ import annotations

import logging
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.client.blocking import BrokerAway, Client
from ottla.client.offsets import LATEST, list_offsets
from ottla.client.options import ClientOptions
from ottla.client.transactions import CommittedOffset, add_offsets, end_txn, init_producer_id, txn_offset_commit
from ottla.errors import KafkaError
from ottla.pipelines import producing, scratch, spark_errors
from ottla.pipelines.checkpoint import BatchOffsets, Checkpoint, PartitionOffsets
from ottla.pipelines.definitions import Flow, Sink, Source
from ottla.pipelines.failure import PipelineError, Place
from ottla.pipelines.graph import reads
from ottla.pipelines.marker import FIRST, Marker
from ottla.pipelines.session import is_local
from ottla.pipelines.spark_jvm import arrow_rows, is_in_one_task
from ottla.pipelines.takeover import Claim
from ottla.records.batch import SEQUENCE_MAX
from ottla.records.compression import CODEC_NAMES
from ottla.types import ProducerIdAndEpoch, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

logger = logging.getLogger("ottla.pipelines")

ATTEMPTS = 5
SMALL_BATCH_RECORDS, SMALL_BATCH_BYTES = 1_000, 1 << 20
"""A batch with at most so much goes through the driver. Its bytes are guessed from the batch before."""


@dataclass
class BatchTransaction:
    """An open transaction. `client` is the driver's; each task has its own."""

    client: Client
    transactional_id: str
    producer: ProducerIdAndEpoch
    sequences: dict[str, dict[int, int]] = field(default_factory=dict)
    """By topic and partition, the next sequence: two sources may share a dead-letter topic."""
    is_small: bool = False
    """Whether the rows may come to the driver."""
    batch_bytes_max: int = producing.BATCH_BYTES_MAX

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
            self.batch_bytes_max,
        )

    def send(self, records: DataFrame, topic: str, codec: str) -> tuple[int, int]:
        """Write rows (key, value, …) to a topic, in tasks. Returns the number of records and of bytes."""
        from pyspark.sql import functions as F

        # Lambdas, not bound methods: PySpark inspects the signature and wants one argument.
        if is_in_one_task(records):
            writing = self.writing(topic, codec)
            rows = arrow_rows(records) if self.is_small else None
            if rows is not None:
                return self._sent_from_here(writing, rows)
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
        return self._counted(topic, written)

    def _sent_from_here(self, writing: producing.Writing, rows: pa.Table) -> tuple[int, int]:
        """A task would cost more than all these rows: a function to unpickle, a connection, a process to wake."""
        found = producing.write_from_driver(writing, self.client, rows.to_batches())
        return self._counted(writing.topic, found.to_pylist())

    def _counted(self, topic: str, written: Iterable[Any]) -> tuple[int, int]:
        written = list(written)
        following = self.sequences.setdefault(topic, {})
        for row in written:
            following[row["partition"]] = (following.get(row["partition"], 0) + row["records"]) & SEQUENCE_MAX
        return sum(row["records"] for row in written), sum(row["bytes"] for row in written)


WriteRows = Callable[["DataFrame", Marker, BatchTransaction], tuple[int, int]]
"""Writes the rows of a batch to the flow's target. Returns the number of records and of bytes."""


class Refused(NamedTuple):
    """What a batch did not take."""

    dead_letters: int = 0
    unmet: Mapping[str, int] = {}
    """By expectation, the number of rows that did not meet it."""


SendDeadLetters = Callable[["DataFrame", BatchOffsets, BatchTransaction], Refused]
"""Sends the records of a batch that are refused. PipelineError if the flow must stop for one of them."""


class Closing(Exception):
    """The pipeline is stopping: this batch was not started. It runs at the next start."""


@dataclass
class Totals:
    """Counts of a flow's sink since it was started."""

    batches: int = 0
    records: int = 0
    bytes: int = 0
    dead_letters: int = 0
    unmet: dict[str, int] = field(default_factory=dict)
    """By expectation, the number of rows that did not meet it."""
    retries: int = 0
    already_committed: int = 0
    transaction_ms: float = 0.0
    """Of the last batch: its time without the job itself."""
    last_error: str | None = None


@dataclass
class ExactlyOnceSink:
    """The sink of one flow's query."""

    flow: Flow
    group_id: str
    options: ClientOptions
    checkpoint: Checkpoint
    write_rows: WriteRows
    send_dead_letters: SendDeadLetters
    starting: PartitionOffsets = field(default_factory=dict)
    transaction_timeout_ms: int = 600_000
    version: str = FIRST
    generation: str = FIRST
    switch_id: str = ""
    """The transactional id that makes another version live."""
    sources: tuple[Source, ...] | None = None
    """Those whose topics are in the cluster of the transaction, which holds their offsets. None: all are."""
    has_state: bool = True
    """Whether a batch may have many more rows than records."""
    totals: Totals = field(default_factory=Totals)
    failure: PipelineError | None = None
    """Why the flow ended. Spark's own report is this error after its way through Java."""
    closing: threading.Event = field(default_factory=threading.Event)
    """Set: no further batch starts."""
    _client: Client | None = None
    _batch_id: int = -1
    """The batch that was started last."""
    _bytes_each: float = float("inf")
    """Written for each record read, in the batch before."""
    _batch_bytes_max: int = producing.BATCH_BYTES_MAX
    """Of a record batch."""
    _claim: Claim = field(init=False)

    def __post_init__(self) -> None:
        self._claim = Claim(self.flow, self.group_id, self.switch_id, self.version, self.closing)

    def write(self, frame: DataFrame, batch_id: int) -> None:
        """Write one micro-batch. Returns when it is committed; if it raises, nothing of the batch is visible."""
        if self.closing.is_set():
            raise Closing
        self._batch_id = batch_id
        try:
            self._write(frame, batch_id)
        except PipelineError as error:
            self.failure = error
            raise
        except (KafkaError, OSError, producing.RowRefused) as error:
            self.failure = self._explained(error)
            raise self.failure from error

    def begin_again(self) -> None:
        """Forget why the flow ended: its query starts again."""
        self.failure = None
        self.close()

    def is_recorded(self, query: Any) -> bool:
        """Whether Spark has recorded the last started batch as done."""
        if self._batch_id < 0:
            return True
        progress = query.lastProgress
        return progress is not None and int(progress["batchId"]) >= self._batch_id

    def _write(self, frame: DataFrame, batch_id: int) -> None:
        query_id = self.checkpoint.query_id()
        if query_id is None:
            raise PipelineError(f"{self.checkpoint.location}/metadata is missing")
        offsets = self.checkpoint.batch_offsets(batch_id, self.starting)
        marker = Marker(query_id, batch_id, offsets.fingerprint, self.version, self.generation)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._attempt(frame, marker, offsets)
                self.totals.last_error = None
                return
            except PipelineError:
                raise
            except Exception as error:
                self.close()
                reason = retry_reason(error)
                if (
                    reason is None
                    and spark_errors.is_batch_too_large(error)
                    and self._batch_bytes_max > producing.BATCH_BYTES_MIN
                ):
                    self._batch_bytes_max //= 4
                    reason = f"the topic takes no record batches of that size, sending {self._batch_bytes_max:,} bytes at most"
                if reason is None or attempt == ATTEMPTS:
                    raise
                self.totals.retries += 1
                self.totals.last_error = reason
                logger.warning("Flow %s: running batch %d again (attempt %d): %s", self.flow.name, batch_id, attempt + 1, reason)
                time.sleep(min(0.1 * 2**attempt, 5.0))

    def _attempt(self, frame: DataFrame, marker: Marker, offsets: BatchOffsets) -> None:
        began = time.monotonic()
        if self._client is None:
            self._client = Client(self.options)
        client = self._client
        producer = init_producer_id(client, self.group_id, self.transaction_timeout_ms)
        read = sum(offset - offsets.start[where] for where, offset in offsets.end.items())
        is_small = 0 < read <= SMALL_BATCH_RECORDS and read * self._bytes_each <= SMALL_BATCH_BYTES
        transaction = BatchTransaction(
            client, self.group_id, producer, is_small=is_small and not self.has_state, batch_bytes_max=self._batch_bytes_max
        )
        if self._is_committed(client, marker):
            # Run the batch without output: the next batch needs the version of the state stores that this one makes.
            frame.write.format("noop").mode("overwrite").save()
            self.totals.already_committed += 1
            return
        prepared = time.monotonic()
        try:
            records, size = self.write_rows(frame, marker, transaction)
            refused = self.send_dead_letters(frame, offsets, transaction)
            worked = time.monotonic()
            self._commit(transaction, marker, offsets)
        except BaseException:
            self._abort(transaction)
            self._warn_if_slow(marker, time.monotonic() - began, share=1.0)
            raise
        ended = time.monotonic()
        self._warn_if_slow(marker, ended - began, share=0.8)
        totals = self.totals
        totals.batches += 1
        totals.records += records
        totals.bytes += size
        if read > 0:
            self._bytes_each = size / read
        totals.dead_letters += refused.dead_letters
        for name, count in refused.unmet.items():
            totals.unmet[name] = totals.unmet.get(name, 0) + count
        totals.transaction_ms = ((prepared - began) + (ended - worked)) * 1000

    def _warn_if_slow(self, marker: Marker, took_s: float, *, share: float) -> None:
        timeout_s = self.transaction_timeout_ms / 1000
        if took_s > share * timeout_s:
            logger.warning(
                "Flow %s: batch %d took %.0f s, its transaction may take %.0f s: raise transaction_timeout",
                self.flow.name,
                marker.batch_id,
                took_s,
                timeout_s,
            )

    def _is_committed(self, client: Client, marker: Marker) -> bool:
        """Whether this batch is committed already. PipelineError if the marker contradicts the checkpoint."""
        found = self._claim.markers(client)
        last = max((each for each in found if each.query_id == marker.query_id), key=lambda each: each.batch_id, default=None)
        if last is None or last.batch_id < marker.batch_id:
            return False
        if last.batch_id > marker.batch_id:
            raise _final(
                f"flow {self.flow.name!r}: batch {last.batch_id} is committed, but the checkpoint {self.checkpoint.location} is "
                f"only at batch {marker.batch_id}",
                self.flow.place,
                hint="stop the other driver that runs this flow; if the checkpoint is an old copy, `ottla pipeline reset` it",
            )
        if last.fingerprint != marker.fingerprint:
            raise _final(
                f"flow {self.flow.name!r}: batch {marker.batch_id} is committed with other offsets than the checkpoint "
                f"{self.checkpoint.location} has for it",
                self.flow.place,
                hint="the checkpoint is an old copy; remove it with `ottla pipeline reset`",
            )
        return True

    def _commit(self, transaction: BatchTransaction, marker: Marker, offsets: BatchOffsets) -> None:
        places = sorted(where for where in offsets.end if self._is_at_home(where.topic))
        committed = {where: CommittedOffset(offsets.end[where]) for where in places}
        client, producer = transaction.client, transaction.producer
        if places:
            committed[places[0]] = CommittedOffset(offsets.end[places[0]], str(marker))
        elif isinstance(self.flow.to, Sink):
            # A flow that reads only files, or another cluster, keeps its marker on the topic it writes: at its end, so that lag
            # tools show none.
            place = TopicPartition(self.flow.to.topic, 0)
            committed[place] = CommittedOffset(list_offsets(client, {place: LATEST})[place].offset, str(marker))
        if committed:
            add_offsets(client, self.group_id, producer, self.group_id)
            txn_offset_commit(client, self.group_id, producer, self.group_id, committed)
        end_txn(client, self.group_id, producer, commit=True)

    def _is_at_home(self, topic: str) -> bool:
        return self.sources is None or any(reads(source, topic) for source in self.sources)

    def _abort(self, transaction: BatchTransaction) -> None:
        """Best effort: otherwise the next InitProducerId or the transaction timeout aborts it."""
        try:
            end_txn(transaction.client, self.group_id, transaction.producer, commit=False)
        except (KafkaError, OSError) as error:
            logger.info("Flow %s: could not abort its transaction, the broker will: %s", self.flow.name, error)

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _explained(self, error: Exception) -> PipelineError:
        if isinstance(error, BrokerAway):
            return PipelineError(
                f"flow {self.flow.name!r}: no broker answers: {error}", hint="no data is lost: run the pipeline again"
            )
        target = f" (topic {self.flow.to.topic!r})" if isinstance(self.flow.to, Sink) else ""
        place = self.flow.to.place if self.flow.to is not None else self.flow.place
        return PipelineError(f"flow {self.flow.name!r}{target}: {error}", place)


def _final(message: str, place: Place, *, hint: str) -> PipelineError:
    error = PipelineError(message, place, hint=hint)
    error.is_final = True
    return error


def retry_reason(error: Exception) -> str | None:
    """Why the batch may run again under a new epoch; None if it must not."""
    reason = spark_errors.retry_reason(error)
    if reason is not None:
        return reason
    if isinstance(error, KafkaError | OSError):
        return str(error) if producing.is_retriable(error) else None
    lost = spark_errors.worker_lost(error)
    return f"a worker was lost ({lost})" if lost is not None else None
