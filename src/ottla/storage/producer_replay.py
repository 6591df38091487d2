"""Rebuilds the producer state and the index of aborted transactions from the log.

The state is that of the newest valid snapshot plus the headers of all batches behind it (L05, I05).

A snapshot has only the last batch of each producer. The four before it are searched in the last megabyte of the log: a producer
with five batches in flight sends all of them again after a restart. (Kafka knows only one of them then.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ottla.errors import KafkaError, MalformedInput
from ottla.records.batch import BATCHES_KEPT, BatchInfo, read_batch_header, scan_batches
from ottla.records.control import ABORT, COMMIT, control_type, coordinator_epoch_of
from ottla.records.record import read_records
from ottla.storage.config import INT64_MAX
from ottla.storage.producer_state import ProducerStates, written
from ottla.storage.scan import scan_file
from ottla.storage.segment import Segment
from ottla.storage.snapshot import Snapshots
from ottla.storage.txn_index import AbortedTxn

RECALL_BYTES: Final = 1 << 20


def feed(states: ProducerStates, info: BatchInfo, read: Callable[[], bytes]) -> AbortedTxn | None:
    """Replay a batch with a producer id. `read` returns its bytes, if it is a marker. Returns a transaction it aborts."""
    if not info.is_control:
        states.wrote(info)
        return None
    if info.record_count == 0:
        return None  # emptied by compaction: the transaction has no records left
    data = read()
    try:
        record = read_records(data, read_batch_header(data, 0))[0]
        kind = control_type(record)
        if kind not in (ABORT, COMMIT):
            return None
        coordinator_epoch = coordinator_epoch_of(record)
    except MalformedInput:
        return None  # corrupt: the transaction stays open, as if the marker were lost
    return feed_marker(states, info, kind == COMMIT, coordinator_epoch)


def feed_marker(states: ProducerStates, info: BatchInfo, commit: bool, coordinator_epoch: int) -> AbortedTxn | None:
    """Replay a marker whose content is known."""
    completed = states.wrote_marker(
        info.producer_id, info.producer_epoch, coordinator_epoch, info.base_offset, info.max_timestamp, aborted=not commit
    )
    if completed is None or not completed.aborted:
        return None
    return AbortedTxn(completed.producer_id, completed.first_offset, completed.last_offset, completed.last_stable_offset)


def replay(states: ProducerStates, segment: Segment, start_offset: int, end_offset: int) -> list[AbortedTxn]:
    """Replay the batches of a segment between two offsets. Returns the transactions aborted in it."""
    aborted: list[AbortedTxn] = []
    file = segment.file

    def note(info: BatchInfo) -> None:
        if info.producer_id >= 0 and start_offset <= info.last_offset < end_offset:
            entry = feed(states, info, lambda: file.read(info.position, info.size))
            if entry is not None:
                aborted.append(entry)

    if segment.size:
        scan_file(file, segment.size, segment.base_offset, INT64_MAX, False, note)
    return aborted


def rebuild(
    states: ProducerStates, snapshots: Snapshots, segments: Sequence[Segment], log_start_offset: int, end_offset: int
) -> None:
    """Set `states` to the producer state at `end_offset`."""
    found = snapshots.load(end_offset)
    if found is None:
        start_offset = log_start_offset
        states.clear()
    else:
        start_offset, producers = found
        states.restore(producers)
        _recall(states, segments, start_offset)
    for segment in segments:
        if segment.end_offset > start_offset and segment.base_offset < end_offset:
            replay(states, segment, max(start_offset, log_start_offset), end_offset)


def _recall(states: ProducerStates, segments: Sequence[Segment], offset: int) -> None:
    """Find earlier batches of the producers of a snapshot, in the log before it."""
    lacking = {producer.producer_id for producer in states if 0 < len(producer.batches) < BATCHES_KEPT}
    left = RECALL_BYTES
    for segment in reversed(segments):
        if left <= 0 or not lacking:
            break
        if segment.base_offset >= offset or not segment.size:
            continue
        try:
            end = segment.size if segment.end_offset <= offset else segment.find(offset)
            start = segment.index.around_position(max(end - left, 0))[0]
            batches, _ = scan_batches(segment.file.read(start, min(end - start, 2 * RECALL_BYTES)))
        except (KafkaError, MalformedInput):
            break  # corrupt: a read of that place reports it
        left -= end - start
        for info in reversed(batches):
            producer = states.get(info.producer_id) if info.producer_id in lacking and not info.is_control else None
            if producer is not None and info.base_offset < offset and not producer.recall(info.producer_epoch, written(info)):
                lacking.discard(info.producer_id)


def mend_txn_index(
    segment: Segment, states: ProducerStates, snapshots: Snapshots, segments: Sequence[Segment], log_start_offset: int
) -> None:
    """Rebuild the .txnindex of a segment. `states` is overwritten."""
    rebuild(states, snapshots, segments, log_start_offset, segment.base_offset)
    segment.indexes.replace_txn(replay(states, segment, segment.base_offset, INT64_MAX))
