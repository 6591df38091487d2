"""Settings of the resources that librdkafka cannot name: all brokers at once (`ottla config … broker default`) and groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.cli.connection import Connection

if TYPE_CHECKING:
    from confluent_kafka.admin import ConfigEntry

_SET, _DELETE = 0, 1


@dataclass(frozen=True, slots=True)
class ProtocolResource:
    """A config resource as DescribeConfigs names it, and its title in messages."""

    type: int
    name: str
    title: str


_BROKER, _GROUP = 4, 32
ALL_BROKERS = ProtocolResource(_BROKER, "", "all brokers")


def group(name: str) -> ProtocolResource:
    return ProtocolResource(_GROUP, name, f"group {name}")


def describe(connection: Connection, resource: ProtocolResource) -> dict[str, ConfigEntry]:
    """Settings of the resource. For all brokers the reply holds only dynamic settings: the rest belongs to single brokers."""
    from confluent_kafka.admin import ConfigEntry, ConfigSource

    from ottla.cli.plain_request import call, raise_if_error
    from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResponse

    asked = DescribeConfigsResource(resource_type=resource.type, resource_name=resource.name, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[asked], include_synonyms=True)
    (result,) = call(connection, "describe_configs", 1, request, DescribeConfigsResponse).results
    raise_if_error(result.error_code, f"settings of {resource.title}", result.error_message)
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


def alter(connection: Connection, resource: ProtocolResource, changes: Mapping[str, str], removals: Sequence[str]) -> None:
    from ottla.cli.plain_request import call, raise_if_error
    from ottla.protocol.messages.incremental_alter_configs import (
        AlterableConfig,
        AlterConfigsResource,
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )

    configs = [AlterableConfig(name=name, config_operation=_SET, value=value) for name, value in changes.items()]
    configs += [AlterableConfig(name=name, config_operation=_DELETE, value=None) for name in removals]
    altered = AlterConfigsResource(resource_type=resource.type, resource_name=resource.name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[altered])
    (result,) = call(connection, "incremental_alter_configs", 0, request, IncrementalAlterConfigsResponse).responses
    raise_if_error(result.error_code, f"settings of {resource.title}", result.error_message)
