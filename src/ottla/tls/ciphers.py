"""Cipher suites by their IANA names, which Java and Kafka's settings use, in OpenSSL's names."""

from __future__ import annotations

import re
from typing import Final

TLS13: Final = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
_TLS12: Final = re.compile(
    r"TLS_(?:(ECDHE|DHE)_)?(RSA|ECDSA)_WITH_(?:AES_(128|256)_(GCM|CBC)_(SHA|SHA256|SHA384)|CHACHA20_POLY1305_SHA256)"
)
_NO_CIPHER: Final = "TLS_EMPTY_RENEGOTIATION_INFO_SCSV"
"""In Java's lists of suites. It says that renegotiation is secure; OpenSSL always says so."""


class UnknownCipher(ValueError):
    pass


def split_suites(suites: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """The suites of TLS 1.3, and those of TLS 1.2 in OpenSSL's names. UnknownCipher names one that is neither."""
    tls13 = [name for name in suites if name in TLS13]
    tls12 = [_openssl_name(name) for name in suites if name not in TLS13 and name != _NO_CIPHER]
    return tls13, tls12


def _openssl_name(name: str) -> str:
    match = _TLS12.fullmatch(name)
    if match is None:
        raise UnknownCipher(name)
    exchange, signature, bits, mode, digest = match.groups()
    words = [exchange, signature] if exchange else []  # of RSA alone nothing is said
    if bits is None:
        words.append("CHACHA20-POLY1305")
    else:
        words += [f"AES{bits}", *(["GCM"] if mode == "GCM" else []), digest]
    return "-".join(words)
