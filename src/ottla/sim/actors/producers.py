"""Idempotent and transactional producers, and applications that copy from one topic to another, as clients of both generations.

Owns: producer ids, epochs and sequences on the client's side, and what a client concludes from an answer.
Generation 1 is clients before KIP-890: partitions are added by a request, an epoch lasts for many transactions, and neither
EndTxn nor TxnOffsetCommit may arrive late. Generation 2 is transaction version 2: everything may.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from ottla.errors import ErrorCode
from ottla.ports import Network
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.records.record import build_batch
from ottla.sim.actors.play import GROUP_KEY, TRANSACTION_KEY, Actor, EndNote, NoAnswer, Play, SendNote
from ottla.sim.actors.readers import Position, fetch_committed_offsets, poll
from ottla.sim.kernel.machine import START_MS
from ottla.sim.kernel.process import Process
from ottla.sim.models.checkers import Violation, require
from ottla.sim.models.history import Commit, Outcome, Place, Seek

IN_FLIGHT_MAX: Final = 5
ROUNDS_MAX: Final = 8
FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING})
BROKEN: Final = frozenset({ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER})
"""A transaction that heard one of these can only be aborted."""


class Fenced(Exception):
    """Another instance has taken over: this one is at its end."""


class Abortable(Exception):
    """This transaction cannot be committed any more."""


@dataclass(slots=True)
class Outgoing:
    """A batch on its way."""

    place: Place
    sequence: int
    data: bytes
    notes: list[SendNote]
    offset: int | None = None
    stored: bool = False
    hopeless: bool = False


class IdempotentProducer(Actor):
    """Up to five batches ahead in each partition; what is not answered is sent again in its order."""

    transactional_id: str | None = None
    generation = 0

    def __init__(self, name: str, play: Play, network: Network, process: Process) -> None:
        super().__init__(name, play, network, process)
        self.producer_id = -1
        self.epoch = -1
        self._next: dict[Place, int] = {}
        self._known_in: set[tuple[Place, int]] = set()
        """Partitions that have acknowledged the first of a producer id."""
        self._transaction: str | None = None
        self.topics: tuple[str, ...] = ()
        """Where it writes."""

    async def run(self) -> None:
        while True:
            if self.producer_id < 0:
                await self._identify()
            await self.step()
            place = self.rng.choice(self._places())
            batches = [self.make(place) for _ in range(self.rng.choice((1, 2, 3, IN_FLIGHT_MAX)))]
            if not await self.deliver(place, batches):
                self.producer_id = -1  # nobody knows where its sequences are
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
            # Who gave up and took another producer id is another producer: what it sent before may still arrive.
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
        """Send until all are stored; False: given up."""
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
        """All of them one behind the other, on one connection."""
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
            if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not self.play.leads(place, address):
                # One that was deposed and does not know it yet says so by the log it has; the leader may know better.
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
        """The first of a row that was not stored. A batch before it is stored, so this one has the right sequence."""
        if self.play.offsets_may_shrink and code in (
            ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ):
            batch.hopeless = True
            return
        if code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            raise Violation(
                "duplicate", f"{self.name}: sequence {batch.sequence} of {batch.place} is one of the last five, and unknown"
            )
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and (batch.place, self.producer_id) not in self._known_in:
            # A partition takes any sequence for the first of a producer it does not know. If the first of a row was refused for
            # another reason, the second may have been taken for it.
            batch.hopeless = True
            return
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            raise Violation("sequence", f"{self.name}: sequence {batch.sequence} of {batch.place} is the next, and refused")
        self.expect(code, f"produce to {batch.place}")


class TransactionalProducer(IdempotentProducer):
    """One instance of a transactional id."""

    def __init__(
        self, transactional_id: str, instance: int, generation: int, play: Play, network: Network, process: Process
    ) -> None:
        super().__init__(f"{transactional_id}.{instance}", play, network, process)
        self.transactional_id = self.id = transactional_id
        self.generation = generation
        self.timeout_ms = self.rng.choice((3_000, 6_000, 20_000))
        self._count = 0
        self.idle = 0
        """How often in a row there was nothing to do."""

    async def run(self) -> None:
        await self.run_until()

    async def run_until(self, idle: int | None = None) -> None:
        """For ever, until it was `idle` so often in a row, or until somebody takes its place."""
        try:
            await self._initialise()
            while idle is None or self.idle < idle:
                await self.step()
                await self._act()
        except Fenced as error:
            self.note(f"is fenced: {error}")
            self.play.count("fenced")

    async def _act(self) -> None:
        places = self._places()
        await self.transaction(dict.fromkeys(self.rng.sample(places, self.rng.randint(1, min(3, len(places))))))
        await asyncio.sleep(self.rng.random() * 0.5)

    # --- the coordinator

    async def _coordinate(self, api: str, version: int, request: object, *, late_ok: bool) -> Any:
        """Ask until an answer comes; NoAnswer is for those who ask."""
        return await self.ask_coordinator(TRANSACTION_KEY, self.id, api, version, request, late_ok=late_ok)

    async def _initialise(self, *, again: bool = False) -> None:
        """A new instance, or, `again`, this one after an error: it keeps its place, with the next epoch (KIP-360)."""
        while True:
            request = InitProducerIdRequest(
                transactional_id=self.id,
                transaction_timeout_ms=self.timeout_ms,
                producer_id=self.producer_id if again else -1,
                producer_epoch=self.epoch if again else -1,
            )
            try:
                response = await self._coordinate("init_producer_id", self.rng.choice((4, 5)), request, late_ok=True)
            except NoAnswer:
                await self.backoff()
                continue
            code = self.expect(response.error_code, "initialise", *FENCED)
            if code in FENCED:
                raise Fenced(code.name)
            if code == 0:
                self.producer_id, self.epoch = response.producer_id, response.producer_epoch
                self.play.was_given(self.id, self.producer_id, self.epoch, self.name)
                self.note(f"is producer {self.producer_id} in epoch {self.epoch}")
                self._next.clear()
                return
            self.look_again(TRANSACTION_KEY, self.id, code)
            await self.backoff()
            await self.step()

    async def _ask(self, what: str, api: str, version: int, request: object, code_of: Any, *, late_ok: bool) -> Any:
        """Ask until it is done. Fenced, or Abortable where the transaction is lost."""
        for _ in range(ROUNDS_MAX * 2):
            try:
                response = await self._coordinate(api, version, request, late_ok=late_ok)
            except NoAnswer:
                await self.backoff()
                continue
            code = self.expect(code_of(response), what, *FENCED, *BROKEN)
            if code == 0:
                return response
            if code in FENCED:
                raise Fenced(f"{what}: {code.name}")
            if code in BROKEN:
                raise Abortable(f"{what}: {code.name}")
            self.look_again(TRANSACTION_KEY, self.id, code)
            await self.backoff()
        raise Abortable(f"{what}: given up")

    async def _add_partitions(self, places: Sequence[Place]) -> None:
        topics: dict[str, list[int]] = {}
        for topic, index in places:
            topics.setdefault(topic, []).append(index)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=found) for name, found in topics.items()],
        )

        def worst(response: Any) -> int:
            codes = [
                each.partition_error_code
                for topic in response.results_by_topic_v3_and_below
                for each in topic.results_by_partition
            ]
            return next((code for code in codes if code and code != ErrorCode.OPERATION_NOT_ATTEMPTED), 0)

        await self._ask("add partitions", "add_partitions_to_txn", 3, request, worst, late_ok=True)

    # --- a transaction

    async def transaction(
        self, copies: dict[Place, list[bytes] | None], group: str = "", positions: dict[Place, int] | None = None
    ) -> bool:
        """Write to partitions (None: something), and perhaps say how far a group has read. Whether it is surely committed."""
        name = self._transaction = f"{self.name}#{self._count}"
        self._count += 1
        unresolved = False
        try:
            if self.generation == 1:
                await self._add_partitions(list(copies))
                await self.step()
            for place, values in copies.items():
                batches = [self.make(place, values)] if values else [self.make(place) for _ in range(self.rng.randint(1, 3))]
                unresolved = True
                if not await self.deliver(place, batches):
                    raise Abortable("the sends are given up")
                unresolved = False
                await self.step()
            if positions:
                unresolved = True
                await self._commit_offsets(name, group, positions)
                unresolved = False
                await self.step()
            commit = bool(positions) or self.rng.random() < 0.75
        except Abortable as error:
            self.note(f"must abort {name}: {error}")
            commit = False
        finally:
            self._transaction = None
        return await self._finish(name, commit=commit, unresolved=unresolved)

    async def _finish(self, name: str, *, commit: bool, unresolved: bool) -> bool:
        end = EndNote(name, self.play.now())
        if commit:
            self.play.ends.append(end)  # without a note it was never asked to commit, and must not be seen
        request = EndTxnRequest(
            transactional_id=self.id, producer_id=self.producer_id, producer_epoch=self.epoch, committed=commit
        )
        late_ok = self.generation == 2
        try:
            version = 5 if self.generation == 2 else self.rng.choice((2, 3, 4))
            response = await self._ask("end", "end_txn", version, request, lambda found: found.error_code, late_ok=late_ok)
        except Abortable as error:
            self.note(f"cannot end {name}: {error}")
            if self.generation == 1 and not commit:
                # Before KIP-890 a transaction that nothing was added to cannot be aborted; the next epoch ends what there is.
                await self._initialise(again=True)
                return False
            raise Fenced("the end of a transaction was not heard of") from None
        end.end = self.play.now()
        end.outcome = Outcome.OK if commit else Outcome.FAILED
        self.note(f"{'committed' if commit else 'aborted'} {name}")
        self.play.count("committed" if commit else "aborted")
        if self.generation == 2:
            if (response.producer_id, response.producer_epoch) != (self.producer_id, self.epoch):
                self.play.was_given(self.id, response.producer_id, response.producer_epoch, self.name)
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
            self._next.clear()
        elif unresolved:
            await self._initialise(again=True)
        return commit

    async def _commit_offsets(self, name: str, group: str, positions: dict[Place, int]) -> None:
        start = self.play.now()
        for place, offset in positions.items():
            self.play.commits.append(Commit(group, place, offset, start, None, Outcome.UNKNOWN, name))
        if self.generation == 1:
            add = AddOffsetsToTxnRequest(
                transactional_id=self.id, producer_id=self.producer_id, producer_epoch=self.epoch, group_id=group
            )
            await self._ask("add offsets", "add_offsets_to_txn", 3, add, lambda found: found.error_code, late_ok=True)
            await self.step()
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for (topic, index), offset in positions.items():
            topics.setdefault(topic, []).append(
                TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
            )
        request = TxnOffsetCommitRequest(
            transactional_id=self.id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=found) for topic, found in topics.items()],
        )
        version = 5 if self.generation == 2 else self.rng.choice((3, 4))
        for _ in range(ROUNDS_MAX):
            try:
                response = await self.ask_coordinator(
                    GROUP_KEY, group, "txn_offset_commit", version, request, late_ok=self.generation == 2
                )
            except NoAnswer:
                await self.backoff()
                continue
            codes = {partition.error_code for topic in response.topics for partition in topic.partitions}
            code = self.expect(next((code for code in codes if code), 0), "commit offsets", *FENCED, *BROKEN)
            if code == 0:
                return
            if code in FENCED:
                raise Fenced(f"commit offsets: {code.name}")
            if code in BROKEN:
                raise Abortable(f"commit offsets: {code.name}")
            self.look_again(GROUP_KEY, group, code)
            await self.backoff()
        raise Abortable("commit offsets: given up")

    def _refused(self, batch: Outgoing, code: ErrorCode) -> None:
        if code in FENCED:
            raise Fenced(f"produce: {code.name}")
        if code in BROKEN:
            # A transaction that timed out has lost its sequences with its epoch.
            raise Abortable(f"produce: {code.name}")
        super()._refused(batch, code)


class Copier(TransactionalProducer):
    """Copies partitions of one topic to those of another, each record once (F66)."""

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
            self._positions.clear()  # begin where the group is said to be
        await asyncio.sleep(self.rng.random() * 0.3)

    def _next_copy(self) -> int:
        self.play.made += 1
        return self.play.made


def check_copies(sources: Sequence[Place], sink: str, read: dict[Place, list[tuple[int, bytes]]]) -> None:
    """What came out is what went in, each partition in its order (T13)."""
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
