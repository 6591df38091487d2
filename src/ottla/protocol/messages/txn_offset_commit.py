"""TxnOffsetCommit: offsets of a group that become valid when the transaction commits.

Versions
    2       leader epoch of the committed offset
    3       flexible; member, generation and instance id, checked as in OffsetCommit (KIP-447)
    4       TRANSACTION_ABORTABLE (KIP-890)
    5       stands for AddOffsetsToTxn too, with the second transaction protocol (KIP-890)
"""

from __future__ import annotations

from ottla.wire.schema import list_of, message, wire


@message()
class TxnOffsetCommitRequestPartition:
    partition_index: int = wire("int32")
    committed_offset: int = wire("int64")
    committed_leader_epoch: int = wire("int32", "2+", default=-1, ignorable=True)
    committed_metadata: str | None = wire("string", nullable="0+")


@message()
class TxnOffsetCommitRequestTopic:
    name: str = wire("string")
    partitions: list[TxnOffsetCommitRequestPartition] = wire(list_of(TxnOffsetCommitRequestPartition))


@message(versions="0-5", flexible="3+")
class TxnOffsetCommitRequest:
    transactional_id: str = wire("string")
    group_id: str = wire("string")
    producer_id: int = wire("int64")
    producer_epoch: int = wire("int16")
    generation_id: int = wire("int32", "3+", default=-1)
    member_id: str = wire("string", "3+")
    group_instance_id: str | None = wire("string", "3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = wire(list_of(TxnOffsetCommitRequestTopic))


@message()
class TxnOffsetCommitResponsePartition:
    partition_index: int = wire("int32")
    error_code: int = wire("int16")


@message()
class TxnOffsetCommitResponseTopic:
    name: str = wire("string")
    partitions: list[TxnOffsetCommitResponsePartition] = wire(list_of(TxnOffsetCommitResponsePartition))


@message(versions="0-5", flexible="3+")
class TxnOffsetCommitResponse:
    throttle_time_ms: int = wire("int32")
    topics: list[TxnOffsetCommitResponseTopic] = wire(list_of(TxnOffsetCommitResponseTopic))
