"""TLS of one listener: its settings as one value (TL01). No file is read here.

The rules on stores are Kafka's: text and file exclude each other, a PEM store has no password of its own, a JKS or PKCS12 key
store needs one.
"""

from __future__ import annotations

from ottla.cluster.settings.of_listener import ListenerSettings
from ottla.security.ssl_principal import BadRule, SslPrincipalMapper
from ottla.tls.config import PROTOCOLS, KeyStore, TlsSettings, TrustStore


def tls_settings(settings: ListenerSettings, problems: list[str]) -> TlsSettings:
    """The TLS settings of a listener; problems are added to `problems`."""
    protocols = tuple(name for name in PROTOCOLS if name in settings.list("ssl.enabled.protocols"))
    if not protocols:
        problems.append(_problem(settings, "ssl.enabled.protocols must name TLSv1.2 or TLSv1.3"))
    rules = settings.str("ssl.principal.mapping.rules")
    try:
        SslPrincipalMapper(rules)
    except BadRule as error:
        problems.append(_problem(settings, str(error)))
    # KIP-684: clients of SASL_SSL authenticate by SASL; a certificate is asked for only where the listener itself says so.
    in_effect = settings.own("ssl.client.auth") if settings.security_protocol == "SASL_SSL" else settings.str("ssl.client.auth")
    return TlsSettings(
        _key_store(settings, problems),
        _trust_store(settings, problems),
        client_auth=str(in_effect or "none"),
        protocols=protocols,
        cipher_suites=settings.list("ssl.cipher.suites"),
        check_host=settings.str("ssl.endpoint.identification.algorithm") != "",
        principal_mapping_rules=rules,
        allow_dn_changes=settings.bool("ssl.allow.dn.changes"),
        allow_san_changes=settings.bool("ssl.allow.san.changes"),
    )


def _key_store(settings: ListenerSettings, problems: list[str]) -> KeyStore | None:
    store = KeyStore(
        settings.str("ssl.keystore.type").upper(),
        settings.optional_str("ssl.keystore.location") or None,
        settings.optional_str("ssl.keystore.password") or None,
        settings.optional_str("ssl.key.password") or None,
        settings.optional_str("ssl.keystore.key") or None,
        settings.optional_str("ssl.keystore.certificate.chain") or None,
    )
    if store.key is None and store.certificate_chain is None:
        if store.location is None:
            return None
        if store.type == "PEM" and store.password is not None:
            problems.append(_problem(settings, "ssl.keystore.password does not apply to PEM; set ssl.key.password"))
        elif store.type != "PEM" and store.password is None:
            problems.append(_problem(settings, "ssl.keystore.location is set, and ssl.keystore.password is missing"))
    elif store.type != "PEM":
        problems.append(
            _problem(settings, "ssl.keystore.key and ssl.keystore.certificate.chain are PEM; set ssl.keystore.type=PEM")
        )
    elif store.location is not None:
        problems.append(_problem(settings, "ssl.keystore.location and ssl.keystore.key are both set"))
    elif store.key is None or store.certificate_chain is None:
        problems.append(_problem(settings, "ssl.keystore.key and ssl.keystore.certificate.chain must be set together"))
    elif store.password is not None:
        problems.append(_problem(settings, "ssl.keystore.password does not apply to PEM; set ssl.key.password"))
    return store


def _trust_store(settings: ListenerSettings, problems: list[str]) -> TrustStore | None:
    store = TrustStore(
        settings.str("ssl.truststore.type").upper(),
        settings.optional_str("ssl.truststore.location") or None,
        settings.optional_str("ssl.truststore.password") or None,
        settings.optional_str("ssl.truststore.certificates") or None,
    )
    if store.location is None and store.certificates is None:
        return None
    if store.certificates is not None and store.type != "PEM":
        problems.append(_problem(settings, "ssl.truststore.certificates is PEM; set ssl.truststore.type=PEM"))
    elif store.certificates is not None and store.location is not None:
        problems.append(_problem(settings, "ssl.truststore.location and ssl.truststore.certificates are both set"))
    elif store.type == "PEM" and store.password is not None:
        problems.append(_problem(settings, "ssl.truststore.password does not apply to PEM"))
    return store


def _problem(settings: ListenerSettings, problem: str) -> str:
    return f"listener {settings.listener}: {problem}"
