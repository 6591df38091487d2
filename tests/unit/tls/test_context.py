from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path

import pytest

from ottla.tls.ciphers import UnknownCipher, split_suites
from ottla.tls.config import KeyStore, TlsSettings, TrustStore
from ottla.tls.context import TlsError, client_context, server_context
from tests.kit.certificates import Authority

AUTHORITY = Authority()
BROKER = AUTHORITY.issue("broker")
CLIENT = AUTHORITY.issue("client", ())
TRUST = TrustStore("PEM", certificates=AUTHORITY.pem)


def inline(issued: object = BROKER) -> KeyStore:
    return KeyStore("PEM", key=issued.key_pem(), certificate_chain=issued.certificate_pem)  # type: ignore[attr-defined]


def shake(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[ssl.SSLSocket, ssl.SSLSocket]:
    """Both ends of a connection, or the client's error. TLS 1.3 tells the client of a refused certificate at its first read."""
    ours, theirs = socket.socketpair()
    ours.settimeout(10)
    theirs.settimeout(10)
    ends: list[ssl.SSLSocket] = []

    def serve() -> None:
        try:
            ends.append(server.wrap_socket(theirs, server_side=True))
            ends[0].send(b"x")
        except OSError:
            theirs.close()

    thread = threading.Thread(target=serve)
    thread.start()
    end: ssl.SSLSocket | None = None
    try:
        end = client.wrap_socket(ours, server_hostname="localhost")
        end.recv(1)
        thread.join()
        return ends[0], end
    except OSError:
        ours.close()
        if end is not None:
            end.close()
        thread.join()
        for each in ends:
            each.close()
        raise


def version(server: TlsSettings, client: TlsSettings) -> tuple[str, str]:
    ends = shake(server_context(server), client_context(client))
    cipher = ends[0].cipher()
    assert cipher is not None
    for end in ends:
        end.close()
    return str(ends[1].version() or cipher[1]), cipher[0]


def test_tl01_tls_1_2_and_1_3_are_offered_and_nothing_else() -> None:
    server = TlsSettings(inline())
    assert version(server, TlsSettings(trust_store=TRUST))[0] == "TLSv1.3"
    assert version(server, TlsSettings(trust_store=TRUST, protocols=("TLSv1.2",)))[0] == "TLSv1.2"
    context = server_context(server)
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.options & ssl.OP_NO_COMPRESSION


@pytest.mark.parametrize("kind", ["file", "encrypted", "inline", "one line", "pkcs12"])
def test_tl02_a_key_store_in_every_form(kind: str, tmp_path: Path) -> None:
    key, chain = BROKER.key_pem(), BROKER.certificate_pem
    stores = {
        "file": lambda: KeyStore("PEM", BROKER.pem_file(tmp_path / "b.pem")),
        "encrypted": lambda: KeyStore("PEM", BROKER.pem_file(tmp_path / "b.pem", "pw"), key_password="pw"),
        "inline": lambda: KeyStore("PEM", key=key, certificate_chain=chain),
        # A properties file joins lines that end with a backslash.
        "one line": lambda: KeyStore("PEM", key=key.replace("\n", " "), certificate_chain=chain.replace("\n", "")),
        "pkcs12": lambda: KeyStore("PKCS12", BROKER.pkcs12_file(tmp_path / "b.p12", "pw"), "pw"),
    }
    assert version(TlsSettings(stores[kind]()), TlsSettings(trust_store=TRUST))[0] == "TLSv1.3"


@pytest.mark.parametrize(
    ("store", "word"),
    [
        (KeyStore("PEM", "/none.pem"), "ssl.keystore.location=/none.pem: it cannot be read: No such file"),
        (KeyStore("PEM", key=BROKER.key_pem("pw"), certificate_chain=BROKER.certificate_pem), "no password was given"),
        (
            KeyStore("PEM", key=BROKER.key_pem("pw"), certificate_chain=BROKER.certificate_pem, key_password="wp"),
            r"cannot be decrypted: is ssl.key.password right\?",
        ),
        (KeyStore("PEM", key=BROKER.key_pem(), certificate_chain=CLIENT.certificate_pem), "key values mismatch"),
        (KeyStore("PEM", key="rubbish", certificate_chain=BROKER.certificate_pem), "it holds no private key"),
        (KeyStore("PEM", key="rubbish", certificate_chain="rubbish"), "ssl.keystore.key: it holds no PEM"),
    ],
)
def test_tl02_a_key_store_that_cannot_be_used_is_named(store: KeyStore, word: str) -> None:
    with pytest.raises(TlsError, match=word):
        server_context(TlsSettings(store))


def test_tl02_a_trust_store_is_read_also_if_no_client_needs_a_certificate() -> None:
    with pytest.raises(TlsError, match=r"ssl.truststore.certificates: it holds no certificate"):
        server_context(TlsSettings(inline(), TrustStore("PEM", certificates=BROKER.key_pem())))


def test_clients_must_present_a_certificate_if_it_is_required() -> None:
    plain, known = TlsSettings(trust_store=TRUST), TlsSettings(inline(CLIENT), TRUST)
    stranger = TlsSettings(inline(Authority("other").issue("client")), TRUST)
    for auth in ("none", "requested", "required"):
        server = server_context(TlsSettings(inline(), TRUST, auth))
        ends = shake(server, client_context(known))
        assert (ends[0].getpeercert(binary_form=True) == CLIENT.der) == (auth != "none")
        for end in ends:
            end.close()
        if auth == "required":
            with pytest.raises(OSError):
                shake(server, client_context(plain))
        else:
            for end in shake(server, client_context(plain)):
                end.close()
        if auth != "none":
            with pytest.raises(OSError):
                shake(server, client_context(stranger))


def test_every_certificate_of_a_trust_store_is_trusted_as_in_java() -> None:
    """Also one that is no authority."""
    trust = TrustStore("PEM", certificates=BROKER.certificate_pem)
    assert version(TlsSettings(inline()), TlsSettings(trust_store=trust))[0] == "TLSv1.3"


def test_a_host_name_is_compared_only_if_asked() -> None:
    server = server_context(TlsSettings(inline(AUTHORITY.issue("broker", ("elsewhere",)))))
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake(server, client_context(TlsSettings(trust_store=TRUST)))
    for end in shake(server, client_context(TlsSettings(trust_store=TRUST, check_host=False))):
        end.close()


@pytest.mark.parametrize(
    ("suites", "expected"),
    [
        (("TLS_AES_128_GCM_SHA256",), ("TLSv1.3", "TLS_AES_128_GCM_SHA256")),
        (("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",), ("TLSv1.2", "ECDHE-ECDSA-AES128-GCM-SHA256")),
        (
            ("TLS_CHACHA20_POLY1305_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
            ("TLSv1.3", "TLS_CHACHA20_POLY1305_SHA256"),
        ),
    ],
)
def test_cipher_suites_have_javas_names(suites: tuple[str, ...], expected: tuple[str, str]) -> None:
    assert version(TlsSettings(inline(), cipher_suites=suites), TlsSettings(trust_store=TRUST)) == expected


def test_a_suite_that_cannot_be_offered_is_refused() -> None:
    for suites in (("SSL_RSA_WITH_3DES_EDE_CBC_SHA",), ("TLS_RSA_WITH_NULL_SHA256",), ("RUBBISH", "TLS_AES_128_GCM_SHA256")):
        with pytest.raises(TlsError, match=rf"ssl.cipher.suites: {suites[0]}"):
            server_context(TlsSettings(inline(), cipher_suites=suites))
    with pytest.raises(TlsError, match=r"no version of ssl.enabled.protocols"):
        server_context(TlsSettings(inline(), cipher_suites=("TLS_AES_128_GCM_SHA256",), protocols=("TLSv1.2",)))


def test_names_of_suites() -> None:
    assert split_suites(
        (
            "TLS_AES_256_GCM_SHA384",
            "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
            "TLS_DHE_RSA_WITH_AES_256_CBC_SHA256",
            "TLS_RSA_WITH_AES_128_CBC_SHA",
            "TLS_EMPTY_RENEGOTIATION_INFO_SCSV",
        )
    ) == (["TLS_AES_256_GCM_SHA384"], ["ECDHE-RSA-CHACHA20-POLY1305", "DHE-RSA-AES256-SHA256", "AES128-SHA"])
    with pytest.raises(UnknownCipher):
        split_suites(("TLS_ECDHE_RSA_WITH_RC4_128_SHA",))
