"""Three schema registries on a cluster, through whatever happens to them: kills, pauses, cut networks, brokers that die.

Owns: who is at work, what happens to the registries, and what must hold in the calm: every registry answers and shows the same,
with everything that was acknowledged.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from ottla.registry.server import TOPIC
from ottla.sim.actors.play import Actor
from ottla.sim.actors.registries import RegistryClient, RegistryNode
from ottla.sim.kernel.process import Process
from ottla.sim.models.registry_model import RegistryModel
from ottla.sim.violation import Violation, require
from ottla.sim.worlds.cluster_harness import ClusterHarness
from ottla.sim.worlds.harness import run_to_end
from ottla.sim.worlds.nemesis import Nemesis

REGISTRIES: Final = 3
FIRST_PORT: Final = 8080
CLIENTS: Final = 5
SETTLE_S_MAX: Final = 120.0
SETTINGS: Final = {"group.initial.rebalance.delay.ms": "0", "unclean.leader.election.enable": "false"}


class RegistryWorld:
    """A run of one seed."""

    def __init__(self, seed: int, *, echo: Callable[[str], None] | None = None) -> None:
        self.cluster = cluster = ClusterHarness(seed, echo=echo, dirs=1, settings=SETTINGS)
        cluster.lossy = False
        self.trace = cluster.trace
        self.rng = random.Random(f"registries {seed}")
        brokers = [("127.0.0.1", node.port) for node in cluster.nodes]
        self.nodes = [
            RegistryNode(number, FIRST_PORT + number, brokers, cluster.loop, cluster.network, cluster.trace)
            for number in range(1, REGISTRIES + 1)
        ]
        self.model = RegistryModel()

    def run(self) -> None:
        run_to_end(self.cluster.loop, self.cluster.complaints, self._main, self._bury)

    def _bury(self) -> None:
        for node in self.nodes:
            node.kill()
            for process in node.processes:
                process.bury()
        self.cluster._bury()

    async def _main(self) -> None:
        cluster, rng = self.cluster, self.rng
        network = cluster.network
        drawn = network.settings
        if cluster.has_late_messages:
            # Registries cannot be relied on to elect a leader within a limit while messages are late by up to 15 s.
            network.settings = replace(drawn, spike_chance=0.0)
        await cluster.start_all()
        await cluster.alone("admin", self._create_topic)
        keepers = [cluster.loop.create_task(self._keep(node)) for node in self.nodes]
        await self._alone("settings", _allow_everything)
        network.settings = drawn
        for number in range(CLIENTS):
            cluster.cast.keep(f"client-{number}", self._client)
        cluster.tasks = [cluster.loop.create_task(self._trouble()), *keepers]
        if rng.random() < 0.5:
            cluster.tasks.append(cluster.loop.create_task(Nemesis(cluster).run()))
        await cluster.pass_time(rng.choice((60.0, 100.0)))
        for task in cluster.tasks:
            task.cancel()
        cluster.tasks = []
        await cluster.calm()
        await cluster.until_settled(SETTLE_S_MAX)
        await self._settle()
        if not cluster.lossy:
            self.model.check((node.host, node.registry.state) for node in self.nodes if node.registry is not None)
        self.trace.add(f"{len(self.model.answers)} schemas were acknowledged")
        cluster.complaints.check()

    async def _create_topic(self, admin: Actor) -> None:
        config = {"cleanup.policy": "compact", "segment.bytes": self.rng.choice(("2000", "100000"))}
        await admin.create_topic(TOPIC, 1, config, replicas=self.cluster.replicas)

    async def _alone(self, name: str, act: Callable[[RegistryClient], Any]) -> None:
        try:
            await self.cluster.cast.play_alone(name, partial(self._client, 0), act, SETTLE_S_MAX)
        except TimeoutError as error:
            raise Violation("settles", str(error)) from error

    def _client(self, number: int, process: Process) -> RegistryClient:
        network = self.cluster.network.view(process, process.name)
        addresses = [node.address for node in self.nodes]
        return RegistryClient(process.name, random.Random(self.rng.random()), network, addresses, self.model, self.trace)

    # --- what happens

    async def _keep(self, node: RegistryNode) -> None:
        """Start a registry, and start it again some time after it died."""
        while True:
            if not node.alive:
                await asyncio.sleep(self.rng.choice((0.0, 1.0, 4.0)) * self.rng.random())
                node.start()
            await asyncio.sleep(0.5)

    async def _trouble(self) -> None:
        acts = (self._kill, self._pause, self._cut, self._cut, self._cut)
        while True:
            await asyncio.sleep(self.rng.choice((0.5, 3.0)) * (0.5 + self.rng.random()))
            await self.rng.choice(acts)()

    def _pick(self) -> RegistryNode:
        """Mostly the leader, as far as it knows."""
        leading = [node for node in self.nodes if node.leads]
        return self.rng.choice(leading if leading and self.rng.random() < 0.8 else self.nodes)

    async def _kill(self) -> None:
        node = self._pick()
        self.trace.add(f"kill {node.host}")
        node.kill()

    async def _pause(self) -> None:
        """Pause a registry, sometimes for so long that another one leads."""
        node = self._pick()
        self.trace.add(f"pause {node.host}")
        node.pause()
        await asyncio.sleep(self.rng.choice((1.0, 8.0, 15.0, 25.0)))
        node.resume()
        self.trace.add(f"{node.host} goes on")

    async def _cut(self) -> None:
        """Cut a registry from brokers, from other registries, or from both, in one direction or in both."""
        rng, node = self.rng, self._pick()
        brokers = [each.host for each in self.cluster.nodes]
        others = [each.host for each in self.nodes if each is not node]
        rest = rng.choice((brokers, others, brokers + others, [rng.choice(brokers)]))
        ways = rng.choice(("both", "both", "out", "in"))
        self.trace.add(f"cut {ways} {node.host} from {rest}")
        cuts = [(node.host, each) for each in rest if ways != "in"] + [(each, node.host) for each in rest if ways != "out"]
        for cut in cuts:
            self.cluster.network.block(*cut)
        await asyncio.sleep(rng.choice((1.0, 6.0, 18.0, 25.0)))
        for cut in cuts:
            self.cluster.network.unblock(*cut)
        self.trace.add(f"healed {node.host} and {rest}")

    # --- the end

    async def _settle(self) -> None:
        """Every registry serves, takes a registration, and has read what the others have."""
        for node in self.nodes:
            node.resume()
            if not node.alive:
                node.start()
        keepers = [self.cluster.loop.create_task(self._keep(node)) for node in self.nodes]
        await self.cluster.until(
            lambda: all(node.registry is not None for node in self.nodes), "all registries serve", SETTLE_S_MAX
        )
        for node in self.nodes:
            await self._alone(f"last at {node.host}", partial(_register_at, node))
        await self.cluster.until(self._agree, "all registries show the same", SETTLE_S_MAX)
        for keeper in keepers:
            keeper.cancel()

    def _agree(self) -> bool:
        found = [
            sorted((each.subject, each.version, each.id, each.text) for each in node.registry.state)
            for node in self.nodes
            if node.registry
        ]
        return len(found) == REGISTRIES and all(each == found[0] for each in found)


async def _allow_everything(client: RegistryClient) -> None:
    await client.allow_everything()


async def _register_at(node: RegistryNode, client: RegistryClient) -> None:
    while not await client.register(node.address):
        await asyncio.sleep(0.5)
    require(node.alive, "settles", f"{node.host} died in the calm")
