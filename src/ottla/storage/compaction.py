"""Compaction of one log: the newest record of each key stays, at its offset (F13, L07).

Owns: one pass over one log, from its segments to their replacements. First the keys of the dirty part go into a table of bounded
size, then every segment before the end of what was indexed is written again without the records that a later one replaced.
Small neighbours become one. A pass is work for a worker, cut into slices: `advance` does some of it and comes back. Only the
exchange of segments touches the log, and belongs to the loop (`swap`).

Invariants
1. Until `swap` the log does not know of the pass: it may be abandoned at any moment, and leaves at most `.cleaned` files, which
   the next start removes.
2. A replacement is flushed before `swap` sees it; the names change in an order that recovery can finish (L04).
3. The checkpoint moves only when all replacements are in place and their names durable.
4. Memory: the table, one chunk of a file, one batch unpacked.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass

from ottla.errors import MalformedInput
from ottla.ports import Disk, File
from ottla.records.batch import LOG_OVERHEAD, BatchInfo, scan_batches
from ottla.records.clean_batches import Cleaning, Indexing, LastBatches, Uncleanable
from ottla.records.clean_transactions import TransactionSieve
from ottla.records.key_map import SLOT_BYTES, SLOTS_MIN, KeyMap
from ottla.storage.cleaned_segment import CleanedSegment
from ottla.storage.compaction_plan import LogToClean, group_segments
from ottla.storage.names import LOG, OFFSET_INDEX, TIME_INDEX
from ottla.storage.segment import Segment
from ottla.storage.txn_index import AbortedTxn

DAY_MS = 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class Limits:
    """What a pass may take."""

    dedupe_bytes: int = 128 << 20
    dedupe_load_factor: float = 0.9
    io_bytes: int = 256 << 10
    """Read at once; a larger batch is read whole."""
    producer_expiration_ms: int = DAY_MS


@dataclass(slots=True)
class Account:
    """What a pass did, for the log file and the counters."""

    bytes_indexed: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_retained: int = 0
    keyless: int = 0
    segments_before: int = 0
    segments_after: int = 0
    keys: int = 0
    table_full: bool = False


@dataclass(frozen=True, slots=True)
class Replacement:
    """One cleaned segment, flushed, and those it replaces."""

    former: tuple[Segment, ...]
    cleaned: Segment


@dataclass(frozen=True, slots=True)
class Progress:
    io_bytes: int
    """Read and written since the last time."""
    replacement: Replacement | None = None
    """To be swapped in before the pass can go on."""
    done: bool = False


class Abandoned(Exception):
    """The log changed under the pass in a way that makes its work worthless. Nothing is wrong; the next pass sees it anew."""


class Compaction:
    """One pass. Make it on the loop; run `advance` in a worker, again and again; `swap` on the loop what it hands out."""

    def __init__(self, disk: Disk, dirt: LogToClean, limits: Limits, now_ms: int) -> None:
        self._disk = disk
        self._dirt = dirt
        self._limits = limits
        self._now_ms = now_ms
        log = dirt.log
        self.log = log
        self._config = log.config
        self._dir = log.dir
        self._truncations = log.truncations
        self._segments = [segment for segment in log.segments if segment.base_offset < dirt.end_offset]
        self._aborted = log.aborted(log.first_base_offset, dirt.end_offset)
        """Aborted transactions with records in what is cleaned."""
        self._awaited = set(self._segments)
        """Segments of the log that the pass still has to read."""
        self._writing: CleanedSegment | None = None
        self.cleaned_offset = dirt.first_dirty_offset
        """Where the log is clean up to, once the pass is done."""
        self.account = Account(segments_before=len(self._segments))
        self._slice_bytes = 1 << 17
        self._steps = self._run()

    # --- outside

    def advance(self, slice_bytes: int) -> Progress:
        """Work on about so many bytes of records. OSError if the disk fails, Uncleanable if the log does."""
        self._slice_bytes = slice_bytes
        try:
            return next(self._steps)
        except StopIteration:
            return Progress(0, done=True)
        except MalformedInput as error:
            raise Uncleanable(str(error)) from error

    def check(self) -> None:
        """On the loop: that the log still is what the pass is about."""
        log = self.log
        if log.closed or log.truncations != self._truncations:
            raise Abandoned(f"{log.topic_partition} was cut or deleted")
        if not log.config.compacted:
            raise Abandoned(f"{log.topic_partition} is not compacted any more")
        if not self._awaited.issubset(log.segments):
            raise Abandoned(f"retention removed segments of {log.topic_partition}")

    def swap(self, replacement: Replacement) -> None:
        """On the loop: put the cleaned segment in the place of the others, unless some of those are gone."""
        self.check()
        self._awaited.difference_update(replacement.former)
        self.log.replace_segments(replacement.former, replacement.cleaned)

    def abandon(self) -> None:
        """Give up: what is half written goes, if it still can be reached."""
        self._steps.close()
        if self._writing is not None:
            self._writing.remove()
            self._writing = None

    # --- the pass

    def _run(self) -> Generator[Progress, None, None]:
        last_batches = LastBatches()
        keys = self._new_table()
        yield from self._index(keys, last_batches)
        last_batches.forget_before(self._now_ms - self._limits.producer_expiration_ms)
        self.cleaned_offset = keys.latest_offset + 1
        self.account.keys = keys.size
        segments = [segment for segment in self._segments if segment.base_offset < self.cleaned_offset]
        sized = [(segment, self._index_bytes(segment)) for segment in segments]
        groups = group_segments(sized, self._config.segment_bytes, self._config.index_bytes_max, self._dirt.end_offset)
        self.account.segments_after = self.account.segments_before
        transactions = TransactionSieve(self._aborted)
        cleaning = Cleaning(keys, last_batches, self._now_ms, self._config.delete_retention_ms, transactions)
        for group in groups:
            transactions.kept = []
            yield from self._clean(group, cleaning, transactions)
        if groups:
            self._disk.flush_dir(self._dir)

    def _new_table(self) -> KeyMap:
        """May grow as the limit allows, and be filled no further than the load factor says."""
        limits = self._limits
        slots = SLOTS_MIN
        while slots * 2 * SLOT_BYTES <= limits.dedupe_bytes:
            slots *= 2
        entries_max = min(max(int(slots * limits.dedupe_load_factor), 1), slots - 1)
        first = self._dirt.first_dirty_offset
        return KeyMap(slots, entries_max, first, min(self._dirt.end_offset - first, limits.dedupe_bytes // 2))

    def _index_bytes(self, segment: Segment) -> int:
        try:
            return max(self._disk.size(segment.path(OFFSET_INDEX)), self._disk.size(segment.path(TIME_INDEX)) * 2 // 3)
        except FileNotFoundError:
            return 0

    def _index(self, keys: KeyMap, last_batches: LastBatches) -> Iterator[Progress]:
        """The keys of the dirty part into the table, until it is full; the last batches of producers from all of the log."""
        indexing = Indexing(keys, self._dirt.first_dirty_offset, TransactionSieve(self._aborted))
        for segment in self._segments:
            dirty = segment.end_offset > self._dirt.first_dirty_offset
            for chunk, end, batches in self._chunks(segment):
                last_batches.note(batches)
                if dirty and not indexing.full:
                    self.account.bytes_indexed += end
                    indexing.take(chunk, batches)
                    while not indexing.advance(self._slice_bytes):
                        yield Progress(0)
                yield Progress(end)
            if dirty and not indexing.full:
                keys.latest_offset = segment.end_offset - 1  # over a gap that former passes left
        self.account.table_full = indexing.full

    def _clean(self, group: list[Segment], cleaning: Cleaning, transactions: TransactionSieve) -> Iterator[Progress]:
        """Write what stays of some segments into a new one."""
        account = self.account
        cleaning.changed = False
        cleaned = self._writing = CleanedSegment(self._disk, group[0], group[-1], self._config.index_interval_bytes)
        read_before, retained_before = cleaning.records_read, cleaning.records_retained
        for segment in group:
            left = segment.size
            for chunk, end, batches in self._chunks(segment):
                left -= end
                cleaning.take(chunk, batches, keep_last=left == 0 and segment is group[-1])
                while not cleaning.advance(self._slice_bytes):
                    yield Progress(0)
                written = cleaned.append(cleaning.parts, cleaning.kept)
                account.bytes_read += end
                account.bytes_written += written
                yield Progress(end + written)
        account.records_read += cleaning.records_read - read_before
        account.records_retained += cleaning.records_retained - retained_before
        account.keyless = cleaning.keyless
        if len(group) == 1 and not cleaning.changed:
            cleaned.remove()  # all of it stays as it was
            self._writing = None
            return
        cleaned.finish([AbortedTxn(*entry) for entry in transactions.kept])
        account.segments_after -= len(group) - 1
        yield Progress(0, Replacement(tuple(group), cleaned.segment))
        self._writing = None

    def _chunks(self, segment: Segment) -> Iterator[tuple[bytes, int, list[BatchInfo]]]:
        """The file of a segment in pieces, where the whole batches of a piece end, and these batches.

        By a handle of its own: the log's are the loop's.
        """
        if segment.size == 0:
            return
        file = self._disk.open(segment.path(LOG))
        try:
            position, size = 0, segment.size
            while position < size:
                chunk = file.read(position, min(self._limits.io_bytes, size - position))
                batches, end = scan_batches(chunk)
                if not batches:
                    chunk = _read_one_batch(file, position, size)
                    batches, end = scan_batches(chunk)
                if end == 0:
                    raise Uncleanable(f"no record batch at position {position} of {file.path}")
                yield chunk, end, batches
                position += end
        finally:
            file.close()


def _read_one_batch(file: File, position: int, size: int) -> bytes:
    """A batch larger than what is read at once."""
    head = file.read(position, min(LOG_OVERHEAD, size - position))
    batch_bytes = LOG_OVERHEAD + int.from_bytes(head[8:12], "big", signed=True)
    if len(head) < LOG_OVERHEAD or not LOG_OVERHEAD < batch_bytes <= size - position:
        raise Uncleanable(f"no record batch at position {position} of {file.path}")
    return file.read(position, batch_bytes)
