"""Loading shards: the log of a partition is replayed into a new shard.

Partitions are loaded one after the other, one buffer at a time, so that the broker answers other requests in between. A partition
that cannot be read is unloaded; its keys stay unavailable and the others are loaded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from ottla.coordinator.shard import Shard
from ottla.errors import KafkaError, MalformedInput
from ottla.records.batch import BatchInfo, scan_batches
from ottla.records.control import COMMIT, control_type
from ottla.records.record import read_records
from ottla.types import NO_PRODUCER_ID

if TYPE_CHECKING:
    from ottla.broker.coordinators.shard_host import Coordinator, HostedShard
    from ottla.broker.replicas.partitions import Partitions

logger = logging.getLogger(__name__)

S = TypeVar("S", bound=Shard)


class ShardLoader(Generic[S]):
    def __init__(
        self,
        coordinator: Coordinator[S],
        partitions: Partitions,
        on_loaded: Callable[[HostedShard[S], S], None],
        on_failed: Callable[[HostedShard[S]], None],
    ) -> None:
        self._coordinator = coordinator
        self._partitions = partitions
        self._on_loaded = on_loaded
        self._on_failed = on_failed
        self._queue: dict[HostedShard[S], None] = {}
        self._task: asyncio.Task[None] | None = None

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def load(self, hosted: HostedShard[S]) -> None:
        """Replay the log of the partition. An empty one is loaded when this returns."""
        log = self._partitions.get(hosted.topic_partition).log
        if log.log_start_offset == log.log_end_offset:
            self._on_loaded(hosted, self._coordinator.new_shard(hosted.topic_partition.partition))
            return
        self._queue[hosted] = None
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._load_all())

    def cancel(self, hosted: HostedShard[S]) -> None:
        self._queue.pop(hosted, None)

    async def _load_all(self) -> None:
        try:
            while self._queue:
                hosted = next(iter(self._queue))
                try:
                    shard = await self._read(hosted)
                except (KafkaError, MalformedInput, OSError) as error:
                    logger.error(
                        "Cannot load %s, its groups or transactions stay unavailable until another broker leads it: %s",
                        hosted.topic_partition,
                        error,
                    )
                    self._on_failed(hosted)
                    continue
                if hosted in self._queue:
                    del self._queue[hosted]
                    self._on_loaded(hosted, shard)
        finally:
            self._task = None

    async def _read(self, hosted: HostedShard[S]) -> S:
        shard = self._coordinator.new_shard(hosted.topic_partition.partition)
        partition = self._partitions.get(hosted.topic_partition)
        log = partition.log
        offset = log.log_start_offset
        while offset < log.log_end_offset and hosted in self._queue:
            read = partition.read(offset, self._coordinator.load_buffer_bytes, log.log_end_offset, True)
            if not read.size:
                break
            data = b"".join(part.file.read(part.position, part.size) for part in read.ranges)
            for batch in scan_batches(data)[0]:
                if batch.next_offset > offset:
                    self._replay_batch(shard, data, batch)
                    offset = batch.next_offset
            await asyncio.sleep(0)
        return shard

    def _replay_batch(self, shard: S, data: bytes, batch: BatchInfo) -> None:
        if batch.is_control:
            self._replay_markers(shard, data, batch)
            return
        producer_id = batch.producer_id if batch.is_transactional else NO_PRODUCER_ID
        for record in read_records(data, batch):
            if record.key is not None:
                shard.replay(record.key, record.value, producer_id)

    def _replay_markers(self, shard: S, data: bytes, batch: BatchInfo) -> None:
        for record in read_records(data, batch):
            shard.replay_end_transaction_marker(batch.producer_id, commit=control_type(record) == COMMIT)
