"""`ottla log-dirs`: describe (also without the word) and move."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.connection import Connection
from ottla.cli.failure import Failure, raise_together
from ottla.cli.options import DEFAULT_BOOTSTRAP_SERVERS, Bootstrap, CommandConfig, Commands, Group, Json
from ottla.cli.output import counted, note, print_document, print_table, size_text
from ottla.cli.scope import parse_scope, scoped_partitions

if TYPE_CHECKING:
    from ottla.cli.log_dirs.view import Directory, LogDirs

_WAIT_S = 0.5


class _DescribeByDefault(Group):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["describe", *args]
        return super().parse_args(ctx, args)


app = Commands(cls=_DescribeByDefault, help="Data directories of brokers: sizes, free space, moves. (default: describe)")


def _log_dirs(bootstrap_servers: str, command_config: Path | None) -> tuple[Connection, LogDirs]:
    # Imported late: `ottla --help` does not need the protocol's messages.
    from ottla.cli.log_dirs.view import LogDirs

    connection = Connection(bootstrap_servers, command_config)
    return connection, LogDirs(connection)


@app.add("describe")
def describe(
    broker: Annotated[
        list[int] | None, typer.Option("--broker", min=0, metavar="ID", help="Only this broker (repeatable).")
    ] = None,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", "-t", metavar="TOPIC", help="List replicas of this topic only (repeatable).")
    ] = None,
    replicas: Annotated[bool, typer.Option("--replicas", help="List each replica with its size and lag.")] = False,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Show the data directories of each broker: state, size, free space, and the replicas that move between them."""
    _, log_dirs = _log_dirs(bootstrap_servers, command_config)
    topics = list(dict.fromkeys(topic)) if topic else None
    if topics is not None:
        log_dirs.view.of(topics)
    for each in broker or []:
        log_dirs.require_broker(each)
    found: dict[int, list[Directory]] = {}
    failures: list[Failure] = []
    for each in sorted(set(broker)) if broker else sorted(log_dirs.view.brokers):
        try:
            found[each] = log_dirs.of(each, topics)
        except Failure as failure:
            failures.append(failure)
    if json_output and (found or not failures):
        print_document(
            [{"broker": each, "log_dirs": [directory.document() for directory in found[each]]} for each in sorted(found)]
        )
    elif found:
        _print_directories(found)
        _print_replicas(found, every=replicas or topics is not None)
    raise_together(failures)


@app.add("move", changes=True)
def move(
    partitions: Annotated[list[str], typer.Argument(metavar="TOPIC[:0,1,…]", show_default=False)],
    to: Annotated[str, typer.Option("--to", metavar="DIR", help="The directory, as the broker names it in log.dirs.")],
    broker: Annotated[int, typer.Option("--broker", min=0, metavar="ID", help="The broker whose replicas move.")],
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Wait until all have moved.")] = False,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Move replicas of a broker to another of its data directories, while they are read and written."""
    scope = parse_scope(partitions)
    connection, log_dirs = _log_dirs(bootstrap_servers, command_config)
    log_dirs.require_broker(broker)
    keys = scoped_partitions(connection, scope)
    log_dirs.require_movable(broker, keys, to)
    moving = list(log_dirs.not_in(broker, keys, to))
    if moving:
        log_dirs.move(broker, moving, to)
    while wait and (left := log_dirs.not_in(broker, moving, to)):
        stopped = [f"{name}-{index}" for (name, index), copy in left.items() if copy is None]
        # A move may end between the descriptions of its two directories: look twice.
        if stopped and set(log_dirs.not_in(broker, moving, to).values()) == {None}:
            raise Failure(f"broker {broker} gave up moving {', '.join(stopped)}", "its log says why", code="MOVE_STOPPED")
        time.sleep(_WAIT_S)
    if json_output:
        print_document(
            {"broker": broker, "log_dir": to, "moved": len(moving), "there_before": len(keys) - len(moving), "done": wait}
        )
    elif not moving:
        print(f"{counted(len(keys), 'replica')} of broker {broker}: already in {to}")
    else:
        print(f"{counted(len(moving), 'replica')} of broker {broker}: move to {to} {'done' if wait else 'started'}")
        if not wait:
            note(f"watch it with `ottla log-dirs --broker {broker}`")


def _print_directories(found: dict[int, list[Directory]]) -> None:
    print_table(
        ["BROKER", "DIRECTORY", "STATE", "REPLICAS", "SIZE", "FREE", "TOTAL"],
        [
            (
                broker,
                each.path,
                each.state,
                sum(not replica.is_future for replica in each.replicas),
                size_text(each.size_bytes),
                None if each.usable_bytes is None else size_text(each.usable_bytes),
                None if each.total_bytes is None else size_text(each.total_bytes),
            )
            for broker, directories in found.items()
            for each in directories
        ],
        right=["BROKER", "REPLICAS", "SIZE", "FREE", "TOTAL"],
        none="-",
    )


def _print_replicas(found: dict[int, list[Directory]], *, every: bool) -> None:
    """Every replica, or only the copies of running moves."""
    rows = [
        (
            replica.topic,
            replica.partition,
            broker,
            directory.path,
            size_text(replica.size_bytes),
            replica.offset_lag,
            "moving here" if replica.is_future else "",
        )
        for broker, directories in found.items()
        for directory in directories
        for replica in directory.replicas
        if every or replica.is_future
    ]
    if rows:
        print()
        print_table(
            ["TOPIC", "PARTITION", "BROKER", "DIRECTORY", "SIZE", "LAG", ""],
            sorted(rows),
            right=["PARTITION", "BROKER", "SIZE", "LAG"],
        )
