"""TLS of the listeners of this broker: contexts made of key stores and trust stores, replaced while the broker runs (TL05).

New connections use the current contexts; open connections keep theirs. The rules for a replacement are Kafka's (KIP-226). It is
refused, and the old one stays, if

1. a key store or a trust store is added or removed,
2. the subject of the certificate is another one (unless `ssl.allow.dn.changes`), or it lacks a subject alternative name of the
   old one (unless `ssl.allow.san.changes`),
3. on the inter-broker listener of a cluster, the old and the new contexts cannot shake hands with each other.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Iterable, Iterator

from ottla.cluster.settings import BrokerSettings, SettingsError
from ottla.security.certificate import Certificate, read_certificate
from ottla.security.principal import Principal
from ottla.security.ssl_principal import SslPrincipalMapper, certificate_principal
from ottla.tls.config import TlsSettings
from ottla.tls.context import TlsError, client_context, key_store_pem, server_context
from ottla.tls.stores import certificates_of, file_versions

logger = logging.getLogger(__name__)

EXPIRY_WARNING_DAYS = 30
_DAY_MS = 86_400_000
_HANDSHAKE_STEPS_MAX = 20


class Contexts:
    """What one version of the stores of a listener gives."""

    def __init__(self, settings: TlsSettings, *, between_brokers: bool) -> None:
        """TlsError if a store cannot be used."""
        # Before the files are read: a later change is then seen as one.
        self.files = file_versions(settings)
        self.settings = settings
        self.server = server_context(settings)
        self.client = client_context(settings) if between_brokers else None
        assert settings.key_store is not None
        chain = [read_certificate(der) for der in certificates_of(key_store_pem(settings.key_store)[0])]
        self.certificate: Certificate = chain[0]
        self.not_after_ms = min(certificate.not_after_ms for certificate in chain)


class ListenerTls:
    def __init__(self, listener: str, settings: TlsSettings, *, between_brokers: bool = False) -> None:
        """`between_brokers`: this broker also connects to others with these stores. TlsError if a store cannot be used."""
        self.listener = listener
        self._between_brokers = between_brokers
        self._mapper = SslPrincipalMapper(settings.principal_mapping_rules)
        self._current = self._contexts(settings)
        if between_brokers:
            _shake_hands(listener, self._current, self._current)

    @property
    def settings(self) -> TlsSettings:
        return self._current.settings

    @property
    def certificate(self) -> Certificate:
        return self._current.certificate

    @property
    def not_after_ms(self) -> int:
        """When the first certificate of the chain expires."""
        return self._current.not_after_ms

    def server(self) -> ssl.SSLContext:
        return self._current.server

    def client(self) -> ssl.SSLContext:
        """For connections to the same listener of other brokers."""
        assert self._current.client is not None, f"{self.listener} is not the inter-broker listener"
        return self._current.client

    def principal_of(self, certificate: bytes | None) -> Principal:
        """The principal of a client, from its certificate (TL03, TL04). ValueError, with the reason, if there is none."""
        return certificate_principal(self._mapper, certificate)

    def replacement(self, settings: TlsSettings) -> Contexts | None:
        """What `settings` give; None if nothing has changed, also in the files. TlsError if the rules refuse it."""
        current = self._current
        if settings == current.settings and file_versions(settings) == current.files:
            return None
        for name, before, after in (
            ("key", current.settings.key_store, settings.key_store),
            ("trust", current.settings.trust_store, settings.trust_store),
        ):
            if (before is None) != (after is None):
                change = "added" if before is None else "removed"
                raise TlsError(f"listener {self.listener}: a {name} store cannot be {change} while the broker runs")
        contexts = self._contexts(settings)
        old, new = current.certificate, contexts.certificate
        if new.subject != old.subject and not settings.allow_dn_changes:
            raise TlsError(
                f"listener {self.listener}: the new certificate has the subject {new.subject}, the old one {old.subject}; "
                f"set ssl.allow.dn.changes to allow that"
            )
        if not old.alternative_names <= new.alternative_names and not settings.allow_san_changes:
            raise TlsError(
                f"listener {self.listener}: the new certificate lacks a subject alternative name of the old one; "
                f"set ssl.allow.san.changes to allow that"
            )
        if self._between_brokers:
            _shake_hands(self.listener, current, contexts)
            _shake_hands(self.listener, contexts, current)
        return contexts

    def replace(self, contexts: Contexts, now_ms: int) -> None:
        self._current = contexts
        logger.info(
            "Listener %s uses a new certificate or new trusted certificates from now on: %s, valid for %.1f days",
            self.listener,
            contexts.certificate.subject,
            (contexts.not_after_ms - now_ms) / _DAY_MS,
        )

    def warn_of_expiry(self, now_ms: int) -> None:
        days = (self.not_after_ms - now_ms) / _DAY_MS
        if days <= 0:
            logger.error(
                "The certificate of listener %s (%s) has expired: clients refuse it. Replace the key store",
                self.listener,
                self.certificate.subject,
            )
        elif days < EXPIRY_WARNING_DAYS:
            logger.warning(
                "The certificate of listener %s (%s) expires in %.1f days. Replace the key store, then alter "
                "listener.name.%s.ssl.keystore.location, also to the same value",
                self.listener,
                self.certificate.subject,
                days,
                self.listener.lower(),
            )

    def _contexts(self, settings: TlsSettings) -> Contexts:
        try:
            return Contexts(settings, between_brokers=self._between_brokers)
        except ValueError as error:
            raise TlsError(f"listener {self.listener}: {error}") from None


class TlsOfListeners:
    """All listeners with TLS."""

    def __init__(self, listeners: Iterable[ListenerTls], now_ms: Callable[[], int]) -> None:
        self._by_name = {each.listener: each for each in listeners}
        self._now_ms = now_ms

    def __iter__(self) -> Iterator[ListenerTls]:
        return iter(self._by_name.values())

    def get(self, listener: str) -> ListenerTls | None:
        return self._by_name.get(listener)

    def check(self, settings: BrokerSettings) -> None:
        """TlsError if a listener could not run with these settings."""
        for each in self:
            each.replacement(_tls_of(settings, each.listener))

    def apply(self, settings: BrokerSettings) -> None:
        """Use these settings, and files that have changed. A listener that cannot keeps what it has."""
        for each in self:
            try:
                contexts = each.replacement(_tls_of(settings, each.listener))
            except TlsError as error:
                logger.error("Keeping the TLS stores in use: %s", error)
                continue
            if contexts is not None:
                each.replace(contexts, self._now_ms())

    def warn_of_expiry(self) -> None:
        for each in self:
            each.warn_of_expiry(self._now_ms())


def _tls_of(settings: BrokerSettings, listener: str) -> TlsSettings:
    try:
        return settings.tls_of(listener)
    except SettingsError as error:
        raise TlsError(str(error)) from None


def _shake_hands(listener: str, server: Contexts, client: Contexts) -> None:
    """A handshake in memory between two brokers. TlsError if it fails."""
    assert client.client is not None
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = client.client
    checks_host = context.check_hostname
    context.check_hostname = False  # there is no host here
    try:
        ends = [
            context.wrap_bio(to_client, to_server),
            server.server.wrap_bio(to_server, to_client, server_side=True),
        ]
    finally:
        context.check_hostname = checks_host
    try:
        for _ in range(_HANDSHAKE_STEPS_MAX):
            waiting = []
            for end in ends:
                try:
                    end.do_handshake()
                except ssl.SSLWantReadError:
                    waiting.append(end)
            ends = waiting
            if not ends:
                return
    except ssl.SSLError as error:
        reason = error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else error.reason or str(error)
        raise TlsError(f"listener {listener}: brokers could not connect to each other with these stores: {reason}") from None
    raise TlsError(f"listener {listener}: brokers could not connect to each other with these stores")
