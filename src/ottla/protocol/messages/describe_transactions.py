"""DescribeTransactions: state, producer and partitions of transactional ids (KIP-664).

Flexible from the start.
"""

from __future__ import annotations

from ottla.wire.schema import list_of, message, wire


@message(versions="0", flexible="0+")
class DescribeTransactionsRequest:
    transactional_ids: list[str] = wire("[]string")


@message()
class TopicData:
    topic: str = wire("string")
    partitions: list[int] = wire("[]int32")


@message()
class TransactionState:
    error_code: int = wire("int16")
    transactional_id: str = wire("string")
    transaction_state: str = wire("string")
    transaction_timeout_ms: int = wire("int32")
    transaction_start_time_ms: int = wire("int64")
    producer_id: int = wire("int64")
    producer_epoch: int = wire("int16")
    topics: list[TopicData] = wire(list_of(TopicData))


@message(versions="0", flexible="0+")
class DescribeTransactionsResponse:
    throttle_time_ms: int = wire("int32")
    transaction_states: list[TransactionState] = wire(list_of(TransactionState))
