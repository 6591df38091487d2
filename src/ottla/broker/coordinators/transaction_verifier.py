"""Verifying that partitions belong to the transaction of their writer (KIP-890, T10).

Owns the question that Produce and TxnOffsetCommit ask before the first records of a transaction are written to a partition. The
coordinator of the transaction answers it: a shard of this broker, or another broker (AddPartitionsToTxn 4+).

The transaction may end between an answer that was awaited and the write. The writer therefore holds a guard of the partition that
a marker invalidates (`Partition.start_verification`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.broker.coordinators.reply import Reply
from ottla.broker.coordinators.transaction_coordinators import TRANSACTION_VERSION
from ottla.errors import ErrorCode, KafkaError
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from ottla.broker.coordinators.transaction_coordinators import TransactionCoordinators
    from ottla.broker.metadata.local_metadata import LocalMetadata
    from ottla.broker.network.inter_broker import InterBroker

_ADDS_PARTITIONS_SINCE: Final = {"produce": 12, "txn_offset_commit": 5}
_KNOWS_ABORTABLE_SINCE: Final = {"produce": 11, "txn_offset_commit": 4}
_ABORTABLE_FROM: Final = 5
"""The version of AddPartitionsToTxn that answers TRANSACTION_ABORTABLE; before it, INVALID_TXN_STATE."""

Refusals = dict[TopicPartition, KafkaError]
"""The partitions that may not be written to, with the error for the producer."""
RefusalsLater = Callable[[], Awaitable[Refusals]]
"""Nothing starts before it is called: its connection may close before its turn comes, and Python warns of a coroutine that is
never awaited."""


@dataclass(frozen=True, slots=True)
class _Question:
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: Collection[TopicPartition]
    api_name: str
    version: int

    @property
    def adds(self) -> bool:
        """The producer has transaction version 2: verifying a partition adds it to the transaction."""
        return self.version >= _ADDS_PARTITIONS_SINCE[self.api_name]

    def refused(self, error: KafkaError) -> Refusals:
        return self.for_producer(dict.fromkeys(self.partitions, error))

    def for_producer(self, refusals: Refusals) -> Refusals:
        return {key: _for_producer(error, self.api_name, self.version) for key, error in refusals.items()}


class TransactionVerifier:
    def __init__(self, transactions: TransactionCoordinators, metadata: LocalMetadata, inter_broker: InterBroker | None) -> None:
        """`inter_broker`: None on a broker alone."""
        self._transactions = transactions
        self._metadata = metadata
        self._inter_broker = inter_broker

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        api_name: str,
        version: int,
    ) -> Refusals | RefusalsLater:
        """Whether a producer may write to partitions in its transaction. Asked for partitions without records of it.

        `api_name` and `version` of the request (produce, txn_offset_commit) tell what the producer knows: before KIP-890 it has
        added the partitions itself; with transaction version 2 this adds them. On the broker that coordinates the id the answer
        needs no waiting, unless the markers of the previous transaction are still being written.
        """
        question = _Question(transactional_id, producer_id, producer_epoch, partitions, api_name, version)
        if not question.adds and not self._metadata.settings.bool("transaction.partition.verification.enable"):
            return {}
        coordinator = self._other_coordinator(transactional_id)
        if coordinator is not None:
            return partial(self._ask_coordinator, question, coordinator)
        try:
            answer = self._ask_shard(question)
        except KafkaError as error:
            if question.adds and error.code == ErrorCode.CONCURRENT_TRANSACTIONS:
                return partial(self._retry_shard, question)
            return question.refused(error)
        if isinstance(answer, dict):
            return question.for_producer(answer)
        return partial(_awaited, question, answer)

    def _other_coordinator(self, transactional_id: str) -> int | None:
        """The broker that coordinates an id, -1 for none; None if it is this one."""
        if self._inter_broker is None:
            return None
        leader = self._transactions.shards.topic.known_leader_of(transactional_id)
        return None if leader is None or leader == self._metadata.broker_id else leader

    # On this broker

    def _ask_shard(self, question: _Question) -> Refusals | Awaitable[ErrorCode]:
        shards = self._transactions.shards
        transactional_id, partitions = question.transactional_id, question.partitions
        producer = question.producer_id, question.producer_epoch
        hosted, shard = shards.find(transactional_id)
        if not question.adds:
            verified = shard.verify_partitions(transactional_id, *producer, partitions)
            return {partition: KafkaError(code) for partition, code in verified.items() if code}
        reply: Reply[ErrorCode] = Reply()
        wall_ms = shards.now().wall_ms
        decision = shard.add_partitions(transactional_id, *producer, partitions, TRANSACTION_VERSION, reply, wall_ms)
        answer = shards.reply_of(hosted, reply, decision)
        return answer if isinstance(answer, asyncio.Future) else {}

    async def _retry_shard(self, question: _Question) -> Refusals:
        """The markers of the previous transaction are still being written: this will not take long."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._retry_time_s
        while True:
            await asyncio.sleep(self._retry_backoff_s)
            try:
                answer = self._ask_shard(question)
                if not isinstance(answer, dict):
                    await answer
            except KafkaError as error:
                if error.code == ErrorCode.CONCURRENT_TRANSACTIONS and loop.time() < deadline:
                    continue
                return question.refused(error)
            return {}

    @property
    def _retry_time_s(self) -> float:
        return self._metadata.settings.int("add.partitions.to.txn.retry.backoff.max.ms") / 1000

    @property
    def _retry_backoff_s(self) -> float:
        return self._metadata.settings.int("add.partitions.to.txn.retry.backoff.ms") / 1000

    # On another broker

    async def _ask_coordinator(self, question: _Question, coordinator: int) -> Refusals:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._retry_time_s
        while True:
            refusals = await self._add_partitions_to_txn(question, coordinator)
            concurrent = any(error.code == ErrorCode.CONCURRENT_TRANSACTIONS for error in refusals.values())
            if not (question.adds and concurrent) or loop.time() >= deadline:
                return question.for_producer(refusals)
            await asyncio.sleep(self._retry_backoff_s)

    async def _add_partitions_to_txn(self, question: _Question, coordinator: int) -> Refusals:
        # Imported with the first transaction that another broker coordinates.
        from ottla.broker.network.inter_broker import PeerUnavailable
        from ottla.protocol.messages.add_partitions_to_txn import (
            AddPartitionsToTxnRequest,
            AddPartitionsToTxnResponse,
            AddPartitionsToTxnTopic,
            AddPartitionsToTxnTransaction,
        )

        assert self._inter_broker is not None
        partitions = question.partitions
        if coordinator < 0:
            reason = f"{question.transactional_id} has no transaction coordinator now"
            return dict.fromkeys(partitions, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, reason))
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for name, number in partitions:
            topics.setdefault(name, AddPartitionsToTxnTopic(name=name, partitions=[])).partitions.append(number)
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=question.transactional_id,
            producer_id=question.producer_id,
            producer_epoch=question.producer_epoch,
            verify_only=not question.adds,
            topics=list(topics.values()),
        )
        try:
            response: AddPartitionsToTxnResponse = await self._inter_broker.call(
                coordinator,
                "transactions",
                "add_partitions_to_txn",
                AddPartitionsToTxnRequest(transactions=[transaction]),
                version_max=_ABORTABLE_FROM,
                timeout_ms=self._metadata.settings.int("request.timeout.ms"),
            )
        except PeerUnavailable as error:
            return dict.fromkeys(partitions, KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error)))
        if response.error_code:
            return dict.fromkeys(partitions, KafkaError(ErrorCode(response.error_code)))
        missing = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the coordinator's reply has no result for the partition")
        refusals = dict.fromkeys(partitions, missing)
        for result in response.results_by_transaction:
            for topic in result.topic_results:
                for answer in topic.results_by_partition:
                    key = TopicPartition(topic.name, answer.partition_index)
                    refusals.pop(key, None)
                    if answer.partition_error_code:
                        refusals[key] = KafkaError(ErrorCode(answer.partition_error_code))
        return refusals


async def _awaited(question: _Question, added: Awaitable[ErrorCode]) -> Refusals:
    try:
        await added
    except KafkaError as error:
        return question.refused(error)
    return {}


_AS_NOT_ENOUGH_REPLICAS: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


def _for_producer(error: KafkaError, api_name: str, version: int) -> KafkaError:
    """The coordinator's error as one that a producer of this version handles correctly."""
    code = error.code
    if code == ErrorCode.PRODUCER_FENCED:
        return KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, error.detail)
    if code == ErrorCode.TRANSACTION_ABORTABLE and version < _KNOWS_ABORTABLE_SINCE[api_name]:
        return KafkaError(ErrorCode.INVALID_TXN_STATE, "the partition was not added to the transaction")
    if api_name == "produce" and (
        code in _AS_NOT_ENOUGH_REPLICAS
        or (code == ErrorCode.CONCURRENT_TRANSACTIONS and version < _ADDS_PARTITIONS_SINCE[api_name])
    ):
        # Every producer retries this error, without a metadata refresh.
        return KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, f"the transaction coordinator could not verify the partition: {error}")
    return error
