"""How a client secures its connections, by the names of Java's clients; librdkafka's names are understood too.

Owns which security options there are and their valid values, with one error message for each invalid one. Never connects, reads
no file. `ClientSecurity` is a frozen value: Spark pickles it to its workers, brokers keep one for the other brokers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.security.jaas import BadJaas, LoginModule, parse_jaas

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
STORES: Final = ("PEM", "JKS", "PKCS12")

_TLS_NAMES: Final = frozenset(
    {
        "ssl.truststore.type",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.certificates",
        "ssl.keystore.type",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.key.password",
        "ssl.endpoint.identification.algorithm",
        "ssl.enabled.protocols",
        # librdkafka
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.key.location",
        "ssl.key.pem",
        "enable.ssl.certificate.verification",
    }
)
SECURITY_NAMES: Final = _TLS_NAMES | {
    "security.protocol",
    "sasl.mechanism",
    "sasl.jaas.config",
    "sasl.kerberos.service.name",
    "sasl.login.callback.handler.class",
    "sasl.login.connect.timeout.ms",
    "sasl.login.read.timeout.ms",
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.header.urlencode",
    "sasl.oauthbearer.jwt.retriever.class",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.token.command",
    "sasl.oauthbearer.token.endpoint.url",
    # librdkafka
    "sasl.mechanisms",
    "sasl.username",
    "sasl.password",
    "sasl.oauthbearer.method",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.extensions",
}
"""`sasl.oauthbearer.token.command` is Ottla's own: a command that prints a token."""

_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer."
_LOGIN_HANDLERS: Final = (
    f"{_PACKAGE}OAuthBearerLoginCallbackHandler",
    f"{_PACKAGE}secured.OAuthBearerLoginCallbackHandler",
    f"{_PACKAGE}internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler",
)
_RETRIEVERS: Final = tuple(
    f"{_PACKAGE}{name}" for name in ("DefaultJwtRetriever", "FileJwtRetriever", "ClientCredentialsJwtRetriever")
)
_UNSECURED: Final = "unsecuredLogin"
_UNSECURED_LIFETIME_S: Final = 3600


class InvalidOption(ValueError):
    """An invalid option. The message names it and what is allowed."""

    def __init__(self, name: str, value: object, allowed: str) -> None:
        super().__init__(f"option {name}: {value!r} is not possible, {allowed}")
        self.name = name


@dataclass(frozen=True, slots=True)
class TlsOptions:
    trust_file: str | None = None
    trust_password: str | None = field(default=None, repr=False)
    trust_pem: str | None = None
    """PEM certificates, instead of a file."""
    key_file: str | None = None
    key_file_password: str | None = field(default=None, repr=False)
    key_pem: str | None = field(default=None, repr=False)
    """The key and its certificates as PEM, instead of a file."""
    chain_file: str | None = None
    """The certificates, if `key_file` has only the key."""
    key_password: str | None = field(default=None, repr=False)
    check_host: bool = True
    check_certificate: bool = True
    versions: tuple[str, ...] = ()
    """`TLSv1.2`, `TLSv1.3`; empty: what OpenSSL offers."""
    prefix: str = field(default="", compare=False, repr=False)
    """What error messages put before the names of options."""


@dataclass(frozen=True, slots=True)
class TokenOptions:
    """Where an OAUTHBEARER token comes from: a file or a provider (`url`), a command, or `claims`, which nobody signs (tests)."""

    url: str = ""
    command: str = field(default="", repr=False)
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    urlencode: bool = False
    """Whether id and secret are URL-encoded in the header, as RFC 6749 wants and few providers do."""
    claims: tuple[tuple[str, str | float | tuple[str, ...]], ...] = ()
    lifetime_s: int = _UNSECURED_LIFETIME_S
    extensions: tuple[tuple[str, str], ...] = ()
    timeout_ms: int = 10_000
    tls: TlsOptions = TlsOptions()


@dataclass(frozen=True, slots=True)
class KerberosOptions:
    service: str = "kafka"
    principal: str = ""
    keytab: str = ""
    """Empty: the tickets that `kinit` has obtained."""


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    protocol: str = "PLAINTEXT"
    mechanism: str = "PLAIN"
    username: str = ""
    password: str = field(default="", repr=False)
    by_token: bool = False
    """User name and password are the id and the HMAC of a delegation token."""
    token: TokenOptions | None = None
    kerberos: KerberosOptions | None = None
    tls: TlsOptions = TlsOptions()

    @property
    def encrypted(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def authenticates(self) -> bool:
        return self.protocol.startswith("SASL")


PLAINTEXT: Final = ClientSecurity()


def client_security(given: Mapping[str, str], prefix: str = "", *, default_mechanism: str = "PLAIN") -> ClientSecurity:
    """From client properties, without `prefix`, which error messages put before the names.

    Java's default mechanism is GSSAPI; clients that only set a user name mean PLAIN.
    """
    protocol = one_of(given, "security.protocol", PROTOCOLS, "PLAINTEXT", prefix)
    tls = _tls(given, prefix)
    if not protocol.startswith("SASL"):
        return ClientSecurity(protocol, tls=tls)
    which = "sasl.mechanisms" if "sasl.mechanisms" in given else "sasl.mechanism"
    mechanism = one_of(given, which, MECHANISMS, default_mechanism, prefix)
    jaas = _jaas(given, prefix)
    if mechanism == "OAUTHBEARER":
        return ClientSecurity(protocol, mechanism, token=_token(given, jaas.options if jaas else {}, prefix), tls=tls)
    if mechanism == "GSSAPI":
        return ClientSecurity(protocol, mechanism, kerberos=_kerberos(given, jaas.options if jaas else {}), tls=tls)
    options = jaas.options if jaas else {}
    username = given.get("sasl.username", options.get("username", ""))
    if not username:
        raise InvalidOption(
            f"{prefix}sasl.jaas.config",
            "" if jaas is None else "…",
            f'it must hold username="…" password="…" (or {prefix}sasl.username and {prefix}sasl.password are given)',
        )
    by_token = options.get("tokenauth", "").lower() == "true"
    if by_token and mechanism == "PLAIN":
        raise InvalidOption(
            f"{prefix}sasl.mechanism", mechanism, "a delegation token logs in with SCRAM-SHA-256 or SCRAM-SHA-512"
        )
    password = given.get("sasl.password", options.get("password", ""))
    return ClientSecurity(protocol, mechanism, username, password, by_token, tls=tls)


def one_of(given: Mapping[str, str], name: str, allowed: tuple[str, ...], default: str, prefix: str) -> str:
    value = given.get(name, default).strip().upper()
    if value not in allowed:
        raise InvalidOption(prefix + name, given[name], f"it is one of {', '.join(allowed)}")
    return value


def _jaas(given: Mapping[str, str], prefix: str) -> LoginModule | None:
    text = given.get("sasl.jaas.config", "")
    if not text.strip():
        return None
    try:
        return parse_jaas(text if text.rstrip().endswith(";") else f"{text};")
    except BadJaas as error:
        raise InvalidOption(f"{prefix}sasl.jaas.config", "…", str(error)) from None


# TLS


def _tls(given: Mapping[str, str], prefix: str) -> TlsOptions:
    key_pem = _key_and_chain(given, prefix)
    versions = tuple(name.strip() for name in given.get("ssl.enabled.protocols", "").split(",") if name.strip())
    known = tuple(name for name in versions if name in ("TLSv1.2", "TLSv1.3"))
    if versions and not known:
        raise InvalidOption(f"{prefix}ssl.enabled.protocols", given["ssl.enabled.protocols"], "it names TLSv1.2, TLSv1.3 or both")
    return TlsOptions(
        trust_file=_store(given, "ssl.truststore", prefix) or given.get("ssl.ca.location"),
        trust_password=given.get("ssl.truststore.password"),
        trust_pem=given.get("ssl.truststore.certificates", given.get("ssl.ca.pem")),
        key_file=_store(given, "ssl.keystore", prefix) or given.get("ssl.key.location"),
        key_file_password=given.get("ssl.keystore.password"),
        key_pem=key_pem,
        chain_file=given.get("ssl.certificate.location"),
        key_password=given.get("ssl.key.password"),
        check_host=given.get("ssl.endpoint.identification.algorithm", "https").strip().lower() not in ("", "none"),
        check_certificate=given.get("enable.ssl.certificate.verification", "true").strip().lower() != "false",
        versions=known,
        prefix=prefix,
    )


def _store(given: Mapping[str, str], store: str, prefix: str) -> str | None:
    """The path of a store. It is read later, on the machine that connects."""
    kind = given.get(f"{store}.type", "PEM")
    if kind.upper() not in STORES:
        raise InvalidOption(f"{prefix}{store}.type", kind, f"it is one of {', '.join(STORES)}")
    return given.get(f"{store}.location") or None


def _key_and_chain(given: Mapping[str, str], prefix: str) -> str | None:
    key, chain = given.get("ssl.keystore.key"), given.get("ssl.keystore.certificate.chain")
    if key is None and chain is None:
        key, chain = given.get("ssl.key.pem"), given.get("ssl.certificate.pem")
    if (key is None) != (chain is None):
        missing = "ssl.keystore.key" if key is None else "ssl.keystore.certificate.chain"
        raise InvalidOption(prefix + missing, "", "a key and its certificates are given together")
    return None if key is None else f"{key}\n{chain}\n"


# SASL


def _kerberos(given: Mapping[str, str], options: Mapping[str, str]) -> KerberosOptions:
    return KerberosOptions(
        service=given.get("sasl.kerberos.service.name") or options.get("serviceName") or "kafka",
        principal=options.get("principal", ""),
        keytab=options.get("keyTab", ""),
    )


def _token(given: Mapping[str, str], options: Mapping[str, str], prefix: str) -> TokenOptions:
    for name, known in (
        ("sasl.login.callback.handler.class", _LOGIN_HANDLERS),
        ("sasl.oauthbearer.jwt.retriever.class", _RETRIEVERS),
    ):
        if given.get(name) and given[name] not in known:
            raise InvalidOption(prefix + name, given[name], f"Java classes are not run; known are {', '.join(known)}")
    url = given.get("sasl.oauthbearer.token.endpoint.url", "")
    if url and not url.startswith(("https://", "http://", "file:")):
        raise InvalidOption(f"{prefix}sasl.oauthbearer.token.endpoint.url", url, "it begins with https://, http:// or file://")
    client_id, secret = (
        given.get(f"sasl.oauthbearer.client.credentials.client.{what}")
        or given.get(f"sasl.oauthbearer.client.{what}")
        or options.get(jaas, "")
        for what, jaas in (("id", "clientId"), ("secret", "clientSecret"))
    )
    command = given.get("sasl.oauthbearer.token.command", "")
    claims = () if url or command else _claims(options)
    if url.startswith("http") and not (client_id and secret):
        raise InvalidOption(f"{prefix}sasl.jaas.config", "…", f'for {url} it must hold clientId="…" clientSecret="…"')
    if not url and not command and not claims:
        raise InvalidOption(
            f"{prefix}sasl.oauthbearer.token.endpoint.url",
            url,
            f"OAUTHBEARER needs it, or {prefix}sasl.oauthbearer.token.command",
        )
    extensions = {name.removeprefix("extension_"): value for name, value in options.items() if name.startswith("extension_")}
    extensions |= dict(
        part.strip().split("=", 1) for part in given.get("sasl.oauthbearer.extensions", "").split(",") if "=" in part
    )
    return TokenOptions(
        url=url,
        command=command,
        client_id=client_id,
        client_secret=secret,
        scope=given.get("sasl.oauthbearer.scope") or options.get("scope", ""),
        urlencode=given.get("sasl.oauthbearer.header.urlencode", "false").strip().lower() == "true",
        claims=claims,
        lifetime_s=_number(options.get(f"{_UNSECURED}LifetimeSeconds", str(_UNSECURED_LIFETIME_S)), f"{prefix}sasl.jaas.config"),
        extensions=tuple(sorted(extensions.items())),
        timeout_ms=_number(given.get("sasl.login.read.timeout.ms") or "10000", f"{prefix}sasl.login.read.timeout.ms"),
        # The provider has TLS settings of its own, in the login configuration.
        tls=_tls({name: value for name, value in options.items() if name in _TLS_NAMES}, f"{prefix}sasl.jaas.config: "),
    )


def _claims(options: Mapping[str, str]) -> tuple[tuple[str, Any], ...]:
    """The claims of a token without a signature, which a broker accepts only if it is told to."""
    claims: dict[str, Any] = {}
    for name, value in options.items():
        if name.startswith(f"{_UNSECURED}StringClaim_"):
            claims[name.partition("_")[2]] = value
        elif name.startswith(f"{_UNSECURED}NumberClaim_"):
            claims[name.partition("_")[2]] = float(value)
        elif name.startswith(f"{_UNSECURED}ListClaim_") and value:
            claims[name.partition("_")[2]] = tuple(value[1:].split(value[0]))
    return tuple(claims.items())


def _number(text: str, name: str) -> int:
    if not text.strip().isdecimal():
        raise InvalidOption(name, text, "it is a number")
    return int(text)
