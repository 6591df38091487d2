"""Delegation tokens (KIP-48, KIP-373): credentials that a user has made for itself, or is allowed to make for others.

Owns the rules: how long a token lives, who may renew and expire it, and the secret that a client must know. The password of
a token is the HMAC of its id, so a broker that knows the key needs no other secret.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from ottla.errors import ErrorCode, KafkaError
from ottla.security.principal import Principal

_FAR_MS: Final = 2**63 - 1
"""The latest time that a message can carry: a lifetime without end is as long."""


@dataclass(frozen=True, slots=True)
class DelegationToken:
    id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_at_ms: int
    max_at_ms: int
    """It cannot be renewed beyond this time."""
    expires_at_ms: int

    def is_expired(self, now_ms: int) -> bool:
        return self.max_at_ms < now_ms or self.expires_at_ms < now_ms

    def belongs_to(self, principal: Principal) -> bool:
        """Whether the principal may renew, expire and see it without ACLs."""
        return principal == self.owner or principal in self.renewers


@dataclass(frozen=True, slots=True)
class TokenLifetimes:
    max_ms: int
    """`delegation.token.max.lifetime.ms`"""
    renewed_ms: int
    """`delegation.token.expiry.time.ms`"""


def token_hmac(key: bytes, token_id: str) -> bytes:
    return hmac.digest(key, token_id.encode(), "sha512")


def token_password(key: bytes, token_id: str) -> str:
    """What a client logs in with."""
    return base64.b64encode(token_hmac(key, token_id)).decode()


def new_token(
    token_id: str,
    owner: Principal,
    requester: Principal,
    renewers: Iterable[Principal],
    max_lifetime_ms: int,
    lifetimes: TokenLifetimes,
    now_ms: int,
) -> DelegationToken:
    """`max_lifetime_ms` is what the client asks for; 0 or less: as long as allowed."""
    lifetime_ms = min(max_lifetime_ms, lifetimes.max_ms) if max_lifetime_ms > 0 else lifetimes.max_ms
    max_at_ms = min(now_ms + lifetime_ms, _FAR_MS)
    expires_at_ms = min(max_at_ms, now_ms + lifetimes.renewed_ms)
    return DelegationToken(token_id, owner, requester, tuple(renewers), now_ms, max_at_ms, expires_at_ms)


def renewed(token: DelegationToken, by: Principal, period_ms: int, lifetimes: TokenLifetimes, now_ms: int) -> DelegationToken:
    """`period_ms` below 0: the default."""
    _require_use(token, by)
    _require_life(token, now_ms)
    return replace(token, expires_at_ms=min(token.max_at_ms, now_ms + (lifetimes.renewed_ms if period_ms < 0 else period_ms)))


def expired(token: DelegationToken, by: Principal, period_ms: int, now_ms: int) -> DelegationToken | None:
    """None: the token is to be removed now."""
    _require_use(token, by)
    if period_ms < 0:
        return None
    _require_life(token, now_ms)
    return replace(token, expires_at_ms=min(token.max_at_ms, now_ms + period_ms))


def _require_use(token: DelegationToken, by: Principal) -> None:
    if not token.belongs_to(by):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, f"{by} is neither the owner nor a renewer of the token")


def _require_life(token: DelegationToken, now_ms: int) -> None:
    if token.is_expired(now_ms):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED, "the token has expired")
