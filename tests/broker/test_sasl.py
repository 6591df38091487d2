"""SASL logins on a real socket: the order of requests, failures, and re-authentication (SA01-SA07)."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import logging
import re
import struct
from typing import Any

import pytest

from ottla.client.scram import Scram
from ottla.cluster.client_entities import USER
from ottla.errors import ErrorCode
from ottla.protocol.headers import decode_response, encode_request
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.registry import API_BY_NAME
from ottla.security.scram_credential import ScramCredential
from tests.kit.wait import until_async

USERS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_ada="planted-secret" user_bob="planted-word";'
SASL = {
    "listeners": "IN://127.0.0.1:0",
    "listener_security_protocol_map": "IN:SASL_PLAINTEXT",
    "inter_broker_listener_name": "IN",
    "sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener_name_in_plain_sasl_jaas_config": USERS,
    "connection_failed_authentication_delay_ms": "20",
}
PLAIN_TOKEN = b"\0ada\0planted-secret"


class Speaker:
    """Sends requests, one at a time, and decodes the responses."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw
        self._count = 0

    async def call(self, name: str, version: int, request: object) -> Any:
        self.send(name, version, request)
        return self.decode(name, version, await asyncio.wait_for(self.raw.frame(), 30))

    def send(self, name: str, version: int, request: object) -> None:
        self._count += 1
        for part in encode_request(API_BY_NAME[name], version, self._count, "me", request):
            assert isinstance(part, bytes)
            self.raw.send(part)

    def decode(self, name: str, version: int, frame: bytes) -> Any:
        correlation_id, response = decode_response(API_BY_NAME[name], version, memoryview(frame))
        assert correlation_id == self._count
        return response

    async def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> Any:
        return await self.call("sasl_handshake", version, SaslHandshakeRequest(mechanism=mechanism))

    async def authenticate(self, token: bytes, version: int = 2) -> Any:
        return await self.call("sasl_authenticate", version, SaslAuthenticateRequest(auth_bytes=token))

    async def login(self, token: bytes = PLAIN_TOKEN) -> Any:
        assert (await self.handshake()).error_code == 0
        response = await self.authenticate(token)
        assert response.error_code == 0, response.error_message
        return response

    async def is_served(self) -> None:
        response = await self.call("metadata", 9, MetadataRequest(topics=[]))
        assert len(response.brokers) == 1


async def speaker(stage: Any) -> Speaker:
    return Speaker(await stage.raw())


def principal_of(stage: Any) -> list[str]:
    return [str(connection.session.principal) for connection in stage.broker.server._by_use]


async def expired(stage: Any) -> Any:
    """The only connection, once its session has expired."""
    [connection] = stage.broker.server._by_use
    clock = stage.broker.world.clock
    await until_async(lambda: clock.now_ms() > connection.session.expires_at_ms + 1, "the session has expired")
    return connection


# Order of requests


def test_sa01_versions_then_handshake_then_tokens(play: Any) -> None:
    async def case(stage: Any) -> None:
        peer = await speaker(stage)
        versions = await peer.call("api_versions", 3, ApiVersionsRequest(client_software_name="me", client_software_version="1"))
        offered = {each.api_key: (each.min_version, each.max_version) for each in versions.api_keys}
        assert (offered[17], offered[36]) == ((0, 1), (0, 2))
        handshake = await peer.handshake()
        assert handshake.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
        assert principal_of(stage) == ["User:ANONYMOUS"]
        response = await peer.authenticate(PLAIN_TOKEN)
        assert (response.error_code, bytes(response.auth_bytes), response.session_lifetime_ms) == (0, b"", 0)
        assert principal_of(stage) == ["User:ada"]
        await peer.is_served()

    play(case, **SASL)


def test_sa01_an_unsupported_or_invalid_api_versions_may_be_repeated(play: Any) -> None:
    async def case(stage: Any) -> None:
        peer = await speaker(stage)
        peer.raw.send_frame(struct.pack(">hhih", 18, 99, 7, 2) + b"me" + b"\0")
        reply = await peer.raw.frame()
        assert struct.unpack_from(">ih", reply) == (7, ErrorCode.UNSUPPORTED_VERSION)
        assert (
            await peer.call("api_versions", 3, ApiVersionsRequest(client_software_name="not valid!"))
        ).error_code == ErrorCode.INVALID_REQUEST
        assert (await peer.call("api_versions", 0, ApiVersionsRequest())).error_code == 0
        await peer.login()
        await peer.is_served()

    play(case, **SASL)


@pytest.mark.parametrize("name", ["api_versions", "metadata"])
def test_sa01_after_api_versions_only_a_handshake_is_allowed(play: Any, name: str) -> None:
    async def case(stage: Any) -> None:
        peer = await speaker(stage)
        await peer.call("api_versions", 0, ApiVersionsRequest())
        peer.send(name, 0, MetadataRequest(topics=[]) if name == "metadata" else ApiVersionsRequest())
        assert await peer.raw.closed()

    play(case, **SASL)


@pytest.mark.parametrize(
    "frame",
    [
        b"\0",
        struct.pack(">hhih", 3, 0, 1, -1) + b"\0\0\0\0",
        struct.pack(">hhih", 36, 1, 1, -1) + struct.pack(">i", 20) + b"\0ada\0planted-secret",
        struct.pack(">hhih", 17, 5, 1, -1) + b"\0\x05PLAIN",
        struct.pack(">hhih", 17, -1, 1, -1) + b"\0\x05PLAIN",
        struct.pack(">hhih", 17, 1, 1, -1) + b"\x7f\xffPLAIN",
        struct.pack(">hhih", 999, 1, 1, -1),
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x60\x82\x01\x02" + bytes(100),
    ],
)
def test_sa01_anything_else_first_closes_without_an_answer(play: Any, frame: bytes) -> None:
    async def case(stage: Any) -> None:
        peer = await speaker(stage)
        peer.raw.send_frame(frame)
        assert await peer.raw.closed()
        other = await speaker(stage)
        await other.login()

    play(case, **SASL)


def test_sa02_tokens_without_requests_follow_a_handshake_of_version_0(play: Any) -> None:
    async def case(stage: Any) -> None:
        peer = await speaker(stage)
        assert (await peer.handshake(version=0)).error_code == 0
        peer.raw.send_frame(PLAIN_TOKEN)
        assert await peer.raw.frame() == b""
        await peer.is_served()
        # Afterwards an empty frame is malformed again.
        peer.raw.send(b"\0\0\0\0")
        assert await peer.raw.closed()
        wrong = await speaker(stage)
        await wrong.handshake(version=0)
        wrong.raw.send_frame(b"\0ada\0wrong")
        assert await wrong.raw.closed()
        empty = await speaker(stage)
        await empty.handshake(version=0)
        empty.raw.send(b"\0\0\0\0")
        assert await empty.raw.closed()

    play(case, **SASL)


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_sa02_scram_in_every_version(play: Any, mechanism: str, version: int) -> None:
    async def case(stage: Any) -> None:
        credential = ScramCredential.of_password(mechanism, b"salt", "planted-word")
        await stage.broker.controller.config_requests.alter_client(
            ((USER, "carol"),), lambda config: {mechanism: credential.text()}, validate_only=False
        )
        for password, error in (("planted-word", 0), ("wrong", ErrorCode.SASL_AUTHENTICATION_FAILED)):
            peer, client = await speaker(stage), Scram(mechanism, "carol", password, b"n" * 24)
            await peer.handshake(mechanism)
            first = await peer.authenticate(client.first(), version)
            assert first.error_code == 0
            final = await peer.authenticate(client.final(bytes(first.auth_bytes)), version)
            assert final.error_code == error
            if error:
                assert await peer.raw.closed()
            else:
                client.check_last(bytes(final.auth_bytes))
                assert "User:carol" in principal_of(stage)
                await peer.is_served()

    play(case, **SASL)


def test_sa03_a_mechanism_that_is_not_enabled_is_answered_with_the_list_and_closed(play: Any) -> None:
    async def case(stage: Any) -> None:
        for mechanism in ("GSSAPI", "plain", "", "x" * 1000):
            peer = await speaker(stage)
            answer = await peer.handshake(mechanism)
            assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
            assert answer.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
            assert await peer.raw.closed()

    play(case, **SASL)


def test_sa03_another_request_instead_of_a_token_is_answered_in_its_form_and_closed(play: Any) -> None:
    async def case(stage: Any) -> None:
        for name, version, request in (
            ("find_coordinator", 1, FindCoordinatorRequest(key="g")),
            ("api_versions", 3, ApiVersionsRequest(client_software_name="me", client_software_version="1")),
            ("sasl_handshake", 1, SaslHandshakeRequest(mechanism="PLAIN")),
        ):
            peer = await speaker(stage)
            await peer.handshake()
            assert (await peer.call(name, version, request)).error_code == ErrorCode.ILLEGAL_SASL_STATE
            assert await peer.raw.closed()

    play(case, **SASL)


def test_sa03_sasl_requests_after_the_login_are_answered_and_the_connection_stays(play: Any) -> None:
    async def case(stage: Any) -> None:
        peer = await speaker(stage)
        await peer.login()
        assert (await peer.authenticate(PLAIN_TOKEN)).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await peer.handshake()).error_code == ErrorCode.ILLEGAL_SASL_STATE
        await peer.is_served()

    play(case, **SASL)


def test_sa03_without_sasl_the_same_requests_are_answered_alike(play: Any) -> None:
    async def case(stage: Any) -> None:
        peer = await speaker(stage)
        assert (await peer.handshake()).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await peer.authenticate(PLAIN_TOKEN)).error_code == ErrorCode.ILLEGAL_SASL_STATE
        await peer.is_served()

    play(case)


# Failures


def test_sa04_a_failure_is_answered_late_and_closes(play: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def case(stage: Any) -> None:
        wrong, right = await speaker(stage), await speaker(stage)
        await wrong.handshake()
        wrong.send("sasl_authenticate", 2, SaslAuthenticateRequest(auth_bytes=b"\0ada\0planted-wrong"))
        # What comes behind the failure is not read.
        wrong.send("metadata", 9, MetadataRequest(topics=[]))
        # The delay is an hour: others log in meanwhile.
        await right.login()
        await right.is_served()
        [held] = [each for each in stage.broker.server._by_use if each.session.principal.name == "ANONYMOUS"]
        assert held._refusal is not None
        assert held._refusal.when() - asyncio.get_running_loop().time() > 3000
        wrong.raw.close()

    play(case, **SASL | {"connection_failed_authentication_delay_ms": "3600000"})
    assert "planted" not in caplog.text


def test_sa04_wrong_user_and_wrong_password_get_the_same_answer(play: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def case(stage: Any) -> None:
        answers = []
        for token in (b"\0ada\0planted-wrong", b"\0nobody\0planted-secret"):
            peer = await speaker(stage)
            await peer.handshake()
            peer.send("sasl_authenticate", 1, SaslAuthenticateRequest(auth_bytes=token))
            answers.append(await peer.raw.frame())
            assert peer.decode("sasl_authenticate", 1, answers[-1]).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert await peer.raw.closed()
        assert answers[0] == answers[1]
        assert stage.counters.get("logins_failed") == 2

    with caplog.at_level(logging.DEBUG):
        play(case, **SASL)
    told = r"Failed authentication: 127.0.0.1:\d+ .*on IN: PLAIN: user 'ada' is unknown or the password is wrong"
    assert re.search(told, caplog.text)
    assert "planted" not in caplog.text


def test_sa04_a_frame_above_the_receive_size_closes_until_the_login_is_complete(play: Any) -> None:
    async def case(stage: Any) -> None:
        peer = await speaker(stage)
        peer.raw.send(struct.pack(">i", 1025))
        assert await peer.raw.closed()
        peer = await speaker(stage)
        await peer.login()
        # Afterwards requests may be larger.
        topics = [MetadataRequestTopic(name=f"{number}" * 200) for number in range(10)]
        peer.send("metadata", 0, MetadataRequest(topics=topics))
        assert len(await peer.raw.frame()) > 2000

    play(case, **SASL | {"sasl_server_max_receive_size": "1024", "auto_create_topics_enable": "false"})


def test_sa04_a_client_that_leaves_during_the_delay_leaves_nothing(play: Any) -> None:
    async def case(stage: Any) -> None:
        peer = await speaker(stage)
        await peer.handshake()
        peer.send("sasl_authenticate", 2, SaslAuthenticateRequest(auth_bytes=b"\0ada\0wrong"))
        peer.raw.close()
        await until_async(lambda: not len(stage.broker.server), "the connection is gone")

    play(case, **SASL)


# Sessions with a lifetime

SHORT = SASL | {"listener_name_in_plain_connections_max_reauth_ms": "3600000"}


def test_sa05_the_lifetime_is_told_and_is_that_of_the_mechanism(play: Any) -> None:
    async def case(stage: Any) -> None:
        peer = await speaker(stage)
        assert (await peer.login()).session_lifetime_ms == 3_600_000
        await peer.is_served()
        peer = await speaker(stage)
        await peer.handshake()
        assert (await peer.authenticate(PLAIN_TOKEN, version=0)).session_lifetime_ms == 0

    play(case, **SHORT | {"connections_max_reauth_ms": "1000"})


def test_sa05_a_request_after_the_expiry_closes(play: Any) -> None:
    async def case(stage: Any) -> None:
        peer = await speaker(stage)
        lifetime_ms = (await peer.login()).session_lifetime_ms
        assert lifetime_ms == 50
        connection = await expired(stage)
        assert connection.transport is not None
        assert not connection.transport.is_closing(), "there is no timer"
        peer.send("metadata", 9, MetadataRequest(topics=[]))
        assert await peer.raw.closed()

    play(case, **SASL | {"connections_max_reauth_ms": "50"})


def test_sa05_an_expired_session_can_be_renewed(play: Any) -> None:
    async def case(stage: Any) -> None:
        peer = await speaker(stage)
        await peer.login()
        await expired(stage)
        await peer.login()

    play(case, **SASL | {"connections_max_reauth_ms": "50"})


def test_sa06_reauthentication_keeps_the_connection_in_order(play: Any) -> None:
    async def case(stage: Any) -> None:
        peer = await speaker(stage)
        await peer.login()
        await peer.is_served()
        # A request, and behind it the handshake: the answers come in order.
        peer.send("metadata", 9, MetadataRequest(topics=[]))
        first = peer._count
        peer.send("sasl_handshake", 1, SaslHandshakeRequest(mechanism="PLAIN"))
        assert struct.unpack_from(">i", await peer.raw.frame())[0] == first
        assert peer.decode("sasl_handshake", 1, await peer.raw.frame()).error_code == 0
        assert (await peer.authenticate(PLAIN_TOKEN)).session_lifetime_ms == 3_600_000
        await peer.is_served()

    play(case, **SHORT)


def test_sa06_at_most_once_a_second(play: Any) -> None:
    async def case(stage: Any) -> None:
        peer = await speaker(stage)
        await peer.login()
        await peer.login()
        assert (await peer.handshake()).error_code == ErrorCode.ILLEGAL_SASL_STATE
        await peer.is_served()

    play(case, **SHORT)


def test_sa06_the_principal_and_the_mechanism_stay(play: Any) -> None:
    async def case(stage: Any) -> None:
        peer = await speaker(stage)
        await peer.login()
        await peer.handshake()
        answer = await peer.authenticate(b"\0bob\0planted-word")
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await peer.raw.closed()
        peer = await speaker(stage)
        await peer.login()
        assert (await peer.handshake("SCRAM-SHA-256")).error_code == 0
        peer.send("sasl_authenticate", 2, SaslAuthenticateRequest(auth_bytes=b"n,,n=ada,r=x"))
        assert await peer.raw.closed()

    play(case, **SHORT)


def test_sa06_no_other_request_during_reauthentication(play: Any) -> None:
    async def case(stage: Any) -> None:
        peer = await speaker(stage)
        await peer.login()
        await peer.handshake()
        answer = await peer.call("api_versions", 0, ApiVersionsRequest())
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await peer.raw.closed()

    play(case, **SHORT)


def test_cv07_a_replayed_scram_login_fails(play: Any) -> None:
    """The dialogue of a login that was overheard, byte by byte, on another connection."""

    async def case(stage: Any) -> None:
        credential = ScramCredential.of_password("SCRAM-SHA-256", b"salt", "planted-word")
        await stage.broker.controller.config_requests.alter_client(
            ((USER, "carol"),), lambda config: {"SCRAM-SHA-256": credential.text()}, validate_only=False
        )
        client = Scram("SCRAM-SHA-256", "carol", "planted-word", b"n" * 24)
        peer = await speaker(stage)
        await peer.handshake("SCRAM-SHA-256")
        said = [client.first()]
        said.append(client.final(bytes((await peer.authenticate(said[0])).auth_bytes)))
        assert (await peer.authenticate(said[1])).error_code == 0
        replay = await speaker(stage)
        await replay.handshake("SCRAM-SHA-256")
        assert (await replay.authenticate(said[0])).error_code == 0
        assert (await replay.authenticate(said[1])).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED

    play(case, **SASL)


def test_sc02_an_unknown_user_gets_the_same_salt_after_a_restart_and_fails_at_the_end(play: Any) -> None:
    salts = []

    async def case(stage: Any) -> None:
        peer, client = await speaker(stage), Scram("SCRAM-SHA-256", "nobody", "x", b"n" * 24)
        await peer.handshake("SCRAM-SHA-256")
        first = bytes((await peer.authenticate(client.first())).auth_bytes)
        salts.append(dict(field.split(b"=", 1) for field in first.split(b","))[b"s"])
        assert (await peer.authenticate(client.final(first))).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await peer.raw.closed()

    play(case, **SASL)
    play(case, **SASL)
    assert salts[0] == salts[1]
    # Nobody can compute it without the secret of the cluster.
    assert base64.b64decode(salts[0]) != hmac.digest(b"", b"nobody", hashlib.sha512)


# Many clients that do not log in


def test_sa04_clients_that_do_not_log_in_leave_their_places_to_others(play: Any) -> None:
    async def case(stage: Any) -> None:
        server = stage.broker.server
        early = await speaker(stage)
        await early.login()
        for number in range(19):
            peer = await speaker(stage)
            # Nothing, half a frame, or half a login.
            peer.raw.send([b"", b"\0\0\1\0\0", b"\0\0"][number % 3])
        await until_async(lambda: len(server) == 20)
        late = await speaker(stage)
        late.send("sasl_handshake", 1, SaslHandshakeRequest(mechanism="PLAIN"))
        await until_async(lambda: server._waiting)
        server.sweep_idle()
        assert len(server) == 20, "they have some time"
        for connection in server._by_use:
            if connection.login_since:
                connection.login_since -= 11
        server.sweep_idle()
        assert late.decode("sasl_handshake", 1, await asyncio.wait_for(late.raw.frame(), 30)).error_code == 0
        assert (await late.authenticate(PLAIN_TOKEN)).error_code == 0
        await late.is_served()
        await early.is_served()

    play(case, **SASL | {"max_connections": "20"})


def test_sa04_a_thousand_clients_that_do_not_log_in_hold_up_nobody(play: Any) -> None:
    async def case(stage: Any) -> None:
        for number in range(1000):
            raw = await stage.raw()
            raw.send([b"", struct.pack(">i", 524288) + b"x", b"\0\0\0", struct.pack(">ihhih", 10, 18, 0, 1, -1)][number % 4])
        await until_async(lambda: len(stage.broker.server) == 1000)
        await until_async(lambda: stage.broker.server.memory.held_bytes > 0)
        assert stage.broker.server.memory.held_bytes < 64 << 20
        peer = await speaker(stage)
        await peer.login()
        await peer.is_served()

    play(case, **SASL)


HOSTILE = {
    "length -1": b"\xff\xff\xff\xff",
    "length 2^31-1": b"\x7f\xff\xff\xff",
    "http": b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    "a TLS hello": bytes.fromhex("16030100c8010000c40303") + bytes(32),
    "unknown api": struct.pack(">ihhih", 10, 999, 0, 1, -1),
    "negative version": struct.pack(">ihhih", 10, 36, -1, 1, -1),
    "client id past the end": struct.pack(">ihhih", 10, 36, 1, 1, 30000),
    "bytes past the end": struct.pack(">ihhihi", 14, 36, 1, 1, -1, 2**31 - 1),
    "negative bytes": struct.pack(">ihhihi", 14, 36, 1, 1, -1, -5),
    "overlong varint": struct.pack(">ihhih", 17, 36, 2, 1, -1) + b"\0" + b"\xff" * 6,
    "array of 2^31-1": struct.pack(">ihhihi", 14, 3, 1, 1, -1, 2**31 - 1),
}


@pytest.mark.parametrize("state", ["before", "handshake", "during", "after"])
@pytest.mark.parametrize("what", HOSTILE)
def test_sa01_malformed_input_closes_its_own_connection_only(play: Any, what: str, state: str) -> None:
    async def case(stage: Any) -> None:
        other, peer = await speaker(stage), await speaker(stage)
        await other.login()
        if state == "handshake":
            await peer.call("api_versions", 0, ApiVersionsRequest())
        elif state == "during":
            await peer.handshake("SCRAM-SHA-256")
            await peer.authenticate(b"n,,n=ada,r=x")
        elif state == "after":
            await peer.login()
        peer.raw.send(HOSTILE[what])
        assert await peer.raw.closed()
        await other.is_served()

    play(case, **SASL)
