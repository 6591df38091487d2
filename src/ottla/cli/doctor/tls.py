"""Certificates of brokers: chain, name, expiry."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator

from ottla.cli.connection import CONNECT_TIMEOUT_S
from ottla.cli.doctor.case import Case
from ottla.cli.doctor.finding import Finding, Severity

_SOON_DAYS = 30


def certificates(case: Case) -> Iterator[Finding]:
    security = case.connection.security
    if not security.encrypted:
        return
    from ottla.client.tls import client_context

    context = client_context(security.tls)
    for broker in case.brokers:
        assert broker.address is not None
        host, port = broker.address
        where = f"broker {broker.broker_id} at {host}:{port}"
        try:
            with (
                socket.create_connection((host, port), CONNECT_TIMEOUT_S) as plain,
                context.wrap_socket(plain, server_hostname=host) as encrypted,
            ):
                certificate = encrypted.getpeercert() or {}
        except ssl.SSLCertVerificationError as error:
            yield Finding("tls", Severity.ERROR, where, f"its certificate is not trusted: {error.verify_message}", _mend(error))
            continue
        except ssl.SSLError as error:
            yield Finding(
                "tls", Severity.ERROR, where, f"TLS fails: {error.reason or error}", "check ssl.enabled.protocols on both sides"
            )
            continue
        except OSError:
            continue  # `listeners` tells it
        yield from _expiry(where, certificate, case.now_ms)


def _expiry(where: str, certificate: object, now_ms: int) -> Iterator[Finding]:
    ends = certificate.get("notAfter") if isinstance(certificate, dict) else None
    if not ends:
        return  # certificates are not checked, so nothing is known of them
    days = (ssl.cert_time_to_seconds(str(ends)) - now_ms / 1000) / 86_400
    if days < _SOON_DAYS:
        yield Finding(
            "tls", Severity.WARNING, where, f"its certificate expires in {max(days, 0):.0f} days, at {ends}",
            "renew it with your certificate authority, and put it into ssl.keystore.location of the broker",
        )  # fmt: skip


def _mend(error: ssl.SSLCertVerificationError) -> str:
    # Numbers of OpenSSL: 10 expired, 62 host name, 64 address.
    if error.verify_code == 10:
        return "renew it with your certificate authority, and put it into ssl.keystore.location of the broker"
    if error.verify_code in (62, 64):
        return (
            "the certificate needs the advertised name as a subject alternative name, or the broker another advertised.listeners"
        )
    return "put the authority that signed it into ssl.truststore.location of --command-config"
