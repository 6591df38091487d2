"""Passwords in dynamic configs, encrypted as Kafka 3.9 does. Its own encoder made the samples, with the secret `the secret`."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.security.password_encoder import CBC, GCM, KEY_FACTORIES, SALT_BYTES, BadEncoding, PasswordEncoder

OF_KAFKA = (Path(__file__).parents[2] / "golden" / "passwords_3.9.2.txt").read_text().splitlines()
"""CBC with the default key derivation, GCM with PBKDF2WithHmacSHA1."""
SECRET = PasswordEncoder(("the secret",))


@pytest.mark.parametrize("text", OF_KAFKA)
def test_what_kafka_encrypted_is_decrypted(text: str) -> None:
    assert SECRET.decode(text) == "store-päss"
    assert PasswordEncoder(("a new one", "the secret")).decode(text) == "store-päss"
    with pytest.raises(BadEncoding, match=r"not encrypted with password\.encoder\.secret"):
        PasswordEncoder(("another",)).decode(text)


@pytest.mark.parametrize("cipher", [CBC, GCM])
@pytest.mark.parametrize("factory", KEY_FACTORIES)
@pytest.mark.parametrize("bits", [128, 256])
def test_what_was_encrypted_is_decrypted(cipher: str, factory: str, bits: int) -> None:
    encoder = PasswordEncoder(("the secret",), factory, cipher, bits, 1024)
    text = encoder.encode("planted-𝕊", bytes(range(256)), bytes(encoder.vector_bytes))
    assert SALT_BYTES == 256
    assert "planted" not in text
    assert "passwordLength:10," in text, "Java counts UTF-16 units"
    assert SECRET.decode(text) == "planted-𝕊"


@pytest.mark.parametrize(
    ("part", "instead"),
    [
        ("", "nonsense"),
        ("keyLength:128", "keyLength:64"),
        ("passwordLength:7", "passwordLength:8"),
        ("iterations:1024", "iterations:99999999"),
        ("cipherAlgorithm:AES/CBC/PKCS5Padding", "cipherAlgorithm:DES/CBC/PKCS5Padding"),
        ("PBKDF2WithHmacSHA512", "PBKDF2WithHmacMD5"),
        ("encryptedPassword:", "encryptedPassword:#"),
    ],
)
def test_what_is_no_encrypted_password_is_refused(part: str, instead: str) -> None:
    text = PasswordEncoder(("the secret",), iterations=1024).encode("planted", bytes(256), bytes(16))
    assert part in text
    with pytest.raises(BadEncoding) as refused:
        SECRET.decode(text.replace(part, instead) if part else instead)
    assert "planted" not in str(refused.value)


def test_secrets_are_not_printed() -> None:
    assert "the secret" not in repr(SECRET)
