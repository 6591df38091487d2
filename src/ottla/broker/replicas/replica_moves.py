"""Moves of replicas from one data directory to another (F6).

Owns the moves in progress: one task each, a few at a time. `storage.replica_copy` copies; this decides when the copy replaces the
replica.

1. Workers copy records in slices. Only the last small part is copied on the loop, where no append can come in between, and in the
   same step the copy gets the partition's name.
2. From then on nothing is appended to the previous log: if the disk fails just then, the replica goes offline, and the next start
   finds which of the two is complete.
3. A move that a restart interrupts continues after it; one whose directory fails ends, and the replica stays where it is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.broker.replicas.checkpoints import Checkpoints
from ottla.broker.replicas.disk_work import cancel_all, run_to_end
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.partitions import Partitions
from ottla.ports import World
from ottla.storage.data_dir import DataDir
from ottla.storage.log import Log
from ottla.storage.replica_copy import CopyStep, ReplicaCopy, SourceFailed, forget_swap
from ottla.types import ZERO_UUID, TopicPartition

logger = logging.getLogger(__name__)

LAST_BYTES: Final = 1 << 20
"""How much may be copied on the loop. Doubles each time that producers were faster, up to PATIENCE times."""
PATIENCE: Final = 4


@dataclass(eq=False, slots=True)
class Move:
    partition: Partition
    target: DataDir
    task: asyncio.Task[None] | None = None
    copy: ReplicaCopy | None = None
    waits: bool = False
    """For a slot."""
    abandoned: bool = False


class ReplicaMoves:
    def __init__(self, partitions: Partitions, metadata: LocalMetadata, world: World, checkpoints: Checkpoints) -> None:
        self._partitions = partitions
        self._metadata = metadata
        self._world = world
        self._checkpoints = checkpoints
        self._moves: dict[TopicPartition, Move] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(max(len(metadata.settings.log_dirs()), 1))

    def target_of(self, key: TopicPartition) -> DataDir | None:
        """Where a replica is being moved to. The log cleaner skips such logs."""
        move = self._moves.get(key)
        return move.target if move is not None else None

    def futures(self, data_dir: DataDir) -> list[tuple[TopicPartition, int, int]]:
        """(partition, bytes, lag in offsets) of the future replicas in a directory."""
        return [
            (key, move.copy.copy.size_bytes, move.copy.lag)
            for key, move in self._moves.items()
            if move.target is data_dir and move.copy is not None
        ]

    # Beginning and ending

    async def move(self, partition: Partition, target: DataDir) -> None:
        """Start a move. A move of the replica to another directory is cancelled; a move to where it is does nothing."""
        key = partition.topic_partition
        if self.target_of(key) is target:
            return
        await self.abandon(key)
        if partition.data_dir is target or partition.is_offline:
            return
        log = partition.log
        now_ms = self._world.clock.now_ms()
        if key in target.futures:
            self._drop(target, key)  # left by a move that ended when the directory of the replica failed
        try:
            future = target.make_future_log(key, partition.topic_id, log.config, now_ms)
        except OSError as error:
            self._partitions.data_dirs.fail(target, error)
            target.check_online()
            raise
        self._begin(Move(partition, target), future)

    def resume(self) -> None:
        """At start: continue moves that a stop interrupted, drop those without a replica."""
        partitions = self._partitions
        for data_dir in partitions.data_dirs.online():
            for key, future in list(data_dir.futures.items()):
                partition = partitions.find(key)
                if partition is None and key in partitions.logs.missing:
                    continue  # its directory is offline: how much of it was copied is unknown
                if (
                    partition is None
                    or partition.data_dir is data_dir
                    or key in self._moves
                    or future.topic_id not in (partition.topic_id, ZERO_UUID)
                ):
                    self._drop(data_dir, key)
                    continue
                try:
                    data_dir.forget_deleted(key)
                    if future.topic_id == ZERO_UUID:
                        data_dir.assign_topic_id(future, partition.topic_id)  # a crash lost the file, which was not flushed
                    if future.config.compacted and not data_dir.was_clean:
                        # A segment that a crash lost from the middle looks like one that compaction emptied.
                        future.truncate_fully_and_start_at(partition.log.log_start_offset, self._world.clock.now_ms())
                    self._begin(Move(partition, data_dir), future)
                except OSError as error:
                    partitions.data_dirs.fail(data_dir, error)
        for partition in partitions.online():
            if partition.topic_partition in partition.data_dir.swapped:
                self._later(self._forget(partition))

    def _begin(self, move: Move, future: Log) -> None:
        key = move.partition.topic_partition
        move.copy = ReplicaCopy(self._world.disk, move.partition.log, future)
        logger.info("Moving replica %s from %s to %s", key, move.partition.data_dir.path, move.target.path)
        self._moves[key] = move
        move.task = asyncio.get_running_loop().create_task(self._run(move))

    async def abandon(self, key: TopicPartition) -> None:
        """Cancel a move and delete the copy."""
        move = self._moves.get(key)
        if move is not None and move.task is not None:
            move.abandoned = True
            if move.waits:
                move.task.cancel()
            await asyncio.wait([move.task])

    async def stop(self) -> None:
        """Copies stay, and the next start continues them."""
        tasks = [move.task for move in self._moves.values() if move.task is not None] + list(self._ending)
        self._moves.clear()
        await cancel_all(tasks)

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
            self._partitions.data_dirs.fail(move.partition.data_dir, failure.error)
        except OSError as error:
            self._partitions.data_dirs.fail(move.target, error)
        except asyncio.CancelledError:
            if not move.abandoned:
                raise
        except Exception:
            logger.exception("Could not move replica %s to %s", key, move.target.path)
            move.abandoned = True
        finally:
            if self._moves.get(key) is move:
                del self._moves[key]
        if key in move.target.futures:
            if move.target.online and not move.partition.is_offline:
                logger.info("Cancelled the move of replica %s to %s", key, move.target.path)
            if move.abandoned or self._partitions.find(key) is not move.partition:
                self._drop(move.target, key)

    def _goes_on(self, move: Move) -> bool:
        return (
            not move.abandoned
            and not move.partition.is_offline
            and move.target.online
            and self._partitions.find(move.partition.topic_partition) is move.partition
        )

    async def _copy(self, move: Move) -> None:
        copy = move.copy
        assert copy is not None
        clock, workers = self._world.clock, self._world.workers
        begun = flushed = False
        attempts = 0
        while self._goes_on(move):
            step = copy.plan(LAST_BYTES << min(attempts, PATIENCE))
            if not begun or not step.reaches_end or step.restart_at is not None:
                begun = True
                await run_to_end(workers, partial(copy.perform, step, clock.now_ms()))
                attempts += flushed
                await self._throttle(step.size)
            elif not flushed or not (copy.flushed_enough or attempts > PATIENCE):
                await run_to_end(workers, partial(_flush, copy, step, clock.now_ms()))
                attempts += flushed
                flushed = True
            else:
                copy.perform(step, clock.now_ms())
                if not copy.flushed_enough:
                    copy.copy.flush()  # flush.messages: every append is
                self._swap(move, copy)
                return

    async def _throttle(self, size: int) -> None:
        bytes_per_second = self._metadata.settings.int("replica.alter.log.dirs.io.max.bytes.per.second")
        await asyncio.sleep(min(size / max(bytes_per_second, 1), 1.0))

    def _swap(self, move: Move, copy: ReplicaCopy) -> None:
        """Replace the log by its copy. No await in here: nothing is appended between the last copied record and the renaming."""
        partition, target, source = move.partition, move.target, move.partition.data_dir
        partitions = self._partitions
        key = partition.topic_partition
        previous = partition.log
        copy.take_over()
        partition.log, partition.data_dir = copy.copy, target
        try:
            target.promote(key)
        except OSError as error:
            partitions.data_dirs.fail(target, error)
            return
        try:
            partitions.logs.schedule_deletion(source.delete_log(key), previous)
        except OSError as error:
            partitions.data_dirs.fail(source, error)
        logger.info("Moved replica %s to %s", key, target.path)
        self._later(self._forget(partition))

    async def _forget(self, partition: Partition) -> None:
        """Remove the mark of a swapped log, once the checkpoints have it and no other copy can come back."""
        target = partition.data_dir
        await self._checkpoints.write_all(target)
        if self._partitions.data_dirs.offline_paths() or partition.is_offline or partition.data_dir is not target:
            return
        try:
            await run_to_end(self._world.workers, partial(forget_swap, self._world.disk, partition.log))
        except OSError as error:
            self._partitions.data_dirs.fail(target, error)
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
            self._partitions.logs.schedule_deletion(data_dir.drop_future(key), future)
        except OSError as error:
            self._partitions.data_dirs.fail(data_dir, error)


def _flush(copy: ReplicaCopy, step: CopyStep, now_ms: int) -> None:
    copy.perform(step, now_ms)
    copy.flush_and_mark()
