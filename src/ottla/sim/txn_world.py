"""Idempotence and transactions: one broker through its lives, and producers, copiers and readers that outlive it.

Owns: the topics, who plays, when the broker dies, and the judgement at the end: the history (`checkers.check_history`), what came
out of the copies, the state of producers after each start against the log itself, and that nothing stays open.
Either every record is flushed before it is answered, and the machine crashes; or nothing is, and only the process dies. So what
was acknowledged is there in both.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import partial
from typing import Final

from ottla.broker.partition import Partition
from ottla.coordinator.txn.state import IDLE
from ottla.errors import ErrorCode
from ottla.protocol.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from ottla.sim.cast import Cast
from ottla.sim.checkers import Violation, check_history, check_producers, check_table, require
from ottla.sim.history import Exhausted, Place
from ottla.sim.loop import new_loop
from ottla.sim.metadata import MetadataTree
from ottla.sim.network import NetworkSettings, NetworkView, SimNetwork
from ottla.sim.node import Complaints, Node
from ottla.sim.play import Actor, Habits, NoAnswer, Play
from ottla.sim.process import Process
from ottla.sim.producers import Copier, IdempotentProducer, TransactionalProducer, check_copies
from ottla.sim.readers import Reader, Watcher
from ottla.sim.trace import Trace
from ottla.storage.producer_state import Producer
from ottla.types import TopicPartition

PORT: Final = 9092
CLOCK_STEP_MS: Final = 1_800_000
SETTLE_S_MAX: Final = 60.0
SOURCE, SINK, TABLE, OTHER = "source", "sink", "table", "other"
GROUP: Final = "copiers"
TXN_TOPIC, OFFSETS_TOPIC = "__transaction_state", "__consumer_offsets"


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
        with self._complaints:
            try:
                self.loop.run_until_complete(self._main())
                if self.loop.unhandled:
                    raise Violation("unhandled", f"{self.loop.unhandled[0]}")
            finally:
                self.cast.bury()
                self.node.bury()
                self.loop.close()

    async def _main(self) -> None:
        node, rng = self.node, self.rng
        await node.start()
        await self._alone("admin", Actor, self._create_topics)
        self._enter()
        for _ in range(rng.randint(2, 4)):
            await self._life()
            await asyncio.sleep(rng.choice((0.0, 0.5, 3.0)))
            await self._resurrect()
        await self._wait(rng.choice((2.0, 5.0)))
        self.cast.dismiss()
        await self._settle()
        self._judge(*await self._read_everything())

    # --- who is there

    async def _create_topics(self, admin: Actor) -> None:
        rng = self.rng
        config = {"segment.bytes": rng.choice(("600", "2000", "100000")), "retention.ms": "-1"}
        partitions = rng.randint(1, 2)
        await admin.create_topic(SOURCE, partitions, config)
        await admin.create_topic(SINK, partitions, config)
        await admin.create_topic(OTHER, rng.randint(1, 2), config)
        if self.has_table:
            compacted = {
                "cleanup.policy": "compact",
                "segment.bytes": rng.choice(("400", "1000")),
                "min.cleanable.dirty.ratio": "0.01",
                "delete.retention.ms": rng.choice(("0", "86400000")),
            }
            await admin.create_topic(TABLE, 1, compacted, keyed=True)

    def _enter(self) -> None:
        rng, play, network = self.rng, self.play, self.network

        def view(process: Process) -> NetworkView:
            return network.view(process, process.name)

        def feeder(number: int, process: Process) -> Actor:
            actor = IdempotentProducer(f"feeder.{number}", play, view(process), process)
            actor.topics = (SOURCE, OTHER)
            return actor

        def anybody(number: int, process: Process) -> Actor:
            actor = IdempotentProducer(f"idempotent.{number}", play, view(process), process)
            actor.topics = (OTHER, TABLE) if self.has_table else (OTHER,)
            return actor

        self.cast.keep("feeder", feeder)
        if rng.random() < 0.5:
            self.cast.keep("idempotent", anybody)
        for writer in range(rng.randint(1, 3)):
            generation = rng.choice((1, 2))

            def transactional(number: int, process: Process, writer: int = writer, generation: int = generation) -> Actor:
                found = TransactionalProducer(f"txn-{writer}", number, generation, play, view(process), process)
                found.topics = (SOURCE, OTHER)
                if self.has_table and number % 2 == 0:
                    found.topics = (TABLE,)
                return found

            self.cast.keep(f"txn-{writer}", transactional, overlaps=True)
        for copier, place in enumerate(self._sources()):
            self.cast.keep(f"copier-{copier}", self._copier(copier, [place], rng.choice((1, 2))), overlaps=True)

        def watcher(number: int, process: Process) -> Actor:
            actor = Watcher(f"watcher.{number}", play, view(process), process)
            actor.groups = {f"{GROUP}-{slot}": [place] for slot, place in enumerate(self._sources())}
            return actor

        self.cast.keep("watcher", watcher)
        for isolation in ("committed", "uncommitted"):

            def reader(number: int, process: Process, isolation: str = isolation) -> Actor:
                return Reader(f"{isolation}.{number}", play, view(process), process, committed=isolation == "committed")

            self.cast.keep(isolation, reader)

    def _sources(self) -> list[Place]:
        return [(SOURCE, index) for index in range(self.play.topics[SOURCE].partitions)]

    def _copier(self, slot: int, sources: list[Place], generation: int) -> Callable[[int, Process], Copier]:
        def make(number: int, process: Process) -> Copier:
            network = self.network.view(process, process.name)
            name = f"copier-{slot}"
            return Copier(
                name, number, generation, self.play, network, process, group=f"{GROUP}-{slot}", sources=sources, sink=SINK
            )

        return make

    async def _alone(self, name: str, make: type[Actor], act: Callable[[Actor], object], limit_s: float = 120.0) -> object:
        def made(process: Process) -> Actor:
            return make(name, self.play, self.network.view(process, name), process)

        try:
            return await self.cast.play_alone(name, made, act, limit_s)
        finally:
            self._complaints.check()

    # --- what happens to the broker

    async def _wait(self, seconds: float) -> None:
        """Until it is dead, or the time is over; or an actor has seen something."""
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
        """Start until it stays up, also if it dies while starting."""
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
        """What a log says of its producers is what its records say (L05, I05)."""
        for partition in self._partitions():
            if "compact" not in partition.log.config.cleanup_policy:
                check_producers(self.node.disk, partition.log)

    async def _former_coordinator(self) -> None:
        """One that does not know it was replaced ends a transaction (T12): it must not be believed."""
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
                await self._alone("former", Actor, late)
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
        require(code != 0, "fenced", f"{topic_partition}: a marker of a coordinator epoch that is over was taken")

    # --- the end

    async def _settle(self) -> None:
        """With time nothing stays open: those who went without a word are aborted (T05)."""
        node = self.node
        assert node.broker is not None
        self.play.calm = True
        self.trace.add("calm")
        node.set_clock(2 * CLOCK_STEP_MS)
        end_s = self.loop.time() + SETTLE_S_MAX
        while open_ones := self._open_ones():
            require(self.loop.time() < end_s, "settles", f"after {SETTLE_S_MAX} s there is still open: {open_ones[0]}")
            await asyncio.sleep(0.5)
            self._complaints.check()
        for slot, place in enumerate(self._sources()):
            await self._copy_the_rest(slot, place)

    def _open_ones(self) -> list[str]:
        assert self.node.broker is not None
        found = []
        for partition in self._partitions():
            if partition.log.last_stable_offset < partition.log.high_watermark:
                found.append(f"{partition.topic_partition} is stable below {partition.log.last_stable_offset}")
        for number, hosted in sorted(self.node.broker.transactions._hosted.items()):
            if hosted.shard is None:
                found.append(f"{TXN_TOPIC}-{number} is not loaded")
                continue
            found += [
                f"{each.transactional_id} is {each.state.name}"
                for each in hosted.shard.transactions.values()
                if each.state not in IDLE
            ]
        return found

    async def _copy_the_rest(self, slot: int, place: Place) -> None:
        async def act(copier: Copier) -> bool:
            await copier.run_until(idle=3)
            return copier.idle >= 3

        # What was sent before the calm may still arrive, and fence the first who comes.
        for attempt in range(3):

            def made(process: Process, attempt: int = attempt) -> Actor:
                return self._copier(slot, [place], self.rng.choice((1, 2)))(1000 + attempt, process)

            try:
                if await self.cast.play_alone(f"copier-{slot}.last", made, act, 300.0):
                    return
            except TimeoutError as error:
                raise Violation("settles", str(error)) from error
        raise Violation("settles", f"copier-{slot} is fenced again and again, and nobody else is there")

    async def _read_everything(self) -> tuple[Reader, Reader]:
        places = [*self.play.places(), *self.play.places(keyed=True)]
        ends = {
            (partition.topic_partition.topic, partition.topic_partition.partition): partition.log.high_watermark
            for partition in self._partitions()
        }
        found = []
        for name, committed in (("last", True), ("all", False)):

            def made(process: Process, name: str = name, committed: bool = committed) -> Reader:
                return Reader(name, self.play, self.network.view(process, name), process, committed=committed)

            async def act(reader: Reader) -> Reader:
                await reader.read_all(self.play.places(), ends)
                await reader.read_all(self.play.places(keyed=True), ends, note=False)
                return reader

            reader: Reader = await self.cast.play_alone(name, made, act, 600.0)
            if committed:
                self.play.events += [Exhausted(name, place) for place in self.play.places()]
            found.append(reader)
        require(set(found[0].read) == set(places), "read", "not all was read")
        self._complaints.check()
        return found[0], found[1]

    def _judge(self, committed: Reader, everything: Reader) -> None:
        play = self.play
        check_history(play.history())
        check_copies(play, self._sources(), SINK, committed.read)
        for place in play.places(keyed=True):
            outcomes = {end.transaction: end.outcome for end in play.ends}
            check_table(place, play.sends, outcomes, committed.read[place])
        self._check_producers()
        self.trace.add(f"{len(play.sends)} sends, {sorted(play.ended.items())}")
