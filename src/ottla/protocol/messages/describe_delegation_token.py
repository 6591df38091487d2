"""DescribeDelegationToken: the delegation tokens of owners; all that the asker may see where owners are None.

Versions
    2       flexible
    3       who asked for the token, where it was not the owner (KIP-373)
"""

from __future__ import annotations

from ottla.types import Buffer
from ottla.wire.schema import list_of, message, wire


@message()
class DescribeDelegationTokenOwner:
    principal_type: str = wire("string")
    principal_name: str = wire("string")


@message(versions="0-3", flexible="2+")
class DescribeDelegationTokenRequest:
    owners: list[DescribeDelegationTokenOwner] | None = wire(list_of(DescribeDelegationTokenOwner), nullable="0+")


@message()
class DescribedDelegationTokenRenewer:
    principal_type: str = wire("string")
    principal_name: str = wire("string")


@message()
class DescribedDelegationToken:
    principal_type: str = wire("string")
    principal_name: str = wire("string")
    token_requester_principal_type: str = wire("string", "3+", ignorable=True)
    token_requester_principal_name: str = wire("string", "3+", ignorable=True)
    issue_timestamp: int = wire("int64")
    expiry_timestamp: int = wire("int64")
    max_timestamp: int = wire("int64")
    token_id: str = wire("string")
    hmac: Buffer = wire("bytes")
    renewers: list[DescribedDelegationTokenRenewer] = wire(list_of(DescribedDelegationTokenRenewer))


@message(versions="0-3", flexible="2+")
class DescribeDelegationTokenResponse:
    error_code: int = wire("int16")
    tokens: list[DescribedDelegationToken] = wire(list_of(DescribedDelegationToken))
    throttle_time_ms: int = wire("int32")
