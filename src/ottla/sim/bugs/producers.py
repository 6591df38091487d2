"""Bugs of producer state, in a log and in its replicas: duplicates, sequences, epochs, snapshots."""

from __future__ import annotations

from typing import Any

from ottla.broker.controller.producer_ids import ProducerIds
from ottla.errors import ErrorCode, KafkaError
from ottla.sim.bugs.registry import Patch, bug
from ottla.storage import log_producers, recovery, snapshot
from ottla.storage.log import Log
from ottla.storage.log_producers import LogProducers
from ottla.storage.producer_state import ProducerStates
from ottla.storage.results import AppendInfo
from ottla.storage.snapshot import Snapshots

# --- what a partition remembers


@bug("four batches of a producer are remembered instead of five", world="transactions", seeds_max=40)
def four_batches_remembered() -> list[Patch]:
    original = Log.append

    def append(self: Log, checked: Any, *rest: Any, **options: Any) -> AppendInfo:
        info = original(self, checked, *rest, **options)
        producer = self.producers.get(checked.batches[0].producer_id)
        while producer is not None and len(producer.batches) > 4:
            producer.batches.popleft()
        return info

    return [(Log, "append", append)]


@bug("a duplicate is answered with another offset", world="transactions", seeds_max=40)
def duplicate_elsewhere() -> list[Patch]:
    original = Log.append

    def append(self: Log, *arguments: Any, **options: Any) -> AppendInfo:
        info = original(self, *arguments, **options)
        if info.duplicate:
            info.first_offset = info.last_offset = self.log_end_offset
        return info

    return [(Log, "append", append)]


@bug("a gap in a producer's sequence is accepted", world="transactions", seeds_max=40)
def gap_accepted() -> list[Patch]:
    original = ProducerStates.check

    def check(self: ProducerStates, *arguments: Any, **options: Any) -> Any:
        try:
            return original(self, *arguments, **options)
        except KafkaError as error:
            if error.code != ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                raise
            return None

    return [(ProducerStates, "check", check)]


@bug("a producer with an old epoch may write", world="transactions", seeds_max=40)
def stale_epoch_writes() -> list[Patch]:
    return [(ProducerStates, "_check_epoch", lambda self, producer, epoch: None)]


# --- restarts and truncation


@bug("producer state is not rebuilt at a start", world="transactions", seeds_max=40)
def producers_not_rebuilt() -> list[Patch]:
    return [(recovery, "rebuild", lambda states, *rest: states.clear()), (recovery, "feed", lambda *arguments: None)]


@bug("producer snapshots survive a truncation", world="log", seeds_max=1000)
def snapshots_not_truncated() -> list[Patch]:
    return [(Snapshots, "remove_behind", lambda self, offset: False)]


@bug("truncation does not take producer state back", world="log", seeds_max=40)
def producers_not_truncated() -> list[Patch]:
    return [(log_producers, "rebuild", lambda *arguments: None)]


@bug("a damaged producer snapshot is accepted", world="log", seeds_max=100)
def damaged_snapshot_accepted() -> list[Patch]:
    def decode(data: bytes) -> list[Any]:
        entries = data[snapshot._HEAD.size :]
        whole = len(entries) // snapshot._ENTRY.size * snapshot._ENTRY.size
        return [snapshot._producer(fields) for fields in snapshot._ENTRY.iter_unpack(entries[:whole])]

    return [(snapshot, "decode", decode)]


@bug("truncation of a follower does not take producer state back", world="cluster", seeds_max=40)
def follower_producers_not_truncated() -> list[Patch]:
    return [(log_producers, "rebuild", lambda *arguments: None)]


@bug("followers do not update producer state", world="cluster", seeds_max=20)
def followers_forget_producers() -> list[Patch]:
    return [(LogProducers, "replicated", lambda self, data, batches: [])]


# --- producer ids


@bug("producer ids start again with each start of the broker", world="transactions", seeds_max=40)
def producer_ids_repeated() -> list[Patch]:
    async def allocate(self: ProducerIds) -> range:
        return range(1000)

    return [(ProducerIds, "next_block", allocate)]


@bug("brokers allocate producer ids without asking the controller", world="cluster", seeds_max=20)
def producer_ids_shared() -> list[Patch]:
    async def allocate(self: ProducerIds) -> range:
        return range(1000)

    return [(ProducerIds, "next_block", allocate)]
