"""The settings of SASL logins of this broker at other brokers.

Names, types and defaults are Kafka's, except `sasl.oauthbearer.token.command`. They apply to the inter-broker listener, and may
have its prefix and that of the mechanism. A setting that names a Java class is refused unless the class is Kafka's own.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from ottla.cluster.settings.setting import CLASS, INT, PASSWORD, STRING, at_least, broker_setting, one_of, table_of

PER_BROKER: Final = "per-broker"
_PACKAGE: Final = "org.apache.kafka.common.security."
_LOGINS: Final = tuple(
    f"{_PACKAGE}{name}"
    for name in ("authenticator.DefaultLogin", "kerberos.KerberosLogin", "oauthbearer.internals.OAuthBearerRefreshingLogin")
)
_CLIENT_HANDLERS: Final = tuple(
    f"{_PACKAGE}{name}"
    for name in ("authenticator.SaslClientCallbackHandler", "oauthbearer.internals.OAuthBearerSaslClientCallbackHandler")
)
_LOGIN_HANDLERS: Final = tuple(
    f"{_PACKAGE}{name}"
    for name in (
        "authenticator.AbstractLogin$DefaultLoginCallbackHandler",
        "oauthbearer.OAuthBearerLoginCallbackHandler",
        "oauthbearer.secured.OAuthBearerLoginCallbackHandler",
        "oauthbearer.internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler",
    )
)
_RETRIEVERS: Final = tuple(
    f"{_PACKAGE}oauthbearer.{name}" for name in ("DefaultJwtRetriever", "FileJwtRetriever", "ClientCredentialsJwtRetriever")
)

_used = partial(broker_setting, used=True)

# fmt: off
SASL_CLIENT_SETTINGS: Final = table_of((
    _used("sasl.client.callback.handler.class", CLASS, None, valid=one_of(*_CLIENT_HANDLERS), doc="Kafka's own classes only."),
    _used("sasl.kerberos.service.name", STRING, None, mode=PER_BROKER,
        doc="Kerberos service name of the brokers, with which they log in at each other by GSSAPI. Default: kafka."),
    _used("sasl.login.callback.handler.class", CLASS, None, valid=one_of(*_LOGIN_HANDLERS), doc="Kafka's own classes only."),
    _used("sasl.login.class", CLASS, None, valid=one_of(*_LOGINS), doc="Kafka's own classes only."),
    _used("sasl.login.read.timeout.ms", INT, None, valid=at_least(1),
        doc="Timeout of a request for a token at an OAuth provider. Default: 10 s."),
    _used("sasl.mechanism.inter.broker.protocol", STRING, "GSSAPI", mode=PER_BROKER,
        doc="The SASL mechanism between brokers. User name and password are in its `sasl.jaas.config` on the inter-broker "
            "listener: `listener.name.<listener>.<mechanism>.sasl.jaas.config`."),
    _used("sasl.oauthbearer.client.credentials.client.id", STRING, None,
        doc="Client id at the OAuth provider; or `clientId` in `sasl.jaas.config`."),
    _used("sasl.oauthbearer.client.credentials.client.secret", PASSWORD, None,
        doc="Client secret at the OAuth provider; or `clientSecret` in `sasl.jaas.config`."),
    _used("sasl.oauthbearer.jwt.retriever.class", CLASS, f"{_PACKAGE}oauthbearer.DefaultJwtRetriever", valid=one_of(*_RETRIEVERS),
        doc="Kafka's own classes only."),
    _used("sasl.oauthbearer.scope", STRING, None, doc="Scope asked of the OAuth provider; or `scope` in `sasl.jaas.config`."),
    _used("sasl.oauthbearer.token.command", STRING, None,
        doc="A command that prints an OAuth token. Ottla's own setting."),
    _used("sasl.oauthbearer.token.endpoint.url", STRING, None,
        doc="Where this broker gets OAuth tokens: the https or http URL of a provider, or the file URL of a token."),
))
# fmt: on
