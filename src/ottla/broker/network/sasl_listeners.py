"""Builds the logins of the SASL listeners from the settings and the parts of the broker that know the credentials."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass

from ottla.broker.network.dispatch import Dispatcher
from ottla.broker.network.jwks import IssuerKeys
from ottla.broker.network.sasl_login import OfferedMechanism, SaslListener
from ottla.broker.network.socket_server import Login
from ottla.broker.startup_error import StartupError
from ottla.cluster.client_entities import USER, ClientConfigs
from ottla.cluster.settings import BrokerSettings
from ottla.cluster.settings.sasl import GSSAPI, OAUTHBEARER, PLAIN, MechanismSettings, OAuthSettings, SaslSettings
from ottla.ports import Clock, Random, Workers
from ottla.runtime.read_url import read_url
from ottla.security import principal
from ottla.security.jwt import BadToken, ValidToken, validate_unsecured
from ottla.security.sasl import ServerMechanism
from ottla.security.sasl_oauthbearer import OAuthBearerServer
from ottla.security.sasl_plain import PlainServer, plain_users
from ottla.security.sasl_scram import ScramIdentity, ScramServer
from ottla.security.scram_credential import SCRAM_HASHES, ScramCredential

_NONCE_BYTES = 24


@dataclass(frozen=True, slots=True)
class LoginSources:
    """What logins need of the rest of the broker."""

    clock: Clock
    random: Random
    workers: Workers
    client_configs: Callable[[], ClientConfigs]
    """This broker's copy of /config/users."""
    login_secret: bytes
    """The same on all brokers."""
    token_identity: Callable[[str, str], ScramIdentity | None]
    """(mechanism, token id) -> the owner of a delegation token."""

    def scram_identity(self, mechanism: str, user: str, is_token: bool) -> ScramIdentity | None:
        if is_token:
            return self.token_identity(mechanism, user)
        text = self.client_configs().get(((USER, user),), {}).get(mechanism)
        if text is None:
            return None
        try:
            credential = ScramCredential.parse(text)
        except ValueError:
            return None  # written into the tree by hand
        return ScramIdentity(credential, principal.Principal(principal.USER, user))


class SaslListeners:
    """The SASL listeners of a broker, by name."""

    def __init__(self, settings: BrokerSettings, dispatcher: Dispatcher, sources: LoginSources) -> None:
        self._dispatcher = dispatcher
        self._sources = sources
        self._issuers: dict[OAuthSettings, IssuerKeys] = {}
        self.listeners = {
            endpoint.listener: self._listener(settings.sasl_of(endpoint.listener))
            for endpoint in settings.listeners().bind
            if endpoint.security_protocol.startswith("SASL_")
        }

    @property
    def logins(self) -> dict[str, Login]:
        return {name: listener.login for name, listener in self.listeners.items()}

    async def start(self) -> None:
        """Load what logins need. StartupError if it cannot be loaded."""
        for issuer in self._issuers.values():
            await issuer.start()

    async def stop(self) -> None:
        for issuer in self._issuers.values():
            await issuer.stop()

    def _listener(self, sasl: SaslSettings) -> SaslListener:
        return SaslListener(
            {each.name: OfferedMechanism(self._factory(each), each.reauth_ms_max) for each in sasl.mechanisms},
            self._dispatcher,
            self._sources.clock,
            receive_bytes_max=sasl.receive_bytes_max,
            failed_delay_ms=sasl.failed_delay_ms,
        )

    def _factory(self, mechanism: MechanismSettings) -> Callable[[], ServerMechanism]:
        name, sources = mechanism.name, self._sources
        if name == PLAIN:
            users = plain_users(mechanism.options)
            return lambda: PlainServer(users)
        if name == GSSAPI:
            assert mechanism.kerberos is not None
            # Imported here: the package gssapi is optional.
            from ottla.broker.network.sasl_gssapi import gssapi_factory

            return gssapi_factory(mechanism.kerberos)
        if name == OAUTHBEARER:
            assert mechanism.oauth is not None
            validate = self._validator(mechanism.oauth)
            return lambda: OAuthBearerServer(validate)
        assert name in SCRAM_HASHES, name
        return lambda: ScramServer(
            name, sources.scram_identity, base64.b64encode(sources.random.bytes(_NONCE_BYTES)).decode(), sources.login_secret
        )

    def _validator(self, oauth: OAuthSettings) -> Callable[[str, int], ValidToken]:
        if oauth.unsecured:
            return lambda token, now_ms: validate_unsecured(token, oauth.rules, oauth.required_scope, now_ms)
        if oauth.jwks_url is None:
            return _refuse_token
        try:
            import cryptography  # noqa: F401
        except ImportError:
            raise StartupError("OAUTHBEARER needs the package cryptography: pip install 'ottla[security]'") from None
        if oauth not in self._issuers:
            self._issuers[oauth] = IssuerKeys(oauth, self._sources.workers, self._sources.clock, read_url)
        return self._issuers[oauth].validate


def _refuse_token(token: str, now_ms: int) -> ValidToken:
    raise BadToken("there are no keys to verify tokens with (sasl.oauthbearer.jwks.endpoint.url)")
