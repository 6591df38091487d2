"""Checks of producer state, compacted partitions and histories against the records."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from ottla.sim.kernel.disk import SimDisk
from ottla.sim.models.history import Event, Kind, Outcome, Place, anomalies
from ottla.sim.models.log_files import stored_batches
from ottla.sim.violation import Violation, require

if TYPE_CHECKING:
    from ottla.storage.log import Log

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = 61


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
