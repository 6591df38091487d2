"""Checks of files against what was written, and the exception that reports a breach.

Owns: `Violation`, and the readers of files and batches that the checks use. They share no code with the product: a mistake there
must not hide itself here.
Never: repairs or changes anything.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from crc32c import crc32c

from ottla.sim.kernel.disk import SimDisk
from ottla.sim.kernel.inode import Directory, Inode
from ottla.sim.models.history import Event, Kind, Outcome, Place, anomalies

if TYPE_CHECKING:
    from ottla.storage.log import Log

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_INDEX_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
HEADER_BYTES: Final = 61


class Violation(Exception):
    """A rule was broken. `rule` is its name in docs/simulator.md."""

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(f"{rule}: {detail}")
        self.rule = rule
        self.detail = detail


def require(holds: bool, rule: str, detail: str) -> None:
    if not holds:
        raise Violation(rule, detail)


# --- reading a log without the product


@dataclass(frozen=True, slots=True)
class FoundBatch:
    base_offset: int
    last_offset: int
    leader_epoch: int
    max_timestamp: int
    segment: int
    position: int
    data: bytes


def scan(data: bytes, segment: int = 0) -> tuple[list[FoundBatch], int]:
    """The whole, CRC-valid batches at the beginning of a `.log` file, and where they end."""
    found: list[FoundBatch] = []
    position = 0
    while position + HEADER_BYTES <= len(data):
        base, length, epoch, magic, crc, _, delta, _, max_timestamp, *_ = _HEADER.unpack_from(data, position)
        end = position + 12 + length
        if length < HEADER_BYTES - 12 or end > len(data) or magic != 2 or delta < 0:
            break
        if crc32c(data[position + 21 : end]) != crc:
            break
        found.append(FoundBatch(base, base + delta, epoch, max_timestamp, segment, position, data[position:end]))
        position = end
    return found, position


def segments(names: Iterable[str]) -> list[int]:
    """Base offsets of the segments among the names in a partition's directory."""
    return sorted(int(name[:20]) for name in names if len(name) == 24 and name.endswith(".log") and name[:20].isdecimal())


def entries_of(disk: SimDisk, directory: str) -> dict[str, Inode | Directory]:
    node = disk.find(directory)
    return node.entries if isinstance(node, Directory) else {}


def stored_batches(disk: SimDisk, directory: str, log_start: int = 0) -> list[FoundBatch]:
    """All batches of a partition as its files hold them; the files of a live or cleanly recovered log have no other bytes.

    Segments wholly below the log start are left out: nobody reads them, and they need not be whole.
    """
    found: list[FoundBatch] = []
    bases = segments(entries_of(disk, directory))
    for slot, base in enumerate(bases):
        if slot + 1 < len(bases) and bases[slot + 1] <= log_start:
            continue
        data = disk.contents(f"{directory}/{base:020d}.log")
        batches, end = scan(data, base)
        require(end == len(data), "no-torn-batch", f"{directory} segment {base}: {len(data) - end} bytes behind its last batch")
        found += batches
    return found


def check_order(batches: list[FoundBatch], directory: str, log_start: int, log_end: int) -> None:
    """Every offset from log start to log end is there once."""
    expected: int | None = None
    for batch in batches:
        require(
            batch.base_offset >= batch.segment, "offsets", f"{directory}: batch {batch.base_offset} in segment {batch.segment}"
        )
        if expected is None:
            require(
                batch.base_offset <= log_start,
                "offsets",
                f"{directory}: the log starts at {log_start} and its first batch at {batch.base_offset}",
            )
        else:
            require(batch.base_offset == expected, "offsets", f"{directory}: offset {batch.base_offset} follows {expected - 1}")
        expected = batch.last_offset + 1
    if batches:
        require(
            expected == log_end, "offsets", f"{directory}: the log end offset is {log_end}, its last batch ends at {expected}"
        )
    else:
        require(log_start == log_end, "offsets", f"{directory}: no batch, but the log is {log_start}..{log_end}")


def check_indexes(disk: SimDisk, directory: str, damaged: Container[str] = (), log_start: int = 0) -> None:
    """Every index entry agrees with a scan of its segment (L03)."""
    names = entries_of(disk, directory)
    bases = segments(names)
    for slot, base in enumerate(bases):
        if slot + 1 < len(bases) and bases[slot + 1] <= log_start:
            continue
        batches, _ = scan(disk.contents(f"{directory}/{base:020d}.log"), base)
        stem = f"{directory}/{base:020d}"
        if f"{base:020d}.index" in names and f"{stem}.index" not in damaged:
            _check_offset_index(disk.contents(f"{directory}/{base:020d}.index"), batches, directory, base)
        if f"{base:020d}.timeindex" in names and f"{stem}.timeindex" not in damaged:
            _check_time_index(disk.contents(f"{directory}/{base:020d}.timeindex"), batches, directory, base)


def _check_offset_index(data: bytes, batches: list[FoundBatch], directory: str, base: int) -> None:
    at = {batch.position: batch for batch in batches}
    previous = (-1, -1)
    require(len(data) % 8 == 0, "index-is-scan", f"{directory} {base}.index has {len(data)} bytes")
    for relative, position in _INDEX_ENTRY.iter_unpack(_without_zeros(data, 8)):
        batch = at.get(position)
        require(batch is not None, "index-is-scan", f"{directory} {base}.index points to {position}, where no batch begins")
        assert batch is not None
        require(
            batch.last_offset == base + relative,
            "index-is-scan",
            f"{directory} {base}.index says offset {base + relative} at {position}, it is {batch.last_offset}",
        )
        require(previous < (relative, position), "index-is-scan", f"{directory} {base}.index is not ascending")
        previous = (relative, position)


def _without_zeros(data: bytes, entry_bytes: int) -> bytes:
    """Zeros at the end of an index are allocated and unused: Kafka leaves them, and so does a crash."""
    end = len(data)
    while end and not any(data[end - entry_bytes : end]):
        end -= entry_bytes
    return data[:end]


def _check_time_index(data: bytes, batches: list[FoundBatch], directory: str, base: int) -> None:
    require(len(data) % 12 == 0, "index-is-scan", f"{directory} {base}.timeindex has {len(data)} bytes")
    last_offsets = [batch.last_offset for batch in batches]
    maxima: list[int] = []
    for batch in batches:
        maxima.append(max(batch.max_timestamp, maxima[-1] if maxima else -1))
    for timestamp, relative in _TIME_ENTRY.iter_unpack(_without_zeros(data, 12)):
        slot = bisect_right(last_offsets, base + relative) - 1
        require(
            slot >= 0 and last_offsets[slot] == base + relative and maxima[slot] == timestamp,
            "index-is-scan",
            f"{directory} {base}.timeindex says {timestamp} by offset {base + relative}, the scan says "
            f"{maxima[slot] if slot >= 0 else 'nothing'}",
        )


# --- what survives every crash


def guaranteed_bytes(inode: Inode) -> bytes:
    """How many bytes at the beginning of a file every crash leaves."""
    end = len(inode.data)
    for change in inode.unflushed:
        end = min(end, change.position, change.old_size, change.new_size)
    for position, _ in inode.doomed:
        end = min(end, position)
    return bytes(inode.data[:end])


def guaranteed_node(disk: SimDisk, path: str) -> Directory | None:
    node: Inode | Directory | None = disk.root
    for name in path.split("/"):
        if name:
            certain = isinstance(node, Directory) and node.durable.get(name) is node.entries.get(name)
            node = node.durable.get(name) if certain and isinstance(node, Directory) else None
    return node if isinstance(node, Directory) else None


def guaranteed_end(disk: SimDisk, directory: str, log_start: int, *, start_is_durable: bool = False) -> int:
    """The offset up to which a log survives a crash at this moment, by what was flushed.

    If the log start is durable, what is below does not matter. Otherwise it may come back torn, and end the log there.
    """
    node = guaranteed_node(disk, directory)
    if node is None:
        return log_start
    # A segment whose creation is not durable ends the certain part. One whose removal is not durable does not: if it comes back,
    # it is whole.
    present = sorted(set(segments(node.entries)) | set(segments(node.durable)))
    if start_is_durable:
        present = present[max(0, bisect_right(present, log_start) - 1) :]
    end: int | None = None
    for base in present:
        name = f"{base:020d}.log"
        inode = node.durable.get(name)
        if not isinstance(inode, Inode) or node.entries.get(name, inode) is not inode or end not in (None, base):
            break
        batches, whole = scan(guaranteed_bytes(inode), base)
        end = batches[-1].last_offset + 1 if batches else base
        if whole < len(inode.data) or inode.unflushed:
            break
    return log_start if end is None else max(log_start, end)


# --- one partition, as it ought to be


@dataclass(frozen=True, slots=True)
class Written:
    """A batch that was given to a log."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    timestamps: tuple[int, ...]
    data: bytes


@dataclass(slots=True)
class LogModel:
    """What one log must hold. Batches below the log start stay known: a crash may bring them back, unaltered."""

    name: str
    batches: list[Written] = field(default_factory=list)
    log_start: int = 0
    log_end: int = 0

    def add(self, batch: Written) -> None:
        require(
            batch.base_offset == self.log_end,
            "offsets",
            f"{self.name}: appended at {batch.base_offset}, the log end was {self.log_end}",
        )
        self.batches.append(batch)
        self.log_end = batch.last_offset + 1

    def cut(self, log_end: int) -> list[Written]:
        """Truncate to an offset. Returns the removed batches."""
        keep = len(self.batches)
        while keep and self.batches[keep - 1].last_offset >= log_end:
            keep -= 1
        gone = self.batches[keep:]
        del self.batches[keep:]
        self.log_end = log_end
        return gone

    def slot(self, offset: int) -> int:
        """Index of the batch that holds an offset."""
        return bisect_right(self.batches, offset, key=lambda batch: batch.base_offset) - 1

    def visible(self) -> list[Written]:
        """Batches with an offset at or above the log start."""
        first = max(0, self.slot(self.log_start))
        return [batch for batch in self.batches[first:] if batch.last_offset >= self.log_start]

    def first_at_or_after(self, timestamp: int) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record at or after a time: what a lookup must answer (W06)."""
        for batch in self.visible():
            for delta, found in enumerate(batch.timestamps):
                if found >= timestamp and batch.base_offset + delta >= self.log_start:
                    return found, batch.base_offset + delta
        return None

    def max_timestamp(self) -> tuple[int, int] | None:
        best: tuple[int, int] | None = None
        for batch in self.visible():
            for delta, found in enumerate(batch.timestamps):
                if best is None or found > best[0]:
                    best = found, batch.base_offset + delta
        return best


def check_contents(disk: SimDisk, directory: str, model: LogModel) -> None:
    """The files hold exactly what was written, from log start to log end (L01, L02)."""
    found = [batch for batch in stored_batches(disk, directory, model.log_start) if batch.last_offset >= model.log_start]
    check_order(found, directory, model.log_start, model.log_end)
    for batch in found:
        check_batch(model, batch.base_offset, batch.data)


def check_batch(model: LogModel, base_offset: int, data: bytes) -> None:
    slot = model.slot(base_offset)
    known = model.batches[slot] if slot >= 0 else None
    require(
        known is not None and known.base_offset == base_offset,
        "content",
        f"{model.name}: a batch at {base_offset} that nobody wrote there",
    )
    assert known is not None
    require(known.data == data, "content", f"{model.name}: the batch at {base_offset} is not what was written")


# --- producers and transactions


def check_history(events: Iterable[Event]) -> None:
    """The history of the clients has no anomaly: lost writes, duplicates, aborted reads, torn transactions."""
    for anomaly in anomalies(events):
        raise Violation(str(anomaly.kind), anomaly.detail)


def check_producers(disk: SimDisk, log: Log) -> None:
    """Producer state agrees with the records: epochs, sequences, open and aborted transactions (L05)."""
    epochs: dict[int, int] = {}
    sequences: dict[int, int] = {}
    open_since: dict[int, int] = {}
    aborted: list[tuple[int, int, int]] = []
    for batch in stored_batches(disk, log.dir, log.log_start_offset):
        fields = _HEADER.unpack_from(batch.data)
        attributes, producer_id, epoch, sequence = fields[5], fields[9], fields[10], fields[11]
        if producer_id < 0 or batch.last_offset < log.log_start_offset:
            continue
        if epochs.get(producer_id) != epoch:
            epochs[producer_id] = epoch
            sequences.pop(producer_id, None)
        if attributes & 0x20:
            # A control batch has one record; version and type are the last four bytes of its key.
            is_abort = batch.data[HEADER_BYTES + 8] == 0
            first = open_since.pop(producer_id, None)
            if is_abort and first is not None:
                aborted.append((producer_id, first, batch.base_offset))
        else:
            sequences[producer_id] = (sequence + batch.last_offset - batch.base_offset) & 0x7FFFFFFF if sequence >= 0 else -1
            if attributes & 0x10:
                open_since.setdefault(producer_id, batch.base_offset)
    for producer in log.producers:
        number = producer.producer_id
        if number not in epochs and log.log_start_offset > 0:
            continue  # whose records are gone is remembered for a while
        said = (producer.epoch, producer.last_sequence, producer.txn_first_offset)
        expected = (epochs.get(number, -1), sequences.get(number, -1), open_since.get(number, -1))
        require(
            said == expected,
            "producers",
            f"{log.dir}: producer {number} has {said} (epoch, sequence, open), the records say {expected}",
        )
    known = {producer.producer_id for producer in log.producers}
    for number in epochs:
        require(number in known, "producers", f"{log.dir}: producer {number} is forgotten")
    listed = [(each.producer_id, each.first_offset, each.last_offset) for each in log.aborted(0, 1 << 60)]
    require(listed == aborted, "aborted-list", f"{log.dir}: the records say that {aborted} are aborted, the index lists {listed}")


class _SentRecord(Protocol):
    """`play.SendNote`, as far as it matters here."""

    place: Place
    value: bytes
    key: bytes | None
    outcome: Outcome
    offset: int | None
    transaction: str | None


def check_table(
    place: Place, sends: Iterable[_SentRecord], ends: Mapping[str, Outcome], visible: Iterable[tuple[int, bytes]]
) -> None:
    """A compacted partition as `read_committed` readers see it: for each key nothing older than the last committed record, and
    nothing that was not committed (L07, L09)."""
    sent = {each.value: each for each in sends if each.place == place}
    newest: dict[bytes | None, int] = {}
    for each in sent.values():
        outcome = each.outcome if each.transaction is None else ends.get(each.transaction, Outcome.FAILED)
        if each.outcome is Outcome.OK and outcome is Outcome.OK and each.offset is not None:
            newest[each.key] = max(newest.get(each.key, -1), each.offset)
    found: dict[bytes | None, int] = {}
    for offset, value in visible:
        note = sent.get(value)
        if note is None:
            raise Violation("content", f"{place[0]}-{place[1]}: {value!r} at {offset} was never sent")
        aborted = note.transaction is not None and ends.get(note.transaction, Outcome.FAILED) is Outcome.FAILED
        require(
            not aborted,
            str(Kind.ABORTED),
            f"{place[0]}-{place[1]}: {value!r} at {offset} is of {note.transaction}, which was not committed",
        )
        found[note.key] = offset
    for key, offset in newest.items():
        require(
            found.get(key, -1) >= offset,
            "compaction",
            f"{place[0]}-{place[1]}: {key!r} was last committed at {offset}, the newest record is at {found.get(key)}",
        )


def checkpoint_entries(disk: SimDisk, path: str) -> dict[tuple[str, int], int]:
    """The entries of a checkpoint file, which must be whole (L11)."""
    if disk.find(path) is None:
        return {}
    text = disk.contents(path).decode(errors="replace")
    lines = text.split("\n")
    whole = len(lines) >= 3 and lines[0] == "0" and lines[1].isdecimal() and lines[-1] == "" and len(lines) == int(lines[1]) + 3
    require(whole, "checkpoint-whole", f"{path} is not a whole checkpoint: {text!r}")
    entries = {}
    for line in lines[2:-1]:
        topic, partition, offset = line.split(" ")
        entries[topic, int(partition)] = int(offset)
    return entries
