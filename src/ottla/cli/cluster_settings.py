"""Settings of what librdkafka cannot name: all brokers at once (`ottla config … broker default`), and groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.cli.connection import Connection
from ottla.cli.failure import Failure

if TYPE_CHECKING:
    from ottla.cli.client import ConfigEntry

_SET, _DELETE = 0, 1


@dataclass(frozen=True, slots=True)
class Unnamed:
    """A resource as the protocol names it, and in words."""

    resource_type: int
    resource_name: str
    words: str


ALL_BROKERS = Unnamed(4, "", "all brokers")


def group(name: str) -> Unnamed:
    return Unnamed(32, name, f"group {name}")


def describe(connection: Connection, unnamed: Unnamed) -> dict[str, ConfigEntry]:
    """Of all brokers only what is set: defaults and files are matters of each broker."""
    from ottla.cli.client import ConfigEntry, ConfigSource
    from ottla.cli.plain_request import call
    from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResponse

    resource = DescribeConfigsResource(
        resource_type=unnamed.resource_type, resource_name=unnamed.resource_name, configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    (result,) = call(connection, "describe_configs", 1, request, DescribeConfigsResponse).results
    _raise_if(unnamed, result.error_code, result.error_message)
    return {
        found.name: ConfigEntry(
            found.name,
            found.value,
            ConfigSource(found.config_source),
            found.read_only,
            is_sensitive=found.is_sensitive,
            synonyms={
                synonym.name: ConfigEntry(synonym.name, synonym.value, ConfigSource(synonym.source)) for synonym in found.synonyms
            },
        )
        for found in result.configs
    }


def alter(connection: Connection, unnamed: Unnamed, changes: Mapping[str, str], removals: Sequence[str]) -> None:
    from ottla.cli.plain_request import call
    from ottla.protocol.messages.incremental_alter_configs import (
        AlterableConfig,
        AlterConfigsResource,
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )

    configs = [AlterableConfig(name=name, config_operation=_SET, value=value) for name, value in changes.items()]
    configs += [AlterableConfig(name=name, config_operation=_DELETE, value=None) for name in removals]
    resource = AlterConfigsResource(resource_type=unnamed.resource_type, resource_name=unnamed.resource_name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource])
    (result,) = call(connection, "incremental_alter_configs", 0, request, IncrementalAlterConfigsResponse).responses
    _raise_if(unnamed, result.error_code, result.error_message)


def _raise_if(unnamed: Unnamed, code: int, message: str | None) -> None:
    if code:
        from ottla.cli.plain_request import error_name

        name = error_name(code)
        raise Failure(f"settings of {unnamed.words}: {message or name}", code=name)
