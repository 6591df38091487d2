"""Transactions by state and age, and those that hang.

A transaction hangs if it is open in a partition and no coordinator will end it there: either none knows its producer, or the
transaction that it knows does not have the partition. A transaction that a coordinator has just ended looks alike until its
marker arrives, so only producers that wrote nothing for `HANGING_AFTER_S` count. Only partitions whose last stable offset is
below their end are asked for their producers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ottla.client.brokers import Ask, Brokers
from ottla.errors import error_name
from ottla.exporter.group_reader import chunks
from ottla.exporter.reading import ClusterReading, TopicPartition, Transaction, Transactions
from ottla.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.list_transactions import ListTransactionsRequest

HANGING_AFTER_S: Final = 900.0
"""Kafka's default of transaction.max.timeout.ms: no transaction may be open for longer."""
_IDS_PER_REQUEST: Final = 500
_ENDED: Final = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})


async def read_transactions(
    brokers: Brokers, reading: ClusterReading, now_s: float, hanging_after_s: float = HANGING_AFTER_S
) -> Transactions | None:
    """None if no broker lists transactions."""
    asks = [Ask(node.broker_id, "list_transactions", ListTransactionsRequest()) for node in reading.brokers]
    lists = await brokers.ask_all(asks, reading.notes)
    if not lists:
        return None
    states: list[tuple[int, Any]] = []
    for ask, answer in lists:
        if answer.error_code:
            reading.notes.append(f"transactions of broker {ask.broker_id}: {error_name(answer.error_code)}")
        states += [(ask.broker_id, each) for each in answer.transaction_states]
    described = await _described(brokers, states, reading.notes)
    found = Transactions(
        [_transaction(broker_id, each, described.get(each.transactional_id), now_s) for broker_id, each in states]
    )
    if len(lists) == len(asks):
        found.hanging = await _hanging(brokers, reading, described.values(), now_s - hanging_after_s)
    return found


async def _described(brokers: Brokers, states: list[tuple[int, Any]], notes: list[str]) -> dict[str, Any]:
    """The transactions that have not ended, by transactional id."""
    by_broker: dict[int, list[str]] = {}
    for broker_id, each in states:
        if each.transaction_state not in _ENDED:
            by_broker.setdefault(broker_id, []).append(each.transactional_id)
    asks = [
        Ask(broker_id, "describe_transactions", DescribeTransactionsRequest(transactional_ids=chunk))
        for broker_id, ids in by_broker.items()
        for chunk in chunks(ids, _IDS_PER_REQUEST)
    ]
    answers = await brokers.ask_all(asks, notes)
    return {each.transactional_id: each for _, answer in answers for each in answer.transaction_states if not each.error_code}


def _transaction(coordinator_id: int, listed: Any, described: Any | None, now_s: float) -> Transaction:
    name, producer_id = listed.transactional_id, listed.producer_id
    if described is None:
        return Transaction(name, listed.transaction_state, None, None, producer_id, coordinator_id)
    began_ms = described.transaction_start_time_ms
    open_s = None if began_ms < 0 else max(now_s - began_ms / 1000, 0.0)
    timeout_s = described.transaction_timeout_ms / 1000
    return Transaction(name, described.transaction_state, open_s, timeout_s, producer_id, coordinator_id)


async def _hanging(
    brokers: Brokers, reading: ClusterReading, described: Iterable[Any], idle_before_s: float
) -> dict[TopicPartition, int]:
    known = {
        (each.producer_id, topic.topic, partition)
        for each in described
        for topic in each.topics
        for partition in topic.partitions
    }
    hanging: dict[TopicPartition, int] = {}
    for _, answer in await brokers.ask_all(_producer_asks(reading), reading.notes):
        for topic in answer.topics:
            for partition in topic.partitions:
                count = sum(
                    producer.current_txn_start_offset >= 0
                    and producer.last_timestamp / 1000 <= idle_before_s
                    and (producer.producer_id, topic.name, partition.partition_index) not in known
                    for producer in partition.active_producers
                )
                if count:
                    hanging[topic.name, partition.partition_index] = count
    return hanging


def _producer_asks(reading: ClusterReading) -> list[Ask]:
    by_leader: dict[int, dict[str, list[int]]] = {}
    for topic in reading.topics.values():
        for index, partition in topic.partitions.items():
            if partition.last_stable is not None and partition.log_end is not None and partition.last_stable < partition.log_end:
                by_leader.setdefault(partition.leader_id, {}).setdefault(topic.name, []).append(index)
    return [
        Ask(
            leader_id,
            "describe_producers",
            DescribeProducersRequest(
                topics=[TopicRequest(name=name, partition_indexes=indexes) for name, indexes in topics.items()]
            ),
        )
        for leader_id, topics in by_leader.items()
    ]
