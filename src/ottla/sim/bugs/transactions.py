"""Bugs of transactions: what readers see, the transaction coordinator, offsets committed in a transaction."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ottla.broker.coordinators.marker_delivery import MarkerDelivery
from ottla.broker.coordinators.marker_sender import MarkerSender
from ottla.broker.coordinators.shard_loader import ShardLoader
from ottla.broker.coordinators.transaction_verifier import TransactionVerifier
from ottla.broker.replicas import logs_to_clean
from ottla.coordinator.group.offset_store import OffsetStore
from ottla.coordinator.shard import Decision
from ottla.coordinator.txn import shard as txn_shard
from ottla.coordinator.txn.shard import TransactionShard
from ottla.coordinator.txn.transaction_metadata import VERSION_1, TransactionMetadata
from ottla.records.clean_batches import Indexing
from ottla.records.clean_transactions import TransactionSieve
from ottla.sim.bugs.registry import Patch, bug
from ottla.storage.log import Log
from ottla.storage.results import AppendInfo
from ottla.storage.segment_indexes import SegmentIndexes

# --- what readers of committed records see


@bug("the last stable offset passes an open transaction", world="transactions", seeds_max=40)
def lso_ignores_open() -> list[Patch]:
    return [(Log, "last_stable_offset", property(lambda self: self.high_watermark))]


@bug("the list of aborted transactions misses one", world="transactions", seeds_max=40)
def aborted_list_short() -> list[Patch]:
    original = Log.aborted

    def aborted(self: Log, start_offset: int, end_offset: int) -> Any:
        return original(self, start_offset, end_offset)[1:]

    return [(Log, "aborted", aborted)]


@bug("aborted transactions are lost at recovery", world="transactions", seeds_max=60)
def aborted_lost_at_recovery() -> list[Patch]:
    original = SegmentIndexes.replace_txn

    def replace_txn(self: SegmentIndexes, aborted: Any) -> None:
        original(self, [])

    return [(SegmentIndexes, "replace_txn", replace_txn)]


@bug("the cleaner goes past the last stable offset", world="transactions", seeds_max=200)
def clean_past_lso() -> list[Patch]:
    original: Any = vars(logs_to_clean)["find_log_to_clean"]

    def find_log_to_clean(log: Log, last_stable_offset: int, now_ms: int) -> Any:
        return original(log, log.high_watermark, now_ms)

    return [(logs_to_clean, "find_log_to_clean", find_log_to_clean)]


@bug("aborted records replace committed ones when a log is compacted", world="transactions", seeds_max=40)
def aborted_replace() -> list[Patch]:
    original = Indexing.__init__

    def init(self: Indexing, keys: Any, start_offset: int, transactions: TransactionSieve) -> None:
        original(self, keys, start_offset, TransactionSieve(()))

    return [(Indexing, "__init__", init)]


# --- the coordinator


@bug("a new instance gets the epoch of the previous one", world="transactions", seeds_max=40)
def epoch_not_raised() -> list[Patch]:
    original = TransactionMetadata.initialised

    def initialised(self: TransactionMetadata, *arguments: Any) -> TransactionMetadata:
        found = original(self, *arguments)
        return replace(found, producer_epoch=max(self.producer_epoch, 0))

    return [(TransactionMetadata, "initialised", initialised)]


@bug("a transaction of version 2 does not raise the epoch", world="transactions", seeds_max=40)
def epoch_not_raised_by_end() -> list[Patch]:
    original = TransactionMetadata.ended

    def ended(self: TransactionMetadata, *, client_version: int, **options: Any) -> TransactionMetadata:
        return original(self, client_version=min(client_version, VERSION_1), **options)

    return [(TransactionMetadata, "ended", ended)]


@bug("a new coordinator forgets the markers that are still to be written", world="transactions", seeds_max=60)
def prepare_forgotten() -> list[Patch]:
    return [(TransactionShard, "on_loaded", lambda self, now_ms: Decision())]


@bug("a marker of an old coordinator epoch is accepted", world="transactions", seeds_max=60)
def stale_marker_accepted() -> list[Patch]:
    original = Log.append_marker

    def append_marker(self: Log, producer_id: int, *rest: Any, coordinator_epoch: int, **options: Any) -> AppendInfo:
        producer = self.producers.get(producer_id)
        known = producer.coordinator_epoch if producer is not None else -1
        return original(self, producer_id, *rest, coordinator_epoch=max(coordinator_epoch, known), **options)

    return [(Log, "append_marker", append_marker)]


@bug("a transaction that timed out is aborted and its producer is not fenced", world="transactions", seeds_max=120)
def timeout_does_not_fence() -> list[Patch]:
    def abort_timed_out(self: TransactionShard, transactional_id: str, new_producer_id: Any, now_ms: int) -> Decision:
        return self._end(self.transactions[transactional_id], False, VERSION_1, new_producer_id, now_ms)[1]

    return [(TransactionShard, "abort_timed_out", abort_timed_out)]


@bug("transactions do not time out", world="transactions", seeds_max=40)
def no_timeout() -> list[Patch]:
    return [(TransactionShard, "timed_out", lambda self, now_ms: [])]


@bug("an old epoch may add partitions, and end what it has added", world="transactions", seeds_max=60)
def zombie_not_fenced() -> list[Patch]:
    return [(txn_shard, "_check_producer", lambda transaction, producer_id, producer_epoch: None)]


@bug("a transaction is complete before its markers are written", world="transactions", seeds_max=40)
def complete_without_markers() -> list[Patch]:
    def deliver(self: MarkerDelivery, hosted: Any, marker: Any) -> None:
        self._written(hosted, marker, marker.partitions, False)

    return [(MarkerDelivery, "deliver", deliver)]


@bug("the marker of a commit says abort in all partitions but one", world="transactions", seeds_max=40)
def commit_torn() -> list[Patch]:
    original = Log.append_marker
    seen: set[tuple[int, int]] = set()

    def append_marker(self: Log, producer_id: int, producer_epoch: int, *, commit: bool, **options: Any) -> AppendInfo:
        first = (producer_id, producer_epoch) not in seen
        seen.add((producer_id, producer_epoch))
        return original(self, producer_id, producer_epoch, commit=commit and first, **options)

    return [(Log, "append_marker", append_marker)]


@bug("a leader does not verify that a partition is part of the transaction", world="transactions", seeds_max=200)
def not_verified() -> list[Patch]:
    return [(TransactionVerifier, "verify", lambda self, *arguments: {})]


@bug("markers for partitions of other brokers are not sent", world="cluster", seeds_max=20)
def markers_not_sent() -> list[Patch]:
    return [(MarkerSender, "send", lambda self, *arguments: None)]


# --- offsets in transactions


@bug("pending offsets are seen before the commit", world="transactions", seeds_max=60)
def pending_offsets_visible() -> list[Patch]:
    original = OffsetStore.replay

    def replay(self: OffsetStore, key: Any, value: Any, producer_id: int = -1) -> None:
        original(self, key, value)

    return [(OffsetStore, "replay", replay)]


@bug("offsets of an aborted transaction count", world="transactions", seeds_max=60)
def aborted_offsets_count() -> list[Patch]:
    original = OffsetStore.end_transaction

    def end_transaction(self: OffsetStore, producer_id: int, *, commit: bool) -> None:
        original(self, producer_id, commit=True)

    return [(OffsetStore, "end_transaction", end_transaction)]


@bug("pending offsets are lost when a group is loaded", world="transactions", seeds_max=60)
def pending_forgotten_at_load() -> list[Patch]:
    return [(ShardLoader, "_replay_markers", lambda self, shard, data, batch: None)]


@bug("a marker does not complete pending offsets after the coordinator has moved", world="cluster", seeds_max=20)
def pending_not_completed() -> list[Patch]:
    return [(ShardLoader, "_replay_markers", lambda self, shard, data, batch: None)]
