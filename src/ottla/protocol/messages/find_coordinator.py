"""FindCoordinator: which broker coordinates a group, a transactional id, or a share partition.

Key types: 0 group, 1 transaction, 2 share (key `group:topic id:partition`).

Versions
    0       groups only
    1       type of the key; throttle time and error message
    3       flexible
    4       several keys in one request (KIP-699); the single `key` and the single answer are gone
    5       TRANSACTION_ABORTABLE (KIP-890)
    6       share groups (KIP-932)
"""

from __future__ import annotations

from ottla.wire.schema import list_of, message, wire


@message(versions="0-6", flexible="3+")
class FindCoordinatorRequest:
    key: str = wire("string", "0-3")
    key_type: int = wire("int8", "1+")
    coordinator_keys: list[str] = wire("[]string", "4+")


@message()
class Coordinator:
    key: str = wire("string", "4+")
    node_id: int = wire("int32", "4+")
    host: str = wire("string", "4+")
    port: int = wire("int32", "4+")
    error_code: int = wire("int16", "4+")
    error_message: str | None = wire("string", "4+", nullable="4+", default=None, ignorable=True)


@message(versions="0-6", flexible="3+")
class FindCoordinatorResponse:
    throttle_time_ms: int = wire("int32", "1+", ignorable=True)
    # A refused request without keys has no coordinator to carry the error: version 4 leaves it out, as Kafka does.
    error_code: int = wire("int16", "0-3", ignorable=True)
    error_message: str | None = wire("string", "1-3", nullable="1-3", default=None, ignorable=True)
    node_id: int = wire("int32", "0-3", ignorable=True)
    host: str = wire("string", "0-3", ignorable=True)
    port: int = wire("int32", "0-3", ignorable=True)
    coordinators: list[Coordinator] = wire(list_of(Coordinator), "4+")
