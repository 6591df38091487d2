"""The fixture `ottla_registry` of the pytest plugin."""

from __future__ import annotations

import httpx

from ottla.testing import Broker, Registry


def test_fixture_is_a_registry_on_the_broker_of_the_session(ottla_broker: Broker, ottla_registry: Registry) -> None:
    assert httpx.get(f"{ottla_registry.url}/schemas/types").json() == ["JSON", "PROTOBUF", "AVRO"]
    schema = '{"type":"record","name":"fixture","fields":[]}'
    answer = httpx.post(f"{ottla_registry.url}/subjects/fixture-value/versions", json={"schema": schema}, timeout=30)
    assert answer.status_code == 200, answer.text
