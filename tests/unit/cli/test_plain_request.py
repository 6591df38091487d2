from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from ottla.cli import plain_request
from ottla.cli.connection import Connection
from ottla.cli.failure import Failure
from ottla.errors import error_name
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.kit.scripted_broker import ScriptedBroker


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    broker = ScriptedBroker()
    broker.script["heartbeat"] = [HeartbeatResponse()]
    yield broker
    broker.close()


@pytest.fixture
def hangs() -> Iterator[int]:
    """The port of a broker that accepts connections and does not answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def ask(servers: str, timeout_s: float = 30.0, address: tuple[str, int] | None = None) -> HeartbeatResponse:
    request = HeartbeatRequest()
    return plain_request.call(
        Connection(servers), "heartbeat", 1, request, HeartbeatResponse, address=address, timeout_s=timeout_s
    )


def test_a_broker_that_hangs_leaves_time_to_ask_the_others(broker: ScriptedBroker, hangs: int) -> None:
    servers = f"127.0.0.1:{hangs},127.0.0.1:{hangs},127.0.0.1:{broker.port}"
    assert ask(servers, timeout_s=1.0) == HeartbeatResponse()


def test_a_broker_that_is_named_is_the_one_that_is_asked(broker: ScriptedBroker, hangs: int) -> None:
    assert ask(f"127.0.0.1:{hangs}", address=("127.0.0.1", broker.port)) == HeartbeatResponse()


def test_when_all_hang_it_is_said_who_was_asked(hangs: int) -> None:
    with pytest.raises(Failure, match=f"127.0.0.1:{hangs} does not answer heartbeat"):
        ask(f"127.0.0.1:{hangs}", timeout_s=0.2)


def test_an_error_of_a_newer_broker_is_told_by_its_number() -> None:
    assert error_name(3) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert error_name(9999) == "error 9999"
