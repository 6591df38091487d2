"""A broker on a virtual machine, through several lives, with clients and faults.

Owns: the topology and settings a seed gives, and what happens in a life: who is at work, what goes wrong, how it ends. What must
hold is in `broker_checks`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, Final

from ottla.broker.app import Broker, StartupError
from ottla.cluster.settings import BrokerSettings
from ottla.sim.actors.client import Client
from ottla.sim.actors.groups import Groups
from ottla.sim.actors.groups import properties as group_properties
from ottla.sim.actors.topic_admin import TopicAdmin
from ottla.sim.actors.workload import Workload
from ottla.sim.kernel.disk import Fault, SimDisk
from ottla.sim.kernel.loop import new_loop
from ottla.sim.kernel.machine import Machine
from ottla.sim.kernel.metadata_tree import MetadataTree
from ottla.sim.kernel.network import NetworkSettings, SimNetwork
from ottla.sim.kernel.node import Complaints
from ottla.sim.kernel.process import Process
from ottla.sim.kernel.trace import Trace
from ottla.sim.models.log_files import checkpoint_entries, entries_of
from ottla.sim.violation import Violation, require
from ottla.sim.worlds.broker_checks import BrokerChecks
from ottla.sim.worlds.harness import run_to_end
from ottla.storage.names import CLEANED, DELETED, SWAP

PORT: Final = 9092
START_S_MAX: Final = 120.0
STOP_S_MAX: Final = 120.0
MOVES_S_MAX: Final = 120.0
CLOCK_STEP_MS: Final = 1_800_000
"""Less than `message.timestamp.after.max.ms`: no producer is refused for it."""
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
        # Features are drawn from a generator of their own: a new one leaves the rest of a seed as it was.
        features = random.Random(f"features {seed}")
        properties = self._properties()
        has_groups = features.random() < 0.4
        if has_groups:
            properties.update(group_properties(features))
        has_compaction = features.random() < 0.3
        if has_compaction or has_groups:
            properties["log.cleaner.backoff.ms"] = features.choice(("500", "3000"))
            properties["log.cleaner.min.cleanable.ratio"] = features.choice(("0.01", "0.5"))
        self.settings = BrokerSettings.parse(properties)
        self.shared = Workload(random.Random(f"clients {seed}"), self.trace, PORT)
        self.checks = BrokerChecks(rng, self.disk, self.log_dirs, self.shared, self.trace, self.loop.time)
        self.shared.on_acknowledged = self.checks.check_acknowledged
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
        self.checks.check_after_start(how)
        assert self.broker is not None
        if self.groups is not None:
            await self._of_groups(self.groups.on_start(self.broker, how))
        if last:
            await self._quiet_check()
            if self.shared.has_compaction:
                await self._ask(self.checks.grow_compacted)
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
            await self._ask(self.checks.check_survivors)
        if process.alive and self.rng.random() < 0.3:
            await self._stop(process)
            if process.alive and self.broker is not None and self.shared.disk_is_sound:
                process.die()
                self.disk.kill(process)
                self.disk.forget_crash_point()
                self._note_death()
                return "clean"
        process.die()
        return self._end_of_life(process)

    def _on_death(self) -> None:
        if self._failed is not None and not self._failed.done():
            self._failed.set_result(None)

    def _spawn(self, process: Process, main: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self.loop.create_task(main, context=process.context())

    async def _start(self, process: Process) -> bool:
        """Start the broker. False: it died while starting."""
        broker = self.broker = self.checks.broker = None
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
        self.broker = self.checks.broker = broker
        return True

    async def _play(self, number: int) -> None:
        """Run clients and faults until the time is over or the broker is dead."""
        process = Process(f"clients {number}")
        self.processes.append(process)
        network = self.network.view(process)
        rng = self.rng
        admin, consumer = TopicAdmin("admin", self.shared, network), Client("consumer", self.shared, network)
        clients = [(admin, admin.administrate, 1.0), (consumer, consumer.consume, 1.0)]
        for index in range(rng.randint(1, 2)):
            producer = Client(f"producer-{index}", self.shared, network)
            clients.append((producer, producer.produce, 0.8))
        if rng.random() < 0.4:
            hurried = Client("hurried", self.shared, network)
            clients.append((hurried, hurried.produce_ahead, 2.0))
        if rng.random() < 0.4:
            follower = Client("follower", self.shared, network)
            clients.append((follower, follower.follow, 2.0))
        tasks = [self._spawn(process, client.run(act, pause_s=pause_s)) for client, act, pause_s in clients]
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
        """A broker whose directories have all failed asks to be stopped."""
        await broker.stop_asked()
        require(not self.shared.disk_is_sound, "error", f"the broker gave up: {broker.failure}")
        self.trace.add(f"the broker gives up: {broker.failure}")

    async def _misfortune(self) -> None:
        """Break connections and set the clock now and then. Faults of the disk are planned in `_plan_faults`."""
        chance = self.rng.choice((0.0, 0.05, 0.3))
        clock = self.machine.clock
        while True:
            await asyncio.sleep(1)
            self.checks.note_flushed()
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
            # Compaction is a small part of all changes: crash inside of it on purpose.
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
        """The process is dead: alone (kill), or with its machine (crash)."""
        self.disk.forget_crash_point()
        self._note_death()
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

    def _note_death(self) -> None:
        if self.groups is not None:
            self.groups.broker = self.broker
            self.groups.on_death(self.disk.interrupted)
        self.checks.note_death()

    # --- checks

    async def _await_moves(self) -> None:
        """Undisturbed, every move ends, and no copy is left."""
        end_s = self.loop.time() + MOVES_S_MAX
        while left := [
            f"{log_dir}/{name}"
            for log_dir in self.log_dirs
            for name in entries_of(self.disk, log_dir)
            if name.endswith("-future")
        ]:
            require(self.loop.time() < end_s, "moves", f"{left[0]} is not complete after {MOVES_S_MAX} s without disturbance")
            await asyncio.sleep(1.0)

    @property
    def _clock_may_be_set(self) -> bool:
        """Not where expiry within minutes is checked: a clock that is set would excuse anything."""
        return not self.shared.has_compaction and (self.groups is None or not self.groups.is_short)

    async def _of_groups(self, check: Coroutine[Any, Any, None]) -> None:
        """Run a check of groups, unless the broker dies."""
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
        """Without other clients: what the broker answers is what the disk holds."""
        await self._ask(self.checks.check_quietly)

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
