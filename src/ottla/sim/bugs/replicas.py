"""Bugs planted in what replicas do for each other, and in coordinators that move with them; the rest is in `bugs` and its
neighbours."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ottla.broker.controller import broker_requests
from ottla.broker.controller.cluster_host import ClusterHost
from ottla.broker.coordinators.shard_host import ShardHost
from ottla.broker.replicas import fetch_read, replica_fetcher
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.partitions import Partitions
from ottla.cluster import isr_changes
from ottla.errors import ErrorCode
from ottla.records.batch import scan_batches
from ottla.replication.follower import Truncation
from ottla.replication.leader import Leadership
from ottla.sim.bugs.catalog import Patch, bug
from ottla.storage.log import Log
from ottla.types import NO_OFFSET

# --- who is in sync, and what is committed


@bug("a follower joins the ISR before it has reached the start of the leader's epoch", world="stories", first=40, seeds_max=60)
def joins_below_epoch_start() -> list[Patch]:
    original = Leadership.follower_fetched

    def follower_fetched(self: Leadership, *arguments: Any) -> Any:
        start, self.epoch_start_offset = self.epoch_start_offset, 0
        try:
            return original(self, *arguments)
        finally:
            self.epoch_start_offset = start

    return [(Leadership, "follower_fetched", follower_fetched)]


@bug("a replica that was restarted since is taken into the ISR", world="stories", first=36, seeds_max=60)
def former_life_in_isr() -> list[Patch]:
    original = isr_changes.grant

    def grant(image: Any, partition: Any, wish: Any) -> Any:
        return original(image, partition, replace(wish, isr=[(broker, isr_changes.UNKNOWN_EPOCH) for broker, _ in wish.isr]))

    return [(broker_requests, "grant", grant)]


@bug("a change of the ISR whose answer was lost is not known again", world="stories", first=56, seeds_max=80)
def lost_answer_not_known() -> list[Patch]:
    original = isr_changes.grant

    def grant(image: Any, partition: Any, wish: Any) -> Any:
        if wish.partition_epoch < partition.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        return original(image, partition, wish)

    return [(broker_requests, "grant", grant)]


@bug("who does not fetch any more stays in sync", world="stories", first=4, seeds_max=60)
def never_shrinks() -> list[Patch]:
    return [(Leadership, "shrink", lambda self, *arguments: None)]


@bug("the high watermark advances with fewer in sync than are asked for", world="stories", first=4, seeds_max=60)
def under_min_advances() -> list[Patch]:
    original = Leadership.high_watermark

    def high_watermark(self: Leadership, log_end_offset: int, now_ms: int) -> int:
        start, self.epoch_start_offset = self.epoch_start_offset, log_end_offset
        try:
            return original(self, log_end_offset, now_ms)
        finally:
            self.epoch_start_offset = start

    return [(Leadership, "high_watermark", high_watermark)]


@bug("acks=all does not ask how many are in sync", world="stories", first=4, seeds_max=60)
def min_isr_not_asked() -> list[Patch]:
    return [(owner, "is_under_min_isr", property(lambda self: False)) for owner in (Leadership, Partition)]


@bug("a new leader tells the end of its log before it knows what is committed", world="stories", first=28, seeds_max=60)
def end_told_early() -> list[Patch]:
    return [(Partition, "epoch_start_offset", property(lambda self: 0))]


@bug("a reader is sent to a replica that is near and not in sync", world="stories", first=24, seeds_max=60)
def closest_out_of_sync() -> list[Patch]:
    def closest(leadership: Leadership, rack: str, offset: int, rack_of: Any) -> int | None:
        near = [replica for replica in leadership.followers if rack_of(replica) == rack]
        return near[0] if near and leadership.followers[near[0]].log_end_offset > NO_OFFSET else None

    return [(fetch_read, "closest_replica", closest)]


# --- replicas


@bug("a log is cut to where the leader's epoch ends, whether it has that epoch or not", world="stories", first=52, seeds_max=80)
def own_epoch_not_looked_at() -> list[Patch]:
    original: Any = vars(replica_fetcher)["truncation"]

    def truncation(log: Any, leader_epoch: int, leader_end_offset: int) -> Truncation:
        if leader_end_offset == NO_OFFSET:
            found: Truncation = original(log, leader_epoch, leader_end_offset)
            return found
        return Truncation(min(leader_end_offset, log.log_end_offset), True)

    return [(replica_fetcher, "truncation", truncation)]


@bug("followers take no note of producers", world="cluster", seeds_max=20)
def followers_forget_producers() -> list[Patch]:
    return [(Log, "_note_producers", lambda self, data, batches: None)]


@bug("what another topic of the name left behind is gone on with", world="stories", first=48, seeds_max=60)
def leftover_taken() -> list[Patch]:
    original = Partitions._find_log

    def find_log(self: Partitions, key: Any, topic_id: bytes) -> Any:
        for data_dir in self._data_dirs:
            log = data_dir.logs.get(key)
            if log is not None and not log.closed and data_dir.online:
                log.topic_id = topic_id
        return original(self, key, topic_id)

    return [(Partitions, "_find_log", find_log)]


@bug("who was away while a topic was deleted keeps its log", world="stories", first=48, seeds_max=60)
def absent_one_keeps_log() -> list[Patch]:
    return [(Partitions, "set_deleted_aside", lambda self, image: None)]


# --- coordinators that move


@bug("a coordinator loads what it knows to be committed, not all that its log has", world="stories", first=60, seeds_max=190)
def loads_to_high_watermark() -> list[Patch]:
    async def read(self: ShardHost[Any], hosted: Any) -> Any:
        shard, partition = self._new_shard(hosted), self._partition(hosted)
        offset, end_offset = partition.log.log_start_offset, partition.log.high_watermark
        while offset < end_offset:
            found = partition.read(offset, 1 << 20, end_offset, True)
            data = b"".join(part.file.read(part.position, part.size) for part in found.ranges)
            for batch in scan_batches(data)[0]:
                self._replay_batch(shard, data, batch)
                offset = batch.next_offset
            if not data:
                break
        return shard

    return [(ShardHost, "_read", read)]


@bug("a coordinator that leads again goes on with what it knew", world="cluster", seeds_max=40)
def coordinator_goes_on() -> list[Patch]:
    load, unload = ShardHost._load, ShardHost._unload
    left: dict[tuple[int, str, int], Any] = {}

    def remember(self: ShardHost[Any], hosted: Any, *rest: Any) -> None:
        if hosted.shard is not None:
            left[id(self), self.topic_name, hosted.number] = hosted.shard
        unload(self, hosted, *rest)

    def recall(self: ShardHost[Any], hosted: Any) -> None:
        shard = left.pop((id(self), self.topic_name, hosted.number), None)
        if shard is None:
            load(self, hosted)
            return
        self._hosted[hosted.number] = hosted
        self._loaded(hosted, shard)

    return [(ShardHost, "_unload", remember), (ShardHost, "_load", recall)]


@bug("a coordinator answers before its replicas have what it wrote", world="cluster", seeds_max=40)
def coordinator_does_not_wait() -> list[Patch]:
    def wait(self: ShardHost[Any], hosted: Any, partition: Partition, end_offset: int, decision: Any) -> None:
        self._release(hosted, decision)

    return [(ShardHost, "_wait_for_commit", wait)]


@bug("brokers give out producer ids without asking the controller", world="cluster", seeds_max=20)
def producer_ids_shared() -> list[Patch]:
    async def allocate(self: ClusterHost) -> range:
        return range(1000)

    return [(ClusterHost, "allocate_producer_id_block", allocate)]
