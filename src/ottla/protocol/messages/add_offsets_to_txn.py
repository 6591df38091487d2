"""AddOffsetsToTxn: the offsets of a group become part of a transaction.

Versions
    2       PRODUCER_FENCED
    3       flexible
    4       TRANSACTION_ABORTABLE (KIP-890)
"""

from __future__ import annotations

from ottla.wire.schema import message, wire


@message(versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest:
    transactional_id: str = wire("string")
    producer_id: int = wire("int64")
    producer_epoch: int = wire("int16")
    group_id: str = wire("string")


@message(versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse:
    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
