"""Transactions as their coordinators and the leaders of their partitions describe them. Never prints.

librdkafka has none of these requests, so they go over plain sockets to the broker concerned.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from ottla.cli.connection import Connection, unknown_partition, while_coordinators_move
from ottla.cli.failure import EXIT_USAGE, Failure
from ottla.cli.plain_request import call, raise_if_error
from ottla.cli.positions import TopicIndex
from ottla.coordinator.txn.transaction_metadata import STATE_BY_TITLE
from ottla.errors import ErrorCode
from ottla.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse, TopicRequest
from ottla.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

_TRANSACTION = 1


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    """A transactional id, as its coordinator lists it."""

    transactional_id: str
    coordinator_id: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that is open in a partition, as the partition leader describes it."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int

    def document(self, now_ms: int) -> dict[str, Any]:
        return {**asdict(self), "idle_ms": now_ms - self.last_timestamp_ms}


class Transactions:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._metadata = connection.metadata()

    def now_ms(self) -> int:
        return int(time.time() * 1000)

    # Coordinators

    def listed(
        self, states: Collection[str] = (), producer_ids: Collection[int] = (), older_than_ms: int = -1
    ) -> list[ListedTransaction]:
        version = 1 if older_than_ms >= 0 else 0
        request = ListTransactionsRequest(
            state_filters=[_state(word) for word in states], producer_id_filters=list(producer_ids), duration_filter=older_than_ms
        )
        found: list[ListedTransaction] = []
        for broker in self._metadata.brokers.values():
            address = self._address(broker.id)
            answer = call(self._connection, "list_transactions", version, request, ListTransactionsResponse, address)
            raise_if_error(answer.error_code, f"broker {broker.id} cannot list its transactions")
            if answer.unknown_state_filters:
                raise Failure(
                    f"{answer.unknown_state_filters[0]!r} is not a transaction state",
                    f"the states are {', '.join(STATE_BY_TITLE)}",
                    exit_code=EXIT_USAGE,
                )
            found += [
                ListedTransaction(each.transactional_id, broker.id, each.producer_id, each.transaction_state)
                for each in answer.transaction_states
            ]
        return sorted(found, key=lambda each: each.transactional_id)

    @while_coordinators_move
    def described(self, transactional_id: str) -> tuple[TransactionState, int]:
        """The state of a transactional id, and the broker id of its coordinator."""
        find = FindCoordinatorRequest(key_type=_TRANSACTION, key=transactional_id)
        found = call(self._connection, "find_coordinator", 2, find, FindCoordinatorResponse)
        raise_if_error(found.error_code, f"transactional id {transactional_id} has no coordinator")
        describe = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        coordinator = (found.host, found.port)
        answer = call(self._connection, "describe_transactions", 0, describe, DescribeTransactionsResponse, coordinator)
        (state,) = answer.transaction_states
        if state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise Failure(
                f"transactional id {transactional_id} does not exist",
                "list them with `ottla txn list`",
                code="TRANSACTIONAL_ID_NOT_FOUND",
            )
        raise_if_error(state.error_code, transactional_id)
        return state, found.node_id

    # Leaders

    def partitions(self, topics: Iterable[str]) -> list[TopicIndex]:
        """The partitions of these topics, or of all topics."""
        names = list(topics)
        found = self._connection.topics(names) if names else list(self._metadata.topics.values())
        return sorted((str(topic.topic), partition) for topic in found for partition in topic.partitions)

    def open_in(self, partitions: Iterable[TopicIndex]) -> list[OpenTransaction]:
        by_leader: dict[int, dict[str, list[int]]] = {}
        for topic, partition in partitions:
            by_leader.setdefault(self._leader(topic, partition), {}).setdefault(topic, []).append(partition)
        found: list[OpenTransaction] = []
        for leader, topics in by_leader.items():
            request = DescribeProducersRequest(
                topics=[TopicRequest(name=name, partition_indexes=indexes) for name, indexes in topics.items()]
            )
            answer = call(self._connection, "describe_producers", 0, request, DescribeProducersResponse, self._address(leader))
            for topic_answer in answer.topics:
                for each in topic_answer.partitions:
                    raise_if_error(each.error_code, f"{topic_answer.name}-{each.partition_index}")
                    found += [
                        OpenTransaction(
                            topic_answer.name,
                            each.partition_index,
                            producer.producer_id,
                            producer.producer_epoch,
                            producer.coordinator_epoch,
                            producer.current_txn_start_offset,
                            producer.last_timestamp,
                        )
                        for producer in each.active_producers
                        if producer.current_txn_start_offset >= 0
                    ]
        return sorted(found, key=lambda each: (each.topic, each.partition, each.start_offset))

    def hanging(self, partitions: Iterable[TopicIndex], idle_ms: int) -> list[OpenTransaction]:
        """The transactions that are idle for `idle_ms` and that no coordinator knows: nothing will end them."""
        oldest_ms = self.now_ms() - idle_ms
        suspects = [each for each in self.open_in(partitions) if each.last_timestamp_ms <= oldest_ms]
        if not suspects:
            return []
        listed = self.listed(producer_ids={each.producer_id for each in suspects})
        names = {each.producer_id: each.transactional_id for each in listed}
        described: dict[str, set[TopicIndex]] = {}
        for name in set(names.values()):
            state, _ = self.described(name)
            described[name] = {(topic.topic, partition) for topic in state.topics for partition in topic.partitions}
        return [
            each
            for each in suspects
            if each.producer_id not in names or (each.topic, each.partition) not in described[names[each.producer_id]]
        ]

    def abort(self, transaction: OpenTransaction) -> None:
        """Write the abort marker to the partition."""
        marker = WritableTxnMarker(
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=transaction.topic, partition_indexes=[transaction.partition])],
            # -1: the producer has no marker in this partition yet.
            coordinator_epoch=max(transaction.coordinator_epoch, 0),
        )
        request = WriteTxnMarkersRequest(markers=[marker])
        address = self._address(self._leader(transaction.topic, transaction.partition))
        answer = call(self._connection, "write_txn_markers", 1, request, WriteTxnMarkersResponse, address)
        error_code = answer.markers[0].topics[0].partitions[0].error_code
        raise_if_error(error_code, f"the transaction in {transaction.topic}-{transaction.partition} cannot be aborted")

    def _leader(self, topic: str, partition: int) -> int:
        known = self._metadata.topics
        found = (known[topic] if topic in known else self._connection.topic(topic)).partitions
        if partition not in found:
            raise unknown_partition(topic, partition, len(found))
        leader: int = found[partition].leader
        if leader not in self._metadata.brokers:
            raise Failure(f"{topic}-{partition} has no leader now", code="LEADER_NOT_AVAILABLE")
        return leader

    def _address(self, broker_id: int) -> tuple[str, int]:
        broker = self._metadata.brokers[broker_id]
        return str(broker.host), broker.port


def _state(word: str) -> str:
    """The state in the brokers' spelling. Brokers report unknown states."""
    return next((title for title in STATE_BY_TITLE if title.lower() == word.lower()), word)
