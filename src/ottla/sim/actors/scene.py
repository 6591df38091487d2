"""The topics and actors of a run with transactions, on one broker or a cluster, and the judgement at the end.

Owns: which topics and actors there are, and the end of a run: the rest is copied, everything is read, the history is checked.
What happens to the brokers is the world's.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.sim.actors.cast import Cast
from ottla.sim.actors.copier import Copier, check_copies
from ottla.sim.actors.idempotent_producer import IdempotentProducer
from ottla.sim.actors.play import Actor, Play
from ottla.sim.actors.readers import Reader, Watcher
from ottla.sim.actors.transactional_producer import TransactionalProducer
from ottla.sim.kernel.network import NetworkView
from ottla.sim.kernel.process import Process
from ottla.sim.models.checkers import check_history, check_table
from ottla.sim.models.history import Exhausted, Place
from ottla.sim.violation import Violation, require

SOURCE: Final = "source"
SINK: Final = "sink"
TABLE: Final = "table"
OTHER: Final = "other"
GROUP: Final = "copiers"


class Scene:
    def __init__(self, rng: random.Random, play: Play, cast: Cast, *, has_table: bool) -> None:
        self.rng = rng
        self.play = play
        self.cast = cast
        self.has_table = has_table
        self.rack = ""
        """`client.rack` of the readers; empty: they read from leaders."""

    # --- the beginning

    async def create_topics(self, admin: Actor, config: Mapping[str, str], *, replicas: int = 1) -> None:
        rng = self.rng
        config = {"segment.bytes": rng.choice(("600", "2000", "100000")), "retention.ms": "-1", **config}
        partitions = rng.randint(1, 2)
        await admin.create_topic(SOURCE, partitions, config, replicas=replicas)
        await admin.create_topic(SINK, partitions, config, replicas=replicas)
        await admin.create_topic(OTHER, rng.randint(1, 2), config, replicas=replicas)
        if self.has_table:
            compacted = {
                **config,
                "cleanup.policy": "compact",
                "segment.bytes": rng.choice(("400", "1000")),
                "min.cleanable.dirty.ratio": "0.01",
                "delete.retention.ms": rng.choice(("0", "86400000")),
            }
            await admin.create_topic(TABLE, 1, compacted, replicas=replicas, keyed=True)

    def enter(self, *, watched: bool = True) -> None:
        """Start all actors. `watched`: one of them fetches committed offsets; a replaced coordinator may answer from memory."""
        rng, play, cast, view = self.rng, self.play, self.cast, self.view

        def feeder(number: int, process: Process) -> Actor:
            actor = IdempotentProducer(f"feeder.{number}", play, view(process), process)
            actor.topics = (SOURCE, OTHER)
            return actor

        def anybody(number: int, process: Process) -> Actor:
            actor = IdempotentProducer(f"idempotent.{number}", play, view(process), process)
            actor.topics = (OTHER, TABLE) if self.has_table else (OTHER,)
            return actor

        cast.keep("feeder", feeder)
        if rng.random() < 0.5:
            cast.keep("idempotent", anybody)
        for writer in range(rng.randint(1, 3)):
            generation = rng.choice((1, 2))

            def transactional(number: int, process: Process, writer: int = writer, generation: int = generation) -> Actor:
                found = TransactionalProducer(f"txn-{writer}", number, generation, play, view(process), process)
                found.topics = (TABLE,) if self.has_table and number % 2 == 0 else (SOURCE, OTHER)
                return found

            cast.keep(f"txn-{writer}", transactional, overlaps=True)
        for copier, place in enumerate(self.sources()):
            cast.keep(f"copier-{copier}", self.copier(copier, place, rng.choice((1, 2))), overlaps=True)

        def watcher(number: int, process: Process) -> Actor:
            actor = Watcher(f"watcher.{number}", play, view(process), process)
            actor.groups = {f"{GROUP}-{slot}": [place] for slot, place in enumerate(self.sources())}
            return actor

        if watched:
            cast.keep("watcher", watcher)
        for isolation in ("committed", "uncommitted"):

            def reader(number: int, process: Process, isolation: str = isolation) -> Actor:
                found = Reader(f"{isolation}.{number}", play, view(process), process, committed=isolation == "committed")
                found.rack = self.rack
                return found

            cast.keep(isolation, reader)

    def view(self, process: Process) -> NetworkView:
        return self.cast.network.view(process, process.name)

    def sources(self) -> list[Place]:
        return [(SOURCE, index) for index in range(self.play.topics[SOURCE].partitions)]

    def copier(self, slot: int, place: Place, generation: int) -> Callable[[int, Process], Copier]:
        def make(number: int, process: Process) -> Copier:
            name = f"copier-{slot}"
            return Copier(
                name,
                number,
                generation,
                self.play,
                self.view(process),
                process,
                group=f"{GROUP}-{slot}",
                sources=[place],
                sink=SINK,
            )

        return make

    async def alone(self, name: str, act: Callable[[Actor], Any], limit_s: float = 120.0) -> Any:
        """A client without a role does something."""
        try:
            return await self.cast.play_alone(
                name, lambda process: Actor(name, self.play, self.view(process), process), act, limit_s
            )
        except TimeoutError as error:
            raise Violation("hang", str(error)) from error

    # --- the end

    async def copy_the_rest(self) -> None:
        for slot, place in enumerate(self.sources()):
            await self._copy_the_rest_of(slot, place)

    async def _copy_the_rest_of(self, slot: int, place: Place) -> None:
        async def act(copier: Copier) -> bool:
            await copier.run_until(idle=3)
            return copier.idle >= 3

        # What was sent before the calm may still arrive, and fence the first copier.
        for attempt in range(3):

            def made(process: Process, attempt: int = attempt) -> Actor:
                return self.copier(slot, place, self.rng.choice((1, 2)))(1000 + attempt, process)

            try:
                if await self.cast.play_alone(f"copier-{slot}.last", made, act, 300.0):
                    return
            except TimeoutError as error:
                raise Violation("settles", str(error)) from error
        raise Violation("settles", f"copier-{slot} is fenced three times, and there is no other instance")

    async def read_everything(self, ends: Mapping[Place, int]) -> Reader:
        """Two readers, one of each isolation level, read everything. Returns the `read_committed` one."""
        places = [*self.play.places(), *self.play.places(keyed=True)]
        found = []
        for name, committed in (("last", True), ("all", False)):

            def made(process: Process, name: str = name, committed: bool = committed) -> Reader:
                return Reader(name, self.play, self.view(process), process, committed=committed)

            async def act(reader: Reader) -> Reader:
                await reader.read_all(self.play.places(), ends)
                await reader.read_all(self.play.places(keyed=True), ends, note=False)
                return reader

            try:
                found.append(await self.cast.play_alone(name, made, act, 600.0))
            except TimeoutError as error:
                raise Violation("read", str(error)) from error
        self.play.events += [Exhausted("last", place) for place in self.play.places()]
        require(set(found[0].read) == set(places), "read", "a partition was not read")
        reader: Reader = found[0]
        return reader

    def judge(self, committed: Reader) -> None:
        play = self.play
        check_history(play.history())
        check_copies(self.sources(), SINK, committed.read)
        outcomes = {end.transaction: end.outcome for end in play.ends}
        for place in play.places(keyed=True):
            check_table(place, play.sends, outcomes, committed.read[place])
        play.trace.add(f"{len(play.sends)} sends, {sorted(play.ended.items())}")
