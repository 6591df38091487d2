"""Bugs of a broker that serves requests alone: acknowledgements, reads, waiting, moves between data directories."""

from __future__ import annotations

from typing import Any

from ottla.broker.network.purgatory import Purgatory
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.replica_moves import ReplicaMoves
from ottla.sim.bugs.registry import Patch, bug
from ottla.storage.checkpoint import write_swap_mark
from ottla.storage.log import Log
from ottla.storage.names import REPLICA_SWAP
from ottla.storage.replica_copy import ReplicaCopy
from ottla.storage.results import AppendInfo
from ottla.types import NO_TIMESTAMP

# --- requests


@bug("flush.messages=1 does not flush before the answer", world="broker", seeds_max=40)
def flush_forgotten() -> list[Patch]:
    return [(Partition, "_hold", lambda self, info, now_ms: None)]


@bug("an append is acknowledged before it is written", world="broker", seeds_max=10)
def acknowledged_before_written() -> list[Patch]:
    original = Log.append
    waiting: dict[int, tuple[Any, int, int, dict[str, Any]]] = {}

    def append(self: Log, checked: Any, leader_epoch: int, now_ms: int, **options: Any) -> AppendInfo:
        late = waiting.pop(id(self), None)
        if late is not None:
            original(self, *late[:3], **late[3])
        checked.buffer = bytearray(checked.buffer)
        waiting[id(self)] = (checked, leader_epoch, now_ms, options)
        first = self.log_end_offset
        last = first + checked.record_count - 1
        return AppendInfo(first, last, NO_TIMESTAMP, self.log_start_offset, len(checked.buffer))

    return [(Log, "append", append)]


@bug("deleted records can be read", world="broker", seeds_max=40)
def deleted_records_readable() -> list[Patch]:
    original = Log.read

    def read(self: Log, offset: int, *rest: Any) -> Any:
        start, self.log_start_offset = self.log_start_offset, self.first_base_offset
        try:
            return original(self, offset, *rest)
        finally:
            self.log_start_offset = start

    return [(Log, "read", read)]


@bug("a fetch that waits is not woken by its deadline", world="broker", seeds_max=20)
def deadline_forgotten() -> list[Patch]:
    original = Purgatory.wait

    def wait(self: Purgatory, keys: Any, timeout_ms: int, *rest: Any, **options: Any) -> Any:
        return original(self, keys, timeout_ms * 100_000, *rest, **options)

    return [(Purgatory, "wait", wait)]


# --- moves between data directories


@bug("a moved replica takes over before it is flushed", world="broker", seeds_max=300)
def move_not_flushed() -> list[Patch]:
    def flush_and_mark(self: ReplicaCopy) -> None:
        write_swap_mark(self._disk, f"{self.copy.dir}/{REPLICA_SWAP}", self.copy.log_start_offset)

    return [(ReplicaCopy, "flush_and_mark", flush_and_mark), (ReplicaCopy, "flushed_enough", property(lambda self: True))]


@bug("a move between directories starts and never proceeds", world="broker", seeds_max=100)
def move_stands_still() -> list[Patch]:
    async def copy(self: ReplicaMoves, move: Any) -> None:
        return None

    return [(ReplicaMoves, "_copy", copy)]


@bug("a moved replica takes over before it has caught up", world="broker", seeds_max=200)
def move_before_caught_up() -> list[Patch]:
    async def copy(self: ReplicaMoves, move: Any) -> None:
        step = move.copy.plan(200)
        now_ms = self._world.clock.now_ms()
        await self._world.workers.run(lambda: move.copy.perform(step, now_ms))
        await self._world.workers.run(lambda: move.copy.flush_and_mark())
        if self._goes_on(move):
            self._swap(move, move.copy)

    return [(ReplicaMoves, "_copy", copy)]
