"""A cluster of three to five brokers under one metadata tree, for the worlds that do things to it.

Owns: the topology and settings that a seed draws, the brokers, the network between them, their clients (play, cast,
scene), the rules that are checked at every step, and the return to calm: everything healed, every broker running.
Never: decides what happens to the cluster. That is the world's, or its nemesis'.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from ottla.replication.leader import RACK_AWARE
from ottla.sim.actors.cast import Cast
from ottla.sim.actors.groups import properties as group_properties
from ottla.sim.actors.play import Actor, Address, Habits, Play
from ottla.sim.actors.scene import Scene
from ottla.sim.kernel.loop import new_loop
from ottla.sim.kernel.metadata_tree import MetadataTree
from ottla.sim.kernel.network import NetworkSettings, SimNetwork
from ottla.sim.kernel.node import Complaints, Node
from ottla.sim.kernel.trace import Trace
from ottla.sim.models.cluster_rules import ClusterRules, PartitionState
from ottla.sim.models.history import Place
from ottla.sim.violation import require
from ottla.sim.worlds.harness import run_to_end

FIRST_PORT: Final = 9090
CHECK_S: Final = 0.2
CHECK_LOGS_EVERY: Final = 25
WAIT_S: Final = 90.0
NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


def _no_settings(number: int, count: int) -> Mapping[str, str]:
    return NOTHING


class ClusterHarness:
    """The cluster of one seed. `settings` and `node_settings` replace what the seed drew."""

    def __init__(
        self,
        seed: int,
        *,
        echo: Callable[[str], None] | None = None,
        brokers_min: int = 3,
        dirs: int | None = None,
        settings: Mapping[str, str] = NOTHING,
        node_settings: Callable[[int, int], Mapping[str, str]] = _no_settings,
    ) -> None:
        rng = self.rng = random.Random(f"cluster {seed}")
        self.loop = new_loop()
        self.trace = Trace(self.loop.time, echo=echo)
        network = NetworkSettings(
            latency_s_max=rng.choice((0.001, 0.01, 0.05)),
            spike_chance=rng.choice((0.0, 0.01)),
            spike_s_max=rng.choice((0.5, 4.0)),
            crumbs_chance=0.0,
        )
        # Features that only some seeds have are drawn from generators of their own: a seed without them stays as it was.
        extras = self.extras = random.Random(f"cluster extras {seed}")
        self.has_moves = extras.random() < 0.35
        self.has_guests = extras.random() < 0.3
        self.has_groups = extras.random() < 0.3
        self.disks_fail = extras.random() < 0.3
        self.dirs = extras.choice((1, 2, 3)) if extras.random() < 0.4 or self.disks_fail else 1
        self.has_late_messages = extras.random() < 0.3
        if self.has_late_messages:
            # A request may arrive long after its sender has given up and asked again.
            network = replace(network, spike_chance=extras.choice((0.01, 0.03)), spike_s_max=extras.choice((8.0, 15.0)))
        more = random.Random(f"cluster more {seed}")
        self.has_racks = more.random() < 0.2
        self.settings_change = more.random() < 0.2
        self.network = SimNetwork(random.Random(f"network {seed}"), network)
        self.session_timeout_s = rng.choice((3.0, 6.0))
        self.tree = MetadataTree(self.session_timeout_s)
        self.count = max(rng.choice((3, 3, 3, 4, 5)), brokers_min)
        self.replicas = rng.choice((2, 3, 3, 3))
        self.min_isr = rng.choice((1, 2, 2)) if self.replicas > 2 else 1
        self.flushes = rng.random() < 0.3
        lossy = rng.random() < 0.05
        self.has_table = rng.random() < 0.2
        self.common = {**self._draw_settings(lossy), **settings}
        if dirs is not None:
            self.dirs = dirs
        self.nodes = [self._node(number, seed, node_settings(number, self.count)) for number in range(1, self.count + 1)]
        habits = Habits(
            patience_s=rng.choice(((1.0, 2.0), (3.0, 6.0))),
            double_chance=rng.choice((0.0, 0.05)),
            die_chance=rng.choice((0.0, 0.01)),
            pause_chance=rng.choice((0.0, 0.02)),
        )
        brokers = [("127.0.0.1", node.port) for node in self.nodes]
        self.play = Play(random.Random(f"play {seed}"), self.trace, self.loop.time, brokers, habits)
        self.play.ends_are_told = False
        self.play.offsets_may_shrink = lossy
        self.cast = Cast(random.Random(f"cast {seed}"), self.loop, self.network, self.play)
        self.scene = Scene(rng, self.play, self.cast, has_table=self.has_table)
        self.scene.rack = "rack-1" if self.has_racks else ""
        self.rules = ClusterRules(self.nodes, self.tree, self.play)
        self.lossy = lossy
        self.play.led_epoch = self._led_epoch
        self.complaints = Complaints()
        self.tasks: list[asyncio.Task[None]] = []
        """What happens to the cluster in the background: a failure of it ends the run."""
        self.recovering: set[int] = set()
        """Brokers that lost what they had not flushed, and are not yet back."""
        self.sick: set[int] = set()
        """Brokers whose disks fail at present."""
        self._checks = 0

    @property
    def lossy(self) -> bool:
        """Acknowledged records may be lost: unclean elections are allowed, or the last one in sync lost its tail."""
        return self.rules.lossy

    @lossy.setter
    def lossy(self, value: bool) -> None:
        self.rules.lossy = value

    def _led_epoch(self, place: Place, address: Address) -> int | None:
        state = self.rules.state(place)
        if state is None or not any(node.number == state.leader and node.port == address[1] for node in self.nodes):
            return None
        return state.leader_epoch

    def _draw_settings(self, lossy: bool) -> dict[str, str]:
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
            "unclean.leader.election.enable": "true" if lossy else "false",
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
            # The clocks are set forward towards the end of a run: offsets must not expire by that.
            found |= {**group_properties(self.extras), "offsets.retention.minutes": "10080"}
        return found

    def _node(self, number: int, seed: int, settings: Mapping[str, str]) -> Node:
        rng = self.rng
        near = {"replica.selector.class": RACK_AWARE, "broker.rack": f"rack-{number % 2}"} if self.has_racks else {}
        properties = {
            **self.common,
            **near,
            "broker.id": str(number),
            "log.dirs": ",".join(f"/d{index or ''}" for index in range(self.dirs)),
            "listeners": f"PLAINTEXT://127.0.0.1:{FIRST_PORT + number}",
            **settings,
        }
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

    # --- a run

    def run(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        run_to_end(self.loop, self.complaints, main, self._bury)

    def _bury(self) -> None:
        self.tree.closed = True
        self.cast.bury()
        for node in self.nodes:
            node.bury()

    async def start_all(self) -> None:
        await asyncio.gather(*(node.start() for node in self.nodes))

    async def start(self, node: Node) -> None:
        """Start a broker, again if it dies on the way, and not before its disk is well."""
        while not node.alive:
            if node.number in self.sick:
                await asyncio.sleep(0.5)
                continue
            if await node.start():
                return
            node.kill()
            await asyncio.sleep(0.5 + self.rng.random())

    async def alone(self, name: str, act: Callable[[Actor], Any]) -> None:
        """A client without a role does something."""
        try:
            await self.scene.alone(name, act)
        finally:
            self.complaints.check()

    async def step(self) -> None:
        """Let a moment pass and check the rules."""
        await asyncio.wait([self.cast.failed], timeout=CHECK_S)
        if self.cast.failed.done():
            self.cast.failed.result()
        for task in self.tasks:
            if task.done() and not task.cancelled():
                task.result()
        self.complaints.check()
        self.rules.check()
        self._checks += 1
        if self._checks % CHECK_LOGS_EVERY == 0:
            self.rules.check_logs()

    async def pass_time(self, seconds: float) -> None:
        end_s = self.loop.time() + seconds
        while self.loop.time() < end_s:
            await self.step()

    async def until(
        self, condition: Callable[[], object], what: str | Callable[[], str], limit_s: float = WAIT_S, *, rule: str = "settles"
    ) -> None:
        end_s = self.loop.time() + limit_s
        while not condition():
            require(self.loop.time() < end_s, rule, f"not within {limit_s} s: {what if isinstance(what, str) else what()}")
            await self.step()

    async def until_settled(self, limit_s: float = WAIT_S) -> None:
        await self.until(lambda: not self.rules.unsettled(), lambda: f"settled: {self.rules.unsettled()}", limit_s)

    # --- the in-sync replicas, and brokers that crashed

    def states(self) -> list[PartitionState | None]:
        return [self.rules.state(key) for key in self.rules.partitions()]

    async def until_out_of_sync(self, node: Node) -> None:
        """A crashed broker stays away until it has left the ISRs: without its unflushed tail it must not be elected."""
        while not self.flushes and not self.lossy and self._is_in_sync(node):
            await asyncio.sleep(0.5)
        if not self.flushes and any(state is not None and state.isr == (node.number,) for state in self.states()):
            # An ISR change was pending when it crashed: the last one in sync has lost its tail.
            self.trace.add(f"{node.host} was the last one in sync: what it had not flushed may be lost")
            self.lossy = self.play.offsets_may_shrink = True

    def _is_in_sync(self, node: Node) -> bool:
        return any(state is not None and node.number in state.isr and len(state.isr) > 1 for state in self.states())

    # --- the end

    async def calm(self) -> None:
        """Heal everything, send the clients away, and start every broker that is not running."""
        self.trace.add("calm")
        self.play.calm = True
        self.cast.dismiss()
        self.network.heal()
        self.network.release([each for each in self.network.transports if each.held is not None])
        self.network.settings = replace(self.network.settings, spike_chance=0.0)
        arrived_s = self.network.last_arrival_s
        mended = set(self.sick)
        self.sick.clear()
        for node in self.nodes:
            node.disk.forget_crash_point()
            node.heal_disk()
            node.heal_store()
            node.resume()
        # Brokers that can notice the crash of others come first.
        for node in sorted(self.nodes, key=lambda node: node.number in self.recovering):
            if node.alive and (node.broker is None or node.number in mended):
                node.kill()  # its start was interrupted with its nemesis, or a directory of it failed
            if node.alive and node.stopping is not None:
                await node.stop()
            if not node.alive:
                node.kill()
                if node.number in self.recovering:
                    await self.until_out_of_sync(node)
                await self.start(node)
        if self.has_late_messages:
            # What a client sent before the calm would else change what others have read to its end.
            await asyncio.sleep(arrived_s - self.loop.time())
