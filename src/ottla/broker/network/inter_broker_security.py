"""How this broker logs in at others: by the security protocol and the settings of the inter-broker listener.

As in Kafka, a broker is a client of the listener on which it is a server: the same key store and trust store, and the user name
and password in the login configuration of the mechanism on that listener.
"""

from __future__ import annotations

from typing import Final

from ottla.broker.startup_error import StartupError
from ottla.client.security import ClientSecurity, InvalidOption, client_security
from ottla.cluster.settings import BrokerSettings

_MECHANISM: Final = "sasl.mechanism.inter.broker.protocol"
_PASSED: Final = (
    "sasl.jaas.config",
    "sasl.kerberos.service.name",
    "sasl.login.callback.handler.class",
    "sasl.login.read.timeout.ms",
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.jwt.retriever.class",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.token.command",
    "sasl.oauthbearer.token.endpoint.url",
)


def inter_broker_security(settings: BrokerSettings) -> ClientSecurity:
    """Without the TLS part, which the listener's contexts have. StartupError, with the setting's name, for what cannot work."""
    listener = settings.listeners().inter_broker
    of_listener = settings.of_listener(listener)
    protocol = of_listener.security_protocol
    if not protocol.startswith("SASL"):
        return ClientSecurity(protocol)
    mechanism = settings.str(_MECHANISM)
    enabled = of_listener.list("sasl.enabled.mechanisms")
    if mechanism not in enabled:
        raise StartupError(
            f"{_MECHANISM}={mechanism} is not enabled on the inter-broker listener {listener}; "
            f"sasl.enabled.mechanisms has {', '.join(enabled) or 'none'}"
        )
    of_mechanism = of_listener.mechanism(mechanism)
    given = {"security.protocol": protocol, "sasl.mechanism": mechanism}
    for name in _PASSED:
        value = of_mechanism.value(name)
        if value is not None:
            given[name] = str(value)
    prefix = f"listener.name.{listener.lower()}.{mechanism.lower()}."
    try:
        return client_security(given, prefix)
    except InvalidOption as error:
        text = str(error).removeprefix("option ")
        raise StartupError(f"brokers cannot log in at each other with {mechanism}: {text}") from None
