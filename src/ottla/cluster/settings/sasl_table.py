"""The settings of SASL logins on the broker's listeners.

Names, types and defaults are Kafka's. A setting that names a Java class is refused unless the class is Kafka's own: ignoring it
could let in whom it would refuse.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from ottla.cluster.settings.setting import CLASS, INT, LIST, LONG, PASSWORD, STRING, at_least, broker_setting, one_of, table_of

PER_BROKER: Final = "per-broker"
UNSECURED: Final = "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
SERVER_CALLBACK_HANDLERS: Final = {
    "org.apache.kafka.common.security.plain.internals.PlainServerCallbackHandler": "PLAIN",
    "org.apache.kafka.common.security.scram.internals.ScramServerCallbackHandler": "SCRAM",
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler": "OAUTHBEARER",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler": "OAUTHBEARER",
    UNSECURED: "OAUTHBEARER",
}
"""Kafka's own, and the mechanisms they are for."""
_VALIDATORS: Final = "org.apache.kafka.common.security.oauthbearer."

_used = partial(broker_setting, used=True)

# fmt: off
SASL_SETTINGS: Final = table_of((
    _used("connection.failed.authentication.delay.ms", INT, 100, valid=at_least(0),
        doc="How long a failed login waits for its answer. It slows down guessing and holds up nobody else."),
    _used("connections.max.reauth.ms", LONG, 0,
        doc="How long a SASL login is valid (KIP-368); 0: as long as its credential. Also "
            "`listener.name.<listener>.<mechanism>.connections.max.reauth.ms`."),
    _used("delegation.token.expiry.check.interval.ms", LONG, 3600000, valid=at_least(1),
        doc="How often expired delegation tokens are removed."),
    _used("delegation.token.expiry.time.ms", LONG, 86400000, valid=at_least(1),
        doc="How long a delegation token is valid before it must be renewed."),
    _used("delegation.token.master.key", PASSWORD, None, doc="Old name of `delegation.token.secret.key`."),
    _used("delegation.token.max.lifetime.ms", LONG, 604800000, valid=at_least(1),
        doc="How long a delegation token can be renewed."),
    _used("delegation.token.secret.key", PASSWORD, None,
        doc="Key from which the secrets of delegation tokens follow, the same on all brokers. Without it there are no tokens."),
    _used("sasl.enabled.mechanisms", LIST, ("GSSAPI",), mode=PER_BROKER,
        doc="The SASL mechanisms of a listener."),
    _used("sasl.jaas.config", PASSWORD, None, mode=PER_BROKER,
        doc="Java's login configuration: `listener.name.<listener>.<mechanism>.sasl.jaas.config`. For PLAIN it has the users, "
            "`user_NAME=\"password\"`."),
    _used("sasl.kerberos.principal.to.local.rules", LIST, ("DEFAULT",), mode=PER_BROKER,
        doc="Rules that make users of Kerberos principals; the first that applies decides."),
    _used("sasl.oauthbearer.allowed.urls", LIST, (),
        doc="Ottla's own: the URLs that `sasl.oauthbearer.jwks.endpoint.url` may be. Kafka 4 has a Java system property for it, "
            "`org.apache.kafka.sasl.oauthbearer.allowed.urls`."),
    _used("sasl.oauthbearer.clock.skew.seconds", INT, 30, valid=at_least(0), doc="Difference of clocks allowed in OAuth tokens."),
    _used("sasl.oauthbearer.expected.audience", LIST, (), doc="Audiences of OAuth tokens, any of them; empty: not checked."),
    _used("sasl.oauthbearer.expected.issuer", STRING, None, doc="Issuer of OAuth tokens; not set: not checked."),
    _used("sasl.oauthbearer.jwks.endpoint.refresh.ms", LONG, 3600000, valid=at_least(1),
        doc="How often the keys of the OAuth issuer are read again."),
    _used("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", LONG, 10000, valid=at_least(1),
        doc="Maximum backoff between tries to read the keys."),
    _used("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", LONG, 100, valid=at_least(1),
        doc="Initial backoff between tries to read the keys."),
    _used("sasl.oauthbearer.jwks.endpoint.url", STRING, None,
        doc="Where the keys of the OAuth issuer are read: https or file, one of `sasl.oauthbearer.allowed.urls`. Without it "
            "every token is refused."),
    _used("sasl.oauthbearer.jwt.validator.class", CLASS, f"{_VALIDATORS}DefaultJwtValidator",
        valid=one_of(f"{_VALIDATORS}DefaultJwtValidator", f"{_VALIDATORS}BrokerJwtValidator"), doc="Kafka's own classes only."),
    _used("sasl.oauthbearer.scope.claim.name", STRING, "scope", doc="Claim that holds the scope of a token."),
    _used("sasl.oauthbearer.sub.claim.name", STRING, "sub", doc="Claim that holds the principal of a token."),
    _used("sasl.server.callback.handler.class", CLASS, None, valid=one_of(*SERVER_CALLBACK_HANDLERS),
        doc="Kafka's own classes only. With `OAuthBearerUnsecuredValidatorCallbackHandler` OAUTHBEARER accepts tokens that "
            "anybody can make: for tests."),
    _used("sasl.server.max.receive.size", INT, 524288, valid=at_least(1),
        doc="Maximum size of a request before the login is complete."),
))
# fmt: on
