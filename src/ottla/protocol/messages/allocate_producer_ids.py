"""AllocateProducerIds: a broker gets a block of producer ids from the controller (KIP-730).

Flexible from the start.
"""

from __future__ import annotations

from ottla.wire.schema import message, wire


@message(versions="0", flexible="0+")
class AllocateProducerIdsRequest:
    broker_id: int = wire("int32")
    broker_epoch: int = wire("int64", default=-1)


@message(versions="0", flexible="0+")
class AllocateProducerIdsResponse:
    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
    producer_id_start: int = wire("int64")
    producer_id_len: int = wire("int32")
