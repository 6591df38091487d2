"""What must hold of one broker: after each start, at each acknowledgement, and in a quiet moment.

Owns: the comparison of three things: what clients were told (the models), what the broker says, and what the disk holds.
Never: changes the broker.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable, Sequence
from typing import Any

from ottla.broker.app import Broker
from ottla.broker.replicas.partition import Partition
from ottla.records.batch import RECORDS_AT
from ottla.sim.actors.client import ANSWER_S_MAX, EARLIEST, LATEST, SMALL_ANSWER_S_MAX, Client
from ottla.sim.actors.workload import Topic, Workload
from ottla.sim.kernel.disk import SimDisk
from ottla.sim.kernel.inode import Directory
from ottla.sim.kernel.trace import Trace
from ottla.sim.models.keyed_model import KeyedModel
from ottla.sim.models.log_files import entries_of, guaranteed_end, segments
from ottla.sim.models.log_model import check_indexes
from ottla.sim.models.partition_model import PartitionModel, Sent, batch_in_files
from ottla.sim.violation import Violation, require
from ottla.types import TopicPartition


class BrokerChecks:
    def __init__(
        self,
        rng: random.Random,
        disk: SimDisk,
        log_dirs: Sequence[str],
        workload: Workload,
        trace: Trace,
        now_s: Callable[[], float],
    ) -> None:
        self._rng = rng
        self._disk = disk
        self._log_dirs = log_dirs
        self._workload = workload
        self._trace = trace
        self._now_s = now_s
        self.broker: Broker | None = None
        """The broker that was started last."""

    def _partition(self, model: PartitionModel) -> Partition | None:
        assert self.broker is not None
        topic, _, index = model.name.rpartition("-")
        for partition in self.broker.partitions:
            if partition.topic_partition == TopicPartition(topic, int(index)):
                return partition if partition.log.topic_id == model.topic_id else None
        return None

    def _models(self) -> list[tuple[Topic, PartitionModel]]:
        return [(topic, model) for topic in self._workload.topics.values() for model in topic.partitions]

    def _found_in(self, model: PartitionModel, partition: Partition) -> None:
        """Note the directory of a replica. A moved replica has other files."""
        if isinstance(model, KeyedModel) and model.directory != partition.log.dir:
            model.moved(partition.log.log_end_offset)
        model.directory = partition.log.dir

    def note_flushed(self) -> None:
        if self.broker is None:
            return
        for _, model in self._models():
            partition = self._partition(model)
            if partition is not None and not partition.is_offline:
                self._note_recovery_point(model, partition)

    def _note_recovery_point(self, model: PartitionModel, partition: Partition) -> None:
        """A crash may take back the rename that ends a move. Until then the old log counts, which need not be flushed."""
        parent, _, name = partition.log.dir.rpartition("/")
        node = self._disk.find(parent)
        assert isinstance(node, Directory), parent
        renamed = any(other.startswith(f"{name}.") and other.endswith("-future") for other in node.durable)
        if not (renamed or name.endswith("-future")):
            model.flushed_below = max(model.flushed_below, partition.log.recovery_point)

    def note_death(self) -> None:
        """Note what the next start must find: what the disk holds, and what of it is flushed."""
        for topic in [*self._workload.topics.values(), *self._workload.doubtful]:
            for model in topic.partitions:
                partition = self._partition(model) if self.broker is not None else None
                if partition is not None:
                    self._found_in(model, partition)
                    self._note_recovery_point(model, partition)
                    model.died_with = (partition.log.log_start_offset, partition.log.log_end_offset)
                if isinstance(model, KeyedModel) and model.directory:
                    model.note_durable(self._disk)
                # Until the copy of a move is renamed the old log counts.
                is_log = model.directory and not model.directory.endswith("-future")
                model.guaranteed = guaranteed_end(self._disk, model.directory, 0) if is_log else 0

    def check_after_start(self, how: str) -> None:
        """After a start everything that must be there is there, and nothing else (L01, L02, L10, L11)."""
        assert self.broker is not None
        self._reconcile_topics()
        for _, model in self._models():
            partition = self._partition(model)
            if partition is None:
                raise Violation("acknowledged", f"{model.name} is missing after {how}")
            self._check_partition_after_start(model, partition, how)
        known = {model.directory for _, model in self._models()}
        known.update(
            partition.log.dir for partition in self.broker.partitions if partition.topic_partition.topic.startswith("__")
        )
        for log_dir in self._log_dirs:
            for name, node in entries_of(self._disk, log_dir).items():
                if isinstance(node, Directory) and not name.endswith(("-delete", "-stray", "-future")):
                    require(f"{log_dir}/{name}" in known, "stray", f"{log_dir}/{name} belongs to no topic")

    def _reconcile_topics(self) -> None:
        """Learn the outcome of topic requests that were not answered."""
        assert self.broker is not None
        image = self.broker.image
        for name, topic in list(self._workload.topics.items()):
            found = image.topics.get(name)
            require(
                found is not None and found.topic_id == topic.topic_id,
                "acknowledged",
                f"topic {name} is missing, or has another id",
            )
        doubtful = {topic.topic_id: topic for topic in self._workload.doubtful}
        self._workload.doubtful.clear()
        for name, found in sorted(image.topics.items()):
            if found.internal:
                continue
            topic = self._workload.topics.get(name) or doubtful.get(found.topic_id) or Topic(name, found.topic_id, {})
            topic.config = dict(found.config)
            self._workload.topics[name] = topic
            topic.add_partitions(len(found.partitions), self._now_s)
            require(
                len(topic.partitions) == len(found.partitions),
                "acknowledged",
                f"{name} has {len(found.partitions)} partitions, {len(topic.partitions)} were created",
            )

    def _check_partition_after_start(self, model: PartitionModel, partition: Partition, how: str) -> None:
        log = partition.log
        start, end = log.log_start_offset, log.log_end_offset
        died_start, died_end = model.died_with
        self._found_in(model, partition)
        self._trace.add(f"{model.name} {start}..{end}, was {died_start}..{died_end}, guaranteed {model.guaranteed}")
        if how == "crash":
            require(
                end >= min(model.guaranteed, died_end),
                "flushed",
                f"{model.name} ends at {end}, flushed was up to {model.guaranteed}",
            )
            require(
                end >= min(model.flushed_below, died_end),
                "flushed",
                f"{model.name} ends at {end}, its recovery point was {model.flushed_below}",
            )
            model.forget_lost(end)
            if isinstance(model, KeyedModel):
                model.forget_unflushed(self._disk, start)
        else:
            require(end >= died_end, "acknowledged", f"{model.name} ends at {end} after {how}, it was {died_end}")
        if how == "clean":
            require(start == died_start, "log-start", f"{model.name} starts at {start} after a clean stop, it was {died_start}")
        require(start <= died_start, "log-start", f"{model.name} starts at {start} after {how}, it was {died_start}")
        model.check_stored(self._disk, start, end)
        check_indexes(self._disk, log.dir, (), start)
        require(
            start <= log.high_watermark <= end, "high-watermark", f"{model.name}: not {start} <= {log.high_watermark} <= {end}"
        )
        model.high_watermark_seen = 0
        model.log_start_seen = 0
        model.deleted_below = start if how != "clean" else model.deleted_below

    def check_acknowledged(self, topic: Topic, model: PartitionModel, sent: Sent, offset: int) -> None:
        """An acknowledged batch is in the file, and flushed where `flush.messages=1` (L06)."""
        partition = self._partition(model) if self.broker is not None else None
        if partition is None or offset < partition.log.log_start_offset:
            return
        cleaned = partition.log.cleaned_offset
        if model.is_compacted and cleaned is not None and cleaned > offset:
            return
        directory = partition.log.dir
        bases = segments(entries_of(self._disk, directory))
        if not bases or offset < bases[0]:
            return
        data = batch_in_files(self._disk, directory, offset, bases)
        require(
            data is not None and data[17:] == sent.content,
            "false-success",
            f"{model.name}: offset {offset} is acknowledged and not stored",
        )
        if topic.flushes_each and not model.is_compacted and offset >= partition.log.log_start_offset:
            certain = guaranteed_end(self._disk, directory, partition.log.log_start_offset, start_is_durable=True)
            require(
                certain >= offset + sent.count,
                "false-success",
                f"{model.name}: {offset} is acknowledged with flush.messages=1, but only offsets below {certain} survive a crash",
            )

    async def check_survivors(self, client: Client) -> None:
        """One directory failed: replicas in the others are still served (L06, F6)."""
        broken = self._disk.faults[0].prefix
        assert self.broker is not None
        for topic in list(self._workload.topics.values()):
            for index, model in enumerate(topic.partitions):
                partition = self._partition(model)
                if partition is None or partition.log.dir.startswith(f"{broken}/"):
                    continue
                try:
                    stored = await client.produce_to(topic, index, 1)
                except OSError:
                    return
                require(
                    stored,
                    "isolation",
                    f"{model.name} in {partition.log.dir} is not served, though only {broken} failed",
                )

    async def grow_compacted(self, client: Client) -> None:
        """More records and time for the cleaner, twice: a tombstone is removed in its second pass at the earliest."""
        for _ in range(2):
            for topic in list(self._workload.topics.values()):
                for index in range(len(topic.partitions) if topic.is_compacted else 0):
                    for _ in range(6):
                        await client.produce_to(topic, index, 1)
            await asyncio.sleep(15.0)

    async def check_quietly(self, client: Client) -> None:
        for topic in list(self._workload.topics.values()):
            for index, model in enumerate(topic.partitions):
                try:
                    await self._check_one_quietly(client, topic, index, model)
                except OSError as error:
                    require(error.errno is None or error.errno != errno.EIO, "error", f"{error!r}")
                    return  # the broker stops meanwhile

    async def _check_one_quietly(self, client: Client, topic: Topic, index: int, model: PartitionModel) -> None:
        partition = self._partition(model)
        if partition is None:
            raise Violation("acknowledged", f"{model.name} is missing")
        log = partition.log
        self._found_in(model, partition)
        earliest, latest = await client.list_offset(topic, index, EARLIEST), await client.list_offset(topic, index, LATEST)
        if earliest is None or latest is None:
            return
        start, end = earliest[1], latest[1]
        log = partition.log  # it may have been moved meanwhile
        self._found_in(model, partition)
        if (start, end) != (log.log_start_offset, log.log_end_offset):
            return  # retention or a produce request with acks=0 came in between
        found = model.check_stored(self._disk, start, end)
        changes = log.changes
        check_indexes(self._disk, log.dir, (), start)
        model.fetched.clear()
        position: int | None = start
        while position is not None and position < end:
            before = position
            position = await client.fetch(topic, index, position, self._rng.choice((1, 700, 1 << 20)))
            if log.log_start_offset != start:
                return
            require(position is None or position > before, "read", f"{model.name}: nothing at {before}, the log ends at {end}")
            if model.is_compacted and (log.changes != changes or partition.log is not log):
                return
        if model.is_compacted and position is not None:
            # Batches that compaction has emptied need not be returned.
            empty = {batch.base_offset for batch in found if len(batch.data) == RECORDS_AT}
            bases = [batch.base_offset for batch in found if batch.base_offset not in empty]
            told = [base for base in model.fetched if base not in empty]
            require(told == bases, "read", f"{model.name}: a reader got the batches {told}, there are {bases}")
        client.answer_s_max = SMALL_ANSWER_S_MAX
        await client.fetch(topic, index, end, 1000)  # nothing there: the answer comes at the deadline, not much later
        client.answer_s_max = ANSWER_S_MAX
        if start > 0:
            below = await client.fetch(topic, index, start - 1, 1000)
            require(below is None, "read-bound", f"{model.name}: {start - 1} can be read, the log starts at {start}")
        await self._check_times_quietly(client, topic, index, model, found, start)

    async def _check_times_quietly(
        self, client: Client, topic: Topic, index: int, model: PartitionModel, found: list[Any], start: int
    ) -> None:
        times = sorted({time for sent in model.sent.values() if sent.offset is not None for time in sent.timestamps})
        for target in self._rng.sample(times, min(3, len(times))):
            expected = model.first_at_or_after(found, start, target)
            answer = await client.list_offset(topic, index, target)
            partition = self._partition(model)
            if partition is None or partition.log.log_start_offset != start or partition.log.dir != model.directory:
                return
            now = model.check_stored(self._disk, start, partition.log.log_end_offset) if model.is_compacted else found
            require(
                answer in ((expected or (-1, -1)), (model.first_at_or_after(now, start, target) or (-1, -1))),
                "time-lookup",
                f"{model.name}: the first record at or after {target} is {expected}, the broker answers {answer}",
            )
