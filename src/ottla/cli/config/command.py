"""`ottla config`: describe, set, unset the settings of topics, brokers and groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.config import protocol_resource
from ottla.cli.connection import REQUEST_TIMEOUT_S, Connection, settled
from ottla.cli.failure import EXIT_USAGE, Failure, did_you_mean, guarded
from ottla.cli.options import DEFAULT_BOOTSTRAP_SERVERS, Bootstrap, CommandConfig, Json, parse_pairs
from ottla.cli.output import print_document, print_table

if TYPE_CHECKING:
    from ottla.cli.client import ConfigEntry, ConfigResource

app = typer.Typer(help="Settings of topics, brokers and groups: describe, set, unset.", no_args_is_help=True)

CLUSTER_WIDE = "default"
_UNITS = ("ms", "minutes", "hours")

Kind = Annotated[
    str,
    typer.Argument(
        metavar="topic|broker|group", help="What they belong to.", autocompletion=lambda: ["topic", "broker", "group"]
    ),
]
Name = Annotated[str, typer.Argument(metavar="NAME", help=f"The topic, the broker's id ({CLUSTER_WIDE}: all), or the group.")]

# Kafka's names for where a value comes from, shortened to what a person asks: who set this?
_SOURCES = {
    "DYNAMIC_TOPIC_CONFIG": "topic",
    "DYNAMIC_BROKER_CONFIG": "broker (dynamic)",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "cluster (dynamic)",
    "STATIC_BROKER_CONFIG": "server.properties",
    "DEFAULT_CONFIG": "default",
    "GROUP_CONFIG": "group",
}


def _resource(connection: Connection, kind: str, name: str) -> ConfigResource | protocol_resource.ProtocolResource:
    """The resource, in the library's type where it has one."""
    from ottla.cli.client import ConfigResource, ResourceType

    if kind == "topic":
        connection.topic(name)
        return ConfigResource(ResourceType.TOPIC, name)
    if kind == "broker":
        brokers = connection.metadata().brokers
        if name == CLUSTER_WIDE:
            return protocol_resource.ALL_BROKERS
        if not name.isdecimal() or int(name) not in brokers:
            raise Failure(
                f"there is no broker {name}",
                f"brokers are {', '.join(map(str, sorted(brokers)))}; {CLUSTER_WIDE} means all of them",
            )
        return ConfigResource(ResourceType.BROKER, name)
    if kind == "group":
        return protocol_resource.group(name)
    raise Failure(f"{kind!r} has no settings", "say topic, broker or group", exit_code=EXIT_USAGE)


def describe_settings(connection: Connection, kind: str, name: str) -> dict[str, ConfigEntry]:
    resource = _resource(connection, kind, name)
    if isinstance(resource, protocol_resource.ProtocolResource):
        return protocol_resource.describe(connection, resource)
    future = connection.admin.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S)[resource]
    return settled(future, f"settings of {kind} {name}")


def alter_settings(connection: Connection, kind: str, name: str, changes: dict[str, str], removals: Sequence[str]) -> None:
    """Set and unset in one request. A name the broker does not know comes back with the nearest it does."""
    from ottla.cli.client import AlterConfigOpType, ConfigEntry

    if not all(removals):
        raise Failure("the name of a setting is empty", exit_code=EXIT_USAGE)
    resource = _resource(connection, kind, name)
    if removals:
        # To a broker, taking back what nobody knows is no error: it is not set afterwards.
        known = _known_names(connection, kind, name)
        for key in removals:
            if key not in known:
                raise Failure(f"{kind} {name} has no setting {key}", did_you_mean(key, known))
    try:
        if isinstance(resource, protocol_resource.ProtocolResource):
            protocol_resource.alter(connection, resource, changes, removals)
            return
        resource.incremental_configs = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in changes.items()
        ] + [ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in removals]
        future = connection.admin.incremental_alter_configs([resource], request_timeout=REQUEST_TIMEOUT_S)[resource]
        settled(future, f"settings of {kind} {name}")
    except Failure as failure:
        known = _known_names(connection, kind, name)
        unknown = [key for key in changes if known and key not in known]
        if unknown and failure.hint is None:
            failure.hint = did_you_mean(unknown[0], known)
        raise


def _known_names(connection: Connection, kind: str, name: str) -> set[str]:
    known = set(describe_settings(connection, kind, name))
    if kind == "broker":
        # The settings of all brokers at once list only those that are set; the table knows what could be.
        from ottla.cluster.settings import BROKER_SETTINGS

        known |= BROKER_SETTINGS.keys()
    return known


def _default_of(name: str) -> str | None:
    """Kafka's default, where the broker does not tell it: it names it only among the synonyms, and not for every setting."""
    from ottla.cluster.settings import BROKER_SETTINGS, TOPIC_SETTINGS

    setting = TOPIC_SETTINGS.get(name) or BROKER_SETTINGS.get(name)
    return setting.render(setting.default) if setting is not None else None


def entry_document(entry: ConfigEntry) -> dict[str, Any]:
    """A setting as JSON shows it; `default` is the value below all overrides, where the broker tells."""
    from ottla.cli.client import ConfigSource

    source = ConfigSource(entry.source)
    synonyms = list(entry.synonyms.values())
    unit = entry.name.rpartition(".")[2]
    defaults = [
        synonym.value
        for synonym in synonyms
        # log.retention.hours is a synonym of retention.ms, but its 168 is no default of it.
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


@app.command("describe")
@guarded
def describe(
    kind: Kind,
    name: Name,
    keys: Annotated[list[str] | None, typer.Argument(metavar="KEY", help="Only these settings.")] = None,
    overrides: Annotated[bool, typer.Option("--overrides", help="Only what somebody has set.")] = False,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Show settings, where each value comes from, and the default."""
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


@app.command("set")
@guarded
def set_settings(
    kind: Kind,
    name: Name,
    pairs: Annotated[list[str], typer.Argument(metavar="KEY=VALUE", show_default=False)],
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Set settings."""
    changes = parse_pairs(pairs, "setting")
    alter_settings(Connection(bootstrap_servers, command_config), kind, name, changes, [])
    if json_output:
        print_document({"entity": kind, "name": name, "set": changes})
    else:
        for key, value in changes.items():
            print(f"{kind} {name}: {key}={value}")


@app.command("unset")
@guarded
def unset_settings(
    kind: Kind,
    name: Name,
    keys: Annotated[list[str], typer.Argument(metavar="KEY", show_default=False)],
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Take overrides back: the default counts again."""
    alter_settings(Connection(bootstrap_servers, command_config), kind, name, {}, keys)
    if json_output:
        print_document({"entity": kind, "name": name, "unset": keys})
    else:
        for key in keys:
            print(f"{kind} {name}: {key} is back to its default")
