"""Tables of Parquet, ORC, JSON or CSV files, in the layout that other readers expect: files, in directories by `partition_by`.

Beside the directory `orders` there is a hidden one, `.ottla-orders`, which holds all that is no data:

- `drafts/`: what tasks of a running batch write;
- `batches/<checkpoint>-<number>.json`: a batch that is in, and where its files go. The record is the commit: it appears at once,
  and then the files are moved. A driver that dies between the two, or its successor, moves the rest.

Invariants
1. The files of a batch are moved after its record exists, and before the batch is committed to Kafka.
2. A draft belongs to one attempt: its name ends with the producer id and epoch.
3. Each directory gets one file of a batch. It appears by one rename, so a reader sees all rows of the batch in it, or none.
4. Files are moved, and swapped by `compaction`, under the lock of the table (on a local disk; elsewhere nothing is compacted).
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

from ottla.pipelines.checkpoint import local_folder
from ottla.pipelines.definitions import Flow, Table
from ottla.pipelines.exactly_once import BatchTransaction
from ottla.pipelines.failure import PipelineError
from ottla.pipelines.marker import Marker
from ottla.pipelines.spark_jvm import FileSystem

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = ("parquet", "orc", "json", "csv")
_TYPED = ("parquet", "orc")
"""Their files hold the types of the columns."""
OLD_LAYOUT = "ottla_batch="
_KEPT_RECORDS = 3


class FileTable:
    """The directory that one flow writes."""

    def __init__(self, spark: SparkSession, flow: Flow, table: Table, group_id: str) -> None:
        self.spark, self.flow, self.table = spark, flow, table
        self.root = table.path.rstrip("/")
        self.hidden = hidden_folder(self.root)
        self._owner = f"{crc32(group_id.encode()):08x}"
        self._files = FileSystem(spark, self.root)
        self._recovered = False

    def prepare(self, frame: DataFrame) -> None:
        """PipelineError if the flow cannot write this directory. Finishes batches of a driver that died."""
        missing = [name for name in self.table.partition_by if name not in frame.columns]
        if missing:
            raise PipelineError(
                f"flow {self.flow.name!r} has no column {missing[0]!r} for partition_by of table {self.table.path!r}",
                self.table.place,
                hint=f"its columns are {', '.join(frame.columns) or 'none'}",
            )
        if any(name.startswith(OLD_LAYOUT) for name in self._files.names(self.root)):
            raise PipelineError(
                f"table {self.table.path!r} has directories {OLD_LAYOUT}… of an earlier version of Ottla",
                self.table.place,
                hint="`ottla pipeline compact` moves their files to the present layout; no row is changed",
            )
        for name in self._records():
            self._publish(name)
        if self.table.format in _TYPED:
            self._compare(frame)

    def _compare(self, frame: DataFrame) -> None:
        """PipelineError if the table has a column with another type. Readers of both files would fail."""
        if not self._has_files():
            return
        found = self.spark.read.format(self.table.format).load(self.root).schema
        there = {field.name: field.dataType.simpleString() for field in found.fields if field.name not in self.table.partition_by}
        for field in frame.schema.fields:
            kind = field.dataType.simpleString()
            if there.get(field.name, kind) != kind:
                raise PipelineError(
                    f"table {self.table.path!r} has column {field.name!r} as {there[field.name]}, flow {self.flow.name!r} writes "
                    f"{kind}",
                    self.table.place,
                    hint=f"cast it to {there[field.name]}, give the column another name, or write another table",
                )

    def _has_files(self) -> bool:
        """Whether a reader finds any: it skips names that begin with a dot or an underscore."""
        return any(not name.startswith((".", "_")) for name in self._files.names(self.root))

    def write(self, frame: DataFrame, marker: Marker, transaction: BatchTransaction) -> bool:
        name = batch_name(marker)
        if self._is_in(name):
            self._publish(name)
            frame.write.format("noop").mode("overwrite").save()
            return False
        producer = transaction.producer
        draft = f"{self.hidden}/drafts/{name}-{producer.producer_id:x}-{producer.producer_epoch}"
        by = self.table.partition_by
        # One file for each directory: a reader that lists it sees the whole batch or nothing of it.
        one = frame.repartition(*by) if by else (frame if _partitions(frame) == 1 else frame.repartition(1))
        writer = one.write.format(self.table.format).mode("overwrite").options(**dict(self.table.options))
        (writer.partitionBy(*by) if by else writer).save(draft)
        moves = self._moves(draft, name)
        if not self._claim(name, {"draft": draft, "moves": moves}):
            self._files.delete(draft)
            self._publish(name)
            return False
        self._publish(name)
        self._forget(name)
        return True

    def _moves(self, draft: str, name: str) -> dict[str, str]:
        """The new places of the draft's files, below the table's directory."""
        moves: dict[str, str] = {}
        for number, path in enumerate(sorted(self._files.files_below(draft))):
            folder, _, file = path.rpartition("/")
            if file.startswith(("_", ".")):
                continue
            ending = re.sub(r"^part-[0-9]+-[0-9a-f-]{36}[-.]c[0-9]+", "", file)
            moves[path] = f"{folder}/{name}-{number:05d}{ending}".removeprefix("/")
        return moves

    # Records

    def _records(self) -> list[str]:
        """The names of this flow's batches that have a record, in the order of their numbers."""
        mine = [name.removesuffix(".json") for name in self._files.names(f"{self.hidden}/batches/{self._owner}")]
        return sorted(name for name in mine if re.fullmatch(r"[0-9a-f]{8}-\d{9}", name))

    def _is_in(self, name: str) -> bool:
        query, _, _ = name.partition("-")
        return any(each.startswith(f"{query}-") and each >= name for each in self._records())

    def _record(self, name: str) -> str:
        return f"{self.hidden}/batches/{self._owner}/{name}.json"

    def _claim(self, name: str, document: dict[str, object]) -> bool:
        """Make the batch's record. False if another driver has made it, or that of a later batch."""
        record = self._record(name)
        draft = f"{document['draft']}.json"
        self._files.write_text(draft, json.dumps(document))
        self._files.make_directory(record.rpartition("/")[0])
        local = local_folder(self.hidden)
        if local is not None:
            # A rename would replace the record of another driver.
            try:
                os.link(local_path(draft), local_path(record))
            except FileExistsError:
                return False
            finally:
                self._files.delete(draft)
        elif not self._files.rename(draft, record):
            return False
        query, _, _ = name.partition("-")
        if any(each.startswith(f"{query}-") and each > name for each in self._records()):
            # A suspended driver woke up: the record of its batch was removed meanwhile, for the batch is long in.
            self._files.delete(record)
            return False
        return True

    def _publish(self, name: str) -> None:
        """Move the files of a batch to their places, those that are not there yet."""
        text = self._files.read_text(self._record(name))
        if text is None:
            return
        document = json.loads(text)
        draft = document["draft"]
        if not self._files.exists(draft):
            return  # all were moved
        with locked(self.root):
            for path, place in sorted(document["moves"].items()):
                source, to = f"{draft}/{path}", f"{self.root}/{place}"
                if not self._files.exists(source):
                    continue
                self._files.make_directory(to.rpartition("/")[0])
                if not self._files.rename(source, to):
                    raise PipelineError(f"{source} could not be renamed to {to}", self.table.place)
            self._files.make_directory(self.root)
        self._files.delete(draft)

    def _forget(self, name: str) -> None:
        """Remove old records, and drafts of killed drivers."""
        for old in self._records()[:-_KEPT_RECORDS]:
            if old < name or not old.startswith(name[:8]):
                self._files.delete(self._record(old))
        if not self._recovered:
            for left in self._files.names(f"{self.hidden}/drafts"):
                if left.startswith(name[:8]) and left[:18] < name:
                    self._files.delete(f"{self.hidden}/drafts/{left}")
            self._recovered = True


def _partitions(frame: DataFrame) -> int:
    from ottla.pipelines.spark_jvm import is_in_one_task

    return 1 if is_in_one_task(frame) else 2


def batch_name(marker: Marker) -> str:
    return f"{marker.query_id[:8]}-{marker.batch_id:09d}"


def hidden_folder(root: str) -> str:
    folder, _, name = root.rstrip("/").rpartition("/")
    return f"{folder}/.ottla-{name}" if folder or root.startswith("/") else f".ottla-{name}"


def local_path(location: str) -> Path:
    found = local_folder(location)
    assert found is not None, f"{location} is not on this machine"
    return found


@contextmanager
def locked(root: str, name: str = "lock") -> Iterator[None]:
    """Hold the lock of a table on a local disk: while its files are moved or swapped."""
    folder = local_folder(hidden_folder(root))
    if folder is None:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / name, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        with suppress(OSError):
            os.close(lock)
