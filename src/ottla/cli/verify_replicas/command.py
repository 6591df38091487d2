"""`ottla verify-replicas`: compares the replicas of partitions, batch by batch."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.connection import Connection
from ottla.cli.failure import EXIT_USAGE, Failure
from ottla.cli.options import DEFAULT_BOOTSTRAP_SERVERS, Bootstrap, CommandConfig, Json
from ottla.cli.output import counted, print_document, print_table, size_text
from ottla.cli.positions import TopicIndex, parse_position
from ottla.cli.scope import parse_scope, scoped_partitions

if TYPE_CHECKING:
    from ottla.cli.verify_replicas.reading import Verified


def verify_replicas(
    partitions: Annotated[list[str] | None, typer.Argument(metavar="TOPIC[:0,1,…]", show_default=False)] = None,
    all_topics: Annotated[bool, typer.Option("--all-topics", help="All topics, including internal ones.")] = False,
    start: Annotated[
        str,
        typer.Option("--from", metavar="POSITION", help="Verify from here on: beginning, an offset, -1000, 10m (ago) or a time."),
    ] = "beginning",
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Compare all replicas of partitions up to the high watermark: offsets and CRCs of batches, and CRCs with the content.

    It reads every replica once. Exit code 1 if replicas differ or cannot be read; lag is no difference.
    """
    from ottla.cli.cluster.view import ClusterView
    from ottla.cli.offsets import log_bounds, resolve
    from ottla.cli.verify_replicas.reading import ReplicaReader, Verification

    if bool(partitions) == all_topics:
        raise Failure("pass either topics or --all-topics", exit_code=EXIT_USAGE)
    scope = parse_scope(partitions or [])
    position = parse_position(start, int(time.time() * 1000))
    connection = Connection(bootstrap_servers, command_config)
    view = ClusterView(connection)
    keys = sorted(view.partitions) if all_topics else scoped_partitions(connection, scope)
    led = [key for key in keys if not view.partitions[key].is_offline]
    starts = resolve(connection, log_bounds(connection, led), position, clamp=True)
    compacted = {topic: "compact" in _cleanup_policy(connection, topic) for topic in {topic for topic, _ in keys}}
    reader = ReplicaReader(connection, view)
    try:
        verification = Verification(reader, view, compacted)
        found = []
        for key in keys:
            # Just before: the end of what is verified should not be far behind, where retention is near.
            view.read_offsets([view.partitions[key]])
            found.append(verification.verify(view.partitions[key], starts.get(key, 0)))
    finally:
        reader.close()
    if json_output:
        print_document([each.document() for each in found])
    else:
        _print(found)
    different = [each for each in found if each.differences]
    unread = [each for each in found if each.unreadable and not each.differences]
    if different:
        raise Failure(f"{counted(len(different), 'partition')} with replicas that differ", code="REPLICAS_DIFFER")
    if unread:
        raise Failure(
            f"{counted(len(unread), 'partition')} with replicas that cannot be read",
            "see which brokers are alive with `ottla cluster status`",
            code="REPLICAS_UNREADABLE",
        )


def _cleanup_policy(connection: Connection, topic: str) -> str:
    from ottla.cli.config import describe_settings

    return str(describe_settings(connection, "topic", topic)["cleanup.policy"].value)


def _print(found: list[Verified]) -> None:
    print_table(
        ["TOPIC", "PARTITION", "LEADER", "REPLICAS", "FROM", "TO", "BATCHES", "SIZE", "LAG", "RESULT"],
        [
            (
                each.topic,
                each.partition,
                each.leader if each.leader >= 0 else "none",
                ",".join(map(str, each.replicas)),
                each.start_offset,
                each.end_offset,
                each.batches,
                size_text(each.size_bytes),
                " ".join(f"{broker}:{'-' if lag is None else lag}" for broker, lag in each.lag.items()),
                "same" if each.is_same else "different" if each.differences else "unreadable",
            )
            for each in found
        ],
        right=["PARTITION", "LEADER", "FROM", "TO", "BATCHES", "SIZE"],
    )
    for each in found:
        where: TopicIndex = (each.topic, each.partition)
        for broker, why in each.unreadable.items():
            print(
                f"{where[0]}-{where[1]}: replica {broker} cannot be read: {why}"
                if broker >= 0
                else f"{where[0]}-{where[1]}: {why}"
            )
        for difference in each.differences:
            print(f"{where[0]}-{where[1]}: replica {difference.replica}: {difference.what}")
