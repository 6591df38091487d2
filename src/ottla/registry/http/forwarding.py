"""Hands a write to the leader (SR16).

1. A request that was forwarded is not forwarded again: `X-Forward: true`.
2. It is sent again only if nothing can have come of it: no connection was made, or the other one does not lead.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import logging
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ottla.registry import errors
from ottla.registry.election import Identity

FORWARDED: Final = "x-forward"
_PASSED_ON: Final = ("accept", "authorization", "content-type", "confluent-accept-unknown-properties", "user-agent")
_TIMEOUT_S: Final = 60.0
_CONNECT_TIMEOUT_S: Final = 5.0

logger = logging.getLogger("ottla.registry")


@dataclass(frozen=True, slots=True)
class Forwarded:
    """The leader's answer."""

    status: int
    content_type: str
    body: bytes


class NotTaken(Exception):
    """The leader did not take the request: nothing came of it."""


class Forwarder:
    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls

    async def forward(self, leader: Identity, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Forwarded:
        """NotTaken; RegistryError if nobody knows what came of it."""
        passed_on = {name: headers[name] for name in _PASSED_ON if name in headers}
        answer = await self.exchange(leader, method, target, {**passed_on, FORWARDED: "true"}, body)
        if answer.status == 500:
            with contextlib.suppress(ValueError, AttributeError):
                if json.loads(answer.body).get("error_code") == errors.no_leader("").code:
                    raise NotTaken(f"{leader.url} does not lead")
        return answer

    async def exchange(self, leader: Identity, method: str, target: str, headers: dict[str, str], body: bytes) -> Forwarded:
        return await asyncio.to_thread(self._exchange, leader, method, target, headers, body)

    def _exchange(self, leader: Identity, method: str, target: str, headers: dict[str, str], body: bytes) -> Forwarded:
        connection: http.client.HTTPConnection
        if leader.scheme == "https":
            connection = http.client.HTTPSConnection(leader.host, leader.port, timeout=_CONNECT_TIMEOUT_S, context=self._tls)
        else:
            connection = http.client.HTTPConnection(leader.host, leader.port, timeout=_CONNECT_TIMEOUT_S)
        with contextlib.closing(connection):
            try:
                connection.connect()
            except OSError as error:
                raise NotTaken(f"{leader.url} does not answer: {error.strerror or error}") from None
            try:
                connection.sock.settimeout(_TIMEOUT_S)
                connection.request(method, target, body or None, headers)
                answer = connection.getresponse()
                return Forwarded(answer.status, answer.headers.get("content-type", ""), answer.read())
            except (OSError, http.client.HTTPException) as error:
                raise errors.forwarding_failed(
                    f"The leader {leader.url} ended the connection, and the write may have happened: {error}"
                ) from None
