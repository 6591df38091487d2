"""`ottla delete-records`: moves the start of partitions forward. Shows what goes before it asks."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from ottla.cli.connection import REQUEST_TIMEOUT_S, Connection, result_of
from ottla.cli.failure import EXIT_USAGE, Failure, raise_together
from ottla.cli.options import DEFAULT_BOOTSTRAP_SERVERS, Bootstrap, CommandConfig, Json, Yes, confirm
from ottla.cli.output import counted, print_document, print_table
from ottla.cli.positions import Position, TopicIndex, parse_position
from ottla.cli.scope import scoped_partitions

Bounds = dict[TopicIndex, tuple[int, int]]


def delete_records(
    name: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)],
    before: Annotated[
        str | None,
        typer.Option(
            "--before",
            metavar="POSITION",
            help="Delete what is before end (all), an offset, -5 (the last five stay), 7d (ago) or an ISO time.",
        ),
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this partition (repeatable).")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")] = False,
    yes: Yes = False,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Delete the oldest records of a topic: all before a position."""
    if before is None:
        raise Failure(
            "--before is missing: it says which records go",
            "pass an offset, a time (7d, 2024-05-01T10:00), -1000 to keep the last thousand, or end for all",
            exit_code=EXIT_USAGE,
        )
    position = parse_position(before, int(time.time() * 1000))
    connection = Connection(bootstrap_servers, command_config)
    bounds, target = planned_deletion(connection, name, partition, position)
    count = sum(target[key] - bounds[key][0] for key in target)
    if not json_output:
        _print_plan(name, bounds, target)
    if dry_run:
        failures: list[Failure] = []
    else:
        if count:
            confirm(f"Delete {counted(count, 'offset')} of topic {name}?", yes)
        failures = delete_before(connection, {key: offset for key, offset in target.items() if offset > bounds[key][0]})
    if json_output and not failures:
        print_document([_document(key, bounds[key], offset, deleted=not dry_run) for key, offset in target.items()])
    elif not json_output and not dry_run and not failures:
        print(f"{counted(count, 'offset')} of topic {name} deleted" if count else "nothing to delete")
    raise_together(failures)


def planned_deletion(
    connection: Connection, topic: str, partitions: list[int] | None, position: Position
) -> tuple[Bounds, dict[TopicIndex, int]]:
    """The bounds of each partition, and its new start: never before the present one."""
    from ottla.cli.offsets import log_bounds, resolve

    bounds = log_bounds(connection, scoped_partitions(connection, {topic: sorted(set(partitions)) if partitions else None}))
    if position.kind == "offset":
        _require_within(position.value, bounds)
    return bounds, {key: max(bounds[key][0], offset) for key, offset in resolve(connection, bounds, position, clamp=True).items()}


def _require_within(offset: int, bounds: Bounds) -> None:
    short = [f"{topic}-{index} ends at {end}" for (topic, index), (_, end) in bounds.items() if offset > end]
    if short:
        raise Failure(
            f"offset {offset} is behind the end: {', '.join(short)}",
            "choose one partition with -p, or --before end for all records",
            code="OFFSET_OUT_OF_RANGE",
        )


def delete_before(connection: Connection, target: dict[TopicIndex, int]) -> list[Failure]:
    """Move the start of these partitions. Returns what failed."""
    from confluent_kafka import TopicPartition

    if not target:
        return []
    futures = connection.admin.delete_records(
        [TopicPartition(topic, index, offset) for (topic, index), offset in target.items()],
        request_timeout=REQUEST_TIMEOUT_S,
        operation_timeout=REQUEST_TIMEOUT_S,
    )
    failures = []
    for each, future in futures.items():
        try:
            result_of(future, f"{each.topic}-{each.partition}")
        except Failure as failure:
            if failure.code == "POLICY_VIOLATION":
                failure.hint = (
                    f"only cleanup.policy=delete allows it; see `ottla config describe topic {each.topic} cleanup.policy`"
                )
            failures.append(failure)
    return failures


def _document(key: TopicIndex, bound: tuple[int, int], new_start: int, *, deleted: bool) -> dict[str, Any]:
    start, end = bound
    return {
        "topic": key[0],
        "partition": key[1],
        "start_offset": start,
        "new_start_offset": new_start,
        "end_offset": end,
        "offsets": new_start - start,
        "deleted": deleted and new_start > start,
    }


def _print_plan(topic: str, bounds: Bounds, target: dict[TopicIndex, int]) -> None:
    print_table(
        ["TOPIC", "PARTITION", "START", "NEW-START", "END", "DELETED", "KEPT"],
        [
            (topic, key[1], bounds[key][0], offset, bounds[key][1], offset - bounds[key][0], bounds[key][1] - offset)
            for key, offset in sorted(target.items())
        ],
        right=["PARTITION", "START", "NEW-START", "END", "DELETED", "KEPT"],
    )
