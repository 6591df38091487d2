"""The delegation tokens of the cluster, on every broker.

Owns this broker's copy of /delegation_token/tokens and the changes that clients ask this broker for; the rules are
`security.delegation_token`. Whoever changes a token leaves a notification under /delegation_token/token_changes, and every broker
reads the token that it names. Without `delegation.token.secret.key` there are no tokens.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ottla.broker.metadata.change_notifications import ChangeNotifications, NotificationReader
from ottla.broker.metadata.tree import each
from ottla.cluster import token_nodes
from ottla.cluster.settings import BrokerSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.ports import BadVersion, Change, Clock, Create, Delete, MetadataStore, NodeExists, NoNode, Random, SetData, StoreError
from ottla.security import delegation_token
from ottla.security.delegation_token import DelegationToken, TokenLifetimes, token_hmac, token_password
from ottla.security.principal import Principal, Session
from ottla.storage.names import uuid_text

if TYPE_CHECKING:
    from ottla.security.sasl_scram import ScramIdentity
    from ottla.security.scram_credential import ScramCredential

logger = logging.getLogger(__name__)

_SALT_BYTES: Final = 24
_CREDENTIALS_MAX: Final = 10_000
"""Computed credentials that are kept: each takes milliseconds to compute."""
_NOTIFICATIONS_KEPT: Final = 1000


def require_own_login(session: Session) -> None:
    """KafkaError if the client may not use the APIs of delegation tokens (DT02)."""
    if not session.may_use_tokens:
        raise KafkaError(
            ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
            "delegation tokens need a login other than by a token, with SASL or a client certificate",
        )


class DelegationTokens:
    def __init__(self, store: MetadataStore, settings: BrokerSettings, clock: Clock, random: Random) -> None:
        secret = settings.optional_str("delegation.token.secret.key") or settings.optional_str("delegation.token.master.key")
        self._key = secret.encode() if secret else None
        self._lifetimes = TokenLifetimes(
            settings.int("delegation.token.max.lifetime.ms"), settings.int("delegation.token.expiry.time.ms")
        )
        self._store = store
        self._clock = clock
        self._random = random
        self._tokens: dict[str, DelegationToken] = {}
        self._ids: dict[bytes, str] = {}
        """By HMAC."""
        self._credentials: dict[tuple[str, str], ScramCredential] = {}
        self._notifications = ChangeNotifications(store, token_nodes.CHANGES, token_nodes.CHANGE_PREFIX)
        self._reader = NotificationReader(
            store, "delegation tokens", [token_nodes.CHANGES], read_all=self._read_all, read_new=self._read_notified
        )

    @property
    def enabled(self) -> bool:
        return self._key is not None

    async def start(self) -> None:
        if self.enabled:
            await self._reader.start(self._load)

    async def stop(self) -> None:
        if self.enabled:
            await self._reader.stop()

    # For logins

    def scram_identity(self, mechanism: str, token_id: str) -> ScramIdentity | None:
        # Imported here: a broker without SASL starts without it.
        from ottla.security.sasl_scram import ScramIdentity
        from ottla.security.scram_credential import ScramCredential

        token = self._tokens.get(token_id)
        if token is None or self._key is None:
            return None
        credential = self._credentials.get((mechanism, token_id))
        if credential is None:
            salt = self._random.bytes(_SALT_BYTES)
            credential = ScramCredential.of_password(mechanism, salt, token_password(self._key, token_id))
            if len(self._credentials) >= _CREDENTIALS_MAX:
                self._credentials.clear()
            self._credentials[mechanism, token_id] = credential
        return ScramIdentity(credential, token.owner, token.expires_at_ms, by_token=True)

    # For requests

    async def create(
        self, owner: Principal, requester: Principal, renewers: Iterable[Principal], max_lifetime_ms: int
    ) -> tuple[DelegationToken, bytes]:
        """The token and its HMAC."""
        key = self._enabled_key()
        token_id = uuid_text(self._random.bytes(16))
        token = delegation_token.new_token(
            token_id, owner, requester, renewers, max_lifetime_ms, self._lifetimes, self._clock.now_ms()
        )
        await self._write(Create(token_nodes.token_path(token_id), token_nodes.encode_token(token)), token)
        return token, token_hmac(key, token_id)

    async def renew(self, hmac_: bytes, by: Principal, period_ms: int) -> DelegationToken:
        token = self._find(hmac_)
        after = delegation_token.renewed(token, by, period_ms, self._lifetimes, self._clock.now_ms())
        await self._write(SetData(token_nodes.token_path(token.id), token_nodes.encode_token(after)), after)
        return after

    async def expire(self, hmac_: bytes, by: Principal, period_ms: int) -> tuple[DelegationToken, int]:
        """The token, and when it expires: it may be removed by now."""
        token, now_ms = self._find(hmac_), self._clock.now_ms()
        after = delegation_token.expired(token, by, period_ms, now_ms)
        if after is None:
            await self._remove(token)
            return token, now_ms
        await self._write(SetData(token_nodes.token_path(token.id), token_nodes.encode_token(after)), after)
        return after, after.expires_at_ms

    def describe(self, owners: list[Principal] | None) -> list[tuple[DelegationToken, bytes]]:
        """The tokens that one of `owners` owns or may renew, with their HMACs; None: all tokens."""
        key = self._enabled_key()
        return [
            (token, token_hmac(key, token.id))
            for token in self._tokens.values()
            if owners is None or any(token.belongs_to(owner) for owner in owners)
        ]

    async def remove_expired(self) -> None:
        """Periodically, on every broker: whoever comes first removes a token."""
        now_ms = self._clock.now_ms()
        for token in [token for token in self._tokens.values() if token.is_expired(now_ms)]:
            logger.info("Delegation token %s of %s has expired", token.id, token.owner)
            await self._remove(token)

    def _enabled_key(self) -> bytes:
        if self._key is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, "delegation.token.secret.key is not set")
        return self._key

    def _find(self, hmac_: bytes) -> DelegationToken:
        self._enabled_key()
        token_id = self._ids.get(hmac_)
        if token_id is None or not hmac.compare_digest(hmac_, token_hmac(self._enabled_key(), token_id)):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "there is no such token")
        return self._tokens[token_id]

    async def _write(self, change: Change, token: DelegationToken) -> None:
        try:
            await self._store.multi([change, _notification(token.id)])
        except NoNode as error:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "there is no such token") from error
        except StoreError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the token could not be written") from error
        self._keep(token)

    async def _remove(self, token: DelegationToken) -> None:
        try:
            await self._store.multi([Delete(token_nodes.token_path(token.id)), _notification(token.id)])
        except (NoNode, BadVersion):
            pass  # another broker was faster
        self._forget(token.id)

    # This broker's copy

    async def _load(self) -> None:
        for path in token_nodes.PATHS:
            if await self._store.get(path) is None:
                try:
                    await self._store.multi([Create(path)])
                except NodeExists:
                    continue
        await self._read_all()

    async def _read_all(self) -> None:
        await self._notifications.skip()
        ids = await self._store.children(token_nodes.TOKENS)
        for gone in self._tokens.keys() - set(ids):
            self._forget(gone)
        await each(ids, self._read)

    async def _read_notified(self) -> None:
        names, fresh = await self._notifications.read()
        if fresh:
            nodes = await each([f"{token_nodes.CHANGES}/{name}" for name in fresh], self._store.get)
            await each({node.data.decode(errors="replace") for node in nodes if node is not None}, self._read)
            self._notifications.seen(fresh[-1])
        if len(names) > 2 * _NOTIFICATIONS_KEPT:
            await each(names[:-_NOTIFICATIONS_KEPT], self._remove_notification)

    async def _remove_notification(self, name: str) -> None:
        try:
            await self._store.multi([Delete(f"{token_nodes.CHANGES}/{name}")])
        except NoNode:
            return

    async def _read(self, token_id: str) -> None:
        if not token_id or "/" in token_id:
            return
        path = token_nodes.token_path(token_id)
        node = await self._store.get(path)
        if node is None:
            self._forget(token_id)
            return
        try:
            token = token_nodes.decode_token(path, node.data)
        except StoreError as error:
            logger.error("%s; ignoring it", error)
            self._forget(token_id)
            return
        if token.id == token_id:
            self._keep(token)

    def _keep(self, token: DelegationToken) -> None:
        self._tokens[token.id] = token
        self._ids[token_hmac(self._enabled_key(), token.id)] = token.id

    def _forget(self, token_id: str) -> None:
        if self._tokens.pop(token_id, None) is not None:
            self._ids.pop(token_hmac(self._enabled_key(), token_id), None)
            for key in [key for key in self._credentials if key[1] == token_id]:
                del self._credentials[key]


def _notification(token_id: str) -> Create:
    return Create(f"{token_nodes.CHANGES}/{token_nodes.CHANGE_PREFIX}", token_id.encode(), sequential=True)
