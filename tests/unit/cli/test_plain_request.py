from __future__ import annotations

import socket
import struct
from typing import Any

import pytest

from ottla.cli import plain_request
from ottla.cli.connection import Connection
from ottla.cli.failure import Failure
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

ANSWER = struct.pack(">iiih", 10, 1, 0, 0)


class _Channel:
    """A connection to a broker that hangs, or answers."""

    def __init__(self, answer: bytes, timeouts: list[float]) -> None:
        self._answer = answer
        self._timeouts = timeouts

    def __enter__(self) -> _Channel:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def close(self) -> None:
        pass

    def settimeout(self, seconds: float) -> None:
        self._timeouts.append(seconds)

    def sendall(self, frame: bytes) -> None:
        pass

    def recv(self, count: int) -> bytes:
        if not self._answer:
            raise TimeoutError
        data, self._answer = self._answer[:count], self._answer[count:]
        return data


def _ask(monkeypatch: pytest.MonkeyPatch, answers: dict[str, bytes], **options: Any) -> tuple[HeartbeatResponse, list[float]]:
    timeouts: list[float] = []
    monkeypatch.setattr(socket, "create_connection", lambda address, _timeout: _Channel(answers[address[0]], timeouts))
    connection = Connection(",".join(f"{host}:1" for host in answers))
    return plain_request.call(connection, "heartbeat", 1, HeartbeatRequest(), HeartbeatResponse, **options), timeouts


def test_a_broker_that_hangs_leaves_time_to_ask_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    answer, timeouts = _ask(monkeypatch, {"hangs": b"", "hangs-too": b"", "answers": ANSWER}, timeout_s=30.0)
    assert answer == HeartbeatResponse()
    assert timeouts == [10.0, 10.0, 10.0]


def test_one_alone_has_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _ask(monkeypatch, {"answers": ANSWER}, timeout_s=30.0)[1] == [30.0]
    assert _ask(monkeypatch, {"hangs": b"", "answers": ANSWER}, address=("answers", 1), timeout_s=7.0)[1] == [7.0]


def test_when_all_hang_it_is_said_who_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Failure, match="hangs:1,hangs-too:1 does not answer heartbeat"):
        _ask(monkeypatch, {"hangs": b"", "hangs-too": b""})


@pytest.mark.parametrize(
    ("api_name", "tool"),
    [("offset_delete", "kafka-consumer-groups"), ("describe_configs", "kafka-configs"), ("metadata", "kafka-topics")],
)
def test_where_the_connection_is_encrypted_the_tool_for_it_is_named(api_name: str, tool: str) -> None:
    connection = Connection("nobody:1", properties={"security.protocol": "SSL"})
    with pytest.raises(Failure, match="needs a PLAINTEXT connection, not SSL") as caught:
        plain_request.call(connection, api_name, 1, HeartbeatRequest(), HeartbeatResponse)
    assert tool in str(caught.value.hint)


def test_an_error_of_a_newer_broker_is_told_by_its_number() -> None:
    assert plain_request.error_name(3) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert plain_request.error_name(9999) == "error 9999"
