"""What differs between the batches of two replicas. Pure.

Replicas hold the same batches, byte for byte except for the leader epoch, which the CRC does not cover. Compaction runs on each
replica by itself and at its own time, so in a compacted topic only batches that no replica has cleaned are comparable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ottla.records.batch import batch_crc_ok, scan_batches
from ottla.types import Buffer


@dataclass(frozen=True, slots=True)
class Batch:
    base_offset: int
    last_offset: int
    crc: int
    """As its header says."""
    is_intact: bool
    """Whether its content has this CRC."""
    is_original: bool
    """Whether it still is what the producer sent: compaction has removed nothing and noted no time of removal."""

    @property
    def offsets(self) -> str:
        return (
            f"offsets {self.base_offset} to {self.last_offset}"
            if self.last_offset > self.base_offset
            else f"offset {self.base_offset}"
        )


@dataclass(frozen=True, slots=True)
class Difference:
    offset: int
    replica: int
    what: str


def batches_of(records: Buffer) -> list[Batch]:
    """The complete batches. MalformedInput for a format before v2, or bytes that are no batch."""
    found, _ = scan_batches(records)
    return [
        Batch(
            each.base_offset,
            each.last_offset,
            each.crc,
            batch_crc_ok(records, each),
            each.record_count == each.last_offset_delta + 1 and not each.has_delete_horizon,
        )
        for each in found
    ]


def differences(
    leader: int, reference: Sequence[Batch], replica: int, batches: Sequence[Batch], end_offset: int, *, compacted: bool
) -> list[Difference]:
    """What of `batches`, from `replica`, is not as in `reference`, from `leader`, before `end_offset`."""
    expected = {each.base_offset: each for each in reference if each.last_offset < end_offset}
    present = {each.base_offset: each for each in batches if each.last_offset < end_offset}
    found: list[Difference] = []
    for offset in sorted(expected.keys() | present.keys()):
        ours, theirs = expected.get(offset), present.get(offset)
        if theirs is not None and not theirs.is_intact:
            found.append(Difference(offset, replica, f"{theirs.offsets}: the content does not have the CRC of the batch"))
        elif ours is None or theirs is None:
            if compacted:
                continue
            only = ours or theirs
            assert only is not None
            has, lacks = (leader, replica) if theirs is None else (replica, leader)
            found.append(Difference(offset, replica, f"{only.offsets}: replica {has} has this batch, replica {lacks} has not"))
        elif compacted and not (ours.is_original and theirs.is_original):
            continue
        elif ours.last_offset != theirs.last_offset:
            found.append(
                Difference(offset, replica, f"the batch ends at {theirs.last_offset}, in replica {leader} at {ours.last_offset}")
            )
        elif ours.crc != theirs.crc:
            found.append(
                Difference(offset, replica, f"{theirs.offsets}: CRC {theirs.crc:08x}, in replica {leader} {ours.crc:08x}")
            )
    return found


def damaged(replica: int, batches: Sequence[Batch]) -> list[Difference]:
    """The batches whose content does not have their CRC."""
    what = "the content does not have the CRC of the batch"
    return [Difference(each.base_offset, replica, f"{each.offsets}: {what}") for each in batches if not each.is_intact]
