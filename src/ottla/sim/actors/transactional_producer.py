"""A transactional producer, as clients of both generations.

Generation 1 is clients before KIP-890: partitions are added by a request, an epoch lasts for many transactions, and neither
EndTxn nor TxnOffsetCommit may arrive late. Generation 2 is transaction version 2: everything may arrive late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from ottla.errors import ErrorCode
from ottla.ports import Network
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.sim.actors.idempotent_producer import IN_FLIGHT_MAX, ROUNDS_MAX, IdempotentProducer, Outgoing
from ottla.sim.actors.play import GROUP_KEY, TRANSACTION_KEY, EndNote, NoAnswer, Play
from ottla.sim.kernel.process import Process
from ottla.sim.models.history import Commit, Outcome, Place

FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING})
BROKEN: Final = frozenset({ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER})
"""After one of these errors a transaction can only be aborted."""
BATCH_BYTES_MAX: Final = 500
"""Of the records of one batch: with its header it fits into a segment of 600 bytes, the smallest of `Scene.create_topics`."""
RECORD_OVERHEAD_BYTES: Final = 10


class Fenced(Exception):
    """Another instance has taken over: this one ends."""


class Abortable(Exception):
    """This transaction cannot be committed any more."""


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
        """How many times in a row there was nothing to do."""

    async def run(self) -> None:
        await self.run_until()

    async def run_until(self, idle: int | None = None) -> None:
        """Run until it was `idle` so many times in a row (None: for ever), or until it is fenced."""
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
        """Ask the transaction coordinator once. NoAnswer if there is no answer."""
        return await self.ask_coordinator(TRANSACTION_KEY, self.id, api, version, request, late_ok=late_ok)

    async def _initialise(self, *, again: bool = False) -> None:
        """InitProducerId as a new instance, or, `again`, as this one after an error, which raises its epoch (KIP-360)."""
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
        """Ask until it is done. Raises Fenced, or Abortable if the transaction cannot be committed."""
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
        """Write to partitions (None: new values), and perhaps commit offsets of a group. Returns whether it is committed."""
        name = self._transaction = f"{self.name}#{self._count}"
        self._count += 1
        unresolved = False
        try:
            if self.generation == 1:
                await self._add_partitions(list(copies))
                await self.step()
            for place, values in copies.items():
                chunks = split(values) if values else [None] * self.rng.randint(1, 3)
                batches = [self.make(place, chunk) for chunk in chunks]
                unresolved = True
                for first in range(0, len(batches), IN_FLIGHT_MAX):
                    if not await self.deliver(place, batches[first : first + IN_FLIGHT_MAX]):
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
            self.play.ends.append(end)  # without a note a commit was never requested, and nothing of it may be seen
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
                # Before KIP-890 an empty transaction cannot be aborted; the next epoch ends what there is.
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


def split(values: Sequence[bytes]) -> list[Sequence[bytes]]:
    """Values cut into batches that fit into the smallest segments: a larger batch is refused with RECORD_LIST_TOO_LARGE."""
    chunks: list[Sequence[bytes]] = []
    first = size = 0
    for number, value in enumerate(values):
        size += len(value) + RECORD_OVERHEAD_BYTES
        if size > BATCH_BYTES_MAX and number > first:
            chunks.append(values[first:number])
            first, size = number, len(value) + RECORD_OVERHEAD_BYTES
    return [*chunks, values[first:]]
