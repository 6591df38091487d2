"""`ottla config`: describe, set and unset settings of topics, brokers and groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.completion.names import entities
from ottla.cli.connection import REQUEST_TIMEOUT_S, Connection, result_of, unknown_broker
from ottla.cli.failure import EXIT_USAGE, Failure, did_you_mean
from ottla.cli.options import DEFAULT_BOOTSTRAP_SERVERS, Bootstrap, CommandConfig, Commands, Json, parse_pairs
from ottla.cli.output import print_document, print_table

if TYPE_CHECKING:
    from confluent_kafka.admin import ConfigEntry, ConfigResource

app = Commands(help="Settings of topics, brokers and groups: describe, set, unset.", no_args_is_help=True)

CLUSTER_WIDE = "default"
_UNITS = ("ms", "minutes", "hours")
_BROKER, _GROUP = 4, 32
_SET, _DELETE = 0, 1

Kind = Annotated[
    str,
    typer.Argument(
        metavar="topic|broker|group", help="The kind of resource.", autocompletion=lambda: ["topic", "broker", "group"]
    ),
]
Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help=f"The topic, the broker id ({CLUSTER_WIDE}: all brokers), or the group.", autocompletion=entities
    ),
]

# Kafka's config sources as the column FROM shows them.
_SOURCES = {
    "DYNAMIC_TOPIC_CONFIG": "topic",
    "DYNAMIC_BROKER_CONFIG": "broker (dynamic)",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "cluster (dynamic)",
    "STATIC_BROKER_CONFIG": "server.properties",
    "DEFAULT_CONFIG": "default",
    "GROUP_CONFIG": "group",
}


@dataclass(frozen=True, slots=True)
class ProtocolResource:
    """A resource that librdkafka cannot name, all brokers or a group: as DescribeConfigs names it, and its title in messages."""

    type: int
    name: str
    title: str


def _resource(connection: Connection, kind: str, name: str) -> ConfigResource | ProtocolResource:
    """The resource, in the library's type where it has one."""
    from confluent_kafka.admin import ConfigResource, ResourceType

    if kind == "topic":
        connection.topic(name)
        return ConfigResource(ResourceType.TOPIC, name)
    if kind == "broker":
        brokers = connection.metadata().brokers
        if name == CLUSTER_WIDE:
            return ProtocolResource(_BROKER, "", "all brokers")
        if not name.isdecimal() or int(name) not in brokers:
            raise unknown_broker(name, brokers, f"; {CLUSTER_WIDE} means all of them")
        return ConfigResource(ResourceType.BROKER, name)
    if kind == "group":
        return ProtocolResource(_GROUP, name, f"group {name}")
    raise Failure(f"{kind!r} is not a resource with settings", "use topic, broker or group", exit_code=EXIT_USAGE)


def describe_settings(connection: Connection, kind: str, name: str) -> dict[str, ConfigEntry]:
    resource = _resource(connection, kind, name)
    if isinstance(resource, ProtocolResource):
        return _describe_protocol(connection, resource)
    future = connection.admin.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S)[resource]
    return result_of(future, f"settings of {kind} {name}")


def alter_settings(connection: Connection, kind: str, name: str, changes: dict[str, str], removals: Sequence[str]) -> None:
    """Set and unset settings in one request. Failure with similar names for an unknown setting."""
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry

    if not all(removals):
        raise Failure("a setting has no name", exit_code=EXIT_USAGE)
    resource = _resource(connection, kind, name)
    if removals:
        # A broker accepts the removal of an unknown setting.
        known = _known_names(connection, kind, name)
        for key in removals:
            if key not in known:
                raise Failure(f"{kind} {name} has no setting {key}", did_you_mean(key, known))
    try:
        if isinstance(resource, ProtocolResource):
            _alter_protocol(connection, resource, changes, removals)
            return
        resource.incremental_configs = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in changes.items()
        ] + [ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in removals]
        future = connection.admin.incremental_alter_configs([resource], request_timeout=REQUEST_TIMEOUT_S)[resource]
        result_of(future, f"settings of {kind} {name}")
    except Failure as failure:
        known = _known_names(connection, kind, name)
        unknown = [key for key in changes if known and key not in known]
        if unknown and failure.hint is None:
            failure.hint = did_you_mean(unknown[0], known)
        raise


def _describe_protocol(connection: Connection, resource: ProtocolResource) -> dict[str, ConfigEntry]:
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


def _alter_protocol(
    connection: Connection, resource: ProtocolResource, changes: Mapping[str, str], removals: Sequence[str]
) -> None:
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


def _known_names(connection: Connection, kind: str, name: str) -> set[str]:
    known = set(describe_settings(connection, kind, name))
    if kind == "broker":
        # DescribeConfigs of all brokers at once lists only settings that are set.
        from ottla.cluster.settings import BROKER_SETTINGS

        known |= BROKER_SETTINGS.keys()
    return known


def _default_of(name: str) -> str | None:
    """Kafka's default, for settings whose synonyms in the reply hold none."""
    from ottla.cluster.settings import BROKER_SETTINGS, TOPIC_SETTINGS

    setting = TOPIC_SETTINGS.get(name) or BROKER_SETTINGS.get(name)
    return setting.render(setting.default) if setting is not None else None


def _is_sensitive(name: str, value: str) -> bool:
    from ottla.cli.profile.definition import is_secret
    from ottla.cluster.settings.broker import setting_of

    setting = setting_of(name)
    return setting.sensitive if setting is not None else is_secret(name, value)


def entry_document(entry: ConfigEntry) -> dict[str, Any]:
    """A setting as JSON. `default` is its value without any override."""
    from confluent_kafka.admin import ConfigSource

    source = ConfigSource(entry.source)
    synonyms = list(entry.synonyms.values())
    unit = entry.name.rpartition(".")[2]
    defaults = [
        synonym.value
        for synonym in synonyms
        # log.retention.hours is a synonym of retention.ms, but in another unit.
        if ConfigSource(synonym.source) is ConfigSource.DEFAULT_CONFIG
        and (synonym.name.rpartition(".")[2] == unit or unit not in _UNITS)
    ]
    return {
        "name": entry.name,
        "value": entry.value,
        "source": source.name,
        "default": entry.value
        if source is ConfigSource.DEFAULT_CONFIG
        else defaults[-1]
        if defaults
        else _default_of(entry.name),
        "read_only": entry.is_read_only,
        "sensitive": entry.is_sensitive,
        "synonyms": [
            {"name": synonym.name, "value": synonym.value, "source": ConfigSource(synonym.source).name} for synonym in synonyms
        ],
    }


@app.add("describe")
def describe(
    kind: Kind,
    name: Name,
    keys: Annotated[list[str] | None, typer.Argument(metavar="KEY", help="Only these settings.")] = None,
    overrides: Annotated[bool, typer.Option("--overrides", help="Only settings that are not at their default.")] = False,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Show settings, where each value comes from, and its default."""
    connection = Connection(bootstrap_servers, command_config)
    entries = describe_settings(connection, kind, name)
    for key in keys or []:
        if key not in entries:
            raise Failure(f"{kind} {name} has no setting {key}", did_you_mean(key, entries))
    documents = [entry_document(entries[key]) for key in sorted(keys or entries)]
    if overrides:
        documents = [document for document in documents if document["source"] != "DEFAULT_CONFIG"]
    if json_output:
        print_document(documents)
        return
    print_table(
        ["SETTING", "VALUE", "FROM", "DEFAULT"],
        [
            (
                document["name"],
                "(hidden)" if document["sensitive"] else document["value"],
                _SOURCES.get(document["source"], "unknown"),
                document["default"],
            )
            for document in documents
        ],
    )


@app.add("set", changes=True)
def set_settings(
    kind: Kind,
    name: Name,
    pairs: Annotated[list[str], typer.Argument(metavar="KEY=VALUE", show_default=False)],
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Change settings."""
    changes = parse_pairs(pairs, "setting")
    alter_settings(Connection(bootstrap_servers, command_config), kind, name, changes, [])
    if json_output:
        shown = {key: None if _is_sensitive(key, value) else value for key, value in changes.items()}
        print_document({"entity": kind, "name": name, "set": shown})
    else:
        for key, value in changes.items():
            print(f"{kind} {name}: {key}={'(hidden)' if _is_sensitive(key, value) else value}")


@app.add("unset", changes=True)
def unset_settings(
    kind: Kind,
    name: Name,
    keys: Annotated[list[str], typer.Argument(metavar="KEY", show_default=False)],
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Reset settings to their defaults."""
    alter_settings(Connection(bootstrap_servers, command_config), kind, name, {}, keys)
    if json_output:
        print_document({"entity": kind, "name": name, "unset": keys})
    else:
        for key in keys:
            print(f"{kind} {name}: {key} is back to its default")
