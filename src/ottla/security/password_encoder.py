"""Encrypts passwords in the dynamic configs of a broker, in the form of Kafka 3.9 (`password.encoder.*`).

A password is stored as `name:value` pairs with commas between them: the key derivation, cipher, salt, and what they made of the
password. What is needed to decode it is in the text, except the secret; so a broker of Apache Kafka reads what Ottla wrote, and
the reverse. Salt and initialization vector are arguments: this module makes no random numbers.

Needs the package `cryptography` (`pip install 'ottla[security]'`).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

SALT_BYTES: Final = 256
CBC: Final = "AES/CBC/PKCS5Padding"
GCM: Final = "AES/GCM/NoPadding"
CIPHERS: Final = (CBC, GCM)
KEY_FACTORIES: Final = {f"PBKDF2WithHmacSHA{bits}": f"sha{bits}" for bits in (512, 384, 256, 224, 1)}
"""Java's names, and hashlib's of their hash functions."""
DEFAULT_KEY_FACTORY: Final = "PBKDF2WithHmacSHA512"
ITERATIONS_MAX: Final = 1_000_000
_ENCRYPTED: Final = "encryptedPassword"
_TAG_BITS: Final = 128


class BadEncoding(ValueError):
    """The text is no password that this secret encrypted. Says nothing of either."""


@dataclass(frozen=True, slots=True)
class PasswordEncoder:
    secrets: tuple[str, ...] = field(repr=False)
    """The first encrypts; each is tried to decrypt."""
    key_factory: str = DEFAULT_KEY_FACTORY
    cipher: str = CBC
    key_bits: int = 128
    iterations: int = 4096

    def encode(self, password: str, salt: bytes, vector: bytes) -> str:
        """`vector`: random bytes, as many as `vector_bytes`. BadEncoding without the package."""
        _require_package()
        key = _key(self.secrets[0], self.key_factory, salt, self.iterations, self.key_bits)
        parts = {
            "initializationVector": _text(vector),
            "keyLength": str(self.key_bits),
            "salt": _text(salt),
            "keyFactoryAlgorithm": self.key_factory,
            "cipherAlgorithm": self.cipher,
            "iterations": str(self.iterations),
            "passwordLength": str(len(password.encode("utf-16-le")) // 2),
            _ENCRYPTED: _text(_encrypt(self.cipher, key, vector, password.encode())),
        }
        if self.cipher == GCM:
            parts["authenticationTagLength"] = str(_TAG_BITS)
        return ",".join(f"{name}:{value}" for name, value in parts.items())

    @property
    def vector_bytes(self) -> int:
        return 12 if self.cipher == GCM else 16

    def decode(self, text: str) -> str:
        _require_package()
        for secret in self.secrets:
            try:
                return _decoded(text, secret)
            except BadEncoding:
                continue
        raise BadEncoding("the password was not encrypted with password.encoder.secret")


def _require_package() -> None:
    try:
        import cryptography  # type: ignore[import-not-found, unused-ignore] # noqa: F401
    except ImportError:
        raise BadEncoding("password.encoder.secret needs the package cryptography: pip install 'ottla[security]'") from None


@lru_cache(maxsize=64)
def _decoded(text: str, secret: str) -> str:
    # Derived once: settings are parsed again whenever some config changes.
    parts = dict(part.partition(":")[::2] for part in text.split(","))
    try:
        cipher, factory = parts["cipherAlgorithm"], parts["keyFactoryAlgorithm"]
        salt, vector, encrypted = (
            base64.b64decode(parts[name], validate=True) for name in ("salt", "initializationVector", _ENCRYPTED)
        )
        iterations, key_bits, length = (int(parts[name]) for name in ("iterations", "keyLength", "passwordLength"))
        if cipher not in CIPHERS or not 0 < iterations <= ITERATIONS_MAX or key_bits not in (128, 192, 256):
            raise BadEncoding("the form of the encrypted password is not supported")
        password = _decrypt(cipher, _key(secret, factory, salt, iterations, key_bits), vector, encrypted).decode()
    except (KeyError, binascii.Error, ValueError) as error:
        raise BadEncoding("the text is not an encrypted password") from error
    if len(password.encode("utf-16-le")) // 2 != length:
        raise BadEncoding("the password has another length than it says")
    return password


def _key(secret: str, factory: str, salt: bytes, iterations: int, bits: int) -> bytes:
    return hashlib.pbkdf2_hmac(KEY_FACTORIES[factory], secret.encode(), salt, iterations, bits // 8)


def _encrypt(cipher: str, key: bytes, vector: bytes, data: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.padding import PKCS7

    if cipher == GCM:
        return AESGCM(key).encrypt(vector, data, None)
    padder = PKCS7(128).padder()
    padded = padder.update(data) + padder.finalize()
    encryptor = Cipher(algorithms.AES(key), modes.CBC(vector)).encryptor()
    return encryptor.update(padded) + encryptor.finalize()


def _decrypt(cipher: str, key: bytes, vector: bytes, data: bytes) -> bytes:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.padding import PKCS7

    if cipher == GCM:
        try:
            return AESGCM(key).decrypt(vector, data, None)
        except InvalidTag:
            raise BadEncoding("the password was encrypted with another secret") from None
    decryptor = Cipher(algorithms.AES(key), modes.CBC(vector)).decryptor()
    padded = decryptor.update(data) + decryptor.finalize()
    unpadder = PKCS7(128).unpadder()
    return unpadder.update(padded) + unpadder.finalize()


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
