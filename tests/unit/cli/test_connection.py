"""Finding the cluster, and saying quickly that it is not there."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from ottla.cli import connection
from ottla.cli.connection import Connection, read_client_properties, split_servers, unknown_topic
from ottla.cli.failure import Failure
from ottla.cli.options import DEFAULT_BOOTSTRAP_SERVERS, parse_pairs


@pytest.mark.parametrize(
    ("servers", "pairs"),
    [
        ("a:1", [("a", 1)]),
        ("a, b:2 ,", [("a", 9092), ("b", 2)]),
        ("[::1]:3", [("::1", 3)]),
        ("::1", [("::1", 9092)]),
        ("PLAINTEXT://a:1", [("a", 1)]),
    ],
)
def test_servers_are_split(servers: str, pairs: list[tuple[str, int]]) -> None:
    assert split_servers(servers) == pairs


@pytest.mark.parametrize("servers", ["", ",", "a:b", ":1", "a:70000"])
def test_bad_servers_are_told(servers: str) -> None:
    with pytest.raises(Failure) as caught:
        split_servers(servers)
    assert caught.value.exit_code == 2


def test_nobody_there_is_told_at_once() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused, and nobody else can take it
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(Failure, match=f"no broker answers at {address}") as caught:
            Connection(address).reach()
    assert "ottla serve" in str(caught.value.hint)


def test_servers_of_the_property_file_count_unless_others_are_named(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=elsewhere:1\nkey.serializer=x\nsasl.mechanism=PLAIN\n")
    assert Connection(DEFAULT_BOOTSTRAP_SERVERS, file).bootstrap_servers == "elsewhere:1"
    assert Connection("here:1", file).bootstrap_servers == "here:1"
    assert Connection("here:1", file, {"bootstrap.servers": "there:1"}).bootstrap_servers == "there:1"
    assert read_client_properties(file)["sasl.mechanism"] == "PLAIN"
    assert "key.serializer" not in Connection("here:1", file)._config()


def test_missing_property_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(Failure, match=r"cannot read .*nope: No such file"):
        Connection("here:1", tmp_path / "nope")


def test_a_property_file_that_is_none_is_told(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("client.id=\\u00g1\n")
    with pytest.raises(Failure, match=r"line 1: .u must be followed by four") as caught:
        read_client_properties(file)
    assert caught.value.exit_code == 2


def test_unknown_topic_offers_the_nearest_but_no_internal_one() -> None:
    failure = unknown_topic("order", ["orders", "__order"])
    assert failure.message == "topic order does not exist"
    assert failure.hint == "did you mean orders? create it with `ottla topic create order`"


def test_pairs() -> None:
    assert parse_pairs(["a=b=c", " x = y "], "--set") == {"a": "b=c", "x": "y"}
    with pytest.raises(Failure, match="--set 'a' is not key=value"):
        parse_pairs(["a"], "--set")


@pytest.mark.parametrize("code", ["NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS"])
def test_a_coordinator_that_moves_is_asked_again(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    monkeypatch.setattr(connection, "_MOVING_PAUSE_S", 0.001)
    asked: list[str] = []

    @connection.while_coordinators_move
    def ask(group: str, *, answer: int) -> int:
        asked.append(group)
        if len(asked) < 4:
            raise Failure(f"group {group}: it has just moved", code=code)
        return answer

    assert (ask("g", answer=7), asked) == (7, ["g"] * 4)


def test_it_is_not_asked_for_ever_nor_about_other_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_MOVING_PAUSE_S", 0.001)
    monkeypatch.setattr(connection, "_MOVING_S", 0.05)
    asked: list[str] = []

    @connection.while_coordinators_move
    def ask(code: str) -> None:
        asked.append(code)
        raise Failure("no", code=code)

    for code in ("NOT_COORDINATOR", "GROUP_AUTHORIZATION_FAILED"):
        with pytest.raises(Failure, match="no"):
            ask(code)
    assert asked.count("NOT_COORDINATOR") > 1
    assert asked.count("GROUP_AUTHORIZATION_FAILED") == 1
