"""ListTransactions: the transactional ids a broker coordinates (KIP-664).

Versions
    0       flexible from the start; filters by state and producer id
    1       filter by age of the running transaction (KIP-994)
    2       filter by pattern of the transactional id (KIP-1152)
"""

from __future__ import annotations

from ottla.wire.schema import list_of, message, wire


@message(versions="0-2", flexible="0+")
class ListTransactionsRequest:
    state_filters: list[str] = wire("[]string")
    producer_id_filters: list[int] = wire("[]int64")
    duration_filter: int = wire("int64", "1+", default=-1)
    transactional_id_pattern: str | None = wire("string", "2+", nullable="2+", default=None)


@message()
class TransactionState:
    transactional_id: str = wire("string")
    producer_id: int = wire("int64")
    transaction_state: str = wire("string")


@message(versions="0-2", flexible="0+")
class ListTransactionsResponse:
    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
    unknown_state_filters: list[str] = wire("[]string")
    transaction_states: list[TransactionState] = wire(list_of(TransactionState))
