"""A SCRAM credential: what the server keeps of a password, and the text that Kafka stores it as."""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass
from typing import Final

SCRAM_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS_MIN: Final = 4096


@dataclass(frozen=True, slots=True, repr=False)
class ScramCredential:
    """Never printed: `stored_key` and `server_key` are as good as the password to whoever overhears a login."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    @classmethod
    def of_salted_password(cls, mechanism: str, salt: bytes, salted_password: bytes, iterations: int) -> ScramCredential:
        algorithm = SCRAM_HASHES[mechanism]
        client_key = hmac.digest(salted_password, b"Client Key", algorithm)
        server_key = hmac.digest(salted_password, b"Server Key", algorithm)
        return cls(salt, hashlib.new(algorithm, client_key).digest(), server_key, iterations)

    @classmethod
    def of_password(cls, mechanism: str, salt: bytes, password: str, iterations: int = ITERATIONS_MIN) -> ScramCredential:
        salted = hashlib.pbkdf2_hmac(SCRAM_HASHES[mechanism], password.encode(), salt, iterations)
        return cls.of_salted_password(mechanism, salt, salted, iterations)

    @classmethod
    def parse(cls, text: str) -> ScramCredential:
        """The inverse of `text`; ValueError if it is none."""
        fields = dict(field.partition("=")[::2] for field in text.split(","))
        iterations = fields.get("iterations", "")
        if len(fields) != 4 or not (iterations.isascii() and iterations.isdigit() and len(iterations) < 10):
            raise ValueError("not a SCRAM credential")
        salt, stored_key, server_key = (
            base64.b64decode(fields.get(name, ""), validate=True) for name in ("salt", "stored_key", "server_key")
        )
        return cls(salt, stored_key, server_key, int(iterations))

    def text(self) -> str:
        """As in Kafka's /config/users/<user>."""
        fields = {"salt": self.salt, "stored_key": self.stored_key, "server_key": self.server_key}
        text = ",".join(f"{name}={base64.b64encode(value).decode()}" for name, value in fields.items())
        return f"{text},iterations={self.iterations}"
