"""`ottla quota`: list, describe, set and remove the quotas of users, clients and IP addresses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from ottla.cli.connection import Connection
from ottla.cli.failure import EXIT_USAGE, Failure, did_you_mean
from ottla.cli.options import DEFAULT_BOOTSTRAP_SERVERS, Bootstrap, CommandConfig, Commands, Json, parse_pairs
from ottla.cli.output import note, print_document, print_table
from ottla.cli.parameters import with_option_groups

app = Commands(help="Quotas of users, clients and IP addresses: list, describe, set, remove.", no_args_is_help=True)

USER_QUOTAS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
IP_QUOTAS = ("connection_creation_rate",)

Entity = tuple[tuple[str, str | None], ...]
"""(type, name) pairs, the user first; the name None is the default of the type."""

_USER, _CLIENT, _IP = "user", "client-id", "ip"

User = Annotated[str | None, typer.Option("--user", metavar="NAME", help="The name of a user, without `User:`.")]
Client = Annotated[str | None, typer.Option("--client", metavar="CLIENT-ID", help="A client id.")]
Ip = Annotated[str | None, typer.Option("--ip", metavar="ADDRESS", help="An IP address.")]
UserDefaults = Annotated[bool, typer.Option("--user-defaults", help="Each user without quotas of its own.")]
ClientDefaults = Annotated[bool, typer.Option("--client-defaults", help="Each client id without quotas of its own.")]
IpDefaults = Annotated[bool, typer.Option("--ip-defaults", help="Each address without quotas of its own.")]


@dataclass(frozen=True)
class Owner:
    """Whose quotas a command changes."""

    user: User = None
    client: Client = None
    ip: Ip = None
    user_defaults: UserDefaults = False
    client_defaults: ClientDefaults = False
    ip_defaults: IpDefaults = False

    def entity(self) -> Entity:
        parts: list[tuple[str, str | None]] = []
        for kind, name, is_default, options in (
            (_USER, self.user, self.user_defaults, "--user and --user-defaults"),
            (_CLIENT, self.client, self.client_defaults, "--client and --client-defaults"),
            (_IP, self.ip, self.ip_defaults, "--ip and --ip-defaults"),
        ):
            if name is not None and is_default:
                raise Failure(f"{options} exclude each other", exit_code=EXIT_USAGE)
            if name == "":
                raise Failure(f"the name of the {kind} is empty", exit_code=EXIT_USAGE)
            if name is not None or is_default:
                parts.append((kind, name))
        if not parts:
            raise Failure(
                "whose quotas? --user, --client, --ip, or --user-defaults, --client-defaults, --ip-defaults", exit_code=EXIT_USAGE
            )
        if len(parts) > 1 and parts[-1][0] == _IP:
            raise Failure("an address has quotas of its own, not together with a user or client id", exit_code=EXIT_USAGE)
        return tuple(parts)


@app.add("list")
def list_(
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """List all quotas."""
    found = stored_quotas(Connection(bootstrap_servers, command_config))
    if json_output:
        print_document([{"entity": dict(entity), "quotas": quotas} for entity, quotas in found.items()])
    elif found:
        print_table(
            ["USER", "CLIENT", "IP", "QUOTA", "VALUE"],
            [
                (*(_name(entity, kind) for kind in (_USER, _CLIENT, _IP)), quota, _number(value))
                for entity, quotas in found.items()
                for quota, value in quotas.items()
            ],
            right=["VALUE"],
        )
    else:
        note("no quotas; set one with `ottla quota set --user NAME producer_byte_rate=1048576`")


@app.add("describe")
def describe(
    user: User = None,
    client: Client = None,
    ip: Ip = None,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Show which quotas apply to a user, a client, or an address, and where each one is set.

    A user without authentication is ANONYMOUS.
    """
    if not (user or client or ip) or (ip and (user or client)):
        raise Failure("name a user, a client id, both, or an address: --user, --client, --ip", exit_code=EXIT_USAGE)
    stored = stored_quotas(Connection(bootstrap_servers, command_config))
    if ip:
        order: list[Entity] = [((_IP, ip),), ((_IP, None),)]
    else:
        from ottla.security.quotas import entities_of

        order = [entity for entity, _, _ in entities_of(user or "ANONYMOUS", client or "")]
    documents: list[dict[str, Any]] = []
    for quota in IP_QUOTAS if ip else USER_QUOTAS:
        source = next((entity for entity in order if quota in stored.get(entity, {})), None)
        value = stored[source][quota] if source is not None else None
        documents.append({"quota": quota, "value": value, "entity": dict(source) if source is not None else None})
    if json_output:
        print_document(documents)
        return
    print_table(
        ["QUOTA", "VALUE", "SET FOR"],
        [
            (
                document["quota"],
                _number(document["value"]) if document["value"] is not None else "unlimited",
                _title(tuple(document["entity"].items())) if document["entity"] is not None else None,
            )
            for document in documents
        ],
        right=["VALUE"],
    )


@app.add("set", changes=True)
@with_option_groups
def set_(
    pairs: Annotated[list[str], typer.Argument(metavar="QUOTA=VALUE", show_default=False)],
    owner: Owner,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Set quotas of a user, a client id, a client id of a user, or an address.

    producer_byte_rate and consumer_byte_rate: bytes per second, on each broker.
    request_percentage: time of requests, 100 is one thread.
    controller_mutation_rate: partitions created or deleted per second.
    connection_creation_rate: new connections per second of an address.
    """
    entity = owner.entity()
    changes: dict[str, float] = {}
    for quota, text in parse_pairs(pairs, "quota").items():
        check_quota(entity, quota)
        try:
            changes[quota] = float(text)
        except ValueError:
            raise Failure(f"{quota}={text} is not a number", exit_code=EXIT_USAGE) from None
    alter_quotas(Connection(bootstrap_servers, command_config), entity, changes)
    if json_output:
        print_document({"entity": dict(entity), "set": changes})
    else:
        for quota, value in changes.items():
            print(f"{_title(entity)}: {quota}={_number(value)}")


@app.add("remove", changes=True)
@with_option_groups
def remove(
    owner: Owner,
    quotas: Annotated[list[str] | None, typer.Argument(metavar="QUOTA", help="Only these quotas.")] = None,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Remove quotas of a user, a client id, a client id of a user, or an address."""
    entity = owner.entity()
    for quota in quotas or ():
        check_quota(entity, quota)
    connection = Connection(bootstrap_servers, command_config)
    present = stored_quotas(connection).get(entity, {})
    removed = [quota for quota in present if not quotas or quota in quotas]
    missing = [quota for quota in quotas or () if quota not in present]
    if missing or not removed:
        raise Failure(f"{_title(entity)} has no {'quota ' + missing[0] if missing else 'quotas'}")
    alter_quotas(connection, entity, dict.fromkeys(removed))
    if json_output:
        print_document({"entity": dict(entity), "removed": removed})
    else:
        for quota in removed:
            print(f"{_title(entity)}: {quota} removed")


def check_quota(entity: Entity, quota: str) -> None:
    known = IP_QUOTAS if entity[0][0] == _IP else USER_QUOTAS
    if quota not in known:
        raise Failure(f"{quota!r} is not a quota of a {entity[0][0]}", did_you_mean(quota, known), exit_code=EXIT_USAGE)


def stored_quotas(connection: Connection) -> dict[Entity, dict[str, float]]:
    """All quotas of the cluster, sorted by entity; a default comes last."""
    from ottla.cli.plain_request import call, raise_if_error
    from ottla.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse

    response = call(connection, "describe_client_quotas", 0, DescribeClientQuotasRequest(), DescribeClientQuotasResponse)
    raise_if_error(response.error_code, "quotas", response.error_message)
    found = {
        _sorted((part.entity_type, part.entity_name) for part in entry.entity): {value.key: value.value for value in entry.values}
        for entry in response.entries or ()
    }
    return {
        entity: dict(sorted(found[entity].items()))
        for entity in sorted(found, key=lambda entity: [(_ORDER.get(kind, 9), name is None, name or "") for kind, name in entity])
    }


_ORDER = {_USER: 0, _CLIENT: 1, _IP: 2}


def _sorted(parts: Iterable[tuple[str, str | None]]) -> Entity:
    return tuple(sorted(parts, key=lambda part: _ORDER.get(part[0], 9)))


def alter_quotas(connection: Connection, entity: Entity, changes: Mapping[str, float | None]) -> None:
    from ottla.cli.plain_request import call, raise_if_error
    from ottla.protocol.messages.alter_client_quotas import (
        AlterClientQuotasRequest,
        AlterClientQuotasResponse,
        EntityData,
        EntryData,
        OpData,
    )

    entry = EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in changes.items()],
    )
    response = call(connection, "alter_client_quotas", 0, AlterClientQuotasRequest(entries=[entry]), AlterClientQuotasResponse)
    for answer in response.entries:
        raise_if_error(answer.error_code, f"quotas of {_title(entity)}", answer.error_message)


def _name(entity: Entity, kind: str) -> str | None:
    return next((name if name is not None else "(default)" for each, name in entity if each == kind), None)


def _title(entity: Sequence[tuple[str, Any]]) -> str:
    words = {_USER: "user", _CLIENT: "client", _IP: "address"}
    return ", ".join(
        f"{words.get(kind, kind)} {name}" if name is not None else f"default {words.get(kind, kind)}" for kind, name in entity
    )


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)
