"""`ottla topic clone` and `ottla topic copy`."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.connection import Connection
from ottla.cli.copying.destination import Destination
from ottla.cli.failure import EXIT_USAGE, Failure
from ottla.cli.options import DEFAULT_BOOTSTRAP_SERVERS, Bootstrap, CommandConfig, Json, Yes, parse_pairs
from ottla.cli.output import counted, note, print_document, size_text
from ottla.cli.parameters import with_option_groups
from ottla.cli.positions import TopicIndex, parse_position
from ottla.cli.units import parse_bytes

if TYPE_CHECKING:
    from ottla.cli.consume import Bounds
    from ottla.cli.copying.copy import Copied

Source = Annotated[str, typer.Argument(metavar="SOURCE", show_default=False)]
Target = Annotated[str, typer.Argument(metavar="TARGET", show_default=False)]


@with_option_groups
def clone(
    source: Source,
    target: Target,
    destination: Destination,
    partitions: Annotated[int | None, typer.Option("--partitions", "-p", min=1, help="Another number of partitions.")] = None,
    replication_factor: Annotated[
        int | None, typer.Option("--replication-factor", "-r", min=1, help="Another number of replicas.")
    ] = None,
    config: Annotated[
        list[str] | None, typer.Option("--config", "-c", metavar="KEY=VALUE", help="Another value of a setting (repeatable).")
    ] = None,
    yes: Yes = False,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Create a topic with the partitions, replicas and settings of another one. Copies no records."""
    from ottla.cli.copying.layout import create_topic, layout_of

    changed = parse_pairs(config, "--config")
    connection = Connection(bootstrap_servers, command_config)
    found = layout_of(connection, source)
    layout = replace(
        found,
        partitions=partitions or found.partitions,
        replication_factor=replication_factor or found.replication_factor,
        config={**found.config, **changed},
    )
    create_topic(destination.connect(connection, yes=yes), target, layout)
    if json_output:
        print_document({"topic": target, "source": source, **layout.document()})
    else:
        own = f", {counted(len(layout.config), 'setting')} of its own" if layout.config else ""
        replicas = counted(layout.replication_factor, "replica")
        print(f"topic {target} created like {source}: {counted(layout.partitions, 'partition')}, {replicas}{own}")


@with_option_groups
def copy(
    source: Source,
    target: Target,
    destination: Destination,
    start: Annotated[
        str,
        typer.Option("--from", metavar="POSITION", help="Where the first run starts: beginning, end, an offset, 10m, a time."),
    ] = "beginning",
    follow: Annotated[
        bool, typer.Option("--follow/--exit-at-end", "-f/-e", help="Go on with new records, or stop at the end.")
    ] = False,
    throttle: Annotated[
        str | None, typer.Option("--throttle", metavar="BYTES/S", help="Copy at most this much: 500KB, 10MB.")
    ] = None,
    create: Annotated[bool, typer.Option("--create", help="Create TARGET like SOURCE if it does not exist.")] = False,
    compression: Annotated[
        str, typer.Option("--compression", "-z", metavar="none|gzip|snappy|lz4|zstd", help="The codec of the copy.")
    ] = "none",
    yes: Yes = False,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Copy the committed records of a topic, each exactly once, with key, value, headers, timestamp and partition.

    A copy that is run again continues: with what is new, or where it was killed.
    """
    from ottla.cli.consume import find_bounds
    from ottla.cli.copying.copy import Copy, Route
    from ottla.cli.copying.layout import create_topic, layout_of
    from ottla.cli.copying.transfer import Transfer

    rate = None if throttle is None else parse_bytes(throttle, "--throttle")
    position = parse_position(start, int(time.time() * 1000))
    connection = Connection(bootstrap_servers, command_config)
    connection.topic(source)
    to = destination.connect(connection, yes=yes)
    route = Route(connection, source, to, target)
    if source == target and route.same_cluster:
        raise Failure(f"topic {source} cannot be copied to itself", exit_code=EXIT_USAGE)
    if target not in to.metadata().topics:
        if not create:
            hint = f"create it with `ottla topic clone {source} {target}`, or pass --create"
            raise Failure(f"topic {target} does not exist", hint, code="UNKNOWN_TOPIC_OR_PARTITION")
        create_topic(to, target, layout_of(connection, source))
        to.created_topic(target)
    transfer = Transfer(to, route.name(), compression=compression)
    began = time.monotonic()
    try:
        transfer.begin()
        task = Copy(route, transfer)
        progress = task.progress()
        bounds = find_bounds(connection, [source], None, position, None, follow=follow, isolation="read_committed")
        _continue(bounds, progress)
        if progress and not json_output:
            note(f"continuing behind what group {transfer.name} has committed")
        copied = task.run(bounds, rate, _Told() if sys.stderr.isatty() else lambda _: None)
    finally:
        transfer.close()
    if json_output:
        document = {"source": source, "target": target, "records": copied.records, "size_bytes": copied.size_bytes}
        print_document({**document, "group": transfer.name, "continued": bool(progress)})
    else:
        took_s = time.monotonic() - began
        amount = f"{counted(copied.records, 'record')} ({size_text(copied.size_bytes)})"
        print(f"copied {amount} of {source} to {target} in {took_s:.1f} s")


def _continue(bounds: Bounds, progress: dict[TopicIndex, int]) -> None:
    """Start behind the progress, unless retention or a deletion is past it."""
    for key, offset in progress.items():
        end = bounds.end[key]
        bounds.start[key] = max(offset, bounds.start[key]) if end is None else min(max(offset, bounds.start[key]), end)


class _Told:
    """The progress as one line on a terminal."""

    def __call__(self, copied: Copied) -> None:
        sys.stderr.write(f"\r{copied.records:,} records, {size_text(copied.size_bytes)} copied\033[K\r")
        sys.stderr.flush()
