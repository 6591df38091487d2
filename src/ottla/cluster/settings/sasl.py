"""The SASL settings of one listener: its mechanisms, each with its own settings, and the limits of a login."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla.cluster.settings.of_listener import ListenerSettings
from ottla.cluster.settings.sasl_table import UNSECURED
from ottla.security.jaas import BadJaas, parse_jaas
from ottla.security.jwt import TokenRules
from ottla.security.kerberos_name import BadRule, Rule, parse_rules
from ottla.security.sasl_plain import plain_users
from ottla.security.scram_credential import SCRAM_HASHES

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
GSSAPI: Final = "GSSAPI"
_MECHANISMS: Final = (PLAIN, *SCRAM_HASHES, OAUTHBEARER, GSSAPI)

_SECURITY: Final = "org.apache.kafka.common.security"
_PLAIN_MODULE: Final = f"{_SECURITY}.plain.PlainLoginModule"
# A client logs in with SCRAM by either: both hold a user name and a password.
_SCRAM_MODULES: Final = (f"{_SECURITY}.scram.ScramLoginModule", _PLAIN_MODULE)
_LOGIN_MODULES: Final[dict[str, tuple[str, ...]]] = {
    PLAIN: (_PLAIN_MODULE,),
    **dict.fromkeys(SCRAM_HASHES, _SCRAM_MODULES),
    OAUTHBEARER: (f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule",),
    GSSAPI: ("com.sun.security.auth.module.Krb5LoginModule", "com.ibm.security.auth.module.Krb5LoginModule"),
}
"""The classes whose options count, by mechanism."""
_ALL_LOGIN_MODULES: Final = tuple(dict.fromkeys(name for names in _LOGIN_MODULES.values() for name in names))


@dataclass(frozen=True, slots=True)
class OAuthSettings:
    rules: TokenRules
    jwks_url: str | None
    """None: every token is refused, unless `unsecured`."""
    refresh_ms: int
    backoff_ms: int
    backoff_ms_max: int
    unsecured: bool = False
    """Tokens without a signature are accepted, and no others."""
    required_scope: tuple[str, ...] = ()
    """Of unsecured tokens."""


@dataclass(frozen=True, slots=True)
class KerberosSettings:
    principal: str | None
    """Of the broker, such as kafka/host@REALM; None: any in the keytab."""
    keytab: str | None
    """None: that of the machine."""
    rules: tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class MechanismSettings:
    name: str
    reauth_ms_max: int
    options: Mapping[str, str] = field(repr=False)
    """Of its login module; empty if there is none."""
    oauth: OAuthSettings | None = None
    """Of OAUTHBEARER."""
    kerberos: KerberosSettings | None = None
    """Of GSSAPI."""


@dataclass(frozen=True, slots=True)
class SaslSettings:
    mechanisms: tuple[MechanismSettings, ...]
    receive_bytes_max: int
    failed_delay_ms: int


def sasl_settings(settings: ListenerSettings, problems: list[str], warnings: list[str]) -> SaslSettings:
    """Parse the settings of a SASL listener; problems are added to `problems`."""
    names = tuple(dict.fromkeys(filter(None, settings.list("sasl.enabled.mechanisms"))))
    if not names:
        problems.append(f"listener {settings.listener} uses SASL and has no mechanism; set sasl.enabled.mechanisms")
    mechanisms = []
    for name in names:
        if name not in _MECHANISMS:
            problems.append(
                f"listener {settings.listener}: the SASL mechanism {name} is not supported; allowed: {', '.join(_MECHANISMS)} "
                f"(sasl.enabled.mechanisms)"
            )
            continue
        mechanisms.append(_mechanism(name, settings.mechanism(name), problems, warnings))
    return SaslSettings(
        tuple(mechanisms),
        settings.int("sasl.server.max.receive.size"),
        settings.settings.int("connection.failed.authentication.delay.ms"),
    )


def _mechanism(name: str, settings: ListenerSettings, problems: list[str], warnings: list[str]) -> MechanismSettings:
    setting = f"listener.name.{settings.listener.lower()}.{name.lower()}.sasl.jaas.config"
    options: Mapping[str, str] = {}
    text = settings.optional_str("sasl.jaas.config")
    if text:
        try:
            module = parse_jaas(text)
        except BadJaas as error:
            problems.append(f"{setting}: {error}")
        else:
            if module.class_name in _LOGIN_MODULES[name]:
                options = module.options
            elif module.class_name not in _ALL_LOGIN_MODULES:
                problems.append(f"{setting}: {module.class_name} is not supported; allowed: {', '.join(_LOGIN_MODULES[name])}")
    if name == PLAIN and not plain_users(options):
        warnings.append(
            f"nobody can log in with PLAIN on listener {settings.listener}: it has no users; set {setting} to "
            f'org.apache.kafka.common.security.plain.PlainLoginModule required user_NAME="password";'
        )
    oauth = _oauth(settings, options, problems, warnings) if name == OAUTHBEARER else None
    kerberos = _kerberos(settings, options, problems) if name == GSSAPI else None
    return MechanismSettings(name, settings.int("connections.max.reauth.ms"), options, oauth, kerberos)


def _kerberos(settings: ListenerSettings, options: Mapping[str, str], problems: list[str]) -> KerberosSettings:
    rules: tuple[Rule, ...] = ()
    try:
        rules = parse_rules(settings.list("sasl.kerberos.principal.to.local.rules"))
    except BadRule as error:
        problems.append(f"sasl.kerberos.principal.to.local.rules: {error}")
    return KerberosSettings(options.get("principal") or None, options.get("keyTab") or None, rules)


def _oauth(settings: ListenerSettings, options: Mapping[str, str], problems: list[str], warnings: list[str]) -> OAuthSettings:
    listener = settings.listener
    unsecured = settings.optional_str("sasl.server.callback.handler.class") == UNSECURED
    url = settings.optional_str("sasl.oauthbearer.jwks.endpoint.url") or None
    if unsecured:
        warnings.append(
            f"listener {listener} accepts OAUTHBEARER tokens without a signature, which anybody can make: for tests only "
            f"(sasl.server.callback.handler.class)"
        )
    elif url is None:
        warnings.append(
            f"nobody can log in with OAUTHBEARER on listener {listener}: there are no keys to verify tokens with; "
            f"set sasl.oauthbearer.jwks.endpoint.url"
        )
    elif not url.startswith(("https://", "file:/")):
        problems.append(f"sasl.oauthbearer.jwks.endpoint.url={url} is not allowed; allowed: https://host/path, file:///path")
    elif url not in settings.settings.list("sasl.oauthbearer.allowed.urls"):
        problems.append(f"sasl.oauthbearer.jwks.endpoint.url={url} is not in sasl.oauthbearer.allowed.urls; add it there")
    rules = TokenRules(
        settings.str("sasl.oauthbearer.sub.claim.name"),
        settings.str("sasl.oauthbearer.scope.claim.name"),
        settings.list("sasl.oauthbearer.expected.audience"),
        settings.optional_str("sasl.oauthbearer.expected.issuer") or None,
        settings.int("sasl.oauthbearer.clock.skew.seconds") * 1000,
    )
    required_scope: tuple[str, ...] = ()
    if unsecured:
        required_scope = tuple(options.get("unsecuredValidatorRequiredScope", "").split())
        skew_ms = options.get("unsecuredValidatorAllowableClockSkewMs", "0")
        if not (skew_ms.isascii() and skew_ms.isdigit()):
            problems.append(f"listener {listener}: unsecuredValidatorAllowableClockSkewMs is not a whole number")
            skew_ms = "0"
        rules = TokenRules(
            options.get("unsecuredValidatorPrincipalClaimName", "sub"),
            options.get("unsecuredValidatorScopeClaimName", "scope"),
            clock_skew_ms=int(skew_ms),
        )
    return OAuthSettings(
        rules,
        url,
        settings.int("sasl.oauthbearer.jwks.endpoint.refresh.ms"),
        settings.int("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"),
        settings.int("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"),
        unsecured,
        required_scope,
    )
