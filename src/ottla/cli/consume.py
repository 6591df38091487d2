"""`ottla consume`: records of topics as lines.

Reads partitions by assignment: nothing is committed, nobody is disturbed. Only with --group it joins one (`group_consume`).
Unless told to follow, it ends where the log ended when it started, so that a pipeline of commands ends too.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.connection import Connection
from ottla.cli.failure import EXIT_USAGE, Failure, explain, guarded
from ottla.cli.formats import Format, Incoming, Writing, unescape
from ottla.cli.offsets import partition_bounds, resolve
from ottla.cli.options import DEFAULT_BOOTSTRAP_SERVERS, Bootstrap, CommandConfig, Json, Properties, parse_pairs
from ottla.cli.output import note
from ottla.cli.positions import Position, parse_position

if TYPE_CHECKING:
    from ottla.cli.client import Consumer, Message

_TIMESTAMP_TYPES = {0: "none", 1: "CreateTime", 2: "LogAppendTime"}
_BATCH_RECORDS = 500
_POLL_S = 0.25
_SILENCE_S = 15.0

TopicIndex = tuple[str, int]


@dataclass(slots=True)
class Bounds:
    """Which part of which partition is wanted: [start, end), end None while following."""

    start: dict[TopicIndex, int] = field(default_factory=dict)
    end: dict[TopicIndex, int | None] = field(default_factory=dict)

    def open(self) -> set[TopicIndex]:
        """Partitions in which there may be something to read."""
        return {key for key, end in self.end.items() if end is None or self.start[key] < end}


def incoming(message: Message) -> Incoming:
    kind, timestamp_ms = message.timestamp()
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    headers: Any = message.headers() or []
    return Incoming(
        topic,
        partition,
        offset,
        timestamp_ms if kind else None,
        _TIMESTAMP_TYPES.get(kind, "none"),
        message.key(),
        message.value(),
        list(headers),
    )


def find_bounds(
    connection: Connection,
    topics: list[str],
    partitions: list[int] | None,
    start: Position,
    until: Position | None,
    *,
    follow: bool,
    isolation: str = "read_uncommitted",
) -> Bounds:
    bounds = Bounds()
    for topic in connection.topics(topics):
        name = topic.topic
        assert name is not None
        for partition in partitions or []:
            if partition not in topic.partitions:
                raise Failure(f"topic {name} has no partition {partition}", f"it has 0 to {len(topic.partitions) - 1}")
        extent = partition_bounds(connection, name, sorted(partitions or topic.partitions), isolation)
        starts = resolve(connection, name, extent, start)
        if until is not None and until.kind == "offset" and follow:
            ends: dict[int, int] | None = dict.fromkeys(extent, until.value)  # it may be still to come
        else:
            ends = resolve(connection, name, extent, until, clamp=True) if until is not None else None
        for partition, (_, end) in extent.items():
            bounds.start[name, partition] = starts[partition]
            bounds.end[name, partition] = ends[partition] if ends is not None else None if follow else end
    return bounds


@guarded
def consume(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC", show_default=False)],
    start: Annotated[
        str, typer.Option("--from", metavar="PLACE", help="beginning, end, an offset, -5 (last five), 10m (ago) or an ISO time.")
    ] = "beginning",
    until: Annotated[
        str | None, typer.Option("--until", metavar="PLACE", help="Stop there (exclusive). (default: the end)")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--exit-at-end", "-f/-e", help="Wait for more, or stop at the present end.")
    ] = False,
    partition: Annotated[list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this one (repeatable).")] = None,
    group: Annotated[
        str | None,
        typer.Option("--group", "-g", metavar="GROUP", help="As a member of this group: go on where it stopped, and commit."),
    ] = None,
    count: Annotated[int | None, typer.Option("--max-messages", "-n", min=1, help="Stop after so many.")] = None,
    format_: Annotated[Format, typer.Option("--format", help="How a value is shown; json shows all of a record.")] = Format.TEXT,
    key_format: Annotated[Format | None, typer.Option("--key-format", help="How a key is shown. (default: as --format)")] = None,
    keys: Annotated[bool, typer.Option("--keys", "-k", help="Key, separator, value.")] = False,
    key_separator: Annotated[str, typer.Option("--key-separator", "-K", metavar="SEP")] = "\\t",
    null: Annotated[str, typer.Option("--null", metavar="WORD", help="What a null is shown as.")] = "null",
    template: Annotated[
        str | None,
        typer.Option("--template", "-t", help="For example '{time} {partition}:{offset} {key} {value} {headers}'."),
    ] = None,
    isolation: Annotated[
        str, typer.Option("--isolation", metavar="read_committed|read_uncommitted", help="Whether open transactions are seen.")
    ] = "read_committed",
    properties: Properties = None,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Show records, from the beginning to the present end unless told otherwise."""
    if json_output:
        format_ = Format.JSON
    if isolation not in ("read_committed", "read_uncommitted"):
        raise Failure(f"--isolation {isolation!r} is neither read_committed nor read_uncommitted", exit_code=EXIT_USAGE)
    now_ms = int(time.time() * 1000)
    first, last = parse_position(start, now_ms), None if until is None else parse_position(until, now_ms)
    if follow and last is not None and last.kind == "time" and last.value > now_ms:
        raise Failure(
            "--follow cannot tell when a time to come has come: a partition may stay silent",
            "let `timeout` end it, or follow --until an offset",
            exit_code=EXIT_USAGE,
        )
    key_form = key_format or (Format.TEXT if format_ is Format.JSON else format_)
    writing = Writing(format_, key_form, keys, unescape(key_separator), null, None if template is None else unescape(template))
    connection = Connection(bootstrap_servers, command_config, parse_pairs(properties, "--property"))
    if group is not None:
        from ottla.cli.group.consume import consume_as_member

        if partition or until is not None or first.kind not in ("beginning", "end"):
            raise Failure(
                "--group goes on where the group stopped: --partition, --until and other places to start from do not go with it",
                "--from beginning or end is for what it has not committed; `ottla group reset-offsets` moves it",
                exit_code=EXIT_USAGE,
            )
        consume_as_member(connection, group, topics, first, writing, count, follow=follow, isolation=isolation)
        return
    bounds = find_bounds(connection, topics, partition, first, last, follow=follow, isolation=isolation)
    if not bounds.open():
        return
    consumer = connection.consumer(**reader_properties(isolation))
    try:
        _copy(connection, consumer, bounds, writing, count, follow=follow)
    finally:
        consumer.close()


def reader_properties(isolation: str = "read_committed") -> dict[str, Any]:
    return {
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "isolation.level": isolation,
        "enable.auto.offset.store": False,
        "fetch.error.backoff.ms": 100,
    }


def next_messages(consumer: Consumer, count: int) -> list[Message]:
    """Up to `count` messages as soon as there is one. (`consume` alone would wait until there are as many as asked for.)"""
    first = consumer.poll(_POLL_S)
    return [] if first is None else [first, *consumer.consume(count - 1, 0)] if count > 1 else [first]


def _copy(
    connection: Connection, consumer: Consumer, bounds: Bounds, writing: Writing, count: int | None, *, follow: bool
) -> None:
    from ottla.cli.client import KafkaError, TopicPartition

    wanted = bounds.open()
    consumer.assign([TopicPartition(topic, index, bounds.start[topic, index]) for topic, index in sorted(wanted)])
    out = sys.stdout.buffer
    left = count
    silent_since = time.monotonic()
    while wanted:
        for message in next_messages(consumer, min(_BATCH_RECORDS, left or _BATCH_RECORDS)):
            error = message.error()
            key = (str(message.topic()), int(message.partition() or 0))
            end = bounds.end.get(key)
            if error is None:
                silent_since = time.monotonic()
                offset = message.offset()
                assert offset is not None
                if key not in wanted:
                    continue
                if end is not None and offset >= end:
                    wanted.discard(key)
                    continue
                out.write(writing.line(incoming(message)))
                if left is not None:
                    left -= 1
                    if left == 0:
                        out.flush()
                        return
                if end is not None and offset + 1 >= end:
                    wanted.discard(key)
            elif error.code() == KafkaError._PARTITION_EOF:
                # Reached also where the last offsets hold no visible record (markers, aborted or compacted records).
                silent_since = time.monotonic()
                if (end is not None and (message.offset() or 0) >= end) or not follow:
                    wanted.discard(key)
            elif error.code() in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT):
                continue
            else:
                out.flush()
                raise explain(error, f"{key[0]}-{key[1]}")
        out.flush()
        if follow:
            note_if_away(connection)
        elif time.monotonic() - silent_since > _SILENCE_S and connection.last_error is not None:
            raise Failure(f"the broker at {connection.bootstrap_servers} went away before the end", code="BROKER_AWAY")


def note_if_away(connection: Connection) -> None:
    """To somebody who follows: silence is not always that nothing was written."""
    if connection.went_down():
        note(f"waiting for {connection.bootstrap_servers} to come back…")
