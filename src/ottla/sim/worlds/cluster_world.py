"""A cluster of three to five brokers under one metadata tree, with clients that play through whatever happens to it.

Owns: the topology and settings a seed gives, the misfortunes (kills, crashes, pauses, cut networks, a store out of reach, clean
stops), the pace of the checks, and the calm at the end in which everything must come to rest.

What was acknowledged by all in-sync replicas is never lost as long as one of them lives. So a machine crashes, with what it had
not flushed, only where that holds: every record is flushed, or another replica in sync is alive and the one that crashed stays
away until the cluster has noticed.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple

from ottla.coordinator.txn.state import IDLE
from ottla.records.batch import read_batch_header
from ottla.records.record import read_records
from ottla.replication.closest import RACK_AWARE
from ottla.sim.actors.cast import Cast
from ottla.sim.actors.cluster_admin import GUESTS, Administrator, Guests, Visitor
from ottla.sim.actors.cluster_groups import ClusterGroups, Witness
from ottla.sim.actors.group_play import properties as group_properties
from ottla.sim.actors.play import Actor, Address, Habits, Play
from ottla.sim.actors.scene import OTHER, SOURCE, Scene
from ottla.sim.actors.workload import Shared, Topic
from ottla.sim.kernel.disk import Fault
from ottla.sim.kernel.loop import new_loop
from ottla.sim.kernel.metadata import MetadataTree
from ottla.sim.kernel.network import NetworkSettings, SimNetwork
from ottla.sim.kernel.node import Complaints, Node
from ottla.sim.kernel.process import Process
from ottla.sim.kernel.trace import Trace
from ottla.sim.models.checkers import Violation, check_producers, require, stored_batches
from ottla.sim.models.cluster_rules import ClusterRules, PartitionState
from ottla.sim.models.history import Place

FIRST_PORT: Final = 9090
CHECK_S: Final = 0.2
CHECK_LOGS_EVERY: Final = 25
SETTLE_S_MAX: Final = 120.0
SENDS_MAX: Final = 2000
CLOCK_STEP_MS: Final = 1_800_000


class Player(NamedTuple):
    """Somebody who only plays."""

    run: Callable[[], Any]


class ClusterWorld:
    """A run of one seed."""

    brokers_min = 3

    def __init__(self, seed: int, *, echo: Callable[[str], None] | None = None) -> None:
        rng = self.rng = random.Random(f"cluster {seed}")
        self.loop = new_loop()
        self.trace = Trace(self.loop.time, echo=echo)
        network = NetworkSettings(
            latency_s_max=rng.choice((0.001, 0.01, 0.05)),
            spike_chance=rng.choice((0.0, 0.01)),
            spike_s_max=rng.choice((0.5, 4.0)),
            crumbs_chance=0.0,
        )
        # What not every seed has is drawn apart, so that a seed without it stays as it was.
        extras = self.extras = random.Random(f"cluster extras {seed}")
        self.has_moves = extras.random() < 0.35
        self.has_guests = extras.random() < 0.3
        self.has_groups = extras.random() < 0.3
        self.disks_fail = extras.random() < 0.3
        self.dirs = extras.choice((1, 2, 3)) if extras.random() < 0.4 or self.disks_fail else 1
        self.has_late_mail = extras.random() < 0.3
        if self.has_late_mail:
            # Late mail: what was asked arrives long after whoever asked has given up, and asked again.
            network = replace(network, spike_chance=extras.choice((0.01, 0.03)), spike_s_max=extras.choice((8.0, 15.0)))
        more = random.Random(f"cluster more {seed}")
        self.has_racks = more.random() < 0.2
        self.settings_change = more.random() < 0.2
        self.network = SimNetwork(random.Random(f"network {seed}"), network)
        self.session_timeout_s = rng.choice((3.0, 6.0))
        self.tree = MetadataTree(self.session_timeout_s)
        self.count = max(rng.choice((3, 3, 3, 4, 5)), self.brokers_min)
        self.replicas = rng.choice((2, 3, 3, 3))
        self.min_isr = rng.choice((1, 2, 2)) if self.replicas > 2 else 1
        self.flushes = rng.random() < 0.3
        self.lossy = rng.random() < 0.05
        self.has_table = rng.random() < 0.2
        self.common = self._properties()
        self.nodes = [self._node(number, seed) for number in range(1, self.count + 1)]
        habits = Habits(
            patience_s=rng.choice(((1.0, 2.0), (3.0, 6.0))),
            double_chance=rng.choice((0.0, 0.05)),
            die_chance=rng.choice((0.0, 0.01)),
            pause_chance=rng.choice((0.0, 0.02)),
        )
        brokers = [("127.0.0.1", node.port) for node in self.nodes]
        self.play = Play(random.Random(f"play {seed}"), self.trace, self.loop.time, brokers, habits)
        self.play.ends_are_told = False
        self.play.offsets_may_shrink = self.lossy
        self.cast = Cast(random.Random(f"cast {seed}"), self.loop, self.network, self.play)
        self.scene = Scene(rng, self.play, self.cast, has_table=self.has_table)
        self.scene.rack = "rack-1" if self.has_racks else ""
        self.rules = ClusterRules(self.nodes, self.tree, self.play)
        self.rules.lossy = self.lossy
        self.play.leads = self._leads
        self.guests = Guests()
        self.groups: ClusterGroups | None = None
        self._complaints = Complaints()
        self._nemesis: list[asyncio.Task[None]] = []
        self._checked = 0
        self._recovering: set[int] = set()
        """Brokers that lost what they had not flushed, and are not yet back."""
        self._sick: set[int] = set()
        """Brokers whose disks fail at present."""

    def _leads(self, place: Place, address: Address) -> bool:
        state = self.rules.state(place)
        return state is not None and any(node.number == state.leader and node.port == address[1] for node in self.nodes)

    def _properties(self) -> dict[str, str]:
        rng = self.rng
        found = {
            "zookeeper.connect": "sim:2181",
            "zookeeper.session.timeout.ms": str(int(self.session_timeout_s * 1000)),
            "auto.create.topics.enable": "false",
            "default.replication.factor": str(self.replicas),
            "min.insync.replicas": str(self.min_isr),
            "replica.lag.time.max.ms": rng.choice(("1500", "4000")),
            "replica.fetch.wait.max.ms": rng.choice(("200", "500")),
            "replica.fetch.backoff.ms": "200",
            "replica.socket.timeout.ms": "3000",
            "replica.fetch.max.bytes": rng.choice(("300", "1048576")),
            "controller.socket.timeout.ms": "3000",
            "request.timeout.ms": "5000",
            "num.replica.fetchers": rng.choice(("1", "2")),
            "controlled.shutdown.retry.backoff.ms": "500",
            "unclean.leader.election.enable": "true" if self.lossy else "false",
            "auto.leader.rebalance.enable": rng.choice(("true", "false")),
            "leader.imbalance.check.interval.seconds": "10",
            "log.retention.check.interval.ms": "20000",
            "log.initial.task.delay.ms": "500",
            "log.flush.offset.checkpoint.interval.ms": rng.choice(("1000", "60000")),
            "log.flush.start.offset.checkpoint.interval.ms": "60000",
            "log.flush.scheduler.interval.ms": "3000",
            "replica.high.watermark.checkpoint.interval.ms": rng.choice(("500", "5000")),
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": str(self.replicas),
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.replication.factor": str(self.replicas),
            "transaction.state.log.min.isr": str(self.min_isr),
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
            "log.cleaner.backoff.ms": "3000",
        }
        if self.flushes:
            found["log.flush.interval.messages"] = "1"
        if self.has_groups:
            # Towards the end the clocks are set forward: nothing expires by that.
            found |= {**group_properties(self.extras), "offsets.retention.minutes": "10080"}
        return found

    def _node_properties(self, number: int) -> dict[str, str]:
        near = {"replica.selector.class": RACK_AWARE, "broker.rack": f"rack-{number % 2}"} if self.has_racks else {}
        return {
            **near,
            "broker.id": str(number),
            "log.dirs": ",".join(f"/d{index or ''}" for index in range(self.dirs)),
            "listeners": f"PLAINTEXT://127.0.0.1:{FIRST_PORT + number}",
        }

    def _node(self, number: int, seed: int) -> Node:
        rng = self.rng
        properties = {**self.common, **self._node_properties(number)}
        return Node(
            number,
            f"cluster {seed}",
            self.loop,
            self.network,
            self.tree,
            properties,
            self.trace,
            page_bytes=rng.choice((64, 512, 4096)),
            worker_delay_s_max=rng.choice((0.0, 0.02)),
        )

    def run(self) -> None:
        with self._complaints:
            try:
                self.loop.run_until_complete(self._main())
                if self.loop.unhandled:
                    raise Violation("unhandled", f"{self.loop.unhandled[0]}")
            finally:
                self.tree.closed = True
                self.cast.bury()
                for node in self.nodes:
                    node.bury()
                self.loop.close()

    async def _main(self) -> None:
        rng = self.rng
        await asyncio.gather(*(node.start() for node in self.nodes))
        await self._alone("admin", lambda admin: self.scene.create_topics(admin, {}, replicas=self.replicas))
        self.scene.enter(watched=False)
        self._enter_administrators()
        if self.has_groups and not self.lossy:
            # An unclean election may take what a group was told: nothing could be held against the next coordinator.
            self._enter_members()
        self._nemesis = [self.loop.create_task(self._misfortune()) for _ in range(rng.choice((1, 1, 2)))]
        await self._watch(rng.choice((15.0, 30.0, 50.0)))
        for task in self._nemesis:
            task.cancel()
        await self._calm()
        ends = await self._settle()
        if not self.lossy:
            self.scene.judge(await self.scene.read_everything(ends))
        self.rules.check()
        self.rules.check_logs(whole=True)
        self._check_guests()
        for node in self.nodes:
            assert node.broker is not None
            for partition in sorted(node.broker.partitions, key=lambda each: each.topic_partition):
                if "compact" not in partition.log.config.cleanup_policy:
                    check_producers(node.disk, partition.log)
        self._complaints.check()

    def _enter_members(self) -> None:
        shared = Shared(random.Random(self.extras.random()), self.trace, 0)
        for name in (SOURCE, OTHER):
            known = self.play.topics[name]
            shared.topics[name] = Topic(name, known.topic_id, {})
            shared.topics[name].add_partitions(known.partitions, self.loop.time)
        groups = self.groups = ClusterGroups(
            self.extras,
            shared,
            self.common,
            self.loop.time,
            (SOURCE, OTHER),
            [node.port for node in self.nodes],
            Witness(self.nodes, self.rules),
        )
        count = sum(len(model.members) + 1 for model in groups.models)
        for number in range(count):

            def member(_: int, process: Process, number: int = number) -> Player:
                client, act, pause_s = groups.clients(self.scene.view(process))[number]
                return Player(lambda: client.run(act, pause_s=pause_s))

            self.cast.keep(f"member-{number}", member)

    async def _settle_groups(self) -> None:
        """In the calm every group comes to rest, also without one of its members, and has the offsets it was told it has."""
        groups = self.groups
        if groups is None or self.lossy:
            return
        try:
            await self.cast.play_alone("groups", self.scene.view, groups.settle, 400.0)
        except TimeoutError as error:
            raise Violation("settles", str(error)) from error

    def _enter_administrators(self) -> None:
        def administrator(number: int, process: Process) -> Actor:
            actor = Administrator(f"administrator.{number}", self.play, self.scene.view(process), process)
            actor.moves = self.has_moves
            actor.guests = self.guests if self.has_guests else None
            actor.broker_ids = [node.number for node in self.nodes]
            actor.alters = self.settings_change
            actor.replicas_min = 2 if self.min_isr > 1 or not self.flushes else 1
            return actor

        def visitor(number: int, process: Process) -> Actor:
            actor = Visitor(f"visitor.{number}", self.play, self.scene.view(process), process)
            actor.guests = self.guests
            return actor

        if self.has_moves or self.has_guests or self.settings_change:
            self.cast.keep("administrator", administrator)
        if self.has_guests:
            self.cast.keep("visitor", visitor)

    async def _alone(self, name: str, act: Callable[[Actor], Any]) -> None:
        try:
            await self.scene.alone(name, act)
        finally:
            self._complaints.check()

    def _check_guests(self) -> None:
        there = {state.topic_id for state in self._states() if state is not None}
        self.guests.check_gone(there)
        if self.lossy:
            return
        for node in self.nodes:
            assert node.broker is not None
            for partition in node.broker.partitions:
                place = partition.topic_partition.topic, partition.topic_partition.partition
                if place[0] in GUESTS:
                    found: dict[int, bytes] = {}
                    for batch in stored_batches(node.disk, partition.log.dir):
                        records = read_records(batch.data, read_batch_header(batch.data, 0))
                        found |= {record.offset: bytes(record.value or b"") for record in records}
                    self.guests.check(place, partition.topic_id, found)

    # --- watching

    async def _watch(self, seconds: float) -> None:
        end_s = self.loop.time() + seconds
        # So many sends are enough: a network without delays would make one seed cost as much as ten.
        while self.loop.time() < end_s and len(self.play.sends) < SENDS_MAX:
            await self._step()

    async def _step(self) -> None:
        await asyncio.wait([self.cast.failed], timeout=CHECK_S)
        if self.cast.failed.done():
            self.cast.failed.result()
        for task in self._nemesis:
            if task.done() and not task.cancelled():
                task.result()
        self._complaints.check()
        self.rules.check()
        self._checked += 1
        if self._checked % CHECK_LOGS_EVERY == 0:
            self.rules.check_logs()

    # --- misfortune

    async def _misfortune(self) -> None:
        rng = self.rng
        acts = (
            self._kill,
            self._kill,
            self._crash,
            self._crash,
            self._pause,
            self._cut_network,
            self._cut_network,
            self._cut_store,
            self._lose_session,
            self._stop,
            self._store_down,
            self._leave_stale_one,
            *([self._break_disk] * 3 if self.disks_fail else ()),
            *([self._hold_mail] * 4 if self.has_late_mail else ()),
        )
        while True:
            await asyncio.sleep(rng.choice((0.5, 2.0, 5.0)) * (0.5 + rng.random()))
            await rng.choice(acts)()

    def _pick(self, *, serving: bool = True) -> Node | None:
        found = [node for node in self.nodes if (node.serves or not serving) and node.number not in self._sick]
        return self.rng.choice(found) if found else None

    async def _kill(self) -> None:
        node = self._pick()
        if node is None:
            return
        if self.rng.random() < 0.5:
            assert node.process is not None
            process = node.process
            node.disk.crash_after(self.rng.randint(1, 50), process.die)
            await asyncio.wait([node.died], timeout=5.0)
            if node.process is not process:
                return
        self.trace.add(f"kill {node.host}")
        node.kill()
        await asyncio.sleep(self.rng.choice((0.0, 1.0, self.session_timeout_s + 2)))
        await self._start(node)

    async def _crash(self) -> None:
        """With its unflushed bytes, where the cluster can bear it."""
        node = self._pick()
        if node is None or self._recovering:
            return
        if not self.flushes and not self.lossy:
            if any(not other.serves for other in self.nodes):
                return
            if not self._is_covered(node):
                return
            self._recovering.add(node.number)
        node.crash()
        await asyncio.sleep(self.rng.choice((0.0, 2.0)) + (0.0 if self.flushes else self.session_timeout_s + 3.0))
        await self._is_noticed(node)
        await self._start(node)
        self._recovering.discard(node.number)

    async def _is_noticed(self, node: Node) -> None:
        """It does not return before: with an unflushed tail gone and a place among those in sync it might be elected."""
        while not self.flushes and not self.lossy and self._is_in_sync(node):
            await asyncio.sleep(0.5)
        if not self.flushes and any(state is not None and state.isr == (node.number,) for state in self._states()):
            # A change of those in sync was under way when it crashed: the last one in sync has lost its tail.
            self.trace.add(f"{node.host} was the last one in sync: what it had not flushed may be lost")
            self.lossy = self.rules.lossy = self.play.offsets_may_shrink = True

    def _is_covered(self, node: Node) -> bool:
        """Somebody else in sync is alive and reached by all, for every partition."""
        if self.network.blocked or any(other.cut_from_store or (other.process and other.process.paused) for other in self.nodes):
            return False
        for key in self.rules.partitions():
            state = self.rules.state(key)
            if state is None or (node.number in state.isr and len(state.isr) < 2):
                return False
        return True

    def _is_in_sync(self, node: Node) -> bool:
        return any(state is not None and node.number in state.isr and len(state.isr) > 1 for state in self._states())

    def _states(self) -> list[PartitionState | None]:
        return [self.rules.state(key) for key in self.rules.partitions()]

    async def _start(self, node: Node) -> None:
        while not node.alive:
            if node.number in self._sick:
                await asyncio.sleep(0.5)
                continue
            if await node.start():
                return
            node.kill()
            await asyncio.sleep(0.5 + self.rng.random())

    async def _leave_stale_one(self) -> None:
        """One falls behind; then all the others die, and it comes back alone. It must not lead what it does not have (R16)."""
        if any(not node.serves for node in self.nodes) or self._recovering or self._sick or self.network.blocked:
            return
        stale = self.rng.choice(self.nodes)
        self.trace.add(f"{stale.host} is left behind")
        stale.kill()
        await asyncio.sleep(self.session_timeout_s + self.rng.choice((2.0, 4.0)))
        others = [node for node in self.nodes if node is not stale and node.alive]
        for node in others:
            node.kill()
        await self._start(stale)
        await asyncio.sleep(self.session_timeout_s + 3.0)
        await asyncio.gather(*(self._start(node) for node in others))

    async def _break_disk(self) -> None:
        """A directory fails, or the disk is full (L06); later somebody mends it, and starts the broker anew.

        Flushes do not fail here: what a failed one took is found out by a crash only, and with it the last in sync may be gone.
        """
        rng, node = self.rng, self._pick()
        if node is None or self._sick or self._recovering:
            return
        assert node.broker is not None
        assert node.process is not None
        broker, process = node.broker, node.process
        self._sick.add(node.number)
        directory = rng.choice(node.log_dirs)
        kind = rng.choice(("full", "full", "write", "write", "read", "create", "rename", "flush_dir"))
        self.trace.add(f"{node.host}: {kind} fails in {directory}")
        if kind == "full":
            node.disk.capacity_bytes = node.disk.used_bytes + rng.randint(0, 3000)
        else:
            node.disk.faults.append(Fault(kind, f"{directory}/", after=rng.randint(0, 30)))
        gives_up = node.spawn(broker.stop_asked())
        await asyncio.wait([gives_up, node.died], timeout=rng.choice((3.0, 8.0)), return_when=asyncio.FIRST_COMPLETED)
        if process.alive and broker.failure is not None:
            self.trace.add(f"{node.host} gives up: {broker.failure}")
            node.kill()
            await asyncio.sleep(rng.choice((0.0, self.session_timeout_s + 1)))
        node.heal_disk()
        self._sick.discard(node.number)
        if node.process is process and node.alive and node.stopping is None:
            self.trace.add(f"{node.host} is mended")
            node.kill()
        await self._start(node)

    async def _pause(self) -> None:
        node = self._pick()
        if node is None or node.number in self._recovering:
            return
        node.pause()
        await asyncio.sleep(self.rng.choice((1.0, self.session_timeout_s * 0.8, self.session_timeout_s * 2)))
        node.resume()

    async def _cut_network(self) -> None:
        """One way or both, one from all or some from others."""
        rng = self.rng
        hosts = [node.host for node in self.nodes]
        lonely = rng.sample(hosts, rng.choice((1, 1, len(hosts) // 2)))
        rest = [host for host in hosts if host not in lonely]
        if rng.random() < 0.3:
            rest = rest[:1]
        ways = rng.choice(("both", "both", "out", "in"))
        cuts = []
        for one in lonely:
            for other in rest:
                cuts += [(one, other)] * (ways != "in") + [(other, one)] * (ways != "out")
        self.trace.add(f"cut {ways} {lonely} from {rest}")
        for cut in cuts:
            self.network.block(*cut)
        await asyncio.sleep(rng.choice((1.0, 4.0, self.session_timeout_s + 3)))
        for cut in cuts:
            self.network.unblock(*cut)
        self.trace.add(f"healed {lonely} and {rest}")

    async def _hold_mail(self) -> None:
        """What one broker sends another is held up so long that it is sent again, and then comes late, behind what was sent
        since: orders of the controller above all, with things to order meanwhile (C02, R08)."""
        rng, nodes = self.rng, [node for node in self.nodes if node.serves]
        if len(nodes) < 2:
            return
        office = self.tree.get("/controller")
        controller = json.loads(office.data)["brokerid"] if office is not None and rng.random() < 0.7 else -1
        source = next((node for node in nodes if node.number == controller), rng.choice(nodes))
        target = rng.choice([node for node in nodes if node is not source])
        held = self.network.hold_mail(source.host, target.host)
        self.trace.add(f"what {source.host} sends {target.host} is held up on {len(held)} connections")
        for _ in range(rng.choice((2, 3))):
            others = [node for node in self.nodes if node.serves and node is not target and not node.cut_from_store]
            if others:
                other = rng.choice(others)
                self.trace.add(f"{other.host} loses its session")
                self.tree.lose_sessions_of(other.host)
            await asyncio.sleep(rng.choice((0.5, 3.5)))
        self.trace.add(f"{target.host} gets it late")
        self.network.let_go(held)

    async def _cut_store(self) -> None:
        node = self._pick()
        if node is None or node.cut_from_store:
            return
        self.trace.add(f"{node.host} does not reach the store")
        node.cut_store()
        await asyncio.sleep(self.rng.choice((1.0, self.session_timeout_s * 0.8, self.session_timeout_s * 2)))
        self.trace.add(f"{node.host} reaches the store again")
        node.heal_store()

    async def _store_down(self) -> None:
        """For nobody (C10)."""
        self.trace.add("nobody reaches the store")
        nodes = [node for node in self.nodes if not node.cut_from_store]
        for node in nodes:
            node.cut_store()
        await asyncio.sleep(self.rng.choice((1.0, self.session_timeout_s * 0.8, self.session_timeout_s * 2)))
        self.trace.add("the store is back")
        for node in nodes:
            node.heal_store()

    async def _lose_session(self) -> None:
        """It expires, although the broker is well (C04)."""
        node = self._pick()
        if node is not None and not node.cut_from_store:
            self.trace.add(f"{node.host} loses its session")
            self.tree.lose_sessions_of(node.host)

    async def _stop(self) -> None:
        """Cleanly, with what it leads handed over first (C07)."""
        node = self._pick()
        if node is None or node.cut_from_store or self._recovering:
            return
        self.trace.add(f"{node.host} is asked to stop")
        if await node.stop():
            await asyncio.sleep(self.rng.choice((0.0, 2.0)))
            await self._start(node)

    # --- the end

    async def _calm(self) -> None:
        self.trace.add("calm")
        self.play.calm = True
        self.cast.dismiss()
        self.network.heal()
        self.network.let_go([each for each in self.network.transports if each.held is not None])
        self.network.settings = replace(self.network.settings, spike_chance=0.0)
        mended = set(self._sick)
        self._sick.clear()
        for node in self.nodes:
            node.disk.forget_crash_point()
            node.heal_disk()
            node.heal_store()
            node.resume()
        # First who can notice that others have crashed.
        for node in sorted(self.nodes, key=lambda node: node.number in self._recovering):
            if node.alive and (node.broker is None or node.number in mended):
                node.kill()  # a start that was cut off with its nemesis; or a directory that failed
            if node.alive and node.stopping is not None:
                await node.stop()  # it was asked to, and does it, whoever asked
            if not node.alive:
                node.kill()
                if node.number in self._recovering:
                    await self._is_noticed(node)
                await self._start(node)

    async def _settle(self) -> dict[tuple[str, int], int]:
        """All are well: leaders everywhere, everybody in sync, nothing open, everything the same (liveness)."""
        end_s = self.loop.time() + SETTLE_S_MAX
        for node in self.nodes:
            node.set_clock(CLOCK_STEP_MS)
        while why := self.rules.unsettled() or self._open_transactions():
            require(self.loop.time() < end_s, "settles", f"after {SETTLE_S_MAX} s of calm: {why}")
            await self._step()
        self.trace.add("settled")
        if not self.lossy:
            await self.scene.copy_the_rest()
        await self._settle_groups()
        end_s = self.loop.time()
        while why := self.rules.unsettled() or self._open_transactions():
            require(self.loop.time() < end_s + SETTLE_S_MAX, "settles", f"after the last copies: {why}")
            await self._step()
        ends = {}
        for node in self.nodes:
            assert node.broker is not None
            for partition in node.broker.partitions:
                if partition.is_leader:
                    ends[partition.topic_partition.topic, partition.topic_partition.partition] = partition.log.high_watermark
        return ends

    def _open_transactions(self) -> str:
        if self.lossy:
            return ""  # an unclean election may take what the coordinator knew: what it owed is owed by nobody
        for node in self.nodes:
            assert node.broker is not None
            for number, hosted in sorted(node.broker.transactions._hosted.items()):
                if hosted.shard is None:
                    return f"__transaction_state-{number} is not loaded"
                for each in hosted.shard.transactions.values():
                    if each.state not in IDLE:
                        return f"{each.transactional_id} is {each.state.name}"
            for partition in node.broker.partitions:
                if partition.is_leader and partition.log.last_stable_offset < partition.log.high_watermark:
                    return f"{partition.topic_partition} is stable below {partition.log.last_stable_offset}"
        return ""
