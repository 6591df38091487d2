"""`ottla quota` on a real broker: quotas set, listed with their entities, explained by precedence, removed (QU01)."""

from __future__ import annotations

import json
import uuid

import pytest

from tests.kit.ottla_command import Ottla


@pytest.fixture
def user() -> str:
    return f"cli-{uuid.uuid4().hex[:8]}"


def test_set_list_describe_remove(ottla: Ottla, user: str) -> None:
    client = f"{user}-c"
    said = ottla.ok("quota", "set", "--user", user, "producer_byte_rate=1000", "request_percentage=12.5")
    assert said == f"user {user}: producer_byte_rate=1000\nuser {user}: request_percentage=12.5\n"
    ottla.ok("quota", "set", "--user", user, "--client-defaults", "consumer_byte_rate=7")
    done = json.loads(ottla.ok("quota", "set", "--client", client, "consumer_byte_rate=9", "producer_byte_rate=9", "--json"))
    assert done == {"entity": {"client-id": client}, "set": {"consumer_byte_rate": 9.0, "producer_byte_rate": 9.0}}
    listed = [each for each in json.loads(ottla.ok("quota", "list", "--json")) if user in str(each)]
    assert listed == [
        {"entity": {"user": user}, "quotas": {"producer_byte_rate": 1000.0, "request_percentage": 12.5}},
        {"entity": {"user": user, "client-id": None}, "quotas": {"consumer_byte_rate": 7.0}},
        {"entity": {"client-id": client}, "quotas": {"consumer_byte_rate": 9.0, "producer_byte_rate": 9.0}},
    ]
    rows = [line.split() for line in ottla.ok("quota", "list").splitlines()]
    assert rows[0] == ["USER", "CLIENT", "IP", "QUOTA", "VALUE"]
    assert [user, "producer_byte_rate", "1000"] in rows
    assert [user, "(default)", "consumer_byte_rate", "7"] in rows
    assert [client, "consumer_byte_rate", "9"] in rows

    described = {
        each["quota"]: each for each in json.loads(ottla.ok("quota", "describe", "--user", user, "--client", client, "--json"))
    }
    assert {quota: each["value"] for quota, each in described.items()} == {
        "producer_byte_rate": 1000.0,
        "consumer_byte_rate": 7.0,
        "request_percentage": 12.5,
        "controller_mutation_rate": None,
    }
    assert described["consumer_byte_rate"]["entity"] == {"user": user, "client-id": None}
    shown = ottla.ok("quota", "describe", "--client", client)
    assert f"client {client}" in shown
    assert "unlimited" in shown

    assert "removed" in ottla.ok("quota", "remove", "--user", user, "request_percentage")
    assert json.loads(ottla.ok("quota", "remove", "--user", user, "--json"))["removed"] == ["producer_byte_rate"]
    ottla.ok("quota", "remove", "--user", user, "--client-defaults")
    ottla.ok("quota", "remove", "--client", client)
    assert user not in ottla.ok("quota", "list", "--json")


def test_addresses(ottla: Ottla) -> None:
    assert ottla.ok("quota", "set", "--ip", "10.77.1.2", "connection_creation_rate=5").startswith("address 10.77.1.2: ")
    shown = ottla.ok("quota", "describe", "--ip", "10.77.1.2")
    assert "connection_creation_rate" in shown
    assert "producer_byte_rate" not in shown
    ottla.ok("quota", "remove", "--ip", "10.77.1.2")


def test_what_is_refused(ottla: Ottla, user: str) -> None:
    for words, said in (
        (("set", "producer_byte_rate=1"), "whose quotas?"),
        (("set", "--user", user, "--user-defaults", "producer_byte_rate=1"), "exclude each other"),
        (("set", "--user", user, "--ip", "10.1.1.1", "producer_byte_rate=1"), "not together with a user"),
        (("set", "--user", "", "producer_byte_rate=1"), "is empty"),
        (("set", "--user", user, "produce_byte_rate=1"), "did you mean producer_byte_rate"),
        (("set", "--user", user, "connection_creation_rate=1"), "not a quota of a user"),
        (("set", "--user", user, "producer_byte_rate=much"), "is not a number"),
        (("set", "--user", user, "producer_byte_rate=1.5"), f"quotas of user {user}: "),
        (("set", "--user", user, "producer_byte_rate=0"), "greater than 0"),
        (("remove", "--user", user), "has no quotas"),
        (("remove", "--user", user, "request_percentage"), "has no quota request_percentage"),
        (("describe",), "name a user"),
        (("describe", "--user", user, "--ip", "10.1.1.1"), "name a user"),
    ):
        result = ottla.run("quota", *words)
        assert result.returncode != 0
        assert said in result.stderr, words
