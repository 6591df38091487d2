"""Compaction batch by batch: a batch is kept, rewritten, emptied or removed.

Owns these rules, those of tombstones and transaction markers and their delete horizon (KIP-534), and the header of a rewritten
batch. Works on chunks of complete batches in memory.

1. Offsets never change: a rewritten batch keeps its base offset and last offset.
2. A batch that loses no record is passed on unchanged.
3. The CRC is checked before a batch is decompressed: a corrupt batch never gets a new CRC.
4. The last batches of each producer are kept, possibly empty, because their headers have the sequences. So is the last batch of a
   segment, so that the log has no gap behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.records.batch import (
    BATCHES_KEPT,
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    RECORDS_AT,
    BatchInfo,
    batch_crc_ok,
    write_header,
)
from ottla.records.clean import DELTA_MAX, Filter, Put, rebase
from ottla.records.clean_transactions import TransactionSieve
from ottla.records.compression import NONE, compress
from ottla.records.control import control_type
from ottla.records.key_map import KeyMap
from ottla.records.record import read_records, records_section
from ottla.types import NO_TIMESTAMP, Buffer

if TYPE_CHECKING:
    from mypy_extensions import i64

BATCH_COST_BYTES: Final = 1024
"""The cost of a batch besides its records, in bytes of records."""


class Uncleanable(Exception):
    """The log cannot be compacted: it is corrupt or has unsupported content."""


class LastBatches:
    """The last batches of each producer: those with a sequence of its current epoch, else the last marker.

    Outside of transactions it keeps as many as a producer may have in flight and send again. (Kafka keeps one.) A transaction is
    not compacted before it has ended.
    """

    def __init__(self) -> None:
        self._offsets: dict[int, list[int]] = {}
        self._epochs: dict[int, int] = {}
        self._with_sequence: set[int] = set()
        self._times_ms: dict[int, int] = {}

    def note(self, batches: list[BatchInfo]) -> None:
        """Add batches, in log order."""
        for info in batches:
            producer_id = info.producer_id
            if producer_id >= 0:
                if self._epochs.get(producer_id) != info.producer_epoch:
                    self._with_sequence.discard(producer_id)
                if producer_id in self._with_sequence and not (info.is_control or info.is_transactional):
                    offsets = self._offsets[producer_id]
                    offsets.append(info.last_offset)
                    if len(offsets) > BATCHES_KEPT:
                        del offsets[0]
                elif not info.is_control or producer_id not in self._with_sequence:
                    self._offsets[producer_id] = [info.last_offset]
                if not info.is_control:
                    self._with_sequence.add(producer_id)
                self._epochs[producer_id] = info.producer_epoch
                self._times_ms[producer_id] = info.max_timestamp

    def forget_before(self, time_ms: int) -> None:
        """Remove producers that wrote nothing since then: they have expired."""
        for producer_id, last_ms in list(self._times_ms.items()):
            if last_ms < time_ms:
                del self._offsets[producer_id]
                del self._epochs[producer_id]
                del self._times_ms[producer_id]

    def is_last(self, info: BatchInfo) -> bool:
        if info.producer_id < 0:
            return False
        offsets = self._offsets.get(info.producer_id)
        return offsets is not None and info.last_offset in offsets


def _check(chunk: bytes, info: BatchInfo) -> None:
    if not batch_crc_ok(chunk, info):
        raise Uncleanable(f"the batch at offset {info.base_offset} is corrupt: its CRC is wrong")


def _check_count(info: BatchInfo, records: i64) -> None:
    if records != info.record_count:
        raise Uncleanable(f"the batch at offset {info.base_offset} has {records} records, its header says {info.record_count}")


class Indexing:
    """Puts the keys of batches into a table, chunk by chunk."""

    def __init__(self, keys: KeyMap, start_offset: int, transactions: TransactionSieve) -> None:
        self._keys = keys
        self._transactions = transactions
        self._start_offset = start_offset
        self._chunk = b""
        self._batches: list[BatchInfo] = []
        self._next = 0
        self._put: Put | None = None
        self.full = False

    def take(self, chunk: bytes, batches: list[BatchInfo]) -> None:
        self._chunk = chunk
        self._batches = batches
        self._next = 0
        self._put = None

    def advance(self, limit_bytes: int) -> bool:
        """Process about so many bytes. True: the chunk is done, or the table is full."""
        left: i64 = limit_bytes
        keys = self._keys
        while left > 0:
            if self._next == len(self._batches):
                return True
            info = self._batches[self._next]
            put = self._put
            if put is None:
                left -= BATCH_COST_BYTES
                if info.last_offset < self._start_offset:
                    self._next += 1
                    continue
                if info.is_control or (info.is_transactional and self._transactions.is_aborted(info)):
                    keys.latest_offset = info.last_offset  # it replaces no record
                    self._next += 1
                    continue
                _check(self._chunk, info)
                data = records_section(self._chunk, info) if info.record_count > 0 else b""
                put = self._put = Put(data, info.base_offset, self._start_offset)
            before: i64 = put.position
            if not put.advance(keys, left):
                self.full = True
                return True
            left -= put.position - before
            if put.is_done:
                _check_count(info, put.records)
                keys.latest_offset = info.last_offset
                self._put = None
                self._next += 1
        return self._next == len(self._batches)


class Cleaning:
    """Cleans chunks of batches."""

    def __init__(
        self,
        keys: KeyMap,
        last_batches: LastBatches,
        now_ms: int,
        delete_retention_ms: int,
        transactions: TransactionSieve,
    ) -> None:
        self._keys = keys
        self._transactions = transactions
        self._latest_offset: int = keys.latest_offset
        self._last_batches = last_batches
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms
        self._chunk = b""
        self._batches: list[BatchInfo] = []
        self._next = 0
        self._keep_last = False
        self._filter: Filter | None = None
        self._run_start = 0
        self._run_end = 0
        """The range of unchanged batches that is not in `parts` yet."""
        self.parts: list[Buffer] = []
        """The cleaned chunk, once `advance` has returned True."""
        self.kept: list[BatchInfo] = []
        """The batches in `parts`, with their new sizes and timestamps."""
        self.changed = False
        """A batch was removed or rewritten, in any chunk so far."""
        self.records_read = 0
        self.records_retained = 0
        self.keyless = 0

    def take(self, chunk: bytes, batches: list[BatchInfo], keep_last: bool) -> None:
        """`keep_last`: keep the last batch even if it becomes empty."""
        self._chunk = chunk
        self._batches = batches
        self._next = 0
        self._keep_last = keep_last
        self._filter = None
        self._run_start = 0
        self._run_end = 0
        self.parts = []
        self.kept = []

    def advance(self, limit_bytes: int) -> bool:
        """Process about so many bytes. True: the chunk is done."""
        left: i64 = limit_bytes
        while left > 0:
            if self._next == len(self._batches):
                self._end_run()
                return True
            info = self._batches[self._next]
            sieve = self._filter
            if sieve is None:
                left -= BATCH_COST_BYTES
                sieve = self._begin(info)
                if sieve is None:
                    self._next += 1
                    continue
                self._filter = sieve
            before: i64 = sieve.position
            done = sieve.advance(self._keys, left)
            left -= sieve.position - before
            if done:
                self._finish(info, sieve)
                self._filter = None
                self._next += 1
        if self._next == len(self._batches):
            self._end_run()
            return True
        return False

    def _begin(self, info: BatchInfo) -> Filter | None:
        """Decide by the header if possible; otherwise return a filter for the records."""
        if info.is_control:
            self._judge_marker(info)
            return None
        if info.is_transactional and self._transactions.is_aborted(info) and info.record_count:
            self.records_read += info.record_count
            self._empty(info)
            return None
        if info.base_offset > self._latest_offset:
            self.records_read += info.record_count
            self._keep(info)
            return None
        if info.record_count == 0:
            if self._stays_empty(info):
                self._keep(info)
            else:
                self.changed = True
            return None
        replaced = self._replaced_in(info)
        if replaced == 0:
            self.records_read += info.record_count
            self._keep(info)
            return None
        if replaced == info.record_count:
            self.records_read += info.record_count
            self._empty(info)
            return None
        _check(self._chunk, info)
        # the base timestamp of a batch with a delete horizon is that horizon
        keep_tombstones = not info.has_delete_horizon or self._now_ms < info.base_timestamp
        return Filter(records_section(self._chunk, info), info.base_offset, self._latest_offset, keep_tombstones)

    def _replaced_in(self, info: BatchInfo) -> int:
        """How many records of a batch are replaced; -1 if that is unknown or not sufficient to decide."""
        keys = self._keys
        if info.last_offset > self._latest_offset or not keys.replaced.covers(info.base_offset, info.last_offset):
            return -1
        if keys.odd.has(info.base_offset):
            return -1
        return keys.replaced.count(info.base_offset, info.last_offset)

    def _finish(self, info: BatchInfo, sieve: Filter) -> None:
        _check_count(info, sieve.records)
        self.records_read += sieve.records
        self.keyless += sieve.keyless
        horizon_ms = self._new_horizon(info, sieve)
        if sieve.retained == sieve.records and horizon_ms == NO_TIMESTAMP:
            self._keep(info)
            return
        self.changed = True
        self.records_retained += sieve.retained
        if sieve.retained > 0:
            self._rewrite(info, sieve, horizon_ms)
        else:
            self._empty(info)

    def _empty(self, info: BatchInfo) -> None:
        """Remove all records; keep the batch if its header is needed."""
        self.changed = True
        if self._stays_empty(info):
            # as in Kafka: no codec, no base timestamp, no delete horizon
            attributes = info.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT)
            self._write(info, b"", attributes, NO_TIMESTAMP, info.max_timestamp, 0)

    def _judge_marker(self, info: BatchInfo) -> None:
        """A marker is removed when its transaction has no batches left and its delete horizon has passed (L09)."""
        self.records_read += info.record_count
        if info.record_count == 0:
            if self._stays_empty(info):
                self._keep(info)
            else:
                self.changed = True
            return
        _check(self._chunk, info)
        kind = control_type(read_records(self._chunk, info)[0])
        if not self._transactions.is_done(info, kind):
            self._keep(info)
        elif info.has_delete_horizon:
            # The last marker has the epoch of a producer without other batches.
            if self._now_ms < info.base_timestamp or self._last_batches.is_last(info):
                self._keep(info)
            else:
                self._empty(info)
        else:
            horizon_ms = self._now_ms + self._delete_retention_ms
            shift = info.base_timestamp - horizon_ms
            if abs(shift) > DELTA_MAX:
                self._keep(info)
                return
            self.changed = True
            self.records_retained += info.record_count
            section = rebase(records_section(self._chunk, info), shift)
            self._write(info, section, info.attributes | DELETE_HORIZON_BIT, horizon_ms, info.max_timestamp, info.record_count)

    def _stays_empty(self, info: BatchInfo) -> bool:
        return (self._keep_last and self._next + 1 == len(self._batches)) or self._last_batches.is_last(info)

    def _new_horizon(self, info: BatchInfo, sieve: Filter) -> int:
        """The delete horizon of the tombstones in a batch, set by the first pass that covers all of the batch (L08)."""
        if sieve.tombstones == 0 or info.has_delete_horizon or info.last_offset > self._latest_offset:
            return NO_TIMESTAMP
        horizon_ms = self._now_ms + self._delete_retention_ms
        shift = info.base_timestamp - horizon_ms
        if sieve.min_timestamp_delta + shift < -DELTA_MAX or sieve.max_timestamp_delta + shift > DELTA_MAX:
            return NO_TIMESTAMP  # absurd timestamps: such tombstones are kept
        return horizon_ms

    def _rewrite(self, info: BatchInfo, sieve: Filter, horizon_ms: int) -> None:
        section = sieve.section()
        base_timestamp, attributes = info.base_timestamp, info.attributes
        if horizon_ms != NO_TIMESTAMP:
            section = rebase(section, base_timestamp - horizon_ms)
            base_timestamp = horizon_ms
            attributes |= DELETE_HORIZON_BIT
        largest: int = sieve.max_timestamp_delta
        max_timestamp = info.max_timestamp if info.is_log_append_time else info.base_timestamp + largest
        self._write(info, section, attributes, base_timestamp, max_timestamp, sieve.retained)

    def _write(
        self, info: BatchInfo, section: bytes, attributes: int, base_timestamp: int, max_timestamp: int, record_count: int
    ) -> None:
        self._end_run()
        codec = attributes & CODEC_MASK
        batch = bytearray(RECORDS_AT)
        batch += section if codec == NONE else compress(codec, section)
        written = BatchInfo(
            0,
            len(batch),
            info.base_offset,
            info.leader_epoch,
            info.magic,
            0,
            attributes,
            info.last_offset_delta,
            base_timestamp,
            max_timestamp,
            info.producer_id,
            info.producer_epoch,
            info.base_sequence,
            record_count,
        )
        write_header(batch, written)
        self.parts.append(batch)
        self.kept.append(written)

    def _keep(self, info: BatchInfo) -> None:
        """Keep the batch unchanged, in one piece with its unchanged neighbours."""
        if info.position != self._run_end:
            self._end_run()
            self._run_start = info.position
        self._run_end = info.position + info.size
        self.records_retained += info.record_count
        self.kept.append(info)

    def _end_run(self) -> None:
        if self._run_end > self._run_start:
            self.parts.append(memoryview(self._chunk)[self._run_start : self._run_end])
        self._run_start = self._run_end
