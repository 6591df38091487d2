"""What clients know of a compacted partition, and what must therefore hold of it.

1. A record keeps its offset and its content while it exists.
2. Only records that a later one in a sealed segment replaced are removed, and tombstones after `delete.retention.ms`. The last
   record of each key is there.
3. A crash may bring back what compaction took; it may not take the last record of a key that was flushed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ottla.records.batch import read_batch_header
from ottla.records.record import Record, read_records
from ottla.sim.kernel.disk import SimDisk
from ottla.sim.kernel.inode import Inode
from ottla.sim.models.log_files import FoundBatch, entries_of, guaranteed_bytes, guaranteed_node, scan, segments, stored_batches
from ottla.sim.models.partition_model import PartitionModel, Sent
from ottla.sim.violation import Violation, require

KeyedRecord = tuple[bytes, bytes | None, int]
"""Key, value, timestamp. The number of the record is in a header."""


def number_of(record: Record) -> int:
    return int(dict(record.headers)["n"] or b"-1")


def records_of(batch: FoundBatch) -> list[Record]:
    return read_records(batch.data, read_batch_header(batch.data, 0))


@dataclass(slots=True)
class KeyedModel(PartitionModel):
    now_s: Callable[[], float] = lambda: 0.0
    config: dict[str, str] = field(default_factory=dict)
    by_number: dict[int, tuple[Sent, int]] = field(default_factory=dict)
    """By number: the batch of a record, and its index in it."""
    content: dict[int, KeyedRecord] = field(default_factory=dict)
    sent_s: dict[int, float] = field(default_factory=dict)
    numbers: dict[int, int] = field(default_factory=dict)
    """By offset: the number of the record, where it is known."""
    could_be_sealed_below: int = 0
    """Records below this offset may have been in a sealed segment, whatever the files say now."""
    durable: set[int] = field(default_factory=set)
    """At the last death: offsets of records that survive every crash."""
    gone_most: int = 0
    """How many records compaction removed at most."""

    @property
    def is_compacted(self) -> bool:
        return True

    def send_keyed(self, batch: bytes, records: list[tuple[int, KeyedRecord]]) -> Sent:
        sent = PartitionModel.send(self, batch, tuple(record[2] for _, record in records))
        for index, (number, record) in enumerate(records):
            self.by_number[number] = (sent, index)
            self.content[number] = record
            self.sent_s[number] = self.now_s()
        return sent

    def _found_at(self, sent: Sent, offset: int) -> None:
        PartitionModel._found_at(self, sent, offset)
        if offset not in self.numbers:
            for number, (known, index) in self.by_number.items():
                if known is sent:
                    self.numbers[offset + index] = number

    def observe(self, batch: FoundBatch) -> Sent:
        sent: Sent | None = None
        for record in records_of(batch):
            number = number_of(record)
            if number not in self.by_number:
                raise Violation("content", f"{self.name}: the record at {record.offset} was never sent")
            sent, index = self.by_number[number]
            require(
                (record.key, record.value, record.timestamp) == self.content[number],
                "content",
                f"{self.name}: the record at {record.offset} is not what was sent",
            )
            self._found_at(sent, record.offset - index)
        return sent or Sent(b"", 0, ())

    def forget_lost(self, log_end: int) -> None:
        PartitionModel.forget_lost(self, log_end)
        self.numbers = {offset: number for offset, number in self.numbers.items() if offset < log_end}
        self.could_be_sealed_below = log_end

    def note_durable(self, disk: SimDisk) -> None:
        self.durable = set()
        node = guaranteed_node(disk, self.directory)
        for base in segments(node.entries) if node is not None else ():
            assert node is not None
            name = f"{base:020d}.log"
            inode = node.entries[name]
            if not isinstance(inode, Inode) or node.durable.get(name) is not inode:
                return
            batches, whole = scan(guaranteed_bytes(inode), base)
            for batch in batches:
                self.durable.update(record.offset for record in records_of(batch))
            if whole < len(inode.data) or inode.unflushed:
                return  # what is behind a truncated segment is removed too

    def forget_unflushed(self, disk: SimDisk, log_start: int) -> None:
        """After a crash: what was not flushed and is not there is lost, also in the middle, where a gap looks like compaction."""
        present: set[int] = set()
        for batch in stored_batches(disk, self.directory, log_start):
            present.update(record.offset for record in records_of(batch))
        for base in list(self.at):
            offsets = range(base, base + self.at[base].count)
            if not any(offset in present or offset in self.durable or offset < self.flushed_below for offset in offsets):
                del self.at[base]
                for offset in offsets:
                    self.numbers.pop(offset, None)

    def check_stored(self, disk: SimDisk, log_start: int, log_end: int) -> list[FoundBatch]:
        found = [batch for batch in stored_batches(disk, self.directory, log_start) if batch.last_offset >= log_start]
        expected = 0
        present: set[int] = set()
        for batch in found:
            require(
                batch.segment <= batch.base_offset and expected <= batch.base_offset,
                "offsets",
                f"{self.directory}: offset {batch.base_offset} follows {expected - 1} in segment {batch.segment}",
            )
            expected = batch.last_offset + 1
            self.observe(batch)
            present.update(record.offset for record in records_of(batch))
        require(
            expected <= log_end,
            "offsets",
            f"{self.directory}: the log end offset is {log_end}, its last batch ends at {expected}",
        )
        active = max(segments(entries_of(disk, self.directory)), default=0)
        self._check_gone(present, log_start, log_end, max(active, self.could_be_sealed_below))
        return found

    def _check_gone(self, present: set[int], log_start: int, log_end: int, sealed_below: int) -> None:
        retention_s = int(self.config.get("delete.retention.ms", "86400000")) / 1000
        places: dict[bytes, list[int]] = {}
        for offset, number in self.numbers.items():
            places.setdefault(self.content[number][0], []).append(offset)
        # A batch that was never answered may have been written, have replaced others, and be gone.
        unknown = {
            self.content[number][0]
            for number, (sent, _) in self.by_number.items()
            if sent.offset is None and self.content[number][1] is None and self.now_s() - self.sent_s[number] >= retention_s
        }
        gone = 0
        for key, offsets in places.items():
            for offset in offsets:
                if offset in present or not log_start <= offset < log_end:
                    continue
                gone += 1
                if any(offset < other < sealed_below for other in offsets) or key in unknown:
                    continue
                number = self.numbers[offset]
                is_old_tombstone = self.content[number][1] is None and self.now_s() - self.sent_s[number] >= retention_s
                require(
                    is_old_tombstone,
                    "compaction",
                    f"{self.name}: {key!r} at {offset} is gone, and nothing sealed replaced it ({log_start}..{log_end}, known at "
                    f"{sorted(offsets)}, sealed below {sealed_below})",
                )
        self.gone_most = max(self.gone_most, gone)

    def moved(self, log_end: int) -> None:
        """The replica was moved: it has other files and segments."""
        self.could_be_sealed_below = log_end

    def first_at_or_after(self, found: list[FoundBatch], log_start: int, timestamp: int) -> tuple[int, int] | None:
        for batch in found:
            for record in records_of(batch):
                if record.timestamp >= timestamp and record.offset >= log_start:
                    return record.timestamp, record.offset
        return None
