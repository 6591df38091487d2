"""The rules of KIP-714 for clients that ask for subscriptions and push."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.broker.telemetry import instances
from ottla.broker.telemetry.instances import Client, ClientInstances, Configs
from ottla.errors import ErrorCode, KafkaError

CLIENT = Client(bytes(15) + b"\x07", "app-1", "apache-kafka-java", "4.3.0", "10.0.0.7", 5000, connection=1)
ALL: Configs = {"all": {"metrics": "*", "interval.ms": "1000"}}


def refused(code: ErrorCode) -> pytest.RaisesExc[KafkaError]:
    return pytest.RaisesExc(KafkaError, check=lambda error: error.code == code)


@pytest.mark.parametrize(
    ("match", "subscribed"),
    [
        ("", True),
        ("client_id=app-.*", True),
        ("client_id=app", False),
        ("client_id=app-1,client_software_name=librdkafka", False),
        ("client_software_name=apache-kafka-java,client_software_version=4\\.[0-9.]+", True),
        ("client_source_address=10\\..*,client_source_port=5000", True),
        ("client_instance_id=AAAAAAAAAAAAAAAAAAAABw", True),
        ("client_instance_id=AAAAAAAAAAAAAAAAAAAACA", False),
    ],
)
def test_all_selectors_of_a_subscription_must_match(match: str, subscribed: bool) -> None:
    configs = {"one": {"metrics": "a.", "interval.ms": "500", "match": match}}
    instance = ClientInstances().asks(CLIENT, configs, 0)
    assert (instance.metrics, instance.interval_ms) == ((("a.",), 500) if subscribed else ((), 300_000))


def test_subscriptions_are_joined_at_the_shortest_interval() -> None:
    configs = {
        "b": {"metrics": "b,c", "interval.ms": "5000"},
        "a": {"metrics": "c,a"},
        "not": {"metrics": "d", "match": "client_id=x"},
    }
    instance = ClientInstances().asks(CLIENT, configs, 0)
    assert (instance.metrics, instance.interval_ms) == (("a", "b", "c"), 5000)
    assert instance.is_subscribed("abc")
    assert not instance.is_subscribed("x.abc")
    everything = ClientInstances().asks(CLIENT, {**configs, "all": {"metrics": "*"}}, 0)
    assert everything.metrics == ("*",)
    assert everything.is_subscribed("x.abc")


def test_the_subscription_id_is_the_same_on_every_broker() -> None:
    one, other = ClientInstances().asks(CLIENT, ALL, 0), ClientInstances().asks(CLIENT, dict(ALL), 5)
    assert one.subscription_id == other.subscription_id
    slower = ClientInstances().asks(CLIENT, {"all": {"metrics": "*", "interval.ms": "1001"}}, 0)
    another = ClientInstances().asks(replace(CLIENT, instance_id=bytes(15) + b"\x08"), ALL, 0)
    assert len({one.subscription_id, slower.subscription_id, another.subscription_id}) == 3
    assert -(1 << 31) <= one.subscription_id < 1 << 31


def test_a_client_may_ask_once_an_interval_and_at_once_after_a_change() -> None:
    known = ClientInstances()
    known.asks(CLIENT, ALL, 0)
    with refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED):
        known.asks(CLIENT, ALL, 999)
    known.asks(CLIENT, ALL, 1000)
    assert known.asks(CLIENT, {"all": {"metrics": "a"}}, 1001).metrics == ("a",)


def test_a_client_may_push_after_asking_and_then_once_an_interval() -> None:
    known = ClientInstances()
    number = known.asks(CLIENT, ALL, 0).subscription_id
    known.pushes(CLIENT, ALL, 1, number, terminating=False)
    with refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED):
        known.pushes(CLIENT, ALL, 1000, number, terminating=False)
    known.pushes(CLIENT, ALL, 1001, number, terminating=False)
    known.pushes(CLIENT, ALL, 1002, number, terminating=True)
    with refused(ErrorCode.INVALID_REQUEST):
        known.pushes(CLIENT, ALL, 9000, number, terminating=False)


def test_a_push_by_an_old_subscription_is_refused() -> None:
    known = ClientInstances()
    number = known.asks(CLIENT, ALL, 0).subscription_id
    with refused(ErrorCode.UNKNOWN_SUBSCRIPTION_ID):
        known.pushes(CLIENT, {"all": {"metrics": "a"}}, 1, number, terminating=False)


def test_a_push_to_a_broker_that_was_not_asked_is_taken() -> None:
    """The client asked another broker, which computed the same id."""
    number = ClientInstances().asks(CLIENT, ALL, 0).subscription_id
    assert ClientInstances().pushes(CLIENT, ALL, 0, number, terminating=False).metrics == ("*",)


def test_an_instance_begins_anew_on_another_connection() -> None:
    known = ClientInstances()
    known.asks(CLIENT, ALL, 0)
    known.asks(replace(CLIENT, connection=2), ALL, 1)
    assert len(known) == 1


def test_the_number_of_instances_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instances, "INSTANCES_MAX", 3)
    known = ClientInstances()
    clients = [replace(CLIENT, instance_id=bytes(15) + bytes([number])) for number in range(1, 5)]
    for client in clients[:3]:
        known.asks(client, ALL, 0)
    known.asks(clients[0], ALL, 1000)
    known.asks(clients[3], ALL, 1000)
    assert len(known) == 3
    with refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED):
        known.asks(clients[0], ALL, 1001)
    known.asks(clients[1], ALL, 1)  # it was forgotten
