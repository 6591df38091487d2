"""RenewDelegationToken: let a delegation token live longer, up to its maximum.

Versions
    2       flexible
"""

from __future__ import annotations

from ottla.types import Buffer
from ottla.wire.schema import message, wire


@message(versions="0-2", flexible="2+")
class RenewDelegationTokenRequest:
    hmac: Buffer = wire("bytes")
    renew_period_ms: int = wire("int64")


@message(versions="0-2", flexible="2+")
class RenewDelegationTokenResponse:
    error_code: int = wire("int16")
    expiry_timestamp_ms: int = wire("int64")
    throttle_time_ms: int = wire("int32")
