"""InitProducerId: an idempotent or transactional producer gets its id and epoch.

With a transactional id this fences the producers before it and ends what they left open.

Versions
    2       flexible
    3       the producer's present id and epoch, to go on with after an error (KIP-360)
    4       PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH (KIP-588)
    5       TRANSACTION_ABORTABLE (KIP-890)
    6       two-phase commit: prepared transactions may be kept (KIP-939); not yet stable in Kafka 4.3
"""

from __future__ import annotations

from ottla.wire.schema import message, wire


@message(versions="0-6", flexible="2+")
class InitProducerIdRequest:
    transactional_id: str | None = wire("string", nullable="0+")
    transaction_timeout_ms: int = wire("int32")
    producer_id: int = wire("int64", "3+", default=-1)
    producer_epoch: int = wire("int16", "3+", default=-1)
    enable2_pc: bool = wire("bool", "6+")
    keep_prepared_txn: bool = wire("bool", "6+")


@message(versions="0-6", flexible="2+")
class InitProducerIdResponse:
    throttle_time_ms: int = wire("int32", ignorable=True)
    error_code: int = wire("int16")
    producer_id: int = wire("int64", default=-1)
    producer_epoch: int = wire("int16")
    ongoing_txn_producer_id: int = wire("int64", "6+", default=-1)
    ongoing_txn_producer_epoch: int = wire("int16", "6+", default=-1)
