"""What goes wrong in a cluster: kills, crashes, pauses, cut networks, a store out of reach, failing disks, delayed messages.

What was acknowledged by all in-sync replicas is never lost as long as one of them lives. So a machine crashes, with what it had
not flushed, only where that holds: every record is flushed, or another replica in sync is alive and the one that crashed stays
away until it has left the ISRs.
"""

from __future__ import annotations

import asyncio
import json

from ottla.sim.kernel.disk import Fault
from ottla.sim.kernel.node import Node
from ottla.sim.worlds.cluster_harness import ClusterHarness


class Nemesis:
    """One misfortune after the other, drawn from the seed."""

    def __init__(self, cluster: ClusterHarness) -> None:
        self._cluster = cluster
        self.rng = cluster.rng

    async def run(self) -> None:
        """Until it is cancelled: one misfortune after the other."""
        cluster = self._cluster
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
            *([self._break_disk] * 3 if cluster.disks_fail else ()),
            *([self._hold_messages] * 4 if cluster.has_late_messages else ()),
        )
        while True:
            await asyncio.sleep(rng.choice((0.5, 2.0, 5.0)) * (0.5 + rng.random()))
            await rng.choice(acts)()

    def _pick(self, *, serving: bool = True) -> Node | None:
        cluster = self._cluster
        found = [node for node in cluster.nodes if (node.serves or not serving) and node.number not in cluster.sick]
        return self.rng.choice(found) if found else None

    async def _kill(self) -> None:
        cluster = self._cluster
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
        cluster.trace.add(f"kill {node.host}")
        node.kill()
        await asyncio.sleep(self.rng.choice((0.0, 1.0, cluster.session_timeout_s + 2)))
        await cluster.start(node)

    async def _crash(self) -> None:
        """Crash a machine: its unflushed bytes are gone. Only where no acknowledged record can be lost by it."""
        cluster = self._cluster
        node = self._pick()
        if node is None or cluster.recovering:
            return
        if not cluster.flushes and not cluster.lossy:
            if any(not other.serves for other in cluster.nodes):
                return
            if not self._is_covered(node):
                return
            cluster.recovering.add(node.number)
        node.crash()
        await asyncio.sleep(self.rng.choice((0.0, 2.0)) + (0.0 if cluster.flushes else cluster.session_timeout_s + 3.0))
        await cluster.until_out_of_sync(node)
        await cluster.start(node)
        cluster.recovering.discard(node.number)

    def _is_covered(self, node: Node) -> bool:
        """Every partition has another replica that is in sync, alive, and reached by all."""
        cluster = self._cluster
        if cluster.network.blocked or any(
            other.cut_from_store or (other.process and other.process.paused) for other in cluster.nodes
        ):
            return False
        for key in cluster.rules.partitions():
            state = cluster.rules.state(key)
            if state is None or (node.number in state.isr and len(state.isr) < 2):
                return False
        return True

    async def _leave_stale_one(self) -> None:
        """One broker falls behind, then all others die, and it returns alone: it must not lead what it does not have (R16)."""
        cluster = self._cluster
        if any(not node.serves for node in cluster.nodes) or cluster.recovering or cluster.sick or cluster.network.blocked:
            return
        stale = self.rng.choice(cluster.nodes)
        cluster.trace.add(f"{stale.host} is left behind")
        stale.kill()
        await asyncio.sleep(cluster.session_timeout_s + self.rng.choice((2.0, 4.0)))
        others = [node for node in cluster.nodes if node is not stale and node.alive]
        for node in others:
            node.kill()
        await cluster.start(stale)
        await asyncio.sleep(cluster.session_timeout_s + 3.0)
        await asyncio.gather(*(cluster.start(node) for node in others))

    async def _break_disk(self) -> None:
        """A directory fails, or the disk is full (L06). Later the disk is repaired and the broker restarted.

        Flushes do not fail here: only a crash shows what a failed flush lost, and that may have been the last copy in sync.
        """
        cluster = self._cluster
        rng, node = self.rng, self._pick()
        if node is None or cluster.sick or cluster.recovering:
            return
        assert node.broker is not None
        assert node.process is not None
        broker, process = node.broker, node.process
        cluster.sick.add(node.number)
        directory = rng.choice(node.log_dirs)
        kind = rng.choice(("full", "full", "write", "write", "read", "create", "rename", "flush_dir"))
        cluster.trace.add(f"{node.host}: {kind} fails in {directory}")
        if kind == "full":
            node.disk.capacity_bytes = node.disk.used_bytes + rng.randint(0, 3000)
        else:
            node.disk.faults.append(Fault(kind, f"{directory}/", after=rng.randint(0, 30)))
        gives_up = node.spawn(broker.stop_asked())
        await asyncio.wait([gives_up, node.died], timeout=rng.choice((3.0, 8.0)), return_when=asyncio.FIRST_COMPLETED)
        if process.alive and broker.failure is not None:
            cluster.trace.add(f"{node.host} gives up: {broker.failure}")
            node.kill()
            await asyncio.sleep(rng.choice((0.0, cluster.session_timeout_s + 1)))
        node.heal_disk()
        cluster.sick.discard(node.number)
        if node.process is process and node.alive and node.stopping is None:
            cluster.trace.add(f"{node.host} is mended")
            node.kill()
        await cluster.start(node)

    async def _pause(self) -> None:
        cluster = self._cluster
        node = self._pick()
        if node is None or node.number in cluster.recovering:
            return
        node.pause()
        await asyncio.sleep(self.rng.choice((1.0, cluster.session_timeout_s * 0.8, cluster.session_timeout_s * 2)))
        node.resume()

    async def _cut_network(self) -> None:
        """Cut some brokers from others, in one direction or both."""
        cluster = self._cluster
        rng = self.rng
        hosts = [node.host for node in cluster.nodes]
        lonely = rng.sample(hosts, rng.choice((1, 1, len(hosts) // 2)))
        rest = [host for host in hosts if host not in lonely]
        if rng.random() < 0.3:
            rest = rest[:1]
        ways = rng.choice(("both", "both", "out", "in"))
        cuts = []
        for one in lonely:
            for other in rest:
                cuts += [(one, other)] * (ways != "in") + [(other, one)] * (ways != "out")
        cluster.trace.add(f"cut {ways} {lonely} from {rest}")
        for cut in cuts:
            cluster.network.block(*cut)
        await asyncio.sleep(rng.choice((1.0, 4.0, cluster.session_timeout_s + 3)))
        for cut in cuts:
            cluster.network.unblock(*cut)
        cluster.trace.add(f"healed {lonely} and {rest}")

    async def _hold_messages(self) -> None:
        """Hold what one broker, mostly the controller, sends another, until it was sent again; then deliver it late (C02, R08).

        Meanwhile sessions expire, so that there is something new to send.
        """
        cluster = self._cluster
        rng, nodes = self.rng, [node for node in cluster.nodes if node.serves]
        if len(nodes) < 2:
            return
        elected = cluster.tree.get("/controller")
        controller = json.loads(elected.data)["brokerid"] if elected is not None and rng.random() < 0.7 else -1
        source = next((node for node in nodes if node.number == controller), rng.choice(nodes))
        target = rng.choice([node for node in nodes if node is not source])
        held = cluster.network.hold_requests(source.host, target.host)
        cluster.trace.add(f"what {source.host} sends {target.host} is held up on {len(held)} connections")
        for _ in range(rng.choice((2, 3))):
            others = [node for node in cluster.nodes if node.serves and node is not target and not node.cut_from_store]
            if others:
                other = rng.choice(others)
                cluster.trace.add(f"{other.host} loses its session")
                cluster.tree.lose_sessions_of(other.host)
            await asyncio.sleep(rng.choice((0.5, 3.5)))
        cluster.trace.add(f"{target.host} gets it late")
        cluster.network.release(held)

    async def _cut_store(self) -> None:
        cluster = self._cluster
        node = self._pick()
        if node is None or node.cut_from_store:
            return
        cluster.trace.add(f"{node.host} does not reach the store")
        node.cut_store()
        await asyncio.sleep(self.rng.choice((1.0, cluster.session_timeout_s * 0.8, cluster.session_timeout_s * 2)))
        cluster.trace.add(f"{node.host} reaches the store again")
        node.heal_store()

    async def _store_down(self) -> None:
        """No broker reaches the store (C10)."""
        cluster = self._cluster
        cluster.trace.add("no broker reaches the store")
        nodes = [node for node in cluster.nodes if not node.cut_from_store]
        for node in nodes:
            node.cut_store()
        await asyncio.sleep(self.rng.choice((1.0, cluster.session_timeout_s * 0.8, cluster.session_timeout_s * 2)))
        cluster.trace.add("the store is back")
        for node in nodes:
            node.heal_store()

    async def _lose_session(self) -> None:
        """A session expires, although its broker is well (C04)."""
        cluster = self._cluster
        node = self._pick()
        if node is not None and not node.cut_from_store:
            cluster.trace.add(f"{node.host} loses its session")
            cluster.tree.lose_sessions_of(node.host)

    async def _stop(self) -> None:
        """Stop a broker cleanly: it hands its leaderships over first (C07)."""
        cluster = self._cluster
        node = self._pick()
        if node is None or node.cut_from_store or cluster.recovering:
            return
        cluster.trace.add(f"{node.host} is asked to stop")
        if await node.stop():
            await asyncio.sleep(self.rng.choice((0.0, 2.0)))
            await cluster.start(node)
