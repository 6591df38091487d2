"""An OAuth issuer for tests: keys, their JWKS document, and signed tokens."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

_HASHES: dict[str, Any] = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}
_CURVES = {"ES256": (ec.SECP256R1(), "P-256", 32), "ES384": (ec.SECP384R1(), "P-384", 48), "ES512": (ec.SECP521R1(), "P-521", 66)}
RSA_KEY = rsa.generate_private_key(65537, 2048)


def encoded(data: bytes | dict[str, Any]) -> str:
    raw = json.dumps(data).encode() if isinstance(data, dict) else data
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _number(value: int, size: int | None = None) -> str:
    return encoded(value.to_bytes(size or (value.bit_length() + 7) // 8, "big"))


def unsecured(**claims: Any) -> str:
    return f"{encoded({'alg': 'none'})}.{encoded({'sub': 'ada', 'exp': time.time() + 3600} | claims)}."


@dataclass
class Issuer:
    algorithm: str = "RS256"
    key_id: str = "key-1"
    key: Any = field(default=None)

    def __post_init__(self) -> None:
        if self.key is None:
            if self.algorithm.startswith(("RS", "PS")):
                self.key = RSA_KEY
            elif self.algorithm == "EdDSA":
                self.key = ed25519.Ed25519PrivateKey.generate()
            else:
                self.key = ec.generate_private_key(_CURVES[self.algorithm][0])

    def jwk(self, **fields: Any) -> dict[str, Any]:
        public = self.key.public_key()
        if isinstance(public, rsa.RSAPublicKey):
            numbers = public.public_numbers()
            key = {"kty": "RSA", "n": _number(numbers.n), "e": _number(numbers.e)}
        elif isinstance(public, ed25519.Ed25519PublicKey):
            key = {"kty": "OKP", "crv": "Ed25519", "x": encoded(public.public_bytes_raw())}
        else:
            point, (_, name, size) = public.public_numbers(), _CURVES[self.algorithm]
            key = {"kty": "EC", "crv": name, "x": _number(point.x, size), "y": _number(point.y, size)}
        return key | {"kid": self.key_id, "use": "sig"} | fields

    def jwks(self, *others: Issuer) -> bytes:
        return json.dumps({"keys": [each.jwk() for each in (self, *others)]}).encode()

    def token(self, header: dict[str, Any] | None = None, **claims: Any) -> str:
        """Claims and header fields that are None are left out."""
        now = int(time.time())
        parts = (
            {"alg": self.algorithm, "kid": self.key_id} | (header or {}),
            {"sub": "ada", "iat": now, "exp": now + 3600} | claims,
        )
        signed = ".".join(encoded({name: value for name, value in part.items() if value is not None}) for part in parts)
        return f"{signed}.{encoded(self.sign(signed.encode()))}"

    def sign(self, data: bytes) -> bytes:
        if isinstance(self.key, rsa.RSAPrivateKey):
            digest = _HASHES[self.algorithm[2:]]
            pss = self.algorithm.startswith("PS")
            scheme: Any = padding.PSS(padding.MGF1(digest), digest.digest_size) if pss else padding.PKCS1v15()
            return self.key.sign(data, scheme, digest)
        if isinstance(self.key, ed25519.Ed25519PrivateKey):
            return self.key.sign(data)
        size = _CURVES[self.algorithm][2]
        pair = decode_dss_signature(self.key.sign(data, ec.ECDSA(_HASHES[self.algorithm[2:]])))
        return b"".join(number.to_bytes(size, "big") for number in pair)
