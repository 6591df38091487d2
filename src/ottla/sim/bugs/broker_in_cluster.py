"""Bugs of a broker that takes the controller's requests, and of coordinators that move between brokers."""

from __future__ import annotations

from typing import Any

from ottla.broker.app import Broker
from ottla.broker.coordinators.shard_commits import ShardCommits
from ottla.broker.coordinators.shard_host import ShardHost
from ottla.broker.coordinators.shard_loader import ShardLoader
from ottla.broker.replicas.control_requests import ControlRequests
from ottla.broker.replicas.partition import Partition
from ottla.errors import ErrorCode
from ottla.records.batch import scan_batches
from ottla.sim.bugs.registry import Patch, bug
from ottla.types import TopicPartition

# --- the controller's requests


@bug("the last partition of a LeaderAndIsr request is ignored", world="cluster", seeds_max=20)
def request_partly_ignored() -> list[Patch]:
    original = ControlRequests._take

    async def take(self: ControlRequests, roles: Any, errors: Any, *, is_new: bool) -> None:
        await original(self, roles[:-1] if len(roles) > 1 and not is_new else roles, errors, is_new=is_new)

    return [(ControlRequests, "_take", take)]


@bug("a LeaderAndIsr request with an old leader epoch is obeyed", world="cluster", seeds_max=40)
def stale_leader_epoch_obeyed() -> list[Patch]:
    original = ControlRequests._refusal

    def refusal(self: ControlRequests, key: Any, state: Any, topic_id: bytes) -> ErrorCode:
        found = original(self, key, state, topic_id)
        return ErrorCode.NONE if found == ErrorCode.STALE_CONTROLLER_EPOCH else found

    # The check of the connection would refuse it too.
    return [(ControlRequests, "_refusal", refusal), (ControlRequests, "_check_connection", lambda *_: None)]


@bug("a request of a replaced controller is obeyed", world="late", seeds_max=40)
def replaced_controller_obeyed() -> list[Patch]:
    original = ControlRequests._check

    def check(self: ControlRequests, controller_epoch: int, broker_epoch: int, controller_id: int) -> None:
        original(self, max(controller_epoch, self.controller_epoch), broker_epoch, controller_id)

    return [(ControlRequests, "_check", check)]


@bug("a request for a previous registration of the broker is obeyed", world="late", seeds_max=40)
def stale_broker_epoch_obeyed() -> list[Patch]:
    original = ControlRequests._check

    def check(self: ControlRequests, controller_epoch: int, broker_epoch: int, controller_id: int) -> None:
        original(self, controller_epoch, max(broker_epoch, self._metadata.broker_epoch), controller_id)

    # The check of the connection would refuse it too.
    return [(ControlRequests, "_check", check), (ControlRequests, "_check_connection", lambda *_: None)]


@bug("a request that was sent again on another connection is obeyed when it arrives late", world="late", seeds_max=40)
def resent_request_obeyed() -> list[Patch]:
    return [(ControlRequests, "_check_connection", lambda *_: None)]


# --- coordinators that move


@bug("coordinators do not move with their partitions", world="cluster", seeds_max=20)
def coordinators_stay() -> list[Patch]:
    return [(Broker, "roles_changed", lambda self: None)]


@bug("a coordinator loads its partition up to the high watermark, not to the log end", world="stories", first=60, seeds_max=190)
def loads_to_high_watermark() -> list[Patch]:
    async def read(self: ShardLoader[Any], hosted: Any) -> Any:
        partition = self._partitions.get(hosted.topic_partition)
        shard = self._coordinator.new_shard(hosted.topic_partition.partition)
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

    return [(ShardLoader, "_read", read)]


@bug("a coordinator that leads again reuses its old state", world="cluster", seeds_max=40)
def coordinator_reuses_state() -> list[Patch]:
    load, unload = ShardHost._load, ShardHost._unload
    left: dict[tuple[int, TopicPartition], Any] = {}

    def remember(self: ShardHost[Any], hosted: Any, *rest: Any) -> None:
        if hosted.shard is not None:
            left[id(self), hosted.topic_partition] = hosted.shard
        unload(self, hosted, *rest)

    def recall(self: ShardHost[Any], hosted: Any) -> None:
        shard = left.pop((id(self), hosted.topic_partition), None)
        if shard is None:
            load(self, hosted)
            return
        self._hosted[hosted.topic_partition.partition] = hosted
        self._loaded(hosted, shard)

    return [(ShardHost, "_unload", remember), (ShardHost, "_load", recall)]


@bug("a coordinator answers before its records are committed", world="cluster", seeds_max=40)
def coordinator_does_not_wait() -> list[Patch]:
    def wait(self: ShardCommits[Any], hosted: Any, partition: Partition, end_offset: int, decision: Any) -> None:
        self._release(hosted, decision)

    return [(ShardCommits, "_wait", wait)]
