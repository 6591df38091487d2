"""What clients know of a partition, and what must therefore hold of it.

Owns: every batch that was sent, its outcome as far as it is known, and the offsets seen so far.
Never: looks into the broker.

1. A batch is stored once, or not at all; its content never changes.
2. Acknowledged means stored: at the offset of the answer, until retention, a deletion, or a crash before its flush.
3. What a crash took does not come back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ottla.sim.kernel.disk import SimDisk
from ottla.sim.models.log_files import FoundBatch, scan, stored_batches
from ottla.sim.models.log_model import check_order
from ottla.sim.violation import Violation, require

_CONTENT_AT: Final = 17
"""The batch from the CRC on, which the broker does not change."""


@dataclass(slots=True)
class Sent:
    content: bytes
    count: int
    timestamps: tuple[int, ...]
    offset: int | None = None
    """Its offset, once it is known from an answer or from the log."""
    acknowledged: bool = False
    lost: bool = False
    """A crash took it."""


@dataclass(slots=True)
class PartitionModel:
    name: str
    topic_id: bytes
    sent: dict[bytes, Sent] = field(default_factory=dict)
    at: dict[int, Sent] = field(default_factory=dict)
    directory: str = ""
    guaranteed: int = 0
    """At the last death: everything below was flushed."""
    flushed_below: int = 0
    """The highest recovery point the broker ever had for it: no crash may take what is below."""
    died_with: tuple[int, int] = (0, 0)
    """Log start and log end when the broker ended."""
    high_watermark_seen: int = 0
    log_start_seen: int = 0
    deleted_below: int = 0
    """Log start by acknowledged DeleteRecords requests."""
    fetched: list[int] = field(default_factory=list)
    """Base offsets of the batches that were fetched last, in order."""

    @property
    def is_compacted(self) -> bool:
        return False

    def send(self, batch: bytes, timestamps: tuple[int, ...]) -> Sent:
        content = bytes(batch[_CONTENT_AT:])
        sent = Sent(content, len(timestamps), timestamps)
        assert content not in self.sent, "batches must be told apart by their content"
        self.sent[content] = sent
        return sent

    def acknowledge(self, sent: Sent, offset: int) -> None:
        self._found_at(sent, offset)
        sent.acknowledged = True

    def observe(self, batch: FoundBatch) -> Sent:
        """A batch was read, by a consumer or from the file."""
        sent = self.sent.get(batch.data[_CONTENT_AT:])
        if sent is None:
            raise Violation("content", f"{self.name}: the batch at {batch.base_offset} was never sent")
        require(
            batch.last_offset - batch.base_offset + 1 == sent.count,
            "content",
            f"{self.name}: the batch at {batch.base_offset} has another number of records than was sent",
        )
        self._found_at(sent, batch.base_offset)
        return sent

    def _found_at(self, sent: Sent, offset: int) -> None:
        require(not sent.lost, "came-back", f"{self.name}: the batch at {offset} had been lost in a crash")
        require(sent.offset in (None, offset), "offsets", f"{self.name}: one batch at {sent.offset} and again at {offset}")
        known = self.at.setdefault(offset, sent)
        require(known is sent, "content", f"{self.name}: offset {offset} was given to two batches")
        sent.offset = offset

    def check_stored(self, disk: SimDisk, log_start: int, log_end: int) -> list[FoundBatch]:
        """The files hold, without gaps and duplicates, batches that were sent, each at its known offset."""
        found = [batch for batch in stored_batches(disk, self.directory, log_start) if batch.last_offset >= log_start]
        check_order(found, self.directory, log_start, log_end)
        bases = set()
        for batch in found:
            self.observe(batch)
            bases.add(batch.base_offset)
        for offset, sent in self.at.items():
            if offset + sent.count > log_start and offset not in bases:
                raise Violation("acknowledged", f"{self.name}: the batch at {offset} is not in the log ({log_start}..{log_end})")
        return found

    def forget_lost(self, log_end: int) -> None:
        """A crash took everything from here on. The caller has checked that it was not flushed."""
        for offset in [offset for offset, sent in self.at.items() if offset + sent.count > log_end]:
            sent = self.at.pop(offset)
            sent.lost = True

    def first_at_or_after(self, found: list[FoundBatch], log_start: int, timestamp: int) -> tuple[int, int] | None:
        for batch in found:
            sent = self.sent[batch.data[_CONTENT_AT:]]
            for delta, time in enumerate(sent.timestamps):
                if time >= timestamp and batch.base_offset + delta >= log_start:
                    return time, batch.base_offset + delta
        return None


def batch_in_files(disk: SimDisk, directory: str, offset: int, bases: list[int]) -> bytes | None:
    """The bytes of the batch that begins at an offset, if the files have one."""
    below = [base for base in bases if base <= offset]
    if not below:
        return None
    for batch in scan(disk.contents(f"{directory}/{below[-1]:020d}.log"), below[-1])[0]:
        if batch.base_offset == offset:
            return batch.data
    return None
