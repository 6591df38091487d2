"""The lifetime of a delegation token."""

from __future__ import annotations

import pytest

from ottla.security.delegation_token import TokenLifetimes, expired, new_token, renewed
from ottla.security.principal import Principal

ALICE = Principal("User", "alice")
WITHOUT_END_MS = 2**63 - 1


@pytest.mark.parametrize("asked_ms", [-1, WITHOUT_END_MS])
def test_lifetime_without_end_fits_into_a_message(asked_ms: int) -> None:
    lifetimes = TokenLifetimes(max_ms=WITHOUT_END_MS, renewed_ms=WITHOUT_END_MS)
    token = new_token("id", ALICE, ALICE, [], asked_ms, lifetimes, now_ms=1_000)
    assert (token.max_at_ms, token.expires_at_ms) == (WITHOUT_END_MS, WITHOUT_END_MS)
    assert renewed(token, ALICE, WITHOUT_END_MS, lifetimes, now_ms=2_000).expires_at_ms == WITHOUT_END_MS
    later = expired(token, ALICE, WITHOUT_END_MS, now_ms=2_000)
    assert later is not None
    assert later.expires_at_ms == WITHOUT_END_MS
