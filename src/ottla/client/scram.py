"""The client side of SCRAM (RFC 5802, 7677): SHA-256 and SHA-512, without channel binding, as in Kafka.

Owns the messages and their proofs, without I/O. `check_last` detects a server that does not know the password. Names and
passwords are not normalized (SASLprep), as in Java's client.
"""

from __future__ import annotations

import base64
import hashlib
import hmac

from ottla.client.login import LoginRefused

MECHANISMS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
# What Kafka's own servers hold; fewer would make a stolen dialogue cheap to guess from.
ITERATIONS_MIN = 4096
# A server must not keep us busy for long before it has proved anything.
ITERATIONS_MAX = 1_000_000


class ScramError(LoginRefused):
    """An invalid message of the server."""


class Scram:
    """One authentication: `first`, `final` with its reply, `check_last` with the reply to that. `step` does them in turn.

    `by_token`: user name and password are a delegation token (KIP-48).
    """

    def __init__(self, mechanism: str, username: str, password: str, nonce: bytes, *, by_token: bool = False) -> None:
        self._hash = MECHANISMS[mechanism]
        self._password = password.encode()
        self._nonce = base64.b64encode(nonce).decode()
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={self._nonce}{',tokenauth=true' if by_token else ''}"
        self._signature = b""
        self._steps = 0

    def step(self, challenge: bytes) -> bytes | None:
        self._steps += 1
        if self._steps == 1:
            return self.first()
        if self._steps == 2:
            return self.final(challenge)
        self.check_last(challenge)
        return None

    def first(self) -> bytes:
        return f"n,,{self._first_bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        fields = _fields(server_first)
        nonce, salt, count = fields.get("r", ""), fields.get("s", ""), fields.get("i", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ScramError("the server's nonce does not begin with the client's")
        if not count.isdecimal() or not ITERATIONS_MIN <= int(count) <= ITERATIONS_MAX:
            raise ScramError(f"the server asks for {count or 'no number of'} iterations")
        try:
            salted = hashlib.pbkdf2_hmac(self._hash, self._password, base64.b64decode(salt, validate=True), int(count))
        except ValueError:
            raise ScramError("the server's salt is not base64") from None
        without_proof = f"c=biws,r={nonce}"
        said = b",".join([self._first_bare.encode(), server_first, without_proof.encode()])
        client_key = self._mac(salted, b"Client Key")
        proof = bytes(a ^ b for a, b in zip(client_key, self._mac(self._digest(client_key), said), strict=True))
        self._signature = self._mac(self._mac(salted, b"Server Key"), said)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def check_last(self, server_last: bytes) -> None:
        fields = _fields(server_last)
        if "e" in fields:
            raise ScramError(fields["e"])
        try:
            signature = base64.b64decode(fields.get("v", ""), validate=True)
        except ValueError:
            signature = b""
        if not self._signature or not hmac.compare_digest(signature, self._signature):
            raise ScramError("the server does not know the password: it is not the one it claims to be")

    def _mac(self, key: bytes, text: bytes) -> bytes:
        return hmac.digest(key, text, self._hash)

    def _digest(self, text: bytes) -> bytes:
        return hashlib.new(self._hash, text).digest()


def _fields(message: bytes) -> dict[str, str]:
    try:
        parts = message.decode().split(",")
    except UnicodeDecodeError:
        raise ScramError("the server's message is not UTF-8") from None
    return {part[0]: part[2:] for part in parts if part[1:2] == "="}
