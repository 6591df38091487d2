"""`ottla reassign`: plan, execute, status, cancel. Plans are files of kafka-reassign-partitions."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.connection import Connection
from ottla.cli.failure import EXIT_USAGE, Failure
from ottla.cli.options import DEFAULT_BOOTSTRAP_SERVERS, Bootstrap, CommandConfig, Commands, Json, read_text_or_stdin
from ottla.cli.output import counted, note, print_document, print_table

if TYPE_CHECKING:
    from ottla.cli.reassign.moves import Move, Reassignments
    from ottla.cli.reassign.plan import Assignment

_WAIT_S = 0.5

app = Commands(help="Move replicas to other brokers: plan, execute, status, cancel.", no_args_is_help=True)

PlanFile = Annotated[Path, typer.Argument(metavar="FILE", help="The plan; - is stdin.", show_default=False)]
OptionalPlanFile = Annotated[
    Path | None,
    typer.Argument(metavar="FILE", help="Only partitions of this plan (- is stdin). (default: all)", show_default=False),
]
KeepThrottle = Annotated[bool, typer.Option("--keep-throttle", help="Do not remove the throttle.")]


def _reassignments(bootstrap_servers: str, command_config: Path | None) -> Reassignments:
    # Imported late: `ottla --help` does not need the protocol's messages.
    from ottla.cli.reassign.moves import Reassignments

    return Reassignments(Connection(bootstrap_servers, command_config))


def _read(path: Path) -> Assignment:
    from ottla.cli.reassign.plan import parse_document

    return parse_document(read_text_or_stdin(path), "stdin" if str(path) == "-" else str(path))


def _write(path: Path, document: dict[str, Any]) -> None:
    try:
        path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise Failure(f"cannot write {path}: {error.strerror}", exit_code=EXIT_USAGE) from None


def _parse_brokers(text: str) -> list[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() for word in words):
        raise Failure(f"{text!r} is not a list of broker ids", "write 1,2,3", exit_code=EXIT_USAGE)
    return [int(word) for word in words]


@app.add("plan")
def plan(
    topics: Annotated[list[str] | None, typer.Argument(metavar="TOPIC", show_default=False)] = None,
    all_topics: Annotated[bool, typer.Option("--all-topics", help="All topics, including internal ones.")] = False,
    brokers: Annotated[
        str | None, typer.Option("--brokers", metavar="1,2,…", help="The brokers that may hold replicas. (default: all)")
    ] = None,
    replication_factor: Annotated[
        int | None, typer.Option("--replication-factor", "-r", min=1, help="The new number of replicas. (default: unchanged)")
    ] = None,
    ignore_racks: Annotated[bool, typer.Option("--ignore-racks", help="Do not spread replicas over racks.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the plan to this file instead of stdout.")
    ] = None,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print errors as JSON. A plan always is JSON.")] = False,
) -> None:
    """Propose an assignment that spreads replicas and leaders evenly over brokers and racks. Changes nothing.

    It copies as few replicas as possible.
    """
    from ottla.cli.reassign.plan import document_of
    from ottla.cli.reassign.plan import plan as make_plan

    if bool(topics) == all_topics:
        raise Failure("pass either topics or --all-topics", exit_code=EXIT_USAGE)
    reassignments = _reassignments(bootstrap_servers, command_config)
    view = reassignments.view
    partitions = list(view.partitions.values()) if all_topics else view.of(topics or [])
    chosen = _parse_brokers(brokers) if brokers is not None else sorted(view.brokers)
    for broker in chosen:
        if broker not in view.brokers:
            raise Failure(f"broker {broker} does not exist", f"the brokers are {', '.join(map(str, sorted(view.brokers)))}")
    racks = {broker: None if ignore_racks else view.brokers[broker].rack for broker in chosen}
    current = reassignments.current((each.topic, each.index) for each in partitions)
    target = make_plan(current, racks, replication_factor)
    changed = {key: replicas for key, replicas in target.items() if replicas != current[key]}
    copies = sum(len(set(replicas) - set(current[key])) for key, replicas in changed.items())
    note(
        f"{counted(len(changed), 'partition')} of {len(target)} would change, {counted(copies, 'replica')} would be copied"
        if changed
        else f"{counted(len(target), 'partition')}: nothing to change"
    )
    # An empty plan cannot be executed, so one without changes holds the present assignment.
    document = document_of(changed or target)
    if out is not None:
        _write(out, document)
    else:
        print_document(document)


@app.add("execute", changes=True)
def execute(
    file: PlanFile,
    throttle: Annotated[
        int | None, typer.Option("--throttle", min=1, metavar="BYTES/S", help="Limit the copying of each broker.")
    ] = None,
    save_current: Annotated[
        Path | None, typer.Option("--save-current", metavar="FILE", help="Write the present assignment, to go back to it.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Wait until all is done, then remove the throttle.")] = False,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Start to move replicas to the assignment of a plan."""
    from ottla.cli.reassign.plan import document_of

    assignment = _read(file)
    reassignments = _reassignments(bootstrap_servers, command_config)
    reassignments.check(assignment)
    current = reassignments.current(assignment)
    if save_current is not None:
        _write(save_current, document_of(current))
    if throttle is not None:
        reassignments.throttle(assignment, throttle)
    reassignments.start(assignment)
    if wait:
        while [move for move in reassignments.moves(behind=False) if (move.topic, move.partition) in assignment]:
            time.sleep(_WAIT_S)
        if throttle is not None:
            reassignments.unthrottle({topic for topic, _ in assignment})
    if json_output:
        print_document({"partitions": len(assignment), "done": wait, "before": document_of(current)})
    else:
        print(f"{counted(len(assignment), 'partition')}: reassignment {'done' if wait else 'started'}")
        if not wait:
            more = ", which also removes the throttle at the end" if throttle else ""
            note(f"watch it with `ottla reassign status {file}`{more}")


@app.add("status", changes=lambda options: options["file"] is not None and not options["keep_throttle"])
def status(
    file: OptionalPlanFile = None,
    keep_throttle: KeepThrottle = False,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Show running reassignments; with a plan also the finished ones. Removes the throttle of a finished plan."""
    reassignments = _reassignments(bootstrap_servers, command_config)
    assignment = _read(file) if file is not None else None
    moves = [move for move in reassignments.moves() if assignment is None or (move.topic, move.partition) in assignment]
    if assignment is None:
        if json_output:
            print_document({"done": not moves, "moving": [move.document() for move in moves]})
        elif moves:
            _print_moves(moves)
        else:
            print("no reassignment is running")
        return
    reassignments.view.refresh()
    moving = {(move.topic, move.partition) for move in moves}
    partitions = reassignments.view.partitions
    done = [key for key, replicas in assignment.items() if key in partitions and partitions[key].replicas == replicas]
    other = [key for key in assignment if key not in moving and key not in done]
    freed = reassignments.unthrottle({topic for topic, _ in assignment}) if not moves and not keep_throttle else []
    if json_output:
        print_document(
            {
                "done": len(done) == len(assignment) and not moves,
                "moving": [move.document() for move in moves],
                "completed": [{"topic": topic, "partition": index} for topic, index in done if (topic, index) not in moving],
                "otherwise": [{"topic": topic, "partition": index} for topic, index in other],
                "unthrottled": freed,
            }
        )
        return
    print(f"{len(set(done) - moving)} of {counted(len(assignment), 'partition')} done, {len(moves)} running")
    for topic, index in other:
        present = ",".join(map(str, partitions[topic, index].replicas)) if (topic, index) in partitions else "none"
        wanted = ",".join(map(str, assignment[topic, index]))
        print(f"{topic}-{index} is not being reassigned: its replicas are {present}, planned {wanted}")
    if moves:
        _print_moves(moves)
    if freed:
        note(f"removed the throttle of {', '.join(freed)}")


@app.add("cancel", changes=True)
def cancel(
    file: OptionalPlanFile = None,
    keep_throttle: KeepThrottle = False,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Cancel running reassignments: the partitions go back to the replicas they had."""
    assignment = _read(file) if file is not None else None
    reassignments = _reassignments(bootstrap_servers, command_config)
    keys = [(move.topic, move.partition) for move in reassignments.moves(behind=False)]
    keys = [key for key in keys if assignment is None or key in assignment]
    if keys:
        reassignments.cancel(keys)
    topics = {topic for topic, _ in assignment or keys}
    freed = [] if keep_throttle else reassignments.unthrottle(topics)
    if json_output:
        print_document({"cancelled": [{"topic": topic, "partition": index} for topic, index in keys], "unthrottled": freed})
        return
    print(f"{counted(len(keys), 'reassignment')} cancelled" if keys else "no reassignment is running")
    if freed:
        note(f"removed the throttle of {', '.join(freed)}")


def _print_moves(moves: list[Move]) -> None:
    print_table(
        ["TOPIC", "PARTITION", "REPLICAS", "ADDING", "REMOVING", "BEHIND"],
        [
            (
                move.topic,
                move.partition,
                ",".join(map(str, move.replicas)),
                ",".join(map(str, move.adding)) or "-",
                ",".join(map(str, move.removing)) or "-",
                " ".join(f"{broker}:{'-' if count is None else count}" for broker, count in move.behind.items()) or "-",
            )
            for move in moves
        ],
        right=["PARTITION"],
    )
