"""Client properties for confluent-kafka: Java's security options in librdkafka's names.

Stores of Java (JKS, PKCS12) become PEM texts; a login configuration becomes a user name and a password, or a callback that
obtains OAUTHBEARER tokens. All other properties pass unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ottla.client.security import SECURITY_NAMES, ClientSecurity, InvalidOption, TlsOptions, client_security

_JAVA_ONLY: Final = frozenset(
    {
        "key.serializer",
        "value.serializer",
        "key.deserializer",
        "value.deserializer",
        "partitioner.class",
        "max.block.ms",
        "sasl.client.callback.handler.class",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.class",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
    }
)
"""Properties of the Java client that librdkafka does not know and does not need."""


def librdkafka_properties(given: Mapping[str, Any], security: ClientSecurity | None = None) -> dict[str, Any]:
    """InvalidOption for what librdkafka cannot do."""
    security = client_security({name: str(value) for name, value in given.items()}) if security is None else security
    foreign = SECURITY_NAMES | _JAVA_ONLY
    # Tools of a schema registry keep its address in the same file.
    kept = {name: value for name, value in given.items() if name not in foreign and not name.startswith("schema.registry.")}
    if security.protocol == "PLAINTEXT":
        return kept
    kept["security.protocol"] = security.protocol.lower()
    if security.encrypted:
        kept |= _tls(security.tls)
    return kept | (_sasl(security) if security.authenticates else {})


def _tls(tls: TlsOptions) -> dict[str, Any]:
    from ottla.tls import stores

    properties: dict[str, Any] = {}
    name, value = f"{tls.prefix}ssl.truststore.location", tls.trust_file or "…"
    try:
        if tls.trust_pem is not None:
            properties["ssl.ca.pem"] = tls.trust_pem
        elif tls.trust_file is not None:
            properties["ssl.ca.pem"] = stores.certificates(tls.trust_file, tls.trust_password)
        name, value = f"{tls.prefix}ssl.keystore.location", tls.key_file or "…"
        pem, password = tls.key_pem, tls.key_password
        if pem is None and tls.key_file is not None:
            pem, password = stores.key_and_chain(tls.key_file, tls.key_file_password, tls.key_password)
            if tls.chain_file is not None:
                pem += stores.certificates(tls.chain_file, None)
    except stores.BadStore as error:
        raise InvalidOption(name, value, str(error)) from None
    if pem is not None:
        # OpenSSL takes the key and the certificates each from a text of their own.
        properties |= {"ssl.key.pem": pem, "ssl.certificate.pem": pem[pem.find("-----BEGIN CERTIFICATE-----") :]}
        if password is not None:
            properties["ssl.key.password"] = password
    properties["ssl.endpoint.identification.algorithm"] = "https" if tls.check_host else "none"
    if not tls.check_certificate:
        properties["enable.ssl.certificate.verification"] = False
    return properties


def _sasl(security: ClientSecurity) -> dict[str, Any]:
    if security.by_token:
        raise InvalidOption("sasl.jaas.config", "tokenauth=true", "librdkafka cannot log in with a delegation token")
    properties: dict[str, Any] = {"sasl.mechanisms": security.mechanism}
    if security.mechanism == "OAUTHBEARER":
        token = security.token
        assert token is not None

        def obtained(_config: str) -> tuple[str, float, str, dict[str, str]]:
            from ottla.client.oauth import obtain_token

            found = obtain_token(token)
            return found.value, found.expires_at_s, found.subject, dict(token.extensions)

        return properties | {"oauth_cb": obtained}
    if security.mechanism == "GSSAPI":
        kerberos = security.kerberos
        assert kerberos is not None
        properties["sasl.kerberos.service.name"] = kerberos.service
        named = {"sasl.kerberos.principal": kerberos.principal, "sasl.kerberos.keytab": kerberos.keytab}
        return properties | {name: value for name, value in named.items() if value}
    return properties | {"sasl.username": security.username, "sasl.password": security.password}
