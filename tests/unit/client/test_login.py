"""A client's login: mechanisms step by step, the dialogue, and its repetition before the session ends."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ottla.client.channel import Channel, WrongProtocol
from ottla.client.connection import ClientConnection
from ottla.client.login import LoginRefused, OAuthBearer, Plain, dialogue, renewal_s
from ottla.client.options import ClientOptions
from ottla.client.scram import Scram
from ottla.client.security import ClientSecurity
from ottla.errors import ErrorCode
from ottla.metrics import Counters
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from ottla.protocol.messages.sasl_handshake import SaslHandshakeResponse
from ottla.protocol.registry import API_BY_NAME
from ottla.runtime.network import RealNetwork
from tests.kit.scripted_broker import ScriptedBroker
from tests.kit.wait import until

SECURITY = ClientSecurity("SASL_PLAINTEXT", "PLAIN", "alice", "secret")
TIMEOUT_S = 20.0


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    broker = ScriptedBroker()
    broker.script["sasl_handshake"] = [SaslHandshakeResponse(mechanisms=["PLAIN"])]
    broker.script["sasl_authenticate"] = [SaslAuthenticateResponse()]
    yield broker
    broker.close()


def test_plain_is_one_token() -> None:
    plain = Plain("alice", "secret")
    assert (plain.step(b""), plain.step(b"")) == (b"\0alice\0secret", None)


def test_a_delegation_token_is_marked_in_the_first_message() -> None:
    first = Scram("SCRAM-SHA-256", "id", "hmac", b"nonce", by_token=True).step(b"")
    assert first == b"n,,n=id,r=bm9uY2U=,tokenauth=true"


def test_oauthbearer_ends_a_refused_login_as_the_rfc_says() -> None:
    bearer = OAuthBearer("a.b.c", (("team", "blue"),))
    assert bearer.step(b"") == b"n,,\x01auth=Bearer a.b.c\x01team=blue\x01\x01"
    assert bearer.step(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(LoginRefused, match="invalid_token"):
        bearer.step(b"")
    accepted = OAuthBearer("a.b.c")
    accepted.step(b"")
    assert accepted.step(b"") is None


def test_a_mechanism_that_is_not_offered_names_those_that_are() -> None:
    steps = dialogue("PLAIN", Plain("a", "b"), 2)
    next(steps)
    with pytest.raises(LoginRefused, match=r"offers SCRAM-SHA-256, OAUTHBEARER, not PLAIN") as refused:
        steps.send(SaslHandshakeResponse(error_code=33, mechanisms=["SCRAM-SHA-256", "OAUTHBEARER"]))
    assert refused.value.code == ErrorCode.UNSUPPORTED_SASL_MECHANISM


def test_a_session_is_renewed_within_its_last_tenth() -> None:
    assert renewal_s(10_000, 0.0) == 8.5
    assert 8.5 < renewal_s(10_000, 0.999) < 9.5


def test_the_blocking_client_logs_in_again_before_its_session_ends(broker: ScriptedBroker) -> None:
    broker.script["sasl_authenticate"] = [SaslAuthenticateResponse(session_lifetime_ms=1), SaslAuthenticateResponse()]
    channel = Channel("127.0.0.1", broker.port, ClientOptions((), security=SECURITY), TIMEOUT_S)
    until(lambda: channel.exchange(API_BY_NAME["metadata"], 1, MetadataRequest(), TIMEOUT_S) and len(broker.names()) > 4)
    channel.close()
    logins = ["sasl_handshake", "sasl_authenticate"]
    asked = broker.names()
    second = asked.index("sasl_handshake", 2)
    assert asked[:2] == asked[second : second + 2] == logins
    assert asked.count("sasl_handshake") == 2


def test_calls_wait_for_the_next_login_and_keep_their_order(broker: ScriptedBroker) -> None:
    broker.script["sasl_authenticate"] = [SaslAuthenticateResponse(session_lifetime_ms=1), SaslAuthenticateResponse()]

    async def play() -> None:
        connection = await ClientConnection.open(RealNetwork(Counters()), "127.0.0.1", broker.port, security=SECURITY)
        connection._renew_at = 0.0
        calls = [connection.call("metadata", version, MetadataRequest()) for version in (1, 2, 3)]
        await asyncio.gather(*calls)
        assert await connection.call("metadata", 4, MetadataRequest())
        connection.close()
        await connection.wait_closed()

    asyncio.run(play())
    asked = [(name, version) for name, version, _ in broker.asked if name != "api_versions"]
    assert asked == [
        ("sasl_handshake", 1), ("sasl_authenticate", 2),
        ("sasl_handshake", 1), ("sasl_authenticate", 2),
        ("metadata", 1), ("metadata", 2), ("metadata", 3), ("metadata", 4),
    ]  # fmt: skip


def test_a_refused_renewal_closes_the_connection(broker: ScriptedBroker) -> None:
    broker.script["sasl_authenticate"] = [
        SaslAuthenticateResponse(session_lifetime_ms=1),
        SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message="no more"),
    ]

    async def play() -> None:
        connection = await ClientConnection.open(RealNetwork(Counters()), "127.0.0.1", broker.port, security=SECURITY)
        connection._renew_at = 0.0
        with pytest.raises(ConnectionError, match="no more"):
            await connection.call("metadata", 1, MetadataRequest())
        assert connection.closed
        await connection.wait_closed()

    asyncio.run(play())
    assert "metadata" not in broker.names()


def test_a_refused_login_closes_the_connection(broker: ScriptedBroker) -> None:
    refusal = SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message="wrong")
    broker.script["sasl_authenticate"] = [refusal]

    async def play() -> None:
        with pytest.raises(LoginRefused, match="wrong"):
            await ClientConnection.open(RealNetwork(Counters()), "127.0.0.1", broker.port, security=SECURITY)

    asyncio.run(play())


@pytest.mark.parametrize(("answer", "said"), [(b"HTTP/1.1 400 Bad Request\r\n", "does not speak TLS"), (b"", "ended the TLS")])
def test_tls_to_a_port_without_it_says_so(answer: bytes, said: str) -> None:
    with port_that_answers(answer) as port, pytest.raises(OSError, match=said):
        Channel("127.0.0.1", port, ClientOptions((), security=ClientSecurity("SSL")), TIMEOUT_S)


def test_no_tls_to_a_port_with_it_says_so() -> None:
    alert = bytes.fromhex("15030300020250")
    with port_that_answers(alert) as port, pytest.raises(WrongProtocol, match="this port speaks TLS"):
        Channel("127.0.0.1", port, ClientOptions(()), TIMEOUT_S)


@contextmanager
def port_that_answers(answer: bytes) -> Iterator[int]:
    """To the first bytes of one client, and then closes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()
