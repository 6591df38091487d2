"""AddPartitionsToTxn: partitions become part of a transaction.

Clients send it before they write, up to version 3. Brokers send it from version 4 on, for several transactions at once, to add
the partitions or only to verify that they have been added (KIP-890).

Versions
    2       PRODUCER_FENCED
    3       flexible
    4       several transactions, `verify_only`; the fields of a single one are named `v3_and_below_...`
    5       TRANSACTION_ABORTABLE
"""

from __future__ import annotations

from ottla.wire.schema import list_of, message, wire


@message()
class AddPartitionsToTxnTopic:
    name: str = wire("string")
    partitions: list[int] = wire("[]int32")


@message()
class AddPartitionsToTxnTransaction:
    transactional_id: str = wire("string", "4+")
    producer_id: int = wire("int64", "4+")
    producer_epoch: int = wire("int16", "4+")
    verify_only: bool = wire("bool", "4+")
    topics: list[AddPartitionsToTxnTopic] = wire(list_of(AddPartitionsToTxnTopic), "4+")


@message(versions="0-5", flexible="3+")
class AddPartitionsToTxnRequest:
    transactions: list[AddPartitionsToTxnTransaction] = wire(list_of(AddPartitionsToTxnTransaction), "4+")
    v3_and_below_transactional_id: str = wire("string", "0-3")
    v3_and_below_producer_id: int = wire("int64", "0-3")
    v3_and_below_producer_epoch: int = wire("int16", "0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = wire(list_of(AddPartitionsToTxnTopic), "0-3")


@message()
class AddPartitionsToTxnPartitionResult:
    partition_index: int = wire("int32")
    partition_error_code: int = wire("int16")


@message()
class AddPartitionsToTxnTopicResult:
    name: str = wire("string")
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = wire(list_of(AddPartitionsToTxnPartitionResult))


@message()
class AddPartitionsToTxnResult:
    transactional_id: str = wire("string", "4+")
    topic_results: list[AddPartitionsToTxnTopicResult] = wire(list_of(AddPartitionsToTxnTopicResult), "4+")


@message(versions="0-5", flexible="3+")
class AddPartitionsToTxnResponse:
    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16", "4+", ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = wire(list_of(AddPartitionsToTxnResult), "4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = wire(list_of(AddPartitionsToTxnTopicResult), "0-3")
