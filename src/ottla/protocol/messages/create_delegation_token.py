"""CreateDelegationToken: a token with which others may act as its owner, for a time (KIP-48).

Versions
    2       flexible
    3       an owner other than the one who asks (KIP-373)
"""

from __future__ import annotations

from ottla.types import Buffer
from ottla.wire.schema import list_of, message, wire


@message()
class CreatableRenewers:
    principal_type: str = wire("string")
    principal_name: str = wire("string")


@message(versions="0-3", flexible="2+")
class CreateDelegationTokenRequest:
    owner_principal_type: str | None = wire("string", "3+", nullable="3+")
    owner_principal_name: str | None = wire("string", "3+", nullable="3+")
    renewers: list[CreatableRenewers] = wire(list_of(CreatableRenewers))
    max_lifetime_ms: int = wire("int64")


@message(versions="0-3", flexible="2+")
class CreateDelegationTokenResponse:
    error_code: int = wire("int16")
    principal_type: str = wire("string")
    principal_name: str = wire("string")
    token_requester_principal_type: str = wire("string", "3+", ignorable=True)
    token_requester_principal_name: str = wire("string", "3+", ignorable=True)
    issue_timestamp_ms: int = wire("int64")
    expiry_timestamp_ms: int = wire("int64")
    max_timestamp_ms: int = wire("int64")
    token_id: str = wire("string")
    hmac: Buffer = wire("bytes")
    throttle_time_ms: int = wire("int32")
