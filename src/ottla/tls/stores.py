"""Reads key stores and trust stores of Kafka's brokers and clients (PEM, JKS, PKCS12) into PEM (TL02).

The first bytes tell the format, not the file name, as in Java. JKS is read here. PKCS12 needs AES, which Python's library lacks:
`cryptography` is used if it is installed (`ottla[security]`), else the program `openssl`. No file outlives a call.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import shutil
import ssl
import struct
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from ottla.tls.config import TlsSettings

_JKS_MAGIC = 0xFEEDFEED
_JKS_WHITENER = b"Mighty Aphrodite"
_SHA1_SIZE = 20
_JCEKS_MAGIC = b"\xce\xce\xce\xce"
_OPENSSL_TIMEOUT_S = 30.0
_PEM_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----((?:\s*[A-Za-z-]+: [^\n]*\n)*)([A-Za-z0-9+/=\s]*)-----END \1-----")


class BadStore(ValueError):
    """A store that cannot be read. The message has the reason, not the path."""


def certificates(path: str, password: str | None) -> str:
    """The certificates of a trust store, as PEM."""
    content = _content(path)
    if _is_pem(content):
        return tidy_pem(content.decode(errors="replace"), "CERTIFICATE")
    if _is_jks(content):
        found = "".join(_pem("CERTIFICATE", entry) for entry in _jks(content, password)[0])
    else:
        found = _pkcs12(path, content, password, keys=False)
    if "BEGIN CERTIFICATE" not in found:
        raise BadStore("it holds no certificate")
    return found


def key_and_chain(path: str, password: str | None, key_password: str | None) -> tuple[str, str | None]:
    """A private key and its certificates, as PEM, and the password that the key still needs."""
    content = _content(path)
    if _is_pem(content):
        return tidy_pem(content.decode(errors="replace")), key_password
    if _is_jks(content):
        keys = _jks(content, password, key_password or password)[1]
        if not keys:
            raise BadStore("it holds no private key")
        key, chain = keys[0]
        return _pem("PRIVATE KEY", key) + "".join(_pem("CERTIFICATE", entry) for entry in chain), None
    found = _pkcs12(path, content, password, keys=True)
    if "PRIVATE KEY" not in found:
        raise BadStore("it holds no private key")
    return found, None


def certificates_of(pem: str) -> list[bytes]:
    """The certificates of a PEM text in DER, in its order."""
    return [base64.b64decode(body) for kind, _, body in _PEM_BLOCK.findall(pem) if kind == "CERTIFICATE"]


def file_versions(settings: TlsSettings) -> tuple[object, ...]:
    """Differs from an earlier result if a file of the stores has changed since."""
    found: list[object] = []
    for store in (settings.key_store, settings.trust_store):
        if store is not None and store.location is not None:
            try:
                status = os.stat(store.location)
            except OSError:
                found.append(None)
            else:
                found.append((status.st_ino, status.st_mtime_ns, status.st_size))
    return tuple(found)


def tidy_pem(text: str, of_kind: str = "") -> str:
    """The PEM blocks of a text, in lines. In a properties file they may be one line. `of_kind`: only such as CERTIFICATE."""
    blocks = [block for block in _PEM_BLOCK.findall(text) if of_kind in block[0]]
    if not blocks:
        raise BadStore(f"it holds no {of_kind.lower() or 'PEM'}")
    lines: list[str] = []
    for kind, headers, body in blocks:
        compact = "".join(body.split())
        # A traditional encrypted key has headers, and an empty line behind them.
        lines += [f"-----BEGIN {kind}-----", *([*headers.strip().splitlines(), ""] if headers else [])]
        lines += [compact[at : at + 64] for at in range(0, len(compact), 64)]
        lines.append(f"-----END {kind}-----")
    return "\n".join(lines) + "\n"


def load_chain(context: ssl.SSLContext, pem: str, password: str | None) -> None:
    """Python loads keys only from files: use one in memory, or a private temporary one."""
    if "PRIVATE KEY" not in pem:
        raise BadStore("it holds no private key")
    given = password if password is not None else _no_password
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("ottla-key", os.MFD_CLOEXEC)
        with open(descriptor, "w") as file:
            file.write(pem)
            file.flush()
            context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=given)
        return
    descriptor, name = tempfile.mkstemp(prefix="ottla-key-")
    try:
        with open(descriptor, "w") as file:
            file.write(pem)
        context.load_cert_chain(name, password=given)
    finally:
        os.unlink(name)


def _no_password() -> str:
    """Without it OpenSSL would prompt on the terminal."""
    raise BadStore("the private key is encrypted, and no password was given (ssl.key.password)")


def _content(path: str) -> bytes:
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise BadStore(f"it cannot be read: {error.strerror}") from None
    if content.startswith(_JCEKS_MAGIC):
        raise BadStore("it is JCEKS, which is not supported; allowed: JKS, PKCS12, PEM")
    return content


def _is_pem(content: bytes) -> bool:
    return b"-----BEGIN " in content


def _is_jks(content: bytes) -> bool:
    return content[:4] == _JKS_MAGIC.to_bytes(4, "big")


def _pem(kind: str, der: bytes) -> str:
    text = base64.b64encode(der).decode()
    lines = "\n".join(text[at : at + 64] for at in range(0, len(text), 64))
    return f"-----BEGIN {kind}-----\n{lines}\n-----END {kind}-----\n"


# JKS: entries in the clear, private keys under a stream of SHA-1, and a digest over everything


def _jks(
    content: bytes, password: str | None, key_password: str | None = None
) -> tuple[list[bytes], list[tuple[bytes, list[bytes]]]]:
    """Trusted certificates, and keys with their chains (only if `key_password` is given)."""
    if password is not None:
        seal = hashlib.sha1(password.encode("utf-16-be") + _JKS_WHITENER + content[:-_SHA1_SIZE]).digest()
        if not hmac.compare_digest(seal, content[-_SHA1_SIZE:]):
            raise BadStore("the password is wrong, or the file is damaged")
    trusted: list[bytes] = []
    keys: list[tuple[bytes, list[bytes]]] = []
    try:
        reader = _Reader(content)
        _, version, count = reader.take(">III")
        for _ in range(count):
            (kind,) = reader.take(">I")
            reader.sized(">H")  # alias
            reader.take(">q")  # when it was made
            if kind == 2:
                trusted.append(_certificate(reader, version))
            elif kind == 1:
                sealed = reader.sized(">I")
                (length,) = reader.take(">I")
                chain = [_certificate(reader, version) for _ in range(length)]
                if key_password is not None:
                    keys.append((_jks_key(sealed, key_password), chain))
            else:
                raise BadStore(f"it has an entry of kind {kind}")
    except (struct.error, IndexError):
        raise BadStore("it is cut short") from None
    return trusted, keys


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 0

    def take(self, shape: str) -> Any:
        found = struct.unpack_from(shape, self._content, self._at)
        self._at += struct.calcsize(shape)
        return found

    def sized(self, shape: str) -> bytes:
        (size,) = self.take(shape)
        if self._at + size > len(self._content):
            raise IndexError
        self._at += size
        return self._content[self._at - size : self._at]


def _certificate(reader: _Reader, version: int) -> bytes:
    if version == 2:
        reader.sized(">H")  # "X.509"
    return reader.sized(">I")


def _jks_key(sealed: bytes, password: str) -> bytes:
    """An EncryptedPrivateKeyInfo of Sun's own kind: salt, key XOR a chain of digests, digest of the key."""
    outer, _ = _der(sealed)
    _, rest = _der(outer)  # the algorithm
    protected, _ = _der(rest)
    secret = password.encode("utf-16-be")
    stream, body, check = protected[:_SHA1_SIZE], protected[_SHA1_SIZE:-_SHA1_SIZE], protected[-_SHA1_SIZE:]
    plain = bytearray()
    while len(plain) < len(body):
        stream = hashlib.sha1(secret + stream).digest()
        plain += bytes(a ^ b for a, b in zip(body[len(plain) :], stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + plain).digest(), check):
        raise BadStore("the key's password is wrong")
    return bytes(plain)


def _der(content: bytes) -> tuple[bytes, bytes]:
    """The inside of the first element, and what follows it."""
    size, at = content[1], 2
    if size & 0x80:
        count = size & 0x7F
        size, at = int.from_bytes(content[2 : 2 + count], "big"), 2 + count
    return content[at : at + size], content[at + size :]


# PKCS12


def _pkcs12(path: str, content: bytes, password: str | None, *, keys: bool) -> str:
    try:
        from cryptography.hazmat.primitives.serialization import (  # type: ignore[import-not-found, unused-ignore]
            Encoding,
            NoEncryption,
            PrivateFormat,
            pkcs12,
        )
    except ImportError:
        return _pkcs12_by_openssl(path, password, keys=keys)
    try:
        store = pkcs12.load_pkcs12(content, (password or "").encode())
    except ValueError as error:
        raise BadStore(str(error)) from None
    found = "".join(
        entry.certificate.public_bytes(Encoding.PEM).decode()
        for entry in (store.cert, *store.additional_certs)
        if entry is not None
    )
    if keys and store.key is not None:
        found = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode() + found
    return found


def _pkcs12_by_openssl(path: str, password: str | None, *, keys: bool) -> str:
    program = shutil.which("openssl")
    if program is None:
        raise BadStore(
            "it is PKCS12: reading it needs the Python package cryptography (pip install 'ottla[security]'), "
            "or the program openssl; "
            "or take a PEM file: openssl pkcs12 -nodes -in store.p12 -out store.pem"
        )
    # The password by the environment: arguments are seen by everybody on the machine.
    words = [program, "pkcs12", "-in", path, "-passin", "env:OTTLA_STORE_PASSWORD", *(("-nodes",) if keys else ("-nokeys",))]
    environment = {**os.environ, "OTTLA_STORE_PASSWORD": password or ""}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=_OPENSSL_TIMEOUT_S, check=False)
    if done.returncode:
        reason = "the password is wrong" if "mac verify" in done.stderr.lower() else done.stderr.strip().rpartition("\n")[2]
        raise BadStore(reason or "openssl cannot read it")
    return done.stdout
