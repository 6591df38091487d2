"""F68: listeners, advertised.listeners, listener.security.protocol.map, inter.broker.listener.name."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.cluster.image import Endpoint
from ottla.cluster.settings import BrokerSettings, Listeners, SettingsError


def listeners_of(**properties: Any) -> Listeners:
    return BrokerSettings.parse({name.replace("_", "."): value for name, value in properties.items()}).listeners()


def problem_of(**properties: Any) -> str:
    with pytest.raises(SettingsError) as caught:
        listeners_of(**properties)
    return "; ".join(caught.value.problems)


def test_the_default_is_kafkas() -> None:
    listeners = listeners_of()
    assert listeners.bind == (Endpoint("PLAINTEXT", "", 9092),)
    assert listeners.inter_broker == "PLAINTEXT"
    assert listeners.resolve({"PLAINTEXT": 9092}, "here") == (Endpoint("PLAINTEXT", "here", 9092),)


def test_port_0_is_told_as_the_port_that_was_bound() -> None:
    listeners = listeners_of(listeners="PLAINTEXT://127.0.0.1:0")
    assert listeners.resolve({"PLAINTEXT": 41234}, "unused") == (Endpoint("PLAINTEXT", "127.0.0.1", 41234),)


def test_several_listeners_with_names_of_their_own() -> None:
    listeners = listeners_of(
        listeners="inside://10.0.0.1:9092, OUTSIDE://:9093",
        advertised_listeners="OUTSIDE://kafka.example.org:443,INSIDE://10.0.0.1:9092",
        listener_security_protocol_map="INSIDE:PLAINTEXT,OUTSIDE:plaintext",
        inter_broker_listener_name="inside",
    )
    assert listeners.bind == (Endpoint("INSIDE", "10.0.0.1", 9092), Endpoint("OUTSIDE", "", 9093))
    assert listeners.advertised == (Endpoint("OUTSIDE", "kafka.example.org", 443), Endpoint("INSIDE", "10.0.0.1", 9092))
    assert listeners.inter_broker == "INSIDE"


def test_ipv6_addresses_stand_in_brackets_and_may_share_a_port_with_ipv4() -> None:
    listeners = listeners_of(
        listeners="A://[::1]:9092,B://127.0.0.1:9092", listener_security_protocol_map="A:PLAINTEXT,B:PLAINTEXT"
    )
    assert listeners.bind == (Endpoint("A", "::1", 9092), Endpoint("B", "127.0.0.1", 9092))
    assert str(listeners.bind[0]) == "A://[::1]:9092"


def test_a_kraft_controllers_listener_is_left_out_with_a_warning() -> None:
    settings = BrokerSettings.parse(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": "localhost:9093",
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
        }
    )
    assert [endpoint.listener for endpoint in settings.listeners().bind] == ["PLAINTEXT"]
    assert [endpoint.listener for endpoint in settings.listeners().advertised] == ["PLAINTEXT"]
    assert any("CONTROLLER is not opened" in warning for warning in settings.warnings)


@pytest.mark.parametrize(
    ("properties", "word"),
    [
        ({"listeners": "localhost:9092"}, "localhost:9092 is not an address"),
        ({"listeners": "PLAINTEXT://localhost"}, "is not an address"),
        ({"listeners": "PLAINTEXT://a:b:1"}, "is not an address"),
        ({"listeners": ""}, "at least one listener"),
        ({"listeners": "PLAINTEXT://:65536"}, "0 to 65535"),
        ({"listeners": "PLAINTEXT://:-1"}, "0 to 65535"),
        ({"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"}, "appears twice"),
        ({"listeners": "A://:1,B://:1", "listener_security_protocol_map": "A:PLAINTEXT,B:PLAINTEXT"}, "port 1 is used by"),
        ({"listeners": "OTHER://:1"}, "listener OTHER has no security protocol"),
        ({"listeners": "SSL://:1"}, "listener SSL uses SSL and has no certificate"),
        ({"listeners": "SASL_SSL://:1"}, "listener SASL_SSL uses SASL_SSL and has no certificate"),
        ({"listener_security_protocol_map": "A:TCP"}, "unknown protocol"),
        ({"listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,PLAINTEXT:SSL"}, "twice"),
        ({"listener_security_protocol_map": "A"}, "NAME:PROTOCOL"),
        ({"listeners": "PLAINTEXT://0.0.0.0:9092"}, "0.0.0.0 means every interface"),
        ({"listeners": "PLAINTEXT://[::]:9092"}, "means every interface"),
        ({"advertised_listeners": "OTHER://a:1"}, "no security protocol"),
        (
            {"advertised_listeners": "OTHER://a:1", "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT"},
            "which is not in listeners",
        ),
        ({"inter_broker_listener_name": "INSIDE"}, "is not one of the listeners: PLAINTEXT"),
    ],
)
def test_what_cannot_be_is_refused_with_its_reason(properties: dict[str, str], word: str) -> None:
    assert word in problem_of(**properties)


def test_every_interface_may_be_bound_if_clients_are_told_another_address() -> None:
    listeners = listeners_of(listeners="PLAINTEXT://0.0.0.0:9092", advertised_listeners="PLAINTEXT://host:9092")
    assert listeners.bind[0].host == "0.0.0.0"
    assert listeners.advertised[0].host == "host"
