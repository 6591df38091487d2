"""An application that copies one topic to another, exactly once, and the check of its copies."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ottla.ports import Network
from ottla.sim.actors.play import Play
from ottla.sim.actors.readers import Position, fetch_committed_offsets, poll
from ottla.sim.actors.transactional_producer import TransactionalProducer
from ottla.sim.kernel.process import Process
from ottla.sim.models.history import Place, Seek
from ottla.sim.violation import require


class Copier(TransactionalProducer):
    """Copies partitions of one topic to another, each record once (F66)."""

    def __init__(
        self,
        transactional_id: str,
        instance: int,
        generation: int,
        play: Play,
        network: Network,
        process: Process,
        *,
        group: str,
        sources: Sequence[Place],
        sink: str,
    ) -> None:
        super().__init__(transactional_id, instance, generation, play, network, process)
        self._group = group
        self._sources = list(sources)
        self._sink = sink
        self._positions: dict[Place, Position] = {}

    async def _act(self) -> None:
        if not self._positions:
            found = await fetch_committed_offsets(self, self._group, self._sources, barrier=(self._sink, 0))
            for place in self._sources:
                offset = found.get(place)
                self._positions[place] = Position(place, offset if offset is not None else 0, committed=True)
                self.play.events.append(Seek(self.name, place, self._positions[place].offset))
            await self.step()
        copies: dict[Place, list[bytes] | None] = {}
        ends: dict[Place, int] = {}
        for place in self._sources:
            position = self._positions[place]
            before = position.offset
            records = await poll(self, position, max_bytes=self.rng.choice((200, 1000, 100_000)))
            if records is None or not position.at_end:
                self.idle = -1
            if records:
                copies[self._sink, place[1]] = [value + b"@%d" % self._next_copy() for _, value in records]
            if position.offset != before:
                ends[place] = position.offset
        if not copies:
            self.idle += 1
            await asyncio.sleep(0.2 + self.rng.random() * 0.3)
            return
        self.idle = 0
        await self.step()
        if not await self.transaction(copies, self._group, ends):
            self._positions.clear()  # start again from the committed offsets
        await asyncio.sleep(self.rng.random() * 0.3)

    def _next_copy(self) -> int:
        self.play.made += 1
        return self.play.made


def check_copies(sources: Sequence[Place], sink: str, read: dict[Place, list[tuple[int, bytes]]]) -> None:
    """The copies are the records of the source, each partition in order (T13)."""
    for place in sources:
        went_in = [value for _, value in read[place]]
        came_out = [value.partition(b"@")[0] for _, value in read[sink, place[1]]]
        require(
            came_out == went_in,
            "exactly-once",
            f"of {place[0]}-{place[1]}, {len(went_in)} records went in and {len(came_out)} came out"
            + (f", the first that differ: {_first_difference(went_in, came_out)}" if came_out != went_in else ""),
        )


def _first_difference(left: list[bytes], right: list[bytes]) -> str:
    for number, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return f"{one!r} and {other!r}, number {number}"
    return f"number {min(len(left), len(right))}"
