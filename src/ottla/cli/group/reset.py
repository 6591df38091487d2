"""`ottla group reset-offsets`: shows the new offsets and, with --execute, commits them."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ottla.cli.connection import Connection, unknown_partition, unknown_topic
from ottla.cli.failure import EXIT_USAGE, Failure
from ottla.cli.options import DEFAULT_BOOTSTRAP_SERVERS, Bootstrap, CommandConfig, Json, read_text_or_stdin
from ottla.cli.output import note, print_document, print_table
from ottla.cli.positions import TopicIndex, parse_time_ms
from ottla.cli.scope import parse_scope, scoped_partitions

if TYPE_CHECKING:
    from ottla.cli.group.plan import Step
    from ottla.cli.group.view import Group

Bounds = Mapping[TopicIndex, tuple[int, int]]


def _target(*names: str, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel="Target", **more)


def reset_offsets(
    name: Annotated[str, typer.Argument(metavar="GROUP")],
    topic: Annotated[
        list[str] | None, typer.Option("--topic", "-t", metavar="TOPIC[:0,1,…]", help="Topic and partitions (repeatable).")
    ] = None,
    all_topics: Annotated[bool, typer.Option("--all-topics", help="All partitions with a committed offset.")] = False,
    to_earliest: Annotated[bool, _target("--to-earliest", help="To the start of the log.")] = False,
    to_latest: Annotated[bool, _target("--to-latest", help="To the end of the log.")] = False,
    to_current: Annotated[
        bool, _target("--to-current", help="To the committed offset, or the end of the log if there is none.")
    ] = False,
    to_offset: Annotated[int | None, _target("--to-offset", metavar="OFFSET", min=0, help="To this offset.")] = None,
    shift_by: Annotated[int | None, _target("--shift-by", metavar="N", help="Forward by N offsets; -N is backward.")] = None,
    to_time: Annotated[
        str | None, _target("--to-time", "--to-datetime", metavar="TIME", help="To the first record since that time.")
    ] = None,
    by_duration: Annotated[
        str | None, _target("--by-duration", metavar="1h30m", help="To the first record since that long ago (or PT1H30M).")
    ] = None,
    from_file: Annotated[
        Path | None, _target("--from-file", metavar="FILE", help="To the offsets of a file of --export (CSV or JSON).")
    ] = None,
    execute: Annotated[bool, typer.Option("--execute/--dry-run", help="Commit the new offsets, or only show them.")] = False,
    export: Annotated[bool, typer.Option("--export", help="Print the new offsets as a file for --from-file.")] = False,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Change the committed offsets of a group without members. Without --execute it only shows the new offsets.

    An offset outside the log becomes its nearer end.
    """
    from ottla.cli.group.offsets import alter_offsets
    from ottla.cli.group.plan import read_plan

    _exactly_one(
        {
            "--to-earliest": to_earliest,
            "--to-latest": to_latest,
            "--to-current": to_current,
            "--to-offset": to_offset is not None,
            "--shift-by": shift_by is not None,
            "--to-time": to_time is not None,
            "--by-duration": by_duration is not None,
            "--from-file": from_file is not None,
        }
    )
    if from_file is not None and (topic or all_topics):
        raise Failure("--from-file names the partitions itself", "omit --topic and --all-topics", exit_code=EXIT_USAGE)
    if from_file is None and bool(topic) == all_topics:
        raise Failure("no partitions given", "pass either --topic (repeatable) or --all-topics", exit_code=EXIT_USAGE)
    scope = parse_scope(topic or [])
    now_ms = int(time.time() * 1000)
    time_ms = _time_ms(to_time, by_duration, now_ms)
    planned = None if from_file is None else read_plan(read_text_or_stdin(from_file), name, str(from_file))

    connection = Connection(bootstrap_servers, command_config)
    target = (
        Target("offsets", offsets=planned)
        if planned is not None
        else Target("offset", to_offset)
        if to_offset is not None
        else Target("shift", shift_by)
        if shift_by is not None
        else Target("time", time_ms)
        if time_ms is not None
        else Target("current" if to_current else "earliest" if to_earliest else "latest")
    )
    group, steps = reset_steps(connection, name, None if all_topics else scope, target)
    for step in steps:
        if step.note is not None:
            note(step.note)
    if execute:
        alter_offsets(connection, group, steps)
    _show(name, steps, executed=execute, export=export, json_output=json_output, is_new=group.state == "Dead")


@dataclass(frozen=True, slots=True)
class Target:
    """Where a group is to go on."""

    kind: Literal["earliest", "latest", "current", "offset", "shift", "time", "offsets"]
    value: int | None = None
    """The offset, the number of offsets, or milliseconds since 1970."""
    offsets: Mapping[TopicIndex, int] | None = None
    """The offset of each partition; they name the partitions too."""


def reset_steps(
    connection: Connection, name: str, scope: Mapping[str, Sequence[int] | None] | None, target: Target
) -> tuple[Group, list[Step]]:
    """The group, which has no members, and the changes. Without a scope all partitions with a committed offset."""
    from ottla.cli.group.offsets import has_members
    from ottla.cli.group.plan import plan, shifted
    from ottla.cli.group.view import committed_offsets, find_groups
    from ottla.cli.offsets import at_time

    (group,) = find_groups(connection, [name], missing_ok=True)
    if group.members or group.state not in ("Empty", "Dead"):
        raise has_members(group, "offsets can be reset")
    committed = committed_offsets(connection, name)
    if target.offsets is not None:
        keys = sorted(target.offsets)
    elif scope is None:
        keys = sorted(committed)
        if not keys:
            raise Failure(f"group {name} has no committed offsets", "name topics with --topic", code="NO_OFFSETS")
    else:
        keys = scoped_partitions(connection, scope)
    bounds = _bounds(connection, keys)
    wanted: Mapping[TopicIndex, int]
    if target.offsets is not None:
        wanted = target.offsets
    elif target.kind == "offset":
        wanted = dict.fromkeys(keys, target.value or 0)
    elif target.kind == "shift":
        wanted = shifted(keys, committed, target.value or 0)
    elif target.kind == "time":
        wanted = at_time(connection, bounds, target.value or 0)
    elif target.kind == "current":
        wanted = {key: committed.get(key, bounds[key][1]) for key in keys}
    else:
        wanted = {key: bounds[key][0 if target.kind == "earliest" else 1] for key in keys}
    # `current` keeps a committed offset that retention has passed.
    return group, plan(wanted, committed, bounds, clamp=target.kind != "current")


def _exactly_one(chosen: Mapping[str, bool]) -> None:
    given = [option for option, present in chosen.items() if present]
    if len(given) != 1:
        raise Failure(
            f"{' and '.join(given)} cannot be combined" if given else "no target given",
            f"pass one of {', '.join(chosen)}",
            exit_code=EXIT_USAGE,
        )


def _time_ms(to_time: str | None, by_duration: str | None, now_ms: int) -> int | None:
    if by_duration is not None:
        from ottla.cli.group.plan import parse_duration_ms

        return max(now_ms - parse_duration_ms(by_duration), 0)
    if to_time is None:
        return None
    time_ms = parse_time_ms(to_time, now_ms)
    if time_ms is None:
        raise Failure(
            f"--to-time {to_time!r} is not a time",
            "write 2024-05-01T10:00, @1714557600000 or a time ago (10m)",
            exit_code=EXIT_USAGE,
        )
    return max(time_ms, 0)


def _bounds(connection: Connection, keys: Sequence[TopicIndex]) -> Bounds:
    """The log bounds of all partitions. Failure if one has none: a reset must not be partial."""
    from ottla.cli.group.view import led_log_bounds

    bounds = led_log_bounds(connection, keys)
    for topic, partition in keys:
        if (topic, partition) not in bounds:
            known = connection.metadata().topics
            if topic not in known:
                raise unknown_topic(topic, known)
            if partition not in known[topic].partitions:
                raise unknown_partition(topic, partition, len(known[topic].partitions))
            raise Failure(f"{topic}-{partition} has no leader now", "see `ottla topic describe`")
    return bounds


def _show(name: str, steps: Sequence[Step], *, executed: bool, export: bool, json_output: bool, is_new: bool) -> None:
    from ottla.cli.group.plan import export_csv, export_documents

    if export and json_output:
        print_document(export_documents(steps))
    elif export:
        sys.stdout.write(export_csv(steps))
    elif json_output:
        print_document({"group": name, "executed": executed, "partitions": [step.document() for step in steps]})
    else:
        print_table(
            ["TOPIC", "PARTITION", "COMMITTED", "NEW-OFFSET", "LOG-START", "LOG-END", "NEW-LAG"],
            [[value for name, value in step.document().items() if name != "wanted"] for step in steps],
            right=["PARTITION", "COMMITTED", "NEW-OFFSET", "LOG-START", "LOG-END", "NEW-LAG"],
            none="-",
        )
    if executed and not json_output:
        note(f"committed the offsets of group {name}")
    elif not json_output:
        created = f"; group {name} does not exist and would be created" if is_new else ""
        note(f"dry run, nothing was changed{created}; pass --execute to commit")
