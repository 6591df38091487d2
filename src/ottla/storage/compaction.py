"""Compaction of one log: keeps the newest record of each key, at its offset (F13, L07).

One pass puts the keys of the dirty part into a table of bounded size, and then rewrites every segment up to the end of what was
indexed, without the records that a later one replaces. Small neighbouring segments are merged. A worker runs the pass in slices
(`advance`); replaced segments are swapped on the event loop (`swap`).

1. Before `swap` the log is unchanged: a pass may be abandoned at any moment, and leaves at most `.cleaned` files, which the next
   start removes.
2. A replacement is flushed before `swap`, and renamed in an order that recovery can complete (L04).
3. The checkpoint advances when all replacements are in place and their names durable.
4. Memory: the table, one chunk of a file, one decompressed batch.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

from ottla.errors import MalformedInput
from ottla.ports import Disk, File
from ottla.records.batch import LOG_OVERHEAD, BatchInfo, scan_batches
from ottla.records.clean_batches import Cleaning, Indexing, LastBatches, Uncleanable
from ottla.records.clean_transactions import TransactionSieve
from ottla.records.key_map import SLOT_BYTES, SLOTS_MIN, KeyMap
from ottla.storage.compaction_plan import LogToClean, group_segments
from ottla.storage.names import CLEANED, LOG, OFFSET_INDEX, SEGMENT_SUFFIXES, TIME_INDEX, TXN_INDEX
from ottla.storage.scan import IndexBuilder
from ottla.storage.segment import Segment
from ottla.storage.txn_index import AbortedTxn, TxnIndex
from ottla.types import NO_TIMESTAMP, Buffer

DAY_MS = 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class Limits:
    """Resource limits of a pass."""

    dedupe_bytes: int = 128 << 20
    dedupe_load_factor: float = 0.9
    io_bytes: int = 256 << 10
    """Bytes to read at once; a larger batch is read whole."""
    producer_expiration_ms: int = DAY_MS


@dataclass(slots=True)
class Account:
    """Statistics of a pass, for the log and the metrics."""

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


class CleanedSegment:
    """The segment that a pass writes. Its files are named `.cleaned` until they are complete."""

    def __init__(self, disk: Disk, first: Segment, last: Segment, index_interval_bytes: int) -> None:
        """Replaces the segments from `first` to `last`."""
        self._disk = disk
        self.segment = first.replacement(created_ms=last.created_ms)
        self.segment.index_interval_bytes = index_interval_bytes
        self._built = IndexBuilder(first.base_offset, index_interval_bytes)
        self._file = disk.open(self.segment.path(LOG) + CLEANED, create=True)
        self._file.truncate(0)

    def append(self, parts: Sequence[Buffer], batches: Sequence[BatchInfo]) -> int:
        """Append batches, whose bytes are `parts`. Returns the number of bytes."""
        if not batches:
            return 0
        segment, built = self.segment, self._built
        before = segment.size
        self._file.write(before, parts)
        for info in batches:
            built.add(info.size, info.last_offset, info.max_timestamp if info.record_count else NO_TIMESTAMP)
        segment.size = built.position
        return segment.size - before

    def finish(self, aborted: Sequence[AbortedTxn] = ()) -> None:
        """Write the indexes and flush all files. `aborted`: the transactions whose abort markers are in the segment."""
        built = self._built
        built.time_index.append(built.max_timestamp, built.offset_of_max)
        files = [(OFFSET_INDEX, built.index.pending_bytes()), (TIME_INDEX, built.time_index.pending_bytes())]
        if aborted:
            files.append((TXN_INDEX, TxnIndex(aborted).to_bytes()))
        for suffix, data in files:
            file = self._disk.open(self.segment.path(suffix) + CLEANED, create=True)
            try:
                file.truncate(0)
                file.write(0, [data])
                file.flush()
            finally:
                file.close()
        self._file.flush()
        self._file.close()

    def remove(self) -> None:
        """Remove the files. They may be gone with the directory of a deleted log."""
        self._file.close()
        for suffix in SEGMENT_SUFFIXES:
            try:
                self._disk.remove(self.segment.path(suffix) + CLEANED)
            except FileNotFoundError:
                continue


@dataclass(frozen=True, slots=True)
class Replacement:
    """A cleaned segment, flushed, and the segments it replaces."""

    former: tuple[Segment, ...]
    cleaned: Segment


@dataclass(frozen=True, slots=True)
class Progress:
    io_bytes: int
    """Bytes read and written since the last step."""
    replacement: Replacement | None = None
    """To be swapped in before the pass continues."""
    done: bool = False


class Abandoned(Exception):
    """The log changed so that the pass is void: it was truncated, deleted, or lost segments to retention."""


class Compaction:
    """One pass. Create it on the loop, run `advance` repeatedly in a worker, and `swap` its replacements on the loop."""

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
        """Aborted transactions with records in the segments to clean."""
        self._awaited = set(self._segments)
        """Segments that the pass has not replaced yet."""
        self._writing: CleanedSegment | None = None
        self.cleaned_offset = dirt.first_dirty_offset
        """The first dirty offset after the pass."""
        self.account = Account(segments_before=len(self._segments))
        self._slice_bytes = 1 << 17
        self._steps = self._run()

    # --- steps

    def advance(self, slice_bytes: int) -> Progress:
        """Process about so many bytes of records. OSError if the disk fails, Uncleanable if the log is corrupt."""
        self._slice_bytes = slice_bytes
        try:
            return next(self._steps)
        except StopIteration:
            return Progress(0, done=True)
        except MalformedInput as error:
            raise Uncleanable(str(error)) from error

    def check(self) -> None:
        """On the loop: raise Abandoned if the log has changed so that the pass is void."""
        log = self.log
        if log.closed or log.truncations != self._truncations:
            raise Abandoned(f"{log.topic_partition} was truncated or deleted")
        if not log.config.compacted:
            raise Abandoned(f"cleanup.policy of {log.topic_partition} is no longer compact")
        if not self._awaited.issubset(log.segments):
            raise Abandoned(f"retention deleted segments of {log.topic_partition}")

    def swap(self, replacement: Replacement) -> None:
        """On the loop: replace segments of the log with the cleaned one."""
        self.check()
        self._awaited.difference_update(replacement.former)
        self.log.replace_segments(replacement.former, replacement.cleaned)

    def abandon(self) -> None:
        """End the pass and remove incomplete files."""
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
        """A table that may grow to `dedupe_bytes` and be filled up to the load factor."""
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
        """Put the keys of the dirty part into the table until it is full, and find the last batches of all producers."""
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
                keys.latest_offset = segment.end_offset - 1  # over a gap that earlier passes left
        self.account.table_full = indexing.full

    def _clean(self, group: list[Segment], cleaning: Cleaning, transactions: TransactionSieve) -> Iterator[Progress]:
        """Write the retained records of some segments into a new one."""
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
            cleaned.remove()  # nothing to remove
            self._writing = None
            return
        cleaned.finish([AbortedTxn(*entry) for entry in transactions.kept])
        account.segments_after -= len(group) - 1
        yield Progress(0, Replacement(tuple(group), cleaned.segment))
        self._writing = None

    def _chunks(self, segment: Segment) -> Iterator[tuple[bytes, int, list[BatchInfo]]]:
        """Chunks of a segment's file: the bytes, the end of the whole batches in them, and these batches.

        Opens the file itself: the segment's descriptor belongs to the loop.
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
    """A batch larger than `io_bytes`."""
    head = file.read(position, min(LOG_OVERHEAD, size - position))
    batch_bytes = LOG_OVERHEAD + int.from_bytes(head[8:12], "big", signed=True)
    if len(head) < LOG_OVERHEAD or not LOG_OVERHEAD < batch_bytes <= size - position:
        raise Uncleanable(f"no record batch at position {position} of {file.path}")
    return file.read(position, batch_bytes)
