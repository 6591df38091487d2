"""The schema registry of a console: a client for each call of a user."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from ottla.cli.failure import Failure
from ottla.client.schema_registry import RegistryOptions, SchemaRegistry
from ottla.console.records.schemas import Schemas

TIMEOUT_S: Final = 10.0


class Registry:
    def __init__(self, settings: Mapping[str, str]) -> None:
        """`settings` are empty if there is no registry. Connects to nothing yet."""
        self._options = replace(RegistryOptions.of(settings), timeout_s=TIMEOUT_S) if settings else None
        self.schemas = None if self._options is None else Schemas(SchemaRegistry(self._options))
        """What reads records; None without a registry."""

    def __bool__(self) -> bool:
        return self._options is not None

    @contextmanager
    def client(self) -> Iterator[SchemaRegistry]:
        """For one thread. Failure if the console has no registry."""
        if self._options is None:
            hint = "start the console with --registry URL, or name it in the profile as schema.registry.url"
            raise Failure("this console has no schema registry", hint, code="NO_REGISTRY")
        with SchemaRegistry(self._options) as client:
            yield client
