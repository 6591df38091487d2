"""A whole broker on a virtual machine, through several lives, with clients and misfortune.

Owns: the topology and settings a seed gives, the order of a life, and the checks between two lives and in a quiet moment.
Never: reaches into the broker to change it. What is read from it (log start, log end, directories) is compared with the disk and
with what clients were told.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable, Coroutine
from typing import Any, Final

from ottla.broker.app import Broker, StartupError
from ottla.broker.replicas.partition import Partition
from ottla.cluster.settings import BrokerSettings
from ottla.records.batch import RECORDS_AT
from ottla.sim.actors import group_play
from ottla.sim.actors.group_play import Groups
from ottla.sim.actors.workload import ANSWER_S_MAX, EARLIEST, LATEST, SMALL_ANSWER_S_MAX, Client, Shared, Topic
from ottla.sim.kernel.disk import Directory, Fault, SimDisk
from ottla.sim.kernel.loop import new_loop
from ottla.sim.kernel.machine import Machine
from ottla.sim.kernel.metadata import MetadataTree
from ottla.sim.kernel.network import NetworkSettings, SimNetwork
from ottla.sim.kernel.node import Complaints
from ottla.sim.kernel.process import Process
from ottla.sim.kernel.trace import Trace
from ottla.sim.models.checkers import (
    Violation,
    check_indexes,
    entries_of,
    guaranteed_end,
    require,
    segments,
)
from ottla.sim.models.keyed_model import KeyedModel
from ottla.sim.models.partition_model import PartitionModel, Sent, batch_in_files
from ottla.sim.worlds.harness import run_to_end
from ottla.sim.worlds.log_world import checkpoint_entries
from ottla.storage.names import CLEANED, DELETED, SWAP
from ottla.types import TopicPartition

PORT: Final = 9092
START_S_MAX: Final = 120.0
STOP_S_MAX: Final = 120.0
MOVES_S_MAX: Final = 120.0
CLOCK_STEP_MS: Final = 1_800_000
"""Less than `message.timestamp.after.max.ms`, so that no producer is refused for it."""
CHECKPOINTS: Final = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint")


class BrokerWorld:
    """A run of one seed."""

    def __init__(self, seed: int, *, echo: Callable[[str], None] | None = None) -> None:
        rng = self.rng = random.Random(f"broker {seed}")
        self.loop = new_loop()
        self.trace = Trace(self.loop.time, echo=echo)
        self.disk = SimDisk(random.Random(f"disk {seed}"), page_bytes=rng.choice((64, 512, 4096)))
        network = NetworkSettings(
            latency_s_max=rng.choice((0.001, 0.02, 0.2)),
            spike_chance=rng.choice((0.0, 0.02)),
            window_bytes=rng.choice((300, 4000, 65_536)),
            crumbs_chance=rng.choice((0.0, 0.0, 0.3)),
        )
        self.network = SimNetwork(random.Random(f"network {seed}"), network)
        self.machine = Machine(
            random.Random(f"machine {seed}"), self.disk, self.network, worker_delay_s_max=rng.choice((0.0, 0.01, 0.5))
        )
        self.tree = MetadataTree()
        self.log_dirs = [f"/d{number}" for number in range(rng.choice((1, 1, 2, 3)))]
        # Features have their own chance: one more of them leaves the rest of a seed as it is.
        features = random.Random(f"features {seed}")
        properties = self._properties()
        has_groups = features.random() < 0.4
        if has_groups:
            properties.update(group_play.properties(features))
        has_compaction = features.random() < 0.3
        if has_compaction or has_groups:
            properties["log.cleaner.backoff.ms"] = features.choice(("500", "3000"))
            properties["log.cleaner.min.cleanable.ratio"] = features.choice(("0.01", "0.5"))
        self.settings = BrokerSettings.parse(properties)
        self.shared = Shared(random.Random(f"clients {seed}"), self.trace, PORT)
        self.shared.on_acknowledged = self._check_acknowledged
        self.shared.has_compaction = has_compaction
        self._cleaning = random.Random(f"cleaning {seed}")
        if len(self.log_dirs) > 1 and features.random() < 0.5:
            self.shared.log_dirs = self.log_dirs
        self.groups = Groups(features, self.shared, properties, self.loop.time) if has_groups else None
        self.broker: Broker | None = None
        self.processes: list[Process] = []
        self._failed: asyncio.Future[None] | None = None
        self._complaints = Complaints()

    def _properties(self) -> dict[str, str]:
        rng = self.rng
        return {
            "broker.id": "1",
            "log.dirs": ",".join(self.log_dirs),
            "listeners": f"PLAINTEXT://127.0.0.1:{PORT}",
            "auto.create.topics.enable": "false",
            "log.retention.check.interval.ms": rng.choice(("1000", "20000")),
            "log.initial.task.delay.ms": "500",
            "log.flush.offset.checkpoint.interval.ms": rng.choice(("1000", "60000")),
            "log.flush.start.offset.checkpoint.interval.ms": rng.choice(("1000", "60000")),
            "log.flush.scheduler.interval.ms": rng.choice(("100", "3000")),
            "replica.high.watermark.checkpoint.interval.ms": rng.choice(("1000", "5000")),
            "connections.max.idle.ms": rng.choice(("2000", "600000")),
        }

    def run(self) -> None:
        run_to_end(self.loop, self._complaints, self._main, self._bury)

    def _bury(self) -> None:
        for process in self.processes:
            process.die()
            process.bury()

    async def _main(self) -> None:
        how = "new"
        for number in range(self.rng.randint(2, 3)):
            how = await self._life(number, how)
        await self._life(99, how, last=True)

    # --- a life

    async def _life(self, number: int, how: str, *, last: bool = False) -> str:
        """From start to end; returns how it ended: "clean", "kill" or "crash"."""
        self.trace.add(f"life {number} after {how}")
        self._failed = self.loop.create_future()
        process = Process(f"broker {number}")
        self.processes.append(process)
        process.at_death.append(self._on_death)
        crash_early = not last and self.rng.random() < 0.1
        if crash_early:
            self.disk.crash_after(self.rng.randint(1, 60), process.die)
        if not await self._start(process):
            return self._end_of_life(process, unverified=how)
        self.disk.forget_crash_point()
        self._check_after_start(how)
        assert self.broker is not None
        if self.groups is not None:
            await self._of_groups(self.groups.on_start(self.broker, how))
        if last:
            await self._quiet_check()
            if self.shared.has_compaction:
                await self._ask(self._grow_compacted)
                await self._quiet_check()
            await self._await_moves()
            if self.groups is not None:
                await self._settle(self.groups)
            await self._stop(process)
            return "clean"
        self._plan_faults(process)
        await self._play(number)
        if process.alive and self.shared.disk_is_sound and self.rng.random() < 0.5:
            await self._quiet_check()
        if process.alive and self.disk.faults and len(self.log_dirs) > 1:
            await self._ask(self._check_survivors)
        if process.alive and self.rng.random() < 0.3:
            await self._stop(process)
            if process.alive and self.broker is not None and self.shared.disk_is_sound:
                process.die()
                self.disk.kill(process)
                self.disk.forget_crash_point()
                self._note_deaths()
                return "clean"
        process.die()
        return self._end_of_life(process)

    def _on_death(self) -> None:
        if self._failed is not None and not self._failed.done():
            self._failed.set_result(None)

    def _spawn(self, process: Process, main: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self.loop.create_task(main, context=process.context())

    async def _start(self, process: Process) -> bool:
        """False: it died on the way."""
        broker = self.broker = None
        world = self.machine.world(process)
        started = self.loop.create_future()

        async def main() -> None:
            nonlocal broker
            broker = Broker(self.settings, world, store=self.tree.session(process, self.rng, delay_s_max=0.005))
            try:
                await broker.start()
            except Exception as error:
                started.set_exception(error)
            else:
                started.set_result(None)

        self._spawn(process, main())
        assert self._failed is not None
        done, _ = await asyncio.wait([started, self._failed], timeout=START_S_MAX, return_when=asyncio.FIRST_COMPLETED)
        if self._failed in done:
            return False
        require(bool(done), "hang", f"the broker did not start in {START_S_MAX} s")
        try:
            started.result()
        except (StartupError, OSError) as error:
            raise Violation("start", f"the broker does not start: {error}") from error
        self.broker = broker
        return True

    async def _play(self, number: int) -> None:
        """Clients and misfortune, until the time is over or the broker is gone."""
        process = Process(f"clients {number}")
        self.processes.append(process)
        network = self.network.view(process)
        rng = self.rng
        clients: list[tuple[Client, Callable[[Client], Coroutine[Any, Any, None]], float]] = [
            (Client("admin", self.shared, network), Client.administrate, 1.0),
            (Client("consumer", self.shared, network), Client.consume, 1.0),
        ]
        clients += [(Client(f"producer-{n}", self.shared, network), Client.produce, 0.8) for n in range(rng.randint(1, 2))]
        if rng.random() < 0.4:
            clients.append((Client("hurried", self.shared, network), Client.produce_ahead, 2.0))
        if rng.random() < 0.4:
            clients.append((Client("follower", self.shared, network), Client.follow, 2.0))
        tasks: list[asyncio.Task[None]] = []
        for client, act, pause_s in clients:
            tasks.append(self._spawn(process, client.run(lambda act=act, client=client: act(client), pause_s=pause_s)))  # type: ignore[misc]
        if self.groups is not None:
            for member, step, pause_s in self.groups.clients(network):
                tasks.append(self._spawn(process, member.run(step, pause_s=pause_s)))
        duration_s = rng.choice((3, 6, 12, 40))
        deadline = self.loop.call_later(duration_s, self._on_time_over)
        tasks.append(self._spawn(process, self._misfortune()))
        if self.broker is not None:
            tasks.append(self._spawn(process, self._watch(self.broker)))
        self._time_over = self.loop.create_future()
        assert self._failed is not None
        done, _ = await asyncio.wait([self._time_over, self._failed, *tasks], return_when=asyncio.FIRST_COMPLETED)
        deadline.cancel()
        process.die()
        for task in tasks:
            if task in done and not task.cancelled():
                task.result()
        self._complaints.check()

    _time_over: asyncio.Future[None]

    def _on_time_over(self) -> None:
        if not self._time_over.done():
            self._time_over.set_result(None)

    async def _watch(self, broker: Broker) -> None:
        """A broker without a sound directory asks to be stopped."""
        await broker.stop_asked()
        require(not self.shared.disk_is_sound, "error", f"the broker gave up: {broker.failure}")
        self.trace.add(f"the broker gives up: {broker.failure}")

    async def _misfortune(self) -> None:
        """Connections break now and then, and somebody sets the clock; the disk has its own plan."""
        chance = self.rng.choice((0.0, 0.05, 0.3))
        clock = self.machine.clock
        while True:
            await asyncio.sleep(1)
            self._note_flushed()
            if clock is not None and self.rng.random() < 0.02 and self._clock_may_be_set:
                clock.skew_ms = self.rng.choice((0, -CLOCK_STEP_MS, CLOCK_STEP_MS))
                self.trace.add(f"the clock is off by {clock.skew_ms} ms")
            if chance and self.rng.random() < chance:
                cut = self.network.cut_one()
                self.trace.add(f"cut {cut}")

    def _plan_faults(self, process: Process) -> None:
        rng = self.rng
        kind = rng.random()
        where = rng.choice(self.log_dirs)
        if kind < 0.3:
            self.disk.crash_after(rng.randint(1, 200), process.die)
        elif kind < 0.36:
            self.disk.capacity_bytes = self.disk.used_bytes + rng.randint(0, 20_000)
        elif kind < 0.42:
            self.disk.faults.append(Fault("write", where, after=rng.randint(0, 60)))
        elif kind < 0.48:
            self.disk.faults.append(Fault("flush", where, after=rng.randint(0, 20)))
        elif kind < 0.52:
            self.disk.faults.append(Fault("read", where, after=rng.randint(0, 60)))
        elif kind < 0.55:
            self.disk.faults.append(Fault(rng.choice(("create", "rename", "flush_dir")), where, after=rng.randint(0, 20)))
        elif self.shared.has_compaction:
            # Its steps are few among all changes, so they are waited for.
            name, within = self._cleaning.choice(((CLEANED, 40), (SWAP, 6), (DELETED, 4)))
            self.disk.crash_behind(name, self._cleaning.randint(1, within), process.die)
        self.shared.disk_is_sound = not self.disk.faults and self.disk.capacity_bytes is None

    async def _stop(self, process: Process) -> None:
        assert self.broker is not None
        task = self._spawn(process, self.broker.stop())
        assert self._failed is not None
        done, _ = await asyncio.wait([task, self._failed], timeout=STOP_S_MAX, return_when=asyncio.FIRST_COMPLETED)
        require(bool(done), "hang", f"the broker did not stop in {STOP_S_MAX} s")
        self.trace.add("stopped")
        self._complaints.check()

    def _end_of_life(self, process: Process, unverified: str = "") -> str:
        """The process is dead: with its machine, or alone."""
        self.disk.forget_crash_point()
        self._note_deaths()
        flush_failed = any(fault.operation == "flush" and fault.raised for fault in self.disk.faults)
        if self.rng.random() < 0.4 and not flush_failed:
            self.disk.kill(process)
            self.trace.add("kill")
            how = "crash" if unverified == "crash" else "kill"
        else:
            self.trace.add(f"crash {self.disk.crash()}")
            how = "crash"
        self.disk.faults.clear()
        self.disk.capacity_bytes = None
        self.shared.disk_is_sound = True
        for log_dir in self.log_dirs:
            for name in CHECKPOINTS:
                checkpoint_entries(self.disk, f"{log_dir}/{name}")
        return how

    # --- checks

    def _partition(self, model: PartitionModel) -> Partition | None:
        assert self.broker is not None
        topic, _, index = model.name.rpartition("-")
        for partition in self.broker.partitions:
            if partition.topic_partition == TopicPartition(topic, int(index)):
                return partition if partition.log.topic_id == model.topic_id else None
        return None

    def _models(self) -> list[tuple[Topic, PartitionModel]]:
        return [(topic, model) for topic in self.shared.topics.values() for model in topic.partitions]

    def _found_in(self, model: PartitionModel, partition: Partition) -> None:
        """Where it lies. A replica that was moved has other files."""
        if isinstance(model, KeyedModel) and model.directory != partition.log.dir:
            model.moved(partition.log.log_end_offset)
        model.directory = partition.log.dir

    def _note_flushed(self) -> None:
        if self.broker is None:
            return
        for _, model in self._models():
            partition = self._partition(model)
            if partition is not None and not partition.is_offline:
                model.flushed_below = max(model.flushed_below, partition.log.recovery_point)

    async def _await_moves(self) -> None:
        """In quiet times every move comes to its end, and no copy is left."""
        end_s = self.loop.time() + MOVES_S_MAX
        while left := [
            f"{log_dir}/{name}"
            for log_dir in self.log_dirs
            for name in entries_of(self.disk, log_dir)
            if name.endswith("-future")
        ]:
            require(self.loop.time() < end_s, "moves", f"after {MOVES_S_MAX} s of quiet {left[0]} is still a copy on its way")
            await asyncio.sleep(1.0)

    def _note_deaths(self) -> None:
        """What a restart has to bring back, by what the disk holds and was told to keep."""
        if self.groups is not None:
            self.groups.broker = self.broker
            self.groups.on_death(self.disk.interrupted)
        for topic in [*self.shared.topics.values(), *self.shared.doubtful]:
            for model in topic.partitions:
                partition = self._partition(model) if self.broker is not None else None
                if partition is not None:
                    self._found_in(model, partition)
                    model.flushed_below = max(model.flushed_below, partition.log.recovery_point)
                    model.died_with = (partition.log.log_start_offset, partition.log.log_end_offset)
                if isinstance(model, KeyedModel) and model.directory:
                    model.note_durable(self.disk)
                model.guaranteed = guaranteed_end(self.disk, model.directory, 0) if model.directory else 0

    def _check_after_start(self, how: str) -> None:
        """Everything that must be there is there, and nothing else (L01, L02, L10, L11)."""
        assert self.broker is not None
        self._reconcile_topics()
        for _, model in self._models():
            partition = self._partition(model)
            if partition is None:
                raise Violation("acknowledged", f"{model.name} is not there after {how}")
            self._check_partition_after_start(model, partition, how)
        known = {model.directory for _, model in self._models()}
        known.update(
            partition.log.dir for partition in self.broker.partitions if partition.topic_partition.topic.startswith("__")
        )
        for log_dir in self.log_dirs:
            for name, node in entries_of(self.disk, log_dir).items():
                if isinstance(node, Directory) and not name.endswith(("-delete", "-stray", "-future")):
                    require(f"{log_dir}/{name}" in known, "stray", f"{log_dir}/{name} belongs to no topic")

    def _reconcile_topics(self) -> None:
        """Where an answer did not come, the outcome is known now."""
        assert self.broker is not None
        image = self.broker.image
        for name, topic in list(self.shared.topics.items()):
            found = image.topics.get(name)
            require(
                found is not None and found.topic_id == topic.topic_id,
                "acknowledged",
                f"the topic {name} is gone, or another one",
            )
        doubtful = {topic.topic_id: topic for topic in self.shared.doubtful}
        self.shared.doubtful.clear()
        for name, found in sorted(image.topics.items()):
            if found.internal:
                continue
            topic = self.shared.topics.get(name) or doubtful.get(found.topic_id) or Topic(name, found.topic_id, {})
            topic.config = dict(found.config)
            self.shared.topics[name] = topic
            topic.add_partitions(len(found.partitions), self.loop.time)
            require(
                len(topic.partitions) == len(found.partitions),
                "acknowledged",
                f"{name} has {len(found.partitions)} partitions, {len(topic.partitions)} were made",
            )

    def _check_partition_after_start(self, model: PartitionModel, partition: Partition, how: str) -> None:
        log = partition.log
        start, end = log.log_start_offset, log.log_end_offset
        died_start, died_end = model.died_with
        self._found_in(model, partition)
        self.trace.add(f"{model.name} {start}..{end}, was {died_start}..{died_end}, guaranteed {model.guaranteed}")
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
                model.forget_unflushed(self.disk, start)
        else:
            require(end >= died_end, "acknowledged", f"{model.name} ends at {end} after {how}, it was {died_end}")
        if how == "clean":
            require(start == died_start, "log-start", f"{model.name} starts at {start} after a clean stop, it was {died_start}")
        require(start <= died_start, "log-start", f"{model.name} starts at {start} after {how}, it was {died_start}")
        model.check_stored(self.disk, start, end)
        check_indexes(self.disk, log.dir, (), start)
        require(start <= log.high_watermark <= end, "high-watermark", f"{model.name}: {start}, {log.high_watermark}, {end}")
        model.high_watermark_seen = 0
        model.log_start_seen = 0
        model.deleted_below = start if how != "clean" else model.deleted_below

    def _check_acknowledged(self, topic: Topic, model: PartitionModel, sent: Sent, offset: int) -> None:
        """Acknowledged: then it is in the file, and flushed if the topic asks for that (L06)."""
        partition = self._partition(model) if self.broker is not None else None
        if partition is None or offset < partition.log.log_start_offset:
            return
        cleaned = partition.log.cleaned_offset
        if model.is_compacted and cleaned is not None and cleaned > offset:
            return
        directory = partition.log.dir
        bases = segments(entries_of(self.disk, directory))
        if not bases or offset < bases[0]:
            return
        data = batch_in_files(self.disk, directory, offset, bases)
        require(
            data is not None and data[17:] == sent.content, "false-success", f"{model.name}: {offset} is acknowledged, not stored"
        )
        if topic.flushes_each and not model.is_compacted and offset >= partition.log.log_start_offset:
            certain = guaranteed_end(self.disk, directory, partition.log.log_start_offset, start_is_durable=True)
            require(
                certain >= offset + sent.count,
                "false-success",
                f"{model.name}: {offset} is acknowledged with flush.messages=1, but only {certain} is sure to survive",
            )

    @property
    def _clock_may_be_set(self) -> bool:
        """Where something is counted in minutes, a clock that is set makes everything allowed."""
        return not self.shared.has_compaction and (self.groups is None or not self.groups.is_short)

    async def _of_groups(self, check: Coroutine[Any, Any, None]) -> None:
        """A check of groups that waits for the broker, unless that dies."""
        task = asyncio.ensure_future(check)
        assert self._failed is not None
        done, _ = await asyncio.wait([task, self._failed], return_when=asyncio.FIRST_COMPLETED)
        if task in done:
            task.result()
        else:
            task.cancel()

    async def _settle(self, groups: Groups) -> None:
        process = Process("settling")
        self.processes.append(process)
        task = self._spawn(process, groups.settle(self.network.view(process)))
        await task
        process.die()
        self._complaints.check()

    async def _quiet_check(self) -> None:
        """Nobody else is there: what the wire says is what the disk says."""
        await self._ask(self._check_quietly)

    async def _ask(self, check: Callable[[Client], Coroutine[Any, Any, None]]) -> None:
        """Run a check as the only client."""
        process = Process("checker")
        self.processes.append(process)
        client = Client("checker", self.shared, self.network.view(process))
        task = self._spawn(process, check(client))
        assert self._failed is not None
        done, _ = await asyncio.wait([task, self._failed], return_when=asyncio.FIRST_COMPLETED)
        process.die()
        if task in done:
            task.result()
        self._complaints.check()

    async def _check_survivors(self, client: Client) -> None:
        """One directory failed: the others go on as if nothing had happened (L06, F6)."""
        broken = self.disk.faults[0].prefix
        assert self.broker is not None
        for topic in list(self.shared.topics.values()):
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
                    f"{model.name} lies in {partition.log.dir} and is not served, though only {broken} failed",
                )

    async def _grow_compacted(self, client: Client) -> None:
        """Some more records, and time for the cleaner, twice: tombstones have a first pass and one in which they may go."""
        for _ in range(2):
            for topic in list(self.shared.topics.values()):
                for index in range(len(topic.partitions) if topic.is_compacted else 0):
                    for _ in range(6):
                        await client.produce_to(topic, index, 1)
            await asyncio.sleep(15.0)

    async def _check_quietly(self, client: Client) -> None:
        for topic in list(self.shared.topics.values()):
            for index, model in enumerate(topic.partitions):
                try:
                    await self._check_one_quietly(client, topic, index, model)
                except OSError as error:
                    require(error.errno is None or error.errno != errno.EIO, "error", f"{error!r}")
                    return  # the broker is being shut down around us

    async def _check_one_quietly(self, client: Client, topic: Topic, index: int, model: PartitionModel) -> None:
        partition = self._partition(model)
        if partition is None:
            raise Violation("acknowledged", f"{model.name} is not there")
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
        found = model.check_stored(self.disk, start, end)
        changes = log.changes
        check_indexes(self.disk, log.dir, (), start)
        model.fetched.clear()
        position: int | None = start
        while position is not None and position < end:
            before = position
            position = await client.fetch(topic, index, position, self.rng.choice((1, 700, 1 << 20)))
            if log.log_start_offset != start:
                return
            require(position is None or position > before, "read", f"{model.name}: nothing at {before}, the log ends at {end}")
            if model.is_compacted and (log.changes != changes or partition.log is not log):
                return
        if model.is_compacted and position is not None:
            # Those that compaction has emptied need not be told.
            empty = {batch.base_offset for batch in found if len(batch.data) == RECORDS_AT}
            bases = [batch.base_offset for batch in found if batch.base_offset not in empty]
            told = [base for base in model.fetched if base not in empty]
            require(told == bases, "read", f"{model.name}: a reader got the batches {told}, there are {bases}")
        client.answer_s_max = SMALL_ANSWER_S_MAX
        await client.fetch(topic, index, end, 1000)  # nothing there: the answer comes when the time is over, and not much later
        client.answer_s_max = ANSWER_S_MAX
        if start > 0:
            below = await client.fetch(topic, index, start - 1, 1000)
            require(below is None, "read-bound", f"{model.name}: {start - 1} can be read, the log starts at {start}")
        await self._check_times_quietly(client, topic, index, model, found, start)

    async def _check_times_quietly(
        self, client: Client, topic: Topic, index: int, model: PartitionModel, found: list[Any], start: int
    ) -> None:
        times = sorted({time for sent in model.sent.values() if sent.offset is not None for time in sent.timestamps})
        for target in self.rng.sample(times, min(3, len(times))):
            expected = model.first_at_or_after(found, start, target)
            answer = await client.list_offset(topic, index, target)
            partition = self._partition(model)
            if partition is None or partition.log.log_start_offset != start or partition.log.dir != model.directory:
                return
            now = model.check_stored(self.disk, start, partition.log.log_end_offset) if model.is_compacted else found
            require(
                answer in ((expected or (-1, -1)), (model.first_at_or_after(now, start, target) or (-1, -1))),
                "time-lookup",
                f"{model.name}: {target} is at {expected}, the broker says {answer}",
            )
