"""Logins of HTTP clients: the users of the Kafka cluster, with basic auth (SR11).

A user name and a password are right if a broker lets them log in with SCRAM. What it said is remembered for a short time, without
the password.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import logging
import os
import time
from collections import OrderedDict
from dataclasses import replace
from typing import Final

from ottla.client.connection import ClientConnection
from ottla.client.login import LoginRefused
from ottla.client.options import ClientOptions
from ottla.client.tls import client_context
from ottla.ports import Network
from ottla.registry.errors import RegistryError

ANONYMOUS: Final = "ANONYMOUS"
_RIGHT_FOR_S: Final = 60.0
_WRONG_FOR_S: Final = 2.0
_REMEMBERED_MAX: Final = 10_000
_AT_ONCE_MAX: Final = 8
_TIMEOUT_S: Final = 10.0

logger = logging.getLogger("ottla.registry")


class Logins:
    def __init__(self, network: Network, kafka: ClientOptions) -> None:
        """`kafka` has the addresses and the SASL protocol of the cluster, with the registry's own user."""
        self._network = network
        self._kafka = kafka
        self._tls = client_context(kafka.security.tls) if kafka.security.encrypted else None
        mechanism = kafka.security.mechanism
        self._mechanism = mechanism if mechanism.startswith("SCRAM") else "SCRAM-SHA-256"
        self._salt = os.urandom(16)
        self._known: OrderedDict[bytes, tuple[bool, float]] = OrderedDict()
        self._free = asyncio.Semaphore(_AT_ONCE_MAX)

    async def user(self, authorization: str | None) -> str:
        """The user of an Authorization header. RegistryError 401; 50001 if no broker can say."""
        name, password = _credentials(authorization)
        key = hashlib.blake2b(f"{len(name)}:{name}{password}".encode(), key=self._salt).digest()
        known = self._known.get(key)
        if known is None or known[1] < time.monotonic():
            async with self._free:
                is_right = await self._ask(name, password)
            known = is_right, time.monotonic() + (_RIGHT_FOR_S if is_right else _WRONG_FOR_S)
            self._known[key] = known
            self._known.move_to_end(key)
            if len(self._known) > _REMEMBERED_MAX:
                self._known.popitem(last=False)
        if not known[0]:
            raise unauthorized("The user name or the password is wrong")
        return name

    async def _ask(self, name: str, password: str) -> bool:
        security = replace(
            self._kafka.security, mechanism=self._mechanism, username=name, password=password, by_token=False, token=None
        )
        why = "there are none"
        for host, port in self._kafka.servers:
            try:
                async with asyncio.timeout(_TIMEOUT_S):
                    connection = await ClientConnection.open(
                        self._network, host, port, client_id="ottla-registry-login", security=security, tls=self._tls
                    )
                connection.close()
                return True
            except LoginRefused:
                return False
            except (OSError, TimeoutError) as error:
                why = str(error)
        raise RegistryError(50001, f"No broker can check the login: {why}")


def unauthorized(why: str) -> RegistryError:
    return RegistryError(40101, why)


def _credentials(authorization: str | None) -> tuple[str, str]:
    scheme, _, encoded = (authorization or "").partition(" ")
    if scheme.lower() != "basic":
        raise unauthorized("Log in as a user of the Kafka cluster, with basic auth")
    try:
        name, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        raise unauthorized("The Authorization header is not basic auth") from None
    if not colon or not name:
        raise unauthorized("The Authorization header has no user name or no password")
    return name, password
