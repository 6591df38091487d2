"""OAUTHBEARER on a real socket, and where the keys of its tokens come from (OA02-OA05)."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.network.jwks import IssuerKeys
from ottla.broker.startup_error import StartupError
from ottla.cluster.settings.sasl import OAuthSettings
from ottla.errors import ErrorCode
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.security.jwt import BadToken, TokenRules, UnknownKey
from tests.broker.test_sasl import SASL, Speaker, principal_of, speaker
from tests.kit.tokens import Issuer, unsecured
from tests.kit.wait import until_async

UNSECURED = "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
OAUTH = SASL | {"sasl_enabled_mechanisms": "OAUTHBEARER"}


def message(token: str) -> bytes:
    return f"n,,\x01auth=Bearer {token}\x01\x01".encode()


async def login(stage: Any, token: str) -> tuple[Speaker, Any]:
    peer = await speaker(stage)
    await peer.handshake("OAUTHBEARER")
    return peer, await peer.authenticate(message(token))


async def is_refused(stage: Any, token: str) -> None:
    peer, answer = await login(stage, token)
    assert (answer.error_code, bytes(answer.auth_bytes)) == (0, b'{"status":"invalid_token"}')
    assert "ANONYMOUS" in "".join(principal_of(stage))
    failure = await peer.authenticate(b"\x01")
    assert (failure.error_code, failure.error_message) == (
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        '{"status":"invalid_token"}',
    )
    assert await peer.raw.closed()


def test_oa02_oa03_tokens_of_the_issuer_are_accepted_and_others_refused(
    play: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    issuer = Issuer()
    path = tmp_path / "keys.json"
    path.write_bytes(issuer.jwks())
    tokens = [issuer.token(), issuer.token(exp=1), unsecured(), Issuer("ES256").token()]

    async def case(stage: Any) -> None:
        peer, answer = await login(stage, tokens[0])
        assert (answer.error_code, bytes(answer.auth_bytes)) == (0, b"")
        assert 3_590_000 < answer.session_lifetime_ms <= 3_600_000
        assert principal_of(stage) == ["User:ada"]
        await peer.is_served()
        for token in tokens[1:]:
            await is_refused(stage, token)

    url = f"file://{path}"
    with caplog.at_level(logging.DEBUG):
        play(case, **OAUTH | {"sasl_oauthbearer_jwks_endpoint_url": url, "sasl_oauthbearer_allowed_urls": url})
    assert not any(token.rpartition(".")[0] in caplog.text for token in tokens)
    assert re.search(r"Failed authentication: 127.0.0.1:\d+ .*on IN: OAUTHBEARER: the token has expired", caplog.text)


def test_oa03_the_session_ends_with_the_token(play: Any, tmp_path: Path) -> None:
    issuer = Issuer()
    path = tmp_path / "keys.json"
    path.write_bytes(issuer.jwks())

    async def case(stage: Any) -> None:
        peer, answer = await login(stage, issuer.token(exp=int(time.time()) - 5, iat=1))
        assert (answer.error_code, answer.session_lifetime_ms) == (0, 0), "accepted because clocks may differ"
        peer.send("sasl_authenticate", 2, SaslAuthenticateRequest(auth_bytes=b""))
        assert await peer.raw.closed()

    url = f"file://{path}"
    play(case, **OAUTH | {"sasl_oauthbearer_jwks_endpoint_url": url, "sasl_oauthbearer_allowed_urls": url})


def test_oa05_cv01_without_keys_every_token_is_refused(play: Any) -> None:
    async def case(stage: Any) -> None:
        await is_refused(stage, unsecured())
        await is_refused(stage, Issuer().token())

    play(case, **OAUTH)


def test_oa05_unsecured_tokens_by_an_explicit_setting(play: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def case(stage: Any) -> None:
        _, answer = await login(stage, unsecured(sub="bob"))
        assert answer.error_code == 0
        assert principal_of(stage) == ["User:bob"]
        await is_refused(stage, Issuer().token())

    play(case, **OAUTH | {"listener_name_in_oauthbearer_sasl_server_callback_handler_class": UNSECURED})
    assert "without a signature, which anybody can make" in caplog.text


def test_oa04_a_broker_without_its_keys_does_not_start(play: Any, tmp_path: Path) -> None:
    async def case(stage: Any) -> None:
        raise AssertionError

    url = f"file://{tmp_path}/nothing.json"
    with pytest.raises(StartupError, match=r"cannot read the keys at file:.*sasl\.oauthbearer\.jwks\.endpoint\.url"):
        play(case, **OAUTH | {"sasl_oauthbearer_jwks_endpoint_url": url, "sasl_oauthbearer_allowed_urls": url})


# When keys are read


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def now_ms(self) -> int:
        return int(time.time() * 1000)

    def monotonic(self) -> float:
        return self.now


class Here:
    """Workers that work at once."""

    async def run(self, work: Any) -> Any:
        return work()

    def let_others_run(self) -> None: ...


class Source:
    def __init__(self, document: bytes) -> None:
        self.document = document
        self.reads = 0
        self.failures = 0

    def read(self, url: str, timeout_s: float) -> bytes:
        self.reads += 1
        if self.failures:
            self.failures -= 1
            raise OSError("no network")
        return self.document


def keys_of(source: Source, clock: Clock, refresh_ms: int = 3_600_000) -> IssuerKeys:
    settings = OAuthSettings(TokenRules(), "https://issuer", refresh_ms, backoff_ms=1, backoff_ms_max=10)
    return IssuerKeys(settings, Here(), clock, source.read)


def test_oa04_an_unknown_key_is_looked_for_at_most_once_a_minute() -> None:
    async def test() -> None:
        old, new, clock = Issuer(), Issuer(key_id="new"), Clock()
        source = Source(old.jwks())
        keys = keys_of(source, clock)
        await keys.start()
        assert keys.validate(old.token(), clock.now_ms())
        source.document = old.jwks(new)
        with pytest.raises(UnknownKey):
            keys.validate(new.token(), clock.now_ms())
        await until_async(lambda: source.reads == 2)
        assert keys.validate(new.token(), clock.now_ms())
        for number in range(100):
            with pytest.raises(UnknownKey):
                keys.validate(Issuer(key_id=f"x{number}").token(), clock.now_ms())
        await asyncio.sleep(0)
        clock.now += 59
        with pytest.raises(UnknownKey):
            keys.validate(Issuer(key_id="y").token(), clock.now_ms())
        clock.now += 2
        with pytest.raises(UnknownKey):
            keys.validate(Issuer(key_id="z" * 1001).token(), clock.now_ms())
        assert not keys._wanted.is_set()
        with pytest.raises(UnknownKey):
            keys.validate(Issuer(key_id="z").token(), clock.now_ms())
        await until_async(lambda: source.reads == 3)
        await keys.stop()

    asyncio.run(test())


def test_oa04_keys_are_read_again_with_backoff_and_stay_meanwhile(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        issuer, clock = Issuer(), Clock()
        source = Source(issuer.jwks())
        source.failures = 2
        keys = keys_of(source, clock, refresh_ms=5)
        await keys.start()
        assert source.reads == 3
        source.failures = 3
        await until_async(lambda: source.failures == 0 and source.reads > 7)
        assert keys.validate(issuer.token(), clock.now_ms())
        source.document = b"<html>"
        before = source.reads
        await until_async(lambda: source.reads > before + 2)
        assert keys.validate(issuer.token(), clock.now_ms())
        source.document = Issuer(key_id="other").jwks()
        await until_async(lambda: list(keys.keys.keys) == ["other"])
        with pytest.raises(BadToken):
            keys.validate(issuer.token(), clock.now_ms())
        await keys.stop()

    asyncio.run(test())
    assert "keeping those known before and trying again: no network" in caplog.text
