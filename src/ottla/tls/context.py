"""An `ssl.SSLContext` for a TLS configuration: TLS 1.2 and 1.3, no renegotiation, no compression.

As in Java, every certificate of a trust store is trusted for itself, also if it is not a root. A context is not changed after it
is made: a new key store is a new context.
"""

from __future__ import annotations

import ssl
from typing import Final

from ottla.tls import stores
from ottla.tls.ciphers import TLS13, UnknownCipher, split_suites
from ottla.tls.config import KeyStore, TlsSettings, TrustStore
from ottla.tls.stores import BadStore

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


class TlsError(ValueError):
    """A configuration that gives no context. The message names the setting."""


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _common(context, settings)
    if settings.client_auth != "none":
        context.verify_mode = ssl.CERT_REQUIRED if settings.client_auth == "required" else ssl.CERT_OPTIONAL
        _trust(context, settings.trust_store, ssl.Purpose.CLIENT_AUTH)
    elif settings.trust_store is not None:
        trust_store_pem(settings.trust_store)  # TlsError if it cannot be read, as in Kafka, although it is not used
    return context


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.check_host
    _common(context, settings)
    _trust(context, settings.trust_store, ssl.Purpose.SERVER_AUTH)
    return context


def key_store_pem(store: KeyStore) -> tuple[str, str | None]:
    """The private key and its certificates as PEM, and the password that the key still needs. TlsError if it cannot be read."""
    try:
        if store.location is None:
            return stores.tidy_pem(f"{store.key}\n{store.certificate_chain}"), store.key_password
        return stores.key_and_chain(store.location, store.password, store.key_password)
    except BadStore as error:
        raise TlsError(f"{_key_store_name(store)}: {error}") from None


def trust_store_pem(store: TrustStore) -> str:
    try:
        if store.location is None:
            return stores.tidy_pem(store.certificates or "", "CERTIFICATE")
        return stores.certificates(store.location, store.password)
    except BadStore as error:
        raise TlsError(f"{_trust_store_name(store)}: {error}") from None


def _common(context: ssl.SSLContext, settings: TlsSettings) -> None:
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    versions = [_VERSIONS[name] for name in settings.protocols]
    if settings.cipher_suites:
        versions = _set_ciphers(context, settings.cipher_suites, versions)
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    store = settings.key_store
    if store is not None:
        pem, password = key_store_pem(store)
        try:
            stores.load_chain(context, pem, password)
        except (BadStore, ssl.SSLError) as error:
            sealed = password is not None and "ENCRYPTED" in pem and isinstance(error, ssl.SSLError)
            words = "the private key cannot be decrypted: is ssl.key.password right?" if sealed else _words(error)
            raise TlsError(f"{_key_store_name(store)}: {words}") from None


def _trust(context: ssl.SSLContext, store: TrustStore | None, purpose: ssl.Purpose) -> None:
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if store is None:
        context.load_default_certs(purpose)
        return
    try:
        context.load_verify_locations(cadata=trust_store_pem(store))
    except (ssl.SSLError, ValueError) as error:
        if isinstance(error, TlsError):
            raise
        raise TlsError(f"{_trust_store_name(store)}: {_words(error)}") from None


def _set_ciphers(context: ssl.SSLContext, suites: tuple[str, ...], versions: list[ssl.TLSVersion]) -> list[ssl.TLSVersion]:
    """Allow only these suites. Returns the versions that have one."""
    try:
        tls13, tls12 = split_suites(suites)
    except UnknownCipher as error:
        raise TlsError(f"ssl.cipher.suites: {error} is not supported") from None
    if tls12:
        try:
            context.set_ciphers(":".join(tls12))
        except ssl.SSLError:
            raise TlsError(f"ssl.cipher.suites: OpenSSL supports none of {', '.join(suites)}") from None
    if tls13 and set(tls13) != set(TLS13):
        _set_tls13_ciphers(context, tls13)
    wanted = {ssl.TLSVersion.TLSv1_2: tls12, ssl.TLSVersion.TLSv1_3: tls13}
    versions = [version for version in versions if wanted[version]]
    if not versions:
        raise TlsError(f"ssl.cipher.suites: no version of ssl.enabled.protocols has one of {', '.join(suites)}")
    return versions


def _set_tls13_ciphers(context: ssl.SSLContext, suites: list[str]) -> None:
    """Python has no call for it (before 3.15), OpenSSL has. The first field of a context is OpenSSL's own context."""
    import _ssl
    import ctypes

    try:
        call = ctypes.CDLL(_ssl.__file__).SSL_CTX_set_ciphersuites
        call.argtypes, call.restype = [ctypes.c_void_p, ctypes.c_char_p], ctypes.c_int
        call(ctypes.c_void_p.from_address(id(context) + object.__basicsize__).value, ":".join(suites).encode())
    except (AttributeError, OSError):
        pass
    if {cipher["name"] for cipher in context.get_ciphers()} & set(TLS13) != set(suites):
        raise TlsError(
            f"ssl.cipher.suites: this Python cannot choose among the suites of TLS 1.3; name all ({', '.join(TLS13)}) or none"
        )


def _key_store_name(store: KeyStore) -> str:
    return "ssl.keystore.key" if store.location is None else f"ssl.keystore.location={store.location}"


def _trust_store_name(store: TrustStore) -> str:
    return "ssl.truststore.certificates" if store.location is None else f"ssl.truststore.location={store.location}"


def _words(error: Exception) -> str:
    if isinstance(error, ssl.SSLError) and error.reason:
        return f"OpenSSL does not take it: {error.reason.lower().replace('_', ' ')}"
    return str(error)
