"""`ottla group`: list, describe, members, delete, delete-offsets. `reset` holds reset-offsets."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.connection import REQUEST_TIMEOUT_S, Connection, result_of
from ottla.cli.failure import EXIT_USAGE, Failure, raise_together
from ottla.cli.group.reset import reset_offsets
from ottla.cli.options import DEFAULT_BOOTSTRAP_SERVERS, Bootstrap, CommandConfig, Commands, Json, Yes, confirm
from ottla.cli.output import counted, note, print_document, print_table
from ottla.cli.positions import TopicIndex
from ottla.cli.scope import parse_scope, scoped_partitions

if TYPE_CHECKING:
    from ottla.cli.group.view import Group

app = Commands(help="Consumer groups: list, describe, members, reset-offsets, delete, delete-offsets.", no_args_is_help=True)

_NONE_YET = "no groups yet; a consumer with a group.id creates one"

Names = Annotated[list[str], typer.Argument(metavar="GROUP", show_default=False)]


@app.add("list")
def list_(
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Only groups in this state (repeatable): stable, empty, …"),
    ] = None,
    type_: Annotated[
        str | None,
        typer.Option("--type", metavar="classic|consumer", help="Only groups of the classic or the consumer protocol (KIP-848)."),
    ] = None,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """List groups, their type and state."""
    from ottla.cli.group.view import STATES, list_groups

    if type_ is not None and type_ not in ("classic", "consumer"):
        raise Failure(f"--type {type_!r} is neither classic nor consumer", exit_code=EXIT_USAGE)
    states = {word.lower() for word in state or []}
    unknown = states - {known.lower() for known in STATES}
    if unknown:
        raise Failure(f"{min(unknown)!r} is not a group state", f"the states are {', '.join(STATES)}", exit_code=EXIT_USAGE)
    rows = list_groups(Connection(bootstrap_servers, command_config))
    shown = [row for row in rows if type_ in (None, row["type"]) and (not states or row["state"].lower() in states)]
    if json_output:
        print_document(shown)
    elif shown:
        print_table(["GROUP", "TYPE", "STATE"], [list(row.values()) for row in shown])
    else:
        note("no group matches" if rows else _NONE_YET)


@app.add("describe")
def describe(
    names: Annotated[list[str] | None, typer.Argument(metavar="GROUP", show_default=False)] = None,
    all_groups: Annotated[bool, typer.Option("--all", help="All groups.")] = False,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Show committed offset, lag, lead and member of each partition.

    Lag is log end minus committed offset. Lead is committed offset minus log start: at 0, retention deletes unread records.
    """
    from ottla.cli.group.view import find_groups, list_groups, with_partitions

    if bool(names) == all_groups:
        raise Failure("pass either groups or --all", exit_code=EXIT_USAGE)
    connection = Connection(bootstrap_servers, command_config)
    wanted = names or [row["group"] for row in list_groups(connection)]
    groups = [with_partitions(connection, group) for group in find_groups(connection, wanted)] if wanted else []
    if json_output:
        print_document([group.document() for group in groups])
        return
    if not groups:
        note(_NONE_YET)
    for index, group in enumerate(groups):
        if index:
            print()
        _print_group(group)


def _print_group(group: Group) -> None:
    parts = [
        f"{group.name}  {group.type}, {group.state}",
        counted(len(group.members), "member"),
        *([f"protocol {group.protocol}"] if group.protocol else []),
        f"coordinator {group.coordinator_id} ({group.coordinator})",
        *([f"lag {group.lag}"] if group.lag is not None else []),
    ]
    print(", ".join(parts))
    if not group.partitions:
        note(f"group {group.name} has no committed offsets and no assigned partitions")
        return
    print_table(
        ["TOPIC", "PARTITION", "COMMITTED", "LOG-START", "LOG-END", "LAG", "LEAD", "MEMBER", "HOST", "CLIENT"],
        [partition.document().values() for partition in group.partitions],
        right=["PARTITION", "COMMITTED", "LOG-START", "LOG-END", "LAG", "LEAD"],
        none="-",
    )


def _assignment_text(assignment: Sequence[TopicIndex]) -> str:
    """`orders:0,1 payments:3`, in the syntax of --topic."""
    return " ".join(
        f"{topic}:{','.join(str(partition) for _, partition in keys)}" for topic, keys in groupby(assignment, lambda key: key[0])
    )


@app.add("members")
def members(
    name: Annotated[str, typer.Argument(metavar="GROUP")],
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Show the members of a group and their partitions."""
    from ottla.cli.group.view import find_groups

    (group,) = find_groups(Connection(bootstrap_servers, command_config), [name])
    if json_output:
        print_document([member.document() for member in group.members])
        return
    if not group.members:
        note(f"group {name} has no members (state {group.state})")
        return
    print_table(
        ["MEMBER", "INSTANCE", "HOST", "CLIENT", "PARTITIONS", "ASSIGNMENT"],
        [
            (
                member.member_id,
                member.instance_id,
                member.host,
                member.client_id,
                len(member.assignment),
                _assignment_text(member.assignment)
                + (f" (moving to {_assignment_text(member.target)})" if member.target not in (None, member.assignment) else ""),
            )
            for member in group.members
        ],
        right=["PARTITIONS"],
        none="-",
    )


@app.add("delete", changes=True)
def delete(
    names: Names,
    yes: Yes = False,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Delete groups and their committed offsets. They must have no members."""
    from ottla.cli.group.view import find_groups

    connection = Connection(bootstrap_servers, command_config)
    find_groups(connection, names)
    confirm(f"Delete {', '.join(names)} and their committed offsets?", yes)
    deleted, failures = delete_groups(connection, names)
    if json_output:
        print_document([{"group": name, "deleted": name in deleted} for name in dict.fromkeys(names)])
    else:
        for name in deleted:
            print(f"group {name} deleted")
    raise_together(failures)


def delete_groups(connection: Connection, names: Sequence[str]) -> tuple[list[str], list[Failure]]:
    """Which groups were deleted, and why others were not."""
    deleted: list[str] = []
    failures: list[Failure] = []
    futures = connection.admin.delete_consumer_groups(list(dict.fromkeys(names)), request_timeout=REQUEST_TIMEOUT_S)
    for name, future in futures.items():
        try:
            result_of(future, f"group {name}")
            deleted.append(name)
        except Failure as failure:
            failures.append(_refused_delete(connection, name, failure))
    return deleted, failures


def _refused_delete(connection: Connection, name: str, failure: Failure) -> Failure:
    if failure.code == "NON_EMPTY_GROUP":
        return Failure(
            f"group {name} has members and was not deleted",
            f"stop its consumers first; list them with `ottla group members {name}`",
            code=failure.code,
        )
    if failure.code == "GROUP_ID_NOT_FOUND":
        from ottla.cli.group.view import unknown_group

        return unknown_group(connection, name)
    return failure


@app.add("delete-offsets", changes=True)
def delete_offsets_command(
    name: Annotated[str, typer.Argument(metavar="GROUP")],
    topic: Annotated[
        list[str],
        typer.Option("--topic", "-t", metavar="TOPIC[:0,1,…]", help="Topic and partitions (repeatable).", show_default=False),
    ],
    yes: Yes = False,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Delete the committed offsets of topics that the group no longer reads."""
    from ottla.cli.group.offsets import delete_offsets
    from ottla.cli.group.view import find_groups

    scope = parse_scope(topic)
    connection = Connection(bootstrap_servers, command_config)
    (group,) = find_groups(connection, [name])
    keys = scoped_partitions(connection, scope)
    confirm(f"Delete the committed offsets of group {name} in {', '.join(scope)}?", yes)
    delete_offsets(connection, group, keys)
    if json_output:
        print_document(
            {"group": name, "deleted": [{"topic": topic_name, "partition": partition} for topic_name, partition in keys]}
        )
    else:
        for topic_name, partition in keys:
            print(f"group {name}: offset of {topic_name}-{partition} deleted")


app.add("reset-offsets", changes=lambda options: options["execute"])(reset_offsets)
