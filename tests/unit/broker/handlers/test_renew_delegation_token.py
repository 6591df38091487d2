"""The rest of this API is tested with a login, in tests/broker/test_create_delegation_token.py."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from ottla.broker.handlers import renew_delegation_token
from ottla.errors import ErrorCode
from ottla.security.principal import ANONYMOUS, Session


def test_dt02_not_for_a_client_without_a_certificate() -> None:
    context: Any = SimpleNamespace(session=Session("127.0.0.1", "SSL", "SSL", ANONYMOUS))
    request: Any = SimpleNamespace(hmac=b"x", renew_period_ms=-1)
    response = asyncio.run(renew_delegation_token.handle(None, request, context))  # type: ignore[arg-type]
    assert (response.error_code, response.expiry_timestamp_ms) == (ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, -1)
