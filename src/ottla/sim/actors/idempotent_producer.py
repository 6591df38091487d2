"""An idempotent producer: its producer id, epoch and sequences, and what it concludes from an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ottla.errors import ErrorCode
from ottla.ports import Network
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.record import build_batch
from ottla.sim.actors.play import Actor, NoAnswer, Play, SendNote
from ottla.sim.kernel.machine import START_MS
from ottla.sim.kernel.process import Process
from ottla.sim.models.history import Outcome, Place
from ottla.sim.violation import Violation

IN_FLIGHT_MAX: Final = 5
ROUNDS_MAX: Final = 8


@dataclass(slots=True)
class Outgoing:
    """A batch in flight."""

    place: Place
    sequence: int
    data: bytes
    notes: list[SendNote]
    offset: int | None = None
    stored: bool = False
    hopeless: bool = False


class IdempotentProducer(Actor):
    """Has up to five batches in flight per partition; what is not answered is sent again in order."""

    transactional_id: str | None = None
    generation = 0

    def __init__(self, name: str, play: Play, network: Network, process: Process) -> None:
        super().__init__(name, play, network, process)
        self.producer_id = -1
        self.epoch = -1
        self._next: dict[Place, int] = {}
        self._known_in: set[tuple[Place, int]] = set()
        """Partitions that have acknowledged the first batch of a producer id."""
        self._transaction: str | None = None
        self.topics: tuple[str, ...] = ()
        """The topics it writes to."""

    async def run(self) -> None:
        while True:
            if self.producer_id < 0:
                await self._identify()
            await self.step()
            place = self.rng.choice(self._places())
            batches = [self.make(place) for _ in range(self.rng.choice((1, 2, 3, IN_FLIGHT_MAX)))]
            if not await self.deliver(place, batches):
                self.producer_id = -1  # its sequences are unknown
            await asyncio.sleep(self.rng.random() * 0.6)

    def _places(self) -> list[Place]:
        return [place for keyed in (False, True) for place in self.play.places(keyed=keyed) if place[0] in self.topics]

    async def _identify(self) -> None:
        while True:
            try:
                request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
                response = await self.call(
                    self.rng.choice(self.play.brokers), "init_producer_id", self.rng.choice((2, 4)), request
                )
            except NoAnswer:
                await self.backoff()
                continue
            if self.expect(response.error_code, "identify itself") == 0:
                self.play.has_producer_id(response.producer_id, self.name)
                self.producer_id, self.epoch = response.producer_id, response.producer_epoch
                self._next.clear()
                return
            await self.backoff()

    def make(self, place: Place, values: Sequence[bytes] | None = None) -> Outgoing:
        """The next batch for a partition."""
        rng, play = self.rng, self.play
        keyed = play.topics[place[0]].keyed
        values = values or [play.next_value() for _ in range(rng.choice((1, 1, 2, 3)))]
        notes = []
        for value in values:
            key = b"k%d" % rng.randrange(4) if keyed else None
            # With another producer id it is another producer: what it sent before may still arrive.
            producer = f"{self.name}/{self.producer_id}"
            notes.append(SendNote(producer, place, value, play.now(), key, transaction=self._transaction))
        play.sends += notes
        sequence = self._next.get(place, 0)
        self._next[place] = sequence + len(notes)
        now_ms = START_MS + int(play.now_s() * 1000)
        data = build_batch(
            [(note.key, note.value, (), now_ms) for note in notes],
            codec=rng.choice((0, 0, 0, 4)),
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=self._transaction is not None,
        )
        return Outgoing(place, sequence, data, notes)

    async def deliver(self, place: Place, batches: list[Outgoing]) -> bool:
        """Send until all are stored. False: given up."""
        for _ in range(ROUNDS_MAX):
            await self._round(place, [batch for batch in batches if not batch.stored])
            if all(batch.stored for batch in batches):
                return True
            if any(batch.hopeless for batch in batches):
                return False
            await self.backoff()
            await self.step()
        return False

    async def _round(self, place: Place, batches: list[Outgoing]) -> None:
        """Send all batches in order, on one connection."""
        address = await self.leader_of(place)
        if not await self.reach(address):
            self.forget_leader(place)
            return
        version = {0: self.rng.choice((7, 9, 11, 13)), 1: 11, 2: self.rng.choice((12, 13))}[self.generation]
        requests = [self._request(batch) for batch in batches]
        self.maybe_double(address, "produce", version, requests)
        patience_s = self.patience_s()
        calls = (self.call(address, "produce", version, request, patience_s=patience_s) for request in requests)
        responses = await asyncio.gather(*calls, return_exceptions=True)
        first_failed = True
        for batch, response in zip(batches, responses, strict=True):
            if isinstance(response, NoAnswer):
                self.forget_leader(place)
                first_failed = False
                continue
            if isinstance(response, BaseException):
                raise response
            answer = response.responses[0].partition_responses[0]
            code = ErrorCode(answer.error_code)
            if code == 0:
                self._stored(batch, answer.base_offset)
                continue
            self.note(f"produce to {place[0]}-{place[1]} sequence {batch.sequence}: {code.name}")
            if code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE):
                self.forget_leader(place)
            if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self.play.led_epoch(place, address) is None:
                # A deposed leader that does not know it yet answers by its own log; the leader may know better.
                self.forget_leader(place)
            elif first_failed:
                self._refused(batch, code)
            first_failed = False

    def _request(self, batch: Outgoing) -> ProduceRequest:
        topic = self.play.topics[batch.place[0]]
        data = PartitionProduceData(index=batch.place[1], records=batch.data)
        return ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=3_000,
            topic_data=[TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=[data])],
        )

    def _stored(self, batch: Outgoing, offset: int) -> None:
        batch.stored = True
        if batch.sequence == 0:
            self._known_in.add((batch.place, self.producer_id))
        self.note(f"stored {batch.place[0]}-{batch.place[1]} sequence {batch.sequence} at {offset}")
        for index, note in enumerate(batch.notes):
            note.end, note.outcome, note.offset = self.play.now(), Outcome.OK, offset + index if offset >= 0 else None

    def _refused(self, batch: Outgoing, code: ErrorCode) -> None:
        """The first batch of a row was refused. All batches before it are stored, so its sequence is right."""
        if self.play.offsets_may_shrink and code in (
            ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ):
            batch.hopeless = True
            return
        if code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            raise Violation(
                "duplicate",
                f"{self.name}: sequence {batch.sequence} of {batch.place} is one of the last five, and was not recognised",
            )
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and (batch.place, self.producer_id) not in self._known_in:
            # A partition accepts any sequence from a producer it does not know. If the first batch was refused for another
            # reason, the second may have been accepted as the first.
            batch.hopeless = True
            return
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            raise Violation(
                "sequence", f"{self.name}: sequence {batch.sequence} of {batch.place} is the next one, and was refused"
            )
        self.expect(code, f"produce to {batch.place}")
