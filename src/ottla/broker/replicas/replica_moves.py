"""Replicas on their way from one data directory to another (F6).

Owns the moves under way: one task each, a few at a time. How to copy is the matter of `storage.replica_copy`, when the copy takes
the replica's place is decided here. Never moves a replica between brokers.

1. Records are copied by workers in slices, and the loop goes on. Only the last small rest is copied on the loop, where no append
   can come in between, and in the same breath the copy gets the partition's name.
2. Once the copy may have that name, no record is appended to the former log: if the disk fails just then, the replica goes
   offline, and the next start finds which of the two it is.
3. A move that is stopped by a restart goes on after it; one whose directory fails ends, and the replica stays where it is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.replicas.whole_work import run_whole
from ottla.storage.replica_copy import CopyStep, ReplicaCopy, SourceFailed, forget_swap
from ottla.types import ZERO_UUID, TopicPartition

if TYPE_CHECKING:
    from ottla.broker.app import Broker
    from ottla.broker.replicas.partition import Partition
    from ottla.storage.data_dir import DataDir
    from ottla.storage.log import Log

logger = logging.getLogger(__name__)

LAST_BYTES: Final = 1 << 20
"""What may be copied on the loop. More of it each time that producers were faster."""
PATIENCE: Final = 4


@dataclass(eq=False, slots=True)
class Move:
    partition: Partition
    target: DataDir
    task: asyncio.Task[None] | None = None
    copy: ReplicaCopy | None = None
    waits: bool = False
    """For its turn."""
    abandoned: bool = False


class ReplicaMoves:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._moves: dict[TopicPartition, Move] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(max(len(broker.settings.log_dirs()), 1))

    def target_of(self, key: TopicPartition) -> DataDir | None:
        """Where a replica is being moved to. Who compacts a log leaves those alone that have one."""
        move = self._moves.get(key)
        return move.target if move is not None else None

    def futures(self, data_dir: DataDir) -> list[tuple[TopicPartition, int, int]]:
        """(partition, bytes, offsets it lags behind) of the copies in a directory."""
        return [
            (key, move.copy.copy.size_bytes, move.copy.lag)
            for key, move in self._moves.items()
            if move.target is data_dir and move.copy is not None
        ]

    # Beginning and ending

    async def move(self, partition: Partition, target: DataDir) -> None:
        """Begin to move, or go on. Another move of the same replica ends; to where it lies already there is nothing to move."""
        key = partition.topic_partition
        if self.target_of(key) is target:
            return
        await self.abandon(key)
        if partition.data_dir is target or partition.is_offline:
            return
        log = partition.log
        now_ms = self._broker.world.clock.now_ms()
        if key in target.futures:
            self._drop(target, key)  # of a move that ended when the replica's directory failed
        try:
            future = target.make_future_log(key, partition.topic_id, log.config, now_ms)
        except OSError as error:
            self._broker.partitions.directory_failed(target, error)
            target.check_online()
            raise
        self._begin(Move(partition, target), future)

    def resume(self) -> None:
        """At the start: the moves that a stop interrupted go on, those without a replica end."""
        partitions = self._broker.partitions
        for data_dir in partitions.online_dirs():
            for key, future in list(data_dir.futures.items()):
                partition = partitions.find(key)
                if partition is None and partitions.is_missing(key):
                    continue  # its directory is offline: nobody can say how much of it this is
                if (
                    partition is None
                    or partition.data_dir is data_dir
                    or key in self._moves
                    or future.topic_id not in (partition.topic_id, ZERO_UUID)
                ):
                    self._drop(data_dir, key)
                    continue
                try:
                    data_dir.forget_former(key)
                    if future.topic_id == ZERO_UUID:
                        data_dir.assign_topic_id(future, partition.topic_id)  # a crash took the file, which was not flushed yet
                    if future.config.compacted and not data_dir.was_clean:
                        # A segment that a crash took from the middle looks like one that compaction emptied.
                        future.truncate_fully_and_start_at(partition.log.log_start_offset, self._broker.world.clock.now_ms())
                    self._begin(Move(partition, data_dir), future)
                except OSError as error:
                    partitions.directory_failed(data_dir, error)
        for partition in partitions.online():
            if partition.topic_partition in partition.data_dir.swapped:
                self._later(self._forget(partition))

    def _begin(self, move: Move, future: Log) -> None:
        key = move.partition.topic_partition
        move.copy = ReplicaCopy(self._broker.world.disk, move.partition.log, future)
        logger.info("%s moves from %s to %s", key, move.partition.data_dir.path, move.target.path)
        self._moves[key] = move
        move.task = asyncio.get_running_loop().create_task(self._run(move))

    async def abandon(self, key: TopicPartition) -> None:
        """End a move; what was copied goes."""
        move = self._moves.get(key)
        if move is not None and move.task is not None:
            move.abandoned = True
            if move.waits:
                move.task.cancel()
            await asyncio.wait([move.task])

    async def stop(self) -> None:
        """The broker stops: copies stay as they are, to go on from there."""
        tasks = [move.task for move in self._moves.values() if move.task is not None] + list(self._ending)
        self._moves.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Moving

    async def _run(self, move: Move) -> None:
        key = move.partition.topic_partition
        try:
            if self._goes_on(move):
                move.waits = True
                async with self._slots:
                    move.waits = False
                    await self._copy(move)
        except SourceFailed as failure:
            self._broker.partitions.directory_failed(move.partition.data_dir, failure.error)
        except OSError as error:
            self._broker.partitions.directory_failed(move.target, error)
        except asyncio.CancelledError:
            if not move.abandoned:
                raise
        except Exception:
            logger.exception("%s cannot be moved to %s", key, move.target.path)
            move.abandoned = True
        finally:
            if self._moves.get(key) is move:
                del self._moves[key]
        if key in move.target.futures:
            if move.target.online and not move.partition.is_offline:
                logger.info("%s is not moved to %s", key, move.target.path)
            if move.abandoned or self._broker.partitions.find(key) is not move.partition:
                self._drop(move.target, key)

    def _goes_on(self, move: Move) -> bool:
        return (
            not move.abandoned
            and not move.partition.is_offline
            and move.target.online
            and self._broker.partitions.find(move.partition.topic_partition) is move.partition
        )

    async def _copy(self, move: Move) -> None:
        broker, copy = self._broker, move.copy
        assert copy is not None
        clock, workers = broker.world.clock, broker.world.workers
        begun = settled = False
        attempts = 0
        while self._goes_on(move):
            step = copy.plan(LAST_BYTES << min(attempts, PATIENCE))
            if not begun or not step.reaches_end or step.restart_at is not None:
                begun = True
                await run_whole(workers, partial(copy.perform, step, clock.now_ms()))
                attempts += settled
                await self._throttle(step.size)
            elif not settled or not (copy.flushed_enough or attempts > PATIENCE):
                await run_whole(workers, partial(_settle, copy, step, clock.now_ms()))
                attempts += settled
                settled = True
            else:
                copy.perform(step, clock.now_ms())
                if not copy.flushed_enough:
                    copy.copy.flush()  # flush.messages: every append is
                self._swap(move, copy)
                return

    async def _throttle(self, size: int) -> None:
        bytes_per_second = self._broker.settings.int("replica.alter.log.dirs.io.max.bytes.per.second")
        await asyncio.sleep(min(size / max(bytes_per_second, 1), 1.0))

    def _swap(self, move: Move, copy: ReplicaCopy) -> None:
        """No await in here: nothing is appended between the last record copied and the change of names."""
        partition, target, source = move.partition, move.target, move.partition.data_dir
        partitions = self._broker.partitions
        key = partition.topic_partition
        former = partition.log
        copy.take_over()
        partition.replace_log(copy.copy, target)
        try:
            target.promote(key)
        except OSError as error:
            partitions.directory_failed(target, error)
            return
        try:
            partitions.doom(source.delete_log(key), former)
        except OSError as error:
            partitions.directory_failed(source, error)
        logger.info("%s has moved to %s", key, target.path)
        self._later(self._forget(partition))

    async def _forget(self, partition: Partition) -> None:
        """Once the checkpoints know of the log, and no other copy of it can come back, it is one as any."""
        target = partition.data_dir
        await self._broker.housekeeping.write_checkpoints(target)
        if self._broker.partitions.offline_paths() or partition.is_offline or partition.data_dir is not target:
            return
        try:
            await run_whole(self._broker.world.workers, partial(forget_swap, self._broker.world.disk, partition.log))
        except OSError as error:
            self._broker.partitions.directory_failed(target, error)
        else:
            target.swapped.discard(partition.topic_partition)

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _drop(self, data_dir: DataDir, key: TopicPartition) -> None:
        if not data_dir.online:
            return
        future = data_dir.futures[key]
        try:
            self._broker.partitions.doom(data_dir.drop_future(key), future)
        except OSError as error:
            self._broker.partitions.directory_failed(data_dir, error)


def _settle(copy: ReplicaCopy, step: CopyStep, now_ms: int) -> None:
    copy.perform(step, now_ms)
    copy.settle()
