"""Idempotence and transactions: one broker through its lives, and producers, copiers and readers that outlive it.

Owns: when the broker dies, the check of producer state against the log after each start, and that no transaction stays open. The
actors, and the judgement at the end, are the scene's.
Either every record is flushed before it is acknowledged and the machine crashes, or nothing is and only the process dies: in
both, what was acknowledged must be there.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from ottla.broker.replicas.partition import Partition
from ottla.coordinator.txn.transaction_metadata import IDLE
from ottla.errors import ErrorCode
from ottla.protocol.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from ottla.sim.actors.cast import Cast
from ottla.sim.actors.play import Actor, Habits, NoAnswer, Play
from ottla.sim.actors.scene import Scene
from ottla.sim.kernel.loop import new_loop
from ottla.sim.kernel.metadata_tree import MetadataTree
from ottla.sim.kernel.network import NetworkSettings, SimNetwork
from ottla.sim.kernel.node import Complaints, Node
from ottla.sim.kernel.trace import Trace
from ottla.sim.models.checkers import check_producers
from ottla.sim.violation import require
from ottla.sim.worlds.harness import run_to_end
from ottla.storage.producer_state import Producer
from ottla.types import TopicPartition

PORT: Final = 9092
CLOCK_STEP_MS: Final = 1_800_000
SETTLE_S_MAX: Final = 60.0
TXN_TOPIC: Final = "__transaction_state"


class TransactionWorld:
    """A run of one seed."""

    def __init__(self, seed: int, *, echo: Callable[[str], None] | None = None) -> None:
        rng = self.rng = random.Random(f"transactions {seed}")
        self.loop = new_loop()
        self.trace = Trace(self.loop.time, echo=echo)
        network = NetworkSettings(
            latency_s_max=rng.choice((0.001, 0.01, 0.1)),
            spike_chance=rng.choice((0.0, 0.01, 0.05)),
            spike_s_max=rng.choice((0.5, 6.0)),
            crumbs_chance=rng.choice((0.0, 0.0, 0.2)),
        )
        self.network = SimNetwork(random.Random(f"network {seed}"), network)
        self.machine_crashes = rng.random() < 0.5
        self.has_table = rng.random() < 0.4
        properties = self._properties()
        self.node = Node(
            1,
            f"transactions {seed}",
            self.loop,
            self.network,
            MetadataTree(),
            properties,
            self.trace,
            page_bytes=rng.choice((64, 512, 4096)),
            worker_delay_s_max=rng.choice((0.0, 0.01, 0.2)),
        )
        habits = Habits(
            patience_s=rng.choice(((0.5, 1.0), (2.0, 5.0))),
            double_chance=rng.choice((0.0, 0.05, 0.2)),
            die_chance=rng.choice((0.0, 0.01, 0.03)),
            pause_chance=rng.choice((0.0, 0.02, 0.05)),
        )
        self.play = Play(random.Random(f"play {seed}"), self.trace, self.loop.time, [("127.0.0.1", PORT)], habits)
        self.cast = Cast(random.Random(f"cast {seed}"), self.loop, self.network, self.play)
        self.scene = Scene(rng, self.play, self.cast, has_table=self.has_table)
        self._complaints = Complaints()

    def _properties(self) -> dict[str, str]:
        rng = self.rng
        found = {
            "broker.id": "1",
            "log.dirs": "/d",
            "listeners": f"PLAINTEXT://127.0.0.1:{PORT}",
            "auto.create.topics.enable": "false",
            "log.retention.check.interval.ms": "20000",
            "log.initial.task.delay.ms": "500",
            "log.flush.offset.checkpoint.interval.ms": rng.choice(("1000", "60000")),
            "log.flush.start.offset.checkpoint.interval.ms": "60000",
            "log.flush.scheduler.interval.ms": "3000",
            "replica.high.watermark.checkpoint.interval.ms": "5000",
            "offsets.topic.num.partitions": rng.choice(("1", "2")),
            "offsets.topic.segment.bytes": rng.choice(("2000", "104857600")),
            "transaction.state.log.num.partitions": rng.choice(("1", "2")),
            "transaction.state.log.segment.bytes": rng.choice(("2000", "104857600")),
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": rng.choice(("500", "2000")),
            "log.cleaner.backoff.ms": rng.choice(("500", "3000")),
            "log.cleaner.min.cleanable.ratio": "0.01",
        }
        if self.machine_crashes:
            found["log.flush.interval.messages"] = "1"
        return found

    def run(self) -> None:
        run_to_end(self.loop, self._complaints, self._main, self._bury)

    def _bury(self) -> None:
        self.cast.bury()
        self.node.bury()

    async def _main(self) -> None:
        node, rng = self.node, self.rng
        await node.start()
        await self._alone("admin", lambda admin: self.scene.create_topics(admin, {}))
        self.scene.enter()
        for _ in range(rng.randint(2, 4)):
            await self._life()
            await asyncio.sleep(rng.choice((0.0, 0.5, 3.0)))
            await self._resurrect()
        await self._wait(rng.choice((2.0, 5.0)))
        self.cast.dismiss()
        await self._settle()
        ends = {
            (each.topic, each.partition): partition.log.high_watermark
            for partition in self._partitions()
            for each in (partition.topic_partition,)
        }
        self.scene.judge(await self.scene.read_everything(ends))
        self._complaints.check()
        self._check_producers()

    async def _alone(self, name: str, act: Callable[[Actor], Any]) -> None:
        try:
            await self.scene.alone(name, act)
        finally:
            self._complaints.check()

    # --- what happens to the broker

    async def _wait(self, seconds: float) -> None:
        """Wait until the broker is dead or the time is over. Raises what an actor found."""
        await asyncio.wait([self.node.died, self.cast.failed], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if self.cast.failed.done():
            self.cast.failed.result()
        self._complaints.check()

    async def _life(self) -> None:
        node, rng = self.node, self.rng
        if rng.random() < 0.6:
            assert node.process is not None
            node.disk.crash_after(rng.randint(1, 400), node.process.die)
        end_s = self.loop.time() + rng.choice((2.0, 6.0, 15.0))
        cuts = rng.choice((0.0, 0.0, 0.2))
        while node.alive and self.loop.time() < end_s:
            await self._wait(min(1.0, end_s - self.loop.time()))
            if not node.alive:
                break
            if rng.random() < cuts:
                self.trace.add(f"cut {self.network.cut_one()}")
            if rng.random() < 0.02 and not self.has_table:
                skew_ms = rng.choice((0, -CLOCK_STEP_MS, CLOCK_STEP_MS))
                self.trace.add(f"the clock is off by {skew_ms} ms")
                node.set_clock(skew_ms)
            if rng.random() < 0.3:
                await self._former_coordinator()
        if node.serves and rng.random() < 0.2:
            await node.stop()
        elif self.machine_crashes:
            node.crash()
        else:
            self.trace.add("kill")
            node.kill()

    async def _resurrect(self) -> None:
        """Start the broker, again if it dies while starting."""
        node, rng = self.node, self.rng
        for attempt in range(3):
            if attempt < 2 and rng.random() < 0.2:
                node.disk.crash_after(rng.randint(1, 60), self._die)
            if await node.start():
                break
            if self.machine_crashes:
                node.crash()
            else:
                node.kill()
        node.disk.forget_crash_point()
        self._check_producers()

    def _die(self) -> None:
        assert self.node.process is not None
        self.node.process.die()

    def _partitions(self) -> list[Partition]:
        assert self.node.broker is not None
        return sorted(self.node.broker.partitions, key=lambda each: each.topic_partition)

    def _check_producers(self) -> None:
        """Producer state agrees with the records (L05, I05)."""
        for partition in self._partitions():
            if "compact" not in partition.log.config.cleanup_policy:
                check_producers(self.node.disk, partition.log)

    async def _former_coordinator(self) -> None:
        """A coordinator of an older epoch ends a transaction: its marker must be refused (T12)."""
        for partition in self._partitions():
            log = partition.log
            for producer in list(log.producers):
                if (
                    producer.txn_first_offset < 0
                    or producer.coordinator_epoch < 0
                    or partition.topic_partition.topic.startswith("__")
                ):
                    continue
                late = partial(self._end_late, topic_partition=partition.topic_partition, producer=producer)
                await self._alone("former", late)
                return

    async def _end_late(self, actor: Actor, topic_partition: TopicPartition, producer: Producer) -> None:
        marker = WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            transaction_result=True,
            coordinator_epoch=producer.coordinator_epoch - 1,
            topics=[WritableTxnMarkerTopic(name=topic_partition.topic, partition_indexes=[topic_partition.partition])],
        )
        try:
            response = await actor.call(("127.0.0.1", PORT), "write_txn_markers", 1, WriteTxnMarkersRequest(markers=[marker]))
        except NoAnswer:
            return
        code = response.markers[0].topics[0].partitions[0].error_code
        actor.note(f"a former coordinator ends {topic_partition}: {ErrorCode(code).name}")
        require(code != 0, "fenced", f"{topic_partition}: a marker of an older coordinator epoch was accepted")

    # --- the end

    async def _settle(self) -> None:
        """Transactions of producers that are gone are aborted in time (T05)."""
        node = self.node
        assert node.broker is not None
        self.play.calm = True
        self.trace.add("calm")
        await asyncio.sleep(self.play.habits.double_s_max + 1)  # what is in flight arrives
        node.set_clock(2 * CLOCK_STEP_MS)
        end_s = self.loop.time() + SETTLE_S_MAX
        while open_ones := self._open_ones():
            require(self.loop.time() < end_s, "settles", f"after {SETTLE_S_MAX} s a transaction is still open: {open_ones[0]}")
            await asyncio.sleep(0.5)
            self._complaints.check()
        await self.scene.copy_the_rest()

    def _open_ones(self) -> list[str]:
        assert self.node.broker is not None
        found = []
        for partition in self._partitions():
            if partition.log.last_stable_offset < partition.log.high_watermark:
                found.append(f"{partition.topic_partition} is stable below {partition.log.last_stable_offset}")
        for number, hosted in sorted(self.node.broker.transactions.shards._hosted.items()):
            if hosted.shard is None:
                found.append(f"{TXN_TOPIC}-{number} is not loaded")
                continue
            found += [
                f"{each.transactional_id} is {each.state.name}"
                for each in hosted.shard.transactions.values()
                if each.state not in IDLE
            ]
        return found
