"""ExpireDelegationToken: end a delegation token at a given time, or at once with a negative period.

Versions
    2       flexible
"""

from __future__ import annotations

from ottla.types import Buffer
from ottla.wire.schema import message, wire


@message(versions="0-2", flexible="2+")
class ExpireDelegationTokenRequest:
    hmac: Buffer = wire("bytes")
    expiry_time_period_ms: int = wire("int64")


@message(versions="0-2", flexible="2+")
class ExpireDelegationTokenResponse:
    error_code: int = wire("int16")
    expiry_timestamp_ms: int = wire("int64")
    throttle_time_ms: int = wire("int32")
