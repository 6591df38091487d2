"""The rest of this API is tested with a login, in tests/broker/test_create_delegation_token.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.handlers import describe_delegation_token
from ottla.errors import ErrorCode, KafkaError
from ottla.security.principal import ANONYMOUS, Session


def test_dt02_not_for_a_client_without_a_certificate() -> None:
    context: Any = SimpleNamespace(session=Session("127.0.0.1", "SSL", "SSL", ANONYMOUS))
    request: Any = SimpleNamespace(owners=None)
    with pytest.raises(KafkaError) as error:
        describe_delegation_token.handle(None, request, context)  # type: ignore[arg-type]
    assert error.value.code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
