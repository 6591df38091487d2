"""What is advertised is what exists: the table of handlers against their modules and the messages."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from ottla.broker.handlers import HANDLERS
from ottla.broker.network.handler import Handler
from ottla.wire.codec import decoder, encoder

PARTS = {
    "acl_requests",
    "clock",
    "control_requests",
    "broker_requests",
    "config_requests",
    "disk",
    "fetch_sessions",
    "fetch_source",
    "groups",
    "large_batches",
    "marker_writer",
    "metadata",
    "moves",
    "partition_requests",
    "partitions",
    "produce_replies",
    "producer_ids",
    "purgatory",
    "served",
    "telemetry",
    "tokens",
    "topic_requests",
    "transactions",
    "verifier",
}
"""What `app.Broker` gives to handlers."""


@pytest.mark.parametrize("handler", HANDLERS.values(), ids=lambda handler: handler.api.name)
def test_every_served_version_has_a_handler_and_can_be_read_and_written(handler: Handler) -> None:
    assert callable(handler.module.handle)
    for version in range(handler.min_version, handler.max_version + 1):
        decoder(handler.api.request, version)
        encoder(handler.api.response, version)


@pytest.mark.parametrize("handler", HANDLERS.values(), ids=lambda handler: handler.api.name)
def test_every_api_has_a_way_to_say_that_it_failed(handler: Handler) -> None:
    """An error code at the top of the response, or a `refuse`; else a bug in the handler could only close the connection."""
    assert hasattr(handler.api.response, "error_code") or hasattr(handler.module, "refuse")


@pytest.mark.parametrize("handler", HANDLERS.values(), ids=lambda handler: handler.api.name)
def test_every_collaborator_of_a_handler_is_a_part_of_the_broker(handler: Handler) -> None:
    names = list(inspect.signature(handler.module.handle).parameters)
    assert names[-2:] == ["request", "context"]
    if not handler.between_brokers:
        assert not {"control_requests", "broker_requests"} & set(names)
    assert set(names[:-2]) <= PARTS


@pytest.mark.parametrize("handler", HANDLERS.values(), ids=lambda handler: handler.api.name)
def test_every_api_has_a_test_module_of_its_name(handler: Handler) -> None:
    tests = Path(__file__).parents[3]
    places = (tests / "broker", tests / "unit" / "broker" / "handlers")
    assert any((place / f"test_{handler.api.name}.py").exists() for place in places)


def test_librdkafka_finds_the_versions_its_features_need() -> None:
    served = {handler.api.name: (handler.min_version, handler.max_version) for handler in HANDLERS.values()}
    assert served["produce"][0] == 0, "KAFKA-18659"
    assert served["produce"][1] >= 7
    assert served["fetch"][1] >= 10
    assert "find_coordinator" in served
    assert "init_producer_id" in served
