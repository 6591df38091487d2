"""What a SASL server mechanism does with the tokens of a client, whichever mechanism it is.

A mechanism takes the client's tokens one at a time (`step`) and returns a challenge or a success, or raises `SaslFailure`. It has
no I/O: the time is a parameter, entropy is given when it is made. An object serves one login and is dropped with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ottla.security.principal import Principal


@dataclass(frozen=True, slots=True)
class Challenge:
    """The client has to answer this token."""

    token: bytes


@dataclass(frozen=True, slots=True)
class Success:
    principal: Principal
    token: bytes | None = b""
    """The last token for the client, often empty. None: there is none to send."""
    expires_at_ms: int | None = None
    """When the credential expires; None: never."""
    by_token: bool = False
    """The credential is a delegation token."""


class SaslFailure(Exception):
    """The client is not who it claims to be, or it does not speak the mechanism.

    `reason` is for the broker's log: it never has a secret. `told` is for the client, None for the text that is the same for an
    unknown user and a wrong password.
    """

    def __init__(self, reason: str, told: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.told = told


class ServerMechanism(Protocol):
    def step(self, token: bytes, now_ms: int) -> Challenge | Success: ...
