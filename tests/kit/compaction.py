"""Compact a log in one pass, and the records expected afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ottla.records.record import Record, build_batch
from ottla.records.validate import check
from ottla.storage.compaction import Account, Compaction, Limits
from ottla.storage.compaction_plan import LogToClean, find_log_to_clean
from ottla.storage.config import LogConfig
from ottla.storage.log import Log
from tests.kit.storage import NOW_MS, RULES, read_batches, records_of

COMPACTED = LogConfig(
    segment_bytes=600,
    index_interval_bytes=100,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=1000,
    file_delete_delay_ms=0,
)

KeyValue = tuple[bytes | None, bytes | None]


def put(log: Log, *pairs: KeyValue, codec: int = 0, timestamp_ms: int = NOW_MS, **options: Any) -> int:
    """Append one batch of keys and values; returns its first offset. The high watermark follows."""
    fields = [(key, value, [("h", b"v")], timestamp_ms + index) for index, (key, value) in enumerate(pairs)]
    batch = bytearray(build_batch(fields, codec=codec, **options))
    info = log.append(check(batch, RULES, NOW_MS), 0, NOW_MS, from_client=False)  # without sequences
    log.high_watermark = log.log_end_offset
    return info.first_offset


def dirt_of(log: Log, now_ms: int = NOW_MS, *, flush: bool = True) -> LogToClean:
    """Flush the log, and return its dirty range."""
    if flush:
        log.flush(now_ms)
    return find_log_to_clean(log, log.high_watermark, now_ms)


def compact(disk: object, log: Log, now_ms: int = NOW_MS, slice_bytes: int = 1 << 20, **limits: Any) -> Account:
    """Run one pass of compaction in this thread."""
    compaction = Compaction(disk, dirt_of(log, now_ms), Limits(**limits), now_ms)  # type: ignore[arg-type]
    while True:
        progress = compaction.advance(slice_bytes)
        if progress.replacement is not None:
            compaction.swap(progress.replacement)
        if progress.done:
            log.cleaned_offset = compaction.cleaned_offset
            return compaction.account


def records(log: Log) -> list[Record]:
    return records_of(read_batches(log))


def pairs(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in records(log)]


@dataclass
class ModelBatch:
    records: list[Record]
    base_offset: int
    last_offset: int
    horizon_ms: int | None = None


@dataclass
class Model:
    """The records of a compacted log, from the definition of compaction."""

    delete_retention_ms: int
    batches: list[ModelBatch] = field(default_factory=list)

    def append(self, batch: list[Record]) -> None:
        self.batches.append(ModelBatch(batch, batch[0].offset, batch[-1].offset))

    def compact(self, first_dirty_offset: int, cleaned_offset: int, now_ms: int) -> None:
        """Compact as the cleaner does: keys of [first dirty, cleaned) decide about all records below `cleaned`."""
        newest = {
            record.key: record.offset
            for batch in self.batches
            for record in batch.records
            if first_dirty_offset <= record.offset < cleaned_offset
        }
        for batch in self.batches:
            expired = batch.horizon_ms is not None and batch.horizon_ms <= now_ms
            batch.records = [
                record
                for record in batch.records
                if record.offset >= cleaned_offset
                or (record.offset >= newest.get(record.key, -1) and not (record.value is None and expired))
            ]
            has_tombstones = any(record.value is None for record in batch.records)
            if has_tombstones and batch.horizon_ms is None and batch.last_offset < cleaned_offset:
                batch.horizon_ms = now_ms + self.delete_retention_ms

    def copy(self) -> Model:
        batches = [
            ModelBatch(list(batch.records), batch.base_offset, batch.last_offset, batch.horizon_ms) for batch in self.batches
        ]
        return Model(self.delete_retention_ms, batches)

    def records(self) -> list[Record]:
        return [record for batch in self.batches for record in batch.records]
