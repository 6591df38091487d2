"""The registry that a command talks to, and its failures in the command's words.

Its address is that of --registry, else `schema.registry.url` of --command-config or of the profile, else a registry on this
machine. `schema.registry.basic.auth.user.info` and `schema.registry.ssl.ca.location` are read from the same places.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.connection import Connection
from ottla.cli.failure import EXIT_USAGE, Failure
from ottla.cli.options import DEFAULT_BOOTSTRAP_SERVERS

if TYPE_CHECKING:
    from ottla.client.schema_registry import RegistryFailed, SchemaRegistry

DEFAULT_URL = "http://127.0.0.1:8081"
PREFIX = "schema.registry."

RegistryUrl = Annotated[
    str | None,
    typer.Option(
        "--registry",
        metavar="URL",
        envvar="OTTLA_REGISTRY",
        help=f"The schema registry. (default: schema.registry.url of the profile, else {DEFAULT_URL})",
        rich_help_panel="Connection",
    ),
]


@contextmanager
def registry_at(url: str | None, command_config: Path | None) -> Iterator[SchemaRegistry]:
    """A client of the registry. Its failures become a Failure."""
    from ottla.client.schema_registry import RegistryFailed, RegistryOptions, SchemaRegistry

    settings = registry_settings(url, Connection(DEFAULT_BOOTSTRAP_SERVERS, command_config).properties)
    try:
        with SchemaRegistry(RegistryOptions.of({"url": DEFAULT_URL, **settings})) as registry:
            yield registry
    except RegistryFailed as error:
        raise registry_failure(error) from None
    except ValueError as error:
        raise Failure(str(error), exit_code=EXIT_USAGE) from None


def registry_settings(url: str | None, properties: Mapping[str, object]) -> dict[str, str]:
    """The settings of the registry among client properties. Without `url` if none is named."""
    settings = {name.removeprefix(PREFIX): str(value) for name, value in properties.items() if name.startswith(PREFIX)}
    if url:
        settings["url"] = url
    return {name: value for name, value in settings.items() if value}


def registry_failure(error: RegistryFailed) -> Failure:
    """What a user hears of a registry's failure. The code is the registry's, or REGISTRY_AWAY."""
    hint = None if error.code else "start one with `ottla registry`, or name one with --registry (or OTTLA_REGISTRY)"
    return Failure(str(error), hint, code=str(error.code) if error.code else "REGISTRY_AWAY")
