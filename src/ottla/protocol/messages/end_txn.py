"""EndTxn: commit or abort a transaction.

Versions
    2       PRODUCER_FENCED
    3       flexible
    4       TRANSACTION_ABORTABLE (KIP-890)
    5       each transaction bumps the epoch: the response tells the producer's id and epoch for the next one (KIP-890)
"""

from __future__ import annotations

from ottla.wire.schema import message, wire


@message(versions="0-5", flexible="3+")
class EndTxnRequest:
    transactional_id: str = wire("string")
    producer_id: int = wire("int64")
    producer_epoch: int = wire("int16")
    committed: bool = wire("bool")


@message(versions="0-5", flexible="3+")
class EndTxnResponse:
    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
    producer_id: int = wire("int64", "5+", default=-1, ignorable=True)
    producer_epoch: int = wire("int16", "5+", default=-1, ignorable=True)
