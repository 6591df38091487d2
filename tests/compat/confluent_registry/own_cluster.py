"""A pytest plugin for the suite: its fixture of a cluster that runs already has no asynchronous client, which half of it uses."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def pytest_configure(config: Any) -> None:
    from confluent_kafka.schema_registry import AsyncSchemaRegistryClient

    ByoFixture = import_module("tests.integration.cluster_fixture").ByoFixture
    if not hasattr(ByoFixture, "async_schema_registry"):
        ByoFixture.async_schema_registry = lambda self, conf=None: AsyncSchemaRegistryClient({"url": self._sr_url})
