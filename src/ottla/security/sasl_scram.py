"""The server side of SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, 7677), without channel binding, as in Kafka.

1. The client's final nonce is the whole nonce that the server sent: a dialogue that was overheard cannot be replayed. librdkafka
   before 2.6.1 repeats its own nonce before it, as Kafka allows too.
2. The channel binding is the gs2 header of the first message.
3. An unknown user takes the same steps as a wrong password: it gets a salt that is stable and looks like a real one, and fails
   with the final message.
4. A message is parsed by patterns that take linear time.

Kafka's extension `tokenauth=true` says that the user is the id of a delegation token.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ottla.security.principal import Principal
from ottla.security.sasl import Challenge, SaslFailure, Success
from ottla.security.scram_credential import ITERATIONS_MIN, SCRAM_HASHES, ScramCredential

_SASL_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_VALUE: Final = r"[\x01-\x2b\x2d-\x7f]+"
_PRINTABLE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64: Final = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_EXTENSIONS: Final = rf"((?:,[A-Za-z]+={_VALUE})*)"
_FIRST: Final = re.compile(rf"(n,(?:a=({_SASL_NAME}))?,)((?:m={_VALUE},)?n=({_SASL_NAME}),r=({_PRINTABLE}){_EXTENSIONS})")
_FINAL: Final = re.compile(rf"(c=({_BASE64}),r=({_PRINTABLE})(?:,[A-Za-z]+={_VALUE})*),p=({_BASE64})")
MESSAGE_BYTES_MAX: Final = 16 << 10
"""Longer messages are refused before they are parsed."""


@dataclass(frozen=True, slots=True)
class ScramIdentity:
    """A user, or the owner of a delegation token, with the credential that a client must know."""

    credential: ScramCredential
    principal: Principal
    expires_at_ms: int | None = None
    by_token: bool = False


Lookup = Callable[[str, str, bool], ScramIdentity | None]
"""(mechanism, user or token id, whether it is a token id) -> the identity; None: unknown."""


@dataclass(frozen=True, slots=True)
class ClientFirst:
    gs2_header: str
    authorization_id: str
    bare: str
    user: str
    nonce: str
    token_auth: bool


@dataclass(frozen=True, slots=True, repr=False)
class ClientFinal:
    without_proof: str
    channel_binding: bytes
    nonce: str
    proof: bytes


def parse_client_first(message: bytes) -> ClientFirst:
    match = _FIRST.fullmatch(_text(message))
    if match is None:
        raise SaslFailure("SCRAM: the client's first message is malformed, or asks for channel binding")
    header, authorization_id, bare, name, nonce, extensions = match.groups()
    pairs = dict(extension.split("=", 1) for extension in extensions.split(",")[1:])
    token_auth = pairs.get("tokenauth", "").lower() == "true"
    return ClientFirst(header, _decoded(authorization_id or ""), bare, _decoded(name), nonce, token_auth)


def parse_client_final(message: bytes) -> ClientFinal:
    match = _FINAL.fullmatch(_text(message))
    if match is None:
        raise SaslFailure("SCRAM: the client's final message is malformed")
    without_proof, binding, nonce, proof = match.groups()
    return ClientFinal(without_proof, base64.b64decode(binding), nonce, base64.b64decode(proof))


def _text(message: bytes) -> str:
    if len(message) > MESSAGE_BYTES_MAX:
        raise SaslFailure(f"SCRAM: a message of {len(message)} bytes")
    # Every byte is one character; those above 7F match no pattern.
    return message.decode("latin-1")


def _decoded(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


class ScramServer:
    def __init__(self, mechanism: str, lookup: Lookup, nonce: str, unknown_user_key: bytes) -> None:
        """`nonce` is new for every login. `unknown_user_key` is a secret: the salts of unknown users follow from it."""
        self._mechanism = mechanism
        self._algorithm = SCRAM_HASHES[mechanism]
        self._lookup = lookup
        self._nonce = nonce
        self._unknown_user_key = unknown_user_key
        self._first: ClientFirst | None = None
        self._server_first = ""
        self._identity: ScramIdentity | None = None
        self._credential: ScramCredential | None = None

    def step(self, token: bytes, now_ms: int) -> Challenge | Success:
        if self._first is None:
            return self._answer_first(parse_client_first(token), now_ms)
        return self._answer_final(self._first, parse_client_final(token))

    def _answer_first(self, first: ClientFirst, now_ms: int) -> Challenge:
        if first.authorization_id not in ("", first.user):
            raise SaslFailure(
                f"SCRAM: {first.user!r} asked for another authorization id",
                "Authentication failed: the authorization id is not the user",
            )
        identity = self._lookup(self._mechanism, first.user, first.token_auth)
        if identity is not None and (
            identity.credential.iterations < ITERATIONS_MIN
            or (identity.expires_at_ms is not None and identity.expires_at_ms <= now_ms)
        ):
            identity = None
        credential = identity.credential if identity is not None else self._unknown_credential(first.user)
        salt = base64.b64encode(credential.salt).decode()
        self._first, self._identity, self._credential = first, identity, credential
        self._nonce = first.nonce + self._nonce
        self._server_first = f"r={self._nonce},s={salt},i={credential.iterations}"
        return Challenge(self._server_first.encode())

    def _answer_final(self, first: ClientFirst, final: ClientFinal) -> Success:
        credential = self._credential
        assert credential is not None
        if final.nonce not in (self._nonce, first.nonce + self._nonce):
            raise SaslFailure(f"SCRAM: the final message of {first.user!r} has another nonce than the server's")
        if final.channel_binding != first.gs2_header.encode():
            raise SaslFailure(f"SCRAM: the channel binding of {first.user!r} is not the header of the first message")
        said = f"{first.bare},{self._server_first},{final.without_proof}".encode()
        signature = hmac.digest(credential.stored_key, said, self._algorithm)
        client_key = bytes(a ^ b for a, b in zip(signature, final.proof.ljust(len(signature), b"\0"), strict=False))
        stored_key = hashlib.new(self._algorithm, client_key).digest()
        right = hmac.compare_digest(stored_key, credential.stored_key) and len(final.proof) == len(signature)
        identity = self._identity
        if identity is None or not right:
            raise SaslFailure(f"SCRAM: {first.user!r} is unknown or the password is wrong")
        server_signature = base64.b64encode(hmac.digest(credential.server_key, said, self._algorithm))
        return Success(identity.principal, b"v=" + server_signature, identity.expires_at_ms, identity.by_token)

    def _unknown_credential(self, user: str) -> ScramCredential:
        """With a salt of the form that Kafka's tools choose: 25 or 26 letters and digits."""
        digest = hmac.digest(self._unknown_user_key, f"{self._mechanism}:{user}".encode(), "sha512")
        number, salt = int.from_bytes(digest[:17], "big") >> 6, ""
        while number:
            number, digit = divmod(number, 36)
            salt = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + salt
        size = hashlib.new(self._algorithm).digest_size
        # No password has this stored key: nobody knows the key whose hash it is.
        stored_key = hmac.digest(self._unknown_user_key, digest, "sha512")[:size]
        return ScramCredential(salt.encode(), stored_key, stored_key, ITERATIONS_MIN)
