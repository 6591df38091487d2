"""Delegation tokens on a real socket: the four APIs, and logins with a token (DT01-DT05)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
from typing import Any

import pytest

from ottla.client.scram import Scram
from ottla.cluster import token_nodes
from ottla.errors import ErrorCode
from ottla.ports import Create
from ottla.protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from ottla.protocol.messages.describe_delegation_token import DescribeDelegationTokenOwner, DescribeDelegationTokenRequest
from ottla.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from tests.broker.test_sasl import SASL, Speaker, principal_of, speaker
from tests.kit.wait import until_async

KEY = "planted-key"
TOKENS = SASL | {"delegation_token_secret_key": KEY}
DAY_MS = 86_400_000


async def create(peer: Speaker, *renewers: str, max_lifetime_ms: int = -1, owner: str | None = None, kind: str = "User") -> Any:
    request = CreateDelegationTokenRequest(
        owner_principal_type="User" if owner else None,
        owner_principal_name=owner,
        renewers=[CreatableRenewers(principal_type=kind, principal_name=name) for name in renewers],
        max_lifetime_ms=max_lifetime_ms,
    )
    return await peer.call("create_delegation_token", 3, request)


async def described(peer: Speaker, *owners: str, everybody: bool = False) -> list[str]:
    named = [DescribeDelegationTokenOwner(principal_type="User", principal_name=name) for name in owners]
    request = DescribeDelegationTokenRequest(owners=None if everybody else named)
    response = await peer.call("describe_delegation_token", 3, request)
    assert response.error_code == 0
    return sorted(token.token_id for token in response.tokens)


async def renew(peer: Speaker, token: bytes, period_ms: int = -1) -> Any:
    return await peer.call("renew_delegation_token", 2, RenewDelegationTokenRequest(hmac=token, renew_period_ms=period_ms))


async def expire(peer: Speaker, token: bytes, period_ms: int = -1) -> Any:
    return await peer.call(
        "expire_delegation_token", 2, ExpireDelegationTokenRequest(hmac=token, expiry_time_period_ms=period_ms)
    )


async def logged_in(stage: Any, user: str = "ada", password: str = "planted-secret") -> Speaker:
    peer = await speaker(stage)
    await peer.login(f"\0{user}\0{password}".encode())
    return peer


async def bob(stage: Any) -> Speaker:
    return await logged_in(stage, "bob", "planted-word")


async def token_login(stage: Any, token: Any, mechanism: str = "SCRAM-SHA-256") -> tuple[Speaker, Any]:
    peer = await speaker(stage)
    client = Scram(mechanism, token.token_id, base64.b64encode(bytes(token.hmac)).decode(), b"n" * 24)
    client._first_bare += ",tokenauth=true"
    await peer.handshake(mechanism)
    first = await peer.authenticate(client.first())
    return peer, await peer.authenticate(client.final(bytes(first.auth_bytes)))


def test_dt01_dt02_dt03_a_token_logs_in_as_its_owner(play: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def case(stage: Any) -> None:
        token = await create(await logged_in(stage), "bob")
        assert (token.error_code, token.principal_name, token.token_requester_principal_name) == (0, "ada", "ada")
        assert bytes(token.hmac) == hmac.digest(KEY.encode(), token.token_id.encode(), hashlib.sha512)
        assert token.max_timestamp_ms - token.issue_timestamp_ms == 7 * DAY_MS
        assert token.expiry_timestamp_ms - token.issue_timestamp_ms == DAY_MS
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            peer, answer = await token_login(stage, token, mechanism)
            assert answer.error_code == 0
            assert DAY_MS - 60_000 < answer.session_lifetime_ms <= DAY_MS
            assert principal_of(stage)[-1] == "User:ada"
            await peer.is_served()
            # Not with a token.
            for refused in (await create(peer), await renew(peer, bytes(token.hmac)), await expire(peer, bytes(token.hmac))):
                assert refused.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
            answer = await peer.call("describe_delegation_token", 3, DescribeDelegationTokenRequest(owners=None))
            assert answer.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert base64.b64encode(bytes(token.hmac)).decode() not in caplog.text
        token.hmac = b"x" * 64
        assert (await token_login(stage, token))[1].error_code == ErrorCode.SASL_AUTHENTICATION_FAILED

    with caplog.at_level(logging.DEBUG):
        play(case, **TOKENS)
    assert "planted" not in caplog.text


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_tokens_are_created_and_described_in_every_version(play: Any, version: int) -> None:
    async def case(stage: Any) -> None:
        peer = await speaker(stage)
        await peer.login()
        created = await peer.call("create_delegation_token", version, CreateDelegationTokenRequest(max_lifetime_ms=-1))
        assert (created.error_code, created.principal_name) == (0, "ada")
        told = await peer.call("describe_delegation_token", version, DescribeDelegationTokenRequest(owners=None))
        assert [token.token_id for token in told.tokens] == [created.token_id]
        # Only version 3 names who asked for it.
        assert told.tokens[0].token_requester_principal_name == ("ada" if version == 3 else "")

    play(case, **TOKENS)


def test_dt01_without_a_key_there_are_no_tokens(play: Any) -> None:
    async def case(stage: Any) -> None:
        peer = await logged_in(stage)
        for refused in (await create(peer), await renew(peer, b"x"), await expire(peer, b"x")):
            assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        answer = await peer.call("describe_delegation_token", 3, DescribeDelegationTokenRequest(owners=None))
        assert answer.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED

    play(case, **SASL)


def test_dt02_not_on_plaintext(play: Any) -> None:
    async def case(stage: Any) -> None:
        peer = await speaker(stage)
        for refused in (await create(peer), await renew(peer, b"x"), await expire(peer, b"x")):
            assert refused.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED

    play(case, delegation_token_secret_key=KEY)


def test_dt02_renewers_are_users(play: Any) -> None:
    async def case(stage: Any) -> None:
        refused = await create(await logged_in(stage), "bob", kind="Group")
        assert (refused.error_code, refused.issue_timestamp_ms) == (ErrorCode.INVALID_PRINCIPAL_TYPE, -1)

    play(case, **TOKENS)


ACLS = TOKENS | {"authorizer_class_name": "kafka.security.authorizer.AclAuthorizer", "super_users": "User:bob"}


def test_dt02_dt04_the_tokens_of_others_need_acls(play: Any) -> None:
    async def case(stage: Any) -> None:
        ada, admin = await logged_in(stage), await bob(stage)
        refused = await create(ada, owner="carol")
        assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        token = await create(admin, owner="carol")
        assert (token.error_code, token.principal_name, token.token_requester_principal_name) == (0, "carol", "bob")
        assert await described(ada, everybody=True) == []
        assert await described(admin, everybody=True) == [token.token_id]

    play(case, **ACLS)


def test_dt03_lifetimes(play: Any) -> None:
    async def case(stage: Any) -> None:
        peer = await logged_in(stage)
        short = await create(peer, max_lifetime_ms=1000)
        assert short.max_timestamp_ms == short.expiry_timestamp_ms == short.issue_timestamp_ms + 1000
        long = await create(peer, max_lifetime_ms=100 * DAY_MS)
        assert long.max_timestamp_ms == long.issue_timestamp_ms + 7 * DAY_MS
        hmac_ = bytes(long.hmac)
        assert (await expire(peer, hmac_, 5000)).expiry_timestamp_ms < long.issue_timestamp_ms + 60_000
        assert (await renew(peer, hmac_)).expiry_timestamp_ms >= long.issue_timestamp_ms + DAY_MS
        assert (await renew(peer, hmac_, 100 * DAY_MS)).expiry_timestamp_ms == long.max_timestamp_ms
        assert (await renew(peer, b"unknown")).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        other = await bob(stage)
        assert (await renew(other, hmac_)).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert (await expire(other, hmac_)).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        with_renewer = await create(peer, "bob")
        assert (await renew(other, bytes(with_renewer.hmac))).error_code == 0
        assert (await expire(other, bytes(with_renewer.hmac))).error_code == 0
        assert (await expire(other, bytes(with_renewer.hmac))).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        assert (await token_login(stage, with_renewer))[1].error_code == ErrorCode.SASL_AUTHENTICATION_FAILED

    play(case, **TOKENS)


def test_dt03_an_expired_token_is_refused_and_removed(play: Any) -> None:
    async def case(stage: Any) -> None:
        peer = await logged_in(stage)
        token = await create(peer, max_lifetime_ms=1)
        clock = stage.broker.world.clock
        await until_async(lambda: clock.now_ms() > token.expiry_timestamp_ms)
        assert (await renew(peer, bytes(token.hmac))).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
        assert (await expire(peer, bytes(token.hmac), 5)).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
        assert (await token_login(stage, token))[1].error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        await stage.broker.tokens.remove_expired()
        assert await described(peer, everybody=True) == []
        assert await stage.broker.store.children(token_nodes.TOKENS) == []

    play(case, **TOKENS)


def test_dt04_owners_that_are_asked_for(play: Any) -> None:
    async def case(stage: Any) -> None:
        ada, other = await logged_in(stage), await bob(stage)
        mine, shared, theirs = await create(ada), await create(ada, "bob"), await create(other)
        assert await described(ada) == []
        assert await described(ada, "ada") == sorted([mine.token_id, shared.token_id])
        assert await described(ada, "bob") == sorted([shared.token_id, theirs.token_id])
        assert await described(ada, everybody=True) == sorted([mine.token_id, shared.token_id, theirs.token_id])

    play(case, **TOKENS)


def test_dt05_tokens_are_kafkas_nodes(play: Any) -> None:
    async def case(stage: Any) -> None:
        token = await create(await logged_in(stage), "bob")
        store = stage.broker.store
        node = await store.get(f"/delegation_token/tokens/{token.token_id}")
        assert json.loads(node.data) == {
            "version": 3,
            "owner": "User%3Aada",
            "tokenRequester": "User%3Aada",
            "renewers": ["User%3Abob"],
            "issueTimestamp": token.issue_timestamp_ms,
            "maxTimestamp": token.max_timestamp_ms,
            "expiryTimestamp": token.expiry_timestamp_ms,
            "tokenId": token.token_id,
        }
        assert len(token.token_id) == 22
        (change,) = await store.children("/delegation_token/token_changes")
        assert change.startswith("token_change_0")
        assert (await store.get(f"/delegation_token/token_changes/{change}")).data == token.token_id.encode()
        # A token that another broker made.
        data = json.dumps(json.loads(node.data) | {"tokenId": "other", "version": 1}).encode()
        await store.multi([Create("/delegation_token/tokens/other", data), Create("/delegation_token/tokens/odd", b"?")])
        changes = [Create("/delegation_token/token_changes/token_change_", each, sequential=True) for each in (b"other", b"odd")]
        await store.multi(changes)
        await until_async(lambda: stage.broker.tokens.scram_identity("SCRAM-SHA-256", "other") is not None)

    play(case, **TOKENS)
