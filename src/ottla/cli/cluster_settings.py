"""The dynamic settings of all brokers at once (`ottla config … broker default`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.cli.connection import Connection
from ottla.cli.failure import Failure
from ottla.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.cli.client import ConfigEntry

_BROKER = 4
_ALL_BROKERS = ""
_SET, _DELETE = 0, 1


def describe(connection: Connection) -> dict[str, ConfigEntry]:
    """Only what is set: defaults and files are matters of each broker."""
    from ottla.cli.client import ConfigEntry, ConfigSource
    from ottla.cli.plain_request import call
    from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResponse

    resource = DescribeConfigsResource(resource_type=_BROKER, resource_name=_ALL_BROKERS, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    (result,) = call(connection, "describe_configs", 1, request, DescribeConfigsResponse).results
    _raise_if(result.error_code, result.error_message)
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


def alter(connection: Connection, changes: Mapping[str, str], removals: Sequence[str]) -> None:
    from ottla.cli.plain_request import call
    from ottla.protocol.messages.incremental_alter_configs import (
        AlterableConfig,
        AlterConfigsResource,
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )

    configs = [AlterableConfig(name=name, config_operation=_SET, value=value) for name, value in changes.items()]
    configs += [AlterableConfig(name=name, config_operation=_DELETE, value=None) for name in removals]
    resource = AlterConfigsResource(resource_type=_BROKER, resource_name=_ALL_BROKERS, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource])
    (result,) = call(connection, "incremental_alter_configs", 0, request, IncrementalAlterConfigsResponse).responses
    _raise_if(result.error_code, result.error_message)


def _raise_if(code: int, message: str | None) -> None:
    if code:
        try:
            name = ErrorCode(code).name
        except ValueError:
            name = str(code)
        raise Failure(f"settings of all brokers: {message or name}", code=name)
