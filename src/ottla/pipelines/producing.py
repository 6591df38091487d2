"""What tasks do: turn rows into record batches and produce them to their partitions. Runs in Spark's Python workers.

On one machine a task packs its rows into record batches and produces them with the driver's producer id and epoch (`write`).
Several tasks take turns at each partition (`sequences`).

Tasks on several machines cannot take turns. They work in two steps with a shuffle between: `encode` packs rows into record
batches, each for one partition of the topic; `produce` gets all batches of a partition in one task, numbers them and produces
them.

Invariants
1. One task at a time writes to a partition, and every batch it sent is acknowledged before another task sends. Sequences start
   at 0, because every transaction has its own epoch. A second write to the same topic continues them.
2. `produce` and `write` run once. A second attempt of a task raises before it sends anything: its rows may come in another order,
   and the broker would take them for duplicates. The driver runs the whole batch again under a new epoch. A task cannot see a
   second attempt of its stage, so `session` forbids those (spark.stage.maxConsecutiveAttempts).
3. When a task ends without an error, the broker has acknowledged all its batches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ottla.client.blocking import Client
from ottla.client.options import ClientOptions
from ottla.client.transactions import add_partitions
from ottla.client.transactions import produce as send
from ottla.errors import ErrorCode, KafkaError
from ottla.pipelines.sequences import Own, Sequences, Shared
from ottla.pipelines.spark_errors import retry_batch
from ottla.pipelines.workers import exclude_imports_from_gc
from ottla.records.batch import header_at, write_header
from ottla.records.column_writer import BatchWriter, BytesInput, HeadersInput
from ottla.records.partitioner import partition_of_keys
from ottla.types import Buffer, ProducerIdAndEpoch, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

PACKED = "partition int, records int, batch binary"
WRITTEN = "partition int, records bigint, bytes bigint"
BATCH_BYTES_MAX, BATCH_BYTES_MIN = 512 * 1024, 16 * 1024
"""A batch is a request. Smaller ones cost the client and the broker more, and a topic may refuse larger ones."""
_FATAL = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.SASL_AUTHENTICATION_FAILED,
    }
)


class RowRefused(ValueError):
    """A row that cannot be a record of the topic."""


def is_retriable(error: BaseException) -> bool:
    """Whether another attempt of the batch, under a new epoch, may succeed."""
    return isinstance(error, OSError) or (isinstance(error, KafkaError) and error.code not in _FATAL)


class Packing:
    """Rows of one task as record batches of one topic. `writer_of` makes the writer of a partition.

    Records without a key go round-robin. Tasks start at different partitions, and so do micro-batches with different `number`s.
    """

    def __init__(self, topic: str, partitions: int, writer_of: Callable[[int], BatchWriter], number: int = 0) -> None:
        from pyspark import TaskContext

        exclude_imports_from_gc()
        context = TaskContext.get()
        self._topic = topic
        self._partitions = partitions
        self._writer_of = writer_of
        self._next_null = number + (context.partitionId() if context is not None else 0)
        self._writers: dict[int, BatchWriter] = {}

    def add(self, batch: pa.RecordBatch) -> list[tuple[int, bytearray]]:
        """Add rows: key, value, maybe headers, timestamp, partition. Returns full record batches and their partitions."""
        import numpy as np

        count = batch.num_rows
        if count == 0:
            return []
        names = batch.schema.names
        keys, values = bytes_input(batch.column("key")), bytes_input(batch.column("value"))
        given: dict[str, Any] = {"now_ms": time.time_ns() // 1_000_000}
        if "headers" in names:
            given["headers"] = headers_input(batch.column("headers"))
        if "timestamp" in names:
            given["timestamps"] = _timestamps(batch.column("timestamp"), given["now_ms"])
        if "partition" in names:
            chosen = self._checked(batch.column("partition"))
        elif self._partitions == 1:
            chosen = np.zeros(count, np.int32)
        else:
            chosen = np.frombuffer(partition_of_keys(keys, count, self._partitions, self._next_null), np.int32)
            self._next_null += count
        order = np.argsort(chosen, kind="stable").astype(np.int32)
        edges = np.searchsorted(chosen[order], np.arange(self._partitions + 1))
        full: list[tuple[int, bytearray]] = []
        for partition in np.flatnonzero(np.diff(edges)).tolist():
            writer = self._writers.get(partition)
            if writer is None:
                writer = self._writers[partition] = self._writer_of(partition)
            rows = order[edges[partition] : edges[partition + 1]]
            full += [(partition, done) for done in writer.add(rows.tobytes(), len(rows), keys, values, **given)]
        return full

    def finish(self) -> list[tuple[int, bytearray]]:
        """The last record batch of each partition."""
        return [(partition, last) for partition, writer in self._writers.items() if (last := writer.finish()) is not None]

    def _checked(self, column: pa.Array) -> Any:
        import numpy as np

        if column.null_count:
            raise RowRefused(f"topic {self._topic}: a row has no partition")
        chosen = column.to_numpy(zero_copy_only=False).astype(np.int32)
        if chosen.size and (chosen.min() < 0 or chosen.max() >= self._partitions):
            wrong = chosen.min() if chosen.min() < 0 else chosen.max()
            raise RowRefused(f"topic {self._topic} has {self._partitions} partitions, a row names partition {wrong}")
        return chosen


@dataclass(frozen=True)
class Writing:
    """How tasks write to one topic in one transaction. Spark pickles it to them."""

    options: ClientOptions
    topic: str
    partitions: int
    transactional_id: str
    producer: ProducerIdAndEpoch
    codec: int
    first: Mapping[int, int] = field(default_factory=dict)
    """The next sequences of partitions that this transaction has written to before."""
    turns: str | None = None
    """The directory by which tasks of one machine take turns. None: each task has its partitions to itself."""
    batch_bytes_max: int = BATCH_BYTES_MAX

    def encode(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows (key, value, and maybe headers, timestamp, partition) -> PACKED."""
        for full in self.encoded(batches):
            yield _packed(full)

    def encoded(self, batches: Iterator[pa.RecordBatch]) -> Iterator[list[tuple[int, bytearray]]]:
        """Record batches and their partitions. Sequences are those of a task that has its partitions to itself."""
        epoch = self.producer.producer_epoch
        packing = Packing(self.topic, self.partitions, lambda partition: self._writer(self.first.get(partition, 0)), epoch)
        for batch in batches:
            if full := packing.add(batch):
                yield full
        if rest := packing.finish():
            yield rest

    def _writer(self, sequence: int) -> BatchWriter:
        return BatchWriter(
            batch_bytes_max=self.batch_bytes_max,
            codec=self.codec,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.producer_epoch,
            base_sequence=sequence,
            transactional=True,
        )

    def produce(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """PACKED, with all batches of a partition in one task -> WRITTEN."""
        return self._sent(
            list(zip(packed.column("partition").to_pylist(), packed.column("batch").to_pylist(), strict=True))
            for packed in batches
        )

    def write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows, all of them in one task or those of one of the tasks that take turns -> WRITTEN."""
        from pyspark import TaskContext

        context = TaskContext.get()
        if self.turns is None and context is not None and context.partitionId() > 0:
            # Two tasks would use the same sequences, and the broker would take the batches of one for duplicates of the other's.
            raise RuntimeError(f"topic {self.topic}: the rows are in several tasks, expected one")
        return self._sent(self.encoded(batches))

    def _sent(self, batches: Iterable[Sequence[tuple[int, Buffer]]]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        exclude_imports_from_gc()
        context = TaskContext.get()
        if context is not None and context.attemptNumber() > 0:
            raise retry_batch("a task was lost, and what it sent is unknown")
        try:
            with Client(self.options) as client:
                yield self.send(client, batches)
        except (KafkaError, OSError) as error:
            if is_retriable(error):
                raise retry_batch(error) from error
            raise RuntimeError(f"topic {self.topic}: {error}") from error

    def send(self, client: Client, batches: Iterable[Sequence[tuple[int, Buffer]]]) -> pa.RecordBatch:
        """Produce record batches. Returns WRITTEN."""
        import pyarrow as pa

        sequences: Sequences = Own(self.first) if self.turns is None else Shared(self.turns, self.first)
        records: dict[int, int] = {}
        size: dict[int, int] = {}
        for some in batches:
            new = sorted({partition for partition, _ in some} - records.keys())
            add_partitions(client, self.transactional_id, self.producer, [TopicPartition(self.topic, n) for n in new])
            for partition, batch in some:
                count = header_at(batch, 0).record_count
                with sequences.turn(partition) as turn:
                    numbered = _numbered(batch, turn.sequence)
                    send(client, self.topic, partition, numbered, transactional_id=self.transactional_id)
                    turn.acknowledged(count)
                records[partition] = records.get(partition, 0) + count
                size[partition] = size.get(partition, 0) + len(batch)
        return pa.RecordBatch.from_arrays(
            [
                pa.array(list(records), pa.int32()),
                pa.array(list(records.values()), pa.int64()),
                pa.array(list(size.values()), pa.int64()),
            ],
            names=["partition", "records", "bytes"],
        )


def write_from_driver(writing: Writing, client: Client, batches: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
    """Write all rows of a batch in the driver, by its own connections. Returns WRITTEN."""
    return writing.send(client, writing.encoded(iter(batches)))


def _numbered(batch: Buffer, sequence: int) -> Buffer:
    """The batch with this sequence, changed in place if possible."""
    info = header_at(batch, 0)
    if info.base_sequence == sequence:
        return batch
    batch = batch if isinstance(batch, bytearray) else bytearray(batch)
    info.base_sequence = sequence
    write_header(batch, info)
    return batch


def _packed(full: list[tuple[int, bytearray]]) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_arrays(
        [
            pa.array([partition for partition, _ in full], pa.int32()),
            pa.array([header_at(batch, 0).record_count for _, batch in full], pa.int32()),
            pa.array([batch for _, batch in full], pa.binary()),
        ],
        names=["partition", "records", "batch"],
    )


def bytes_input(column: pa.Array) -> BytesInput:
    """The Arrow buffers of a column of bytes or strings, as the compiled writer reads them."""
    import pyarrow as pa

    if pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type):
        column = column.cast(pa.binary())
    validity, offsets, data = column.buffers()
    return BytesInput(
        None if validity is None else validity.to_pybytes(),
        offsets.to_pybytes(),
        b"" if data is None else data.to_pybytes(),
        column.offset,
    )


def headers_input(column: pa.Array) -> HeadersInput:
    validity, offsets = column.buffers()[:2]
    elements = column.values
    return HeadersInput(
        None if validity is None else validity.to_pybytes(),
        offsets.to_pybytes(),
        bytes_input(elements.field(0)),
        bytes_input(elements.field(1)),
        column.offset,
    )


def _timestamps(column: pa.Array, now_ms: int) -> bytes:
    import numpy as np

    filled = column.fill_null(now_ms) if column.null_count else column
    return bytes(filled.to_numpy(zero_copy_only=False).astype(np.int64).tobytes())
