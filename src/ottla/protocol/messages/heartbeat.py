"""Heartbeat: a member of a classic group renews its session, and hears whether a rebalance has begun.

Versions
    1       throttle time
    3       static members
    4       flexible
"""

from __future__ import annotations

from ottla.wire.schema import message, wire


@message(versions="0-4", flexible="4+")
class HeartbeatRequest:
    group_id: str = wire("string")
    generation_id: int = wire("int32")
    member_id: str = wire("string")
    group_instance_id: str | None = wire("string", "3+", nullable="3+", default=None)


@message(versions="0-4", flexible="4+")
class HeartbeatResponse:
    throttle_time_ms: int = wire("int32", "1+", ignorable=True)
    error_code: int = wire("int16")
