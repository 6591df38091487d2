"""Call a handler as the dispatcher does: through the codec of a version, with its collaborators bound by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ottla.broker.handlers import HANDLERS
from ottla.broker.network.context import RequestContext
from ottla.broker.network.handler import bind
from ottla.errors import KafkaError
from ottla.protocol.registry import API_BY_NAME
from ottla.security.principal import Session
from ottla.wire.codec import decode, encode


async def call_handler(
    parts: Mapping[str, object],
    api_name: str,
    version: int,
    request: object,
    *,
    listener: str = "PLAINTEXT",
    connection_number: int = 0,
) -> Any:
    """The response as a client decodes it."""
    api = API_BY_NAME[api_name]
    row = HANDLERS[api.key]
    handler = row.module
    assert row.min_version <= version <= row.max_version
    read = decode(api.request, version, encode(request, version))
    session = Session("127.0.0.1", listener)
    context = RequestContext(version, api.key, "test", listener, "127.0.0.1", connection_number, session)
    try:
        response = bind(handler.handle, parts)(read, context)
        if not isinstance(response, api.response):
            response = await response
    except KafkaError as error:
        refuse = getattr(handler, "refuse", None)
        response = refuse(read, error) if refuse else api.response(error_code=error.code)
    return decode(api.response, version, encode(response, version))


def every_version(api_name: str) -> pytest.MarkDecorator:
    handler = HANDLERS[API_BY_NAME[api_name].key]
    return pytest.mark.parametrize("version", range(handler.min_version, handler.max_version + 1))


class RecordedControlRequests:
    """Stands for `ControlRequests` (see tests/broker/test_replication.py): keeps the requests, and answers with `response`."""

    def __init__(self, response: object) -> None:
        self.response = response
        self.handled: list[tuple[int, Any, int]] = []

    async def handle(self, version: int, request: object, connection: int) -> object:
        self.handled.append((version, request, connection))
        return self.response
