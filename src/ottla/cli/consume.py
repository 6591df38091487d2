"""`ottla consume`: prints records of topics as lines.

Without --group it assigns partitions to itself and commits nothing; with --group it is a member (`group.consume`). Without
--follow it stops at the end offset of its start, so that a shell pipeline ends.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.connection import Connection, unknown_partition
from ottla.cli.failure import EXIT_USAGE, Failure, explain
from ottla.cli.formats import Format, Incoming, Writing, unescape
from ottla.cli.options import DEFAULT_BOOTSTRAP_SERVERS, Bootstrap, CommandConfig, Json, Properties, parse_pairs
from ottla.cli.output import note
from ottla.cli.positions import Position, TopicIndex, parse_position
from ottla.cli.schema.place import RegistryUrl, registry_at
from ottla.cli.schema.records import SchemaReader
from ottla.cli.selection import GrepText, IgnoreCase, Regex, Selection, Tally, Where, select

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

_TIMESTAMP_TYPES = {0: "none", 1: "CreateTime", 2: "LogAppendTime"}
_BATCH_RECORDS = 500
_POLL_S = 0.25
_SILENCE_S = 15.0


@dataclass(slots=True)
class Bounds:
    """The offsets to read of each partition: [start, end). `end` is None with --follow."""

    start: dict[TopicIndex, int] = field(default_factory=dict)
    end: dict[TopicIndex, int | None] = field(default_factory=dict)

    def open(self) -> set[TopicIndex]:
        """The partitions that may have records to read."""
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
    from ottla.cli.offsets import log_bounds, resolve

    bounds = Bounds()
    for topic in connection.topics(topics):
        name = topic.topic
        assert name is not None
        for partition in partitions or []:
            if partition not in topic.partitions:
                raise unknown_partition(name, partition, len(topic.partitions))
        extent = log_bounds(connection, [(name, index) for index in sorted(partitions or topic.partitions)], isolation)
        starts = resolve(connection, extent, start, isolation=isolation)
        if until is not None and until.kind == "offset" and follow:
            ends: dict[TopicIndex, int] | None = dict.fromkeys(extent, until.value)  # it may not exist yet
        else:
            ends = resolve(connection, extent, until, clamp=True, isolation=isolation) if until is not None else None
        for key, (_, end) in extent.items():
            bounds.start[key] = starts[key]
            bounds.end[key] = ends[key] if ends is not None else None if follow else end
    return bounds


def consume(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC", show_default=False)],
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="POSITION",
            help="Start at beginning, end, an offset, -5 (the last five records), 10m (ago) or an ISO time.",
        ),
    ] = "beginning",
    until: Annotated[
        str | None, typer.Option("--until", metavar="POSITION", help="Stop before this position. (default: the end)")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--exit-at-end", "-f/-e", help="Wait for new records, or stop at the present end.")
    ] = False,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this partition (repeatable).")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group", "-g", metavar="GROUP", help="Read as a member of this group: start at its committed offsets, and commit."
        ),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--max-messages", "-n", min=1, help="Stop after this many printed records.")
    ] = None,
    where: Where = None,
    grep: GrepText = None,
    regex: Regex = False,
    ignore_case: IgnoreCase = False,
    format_: Annotated[Format, typer.Option("--format", help="The format of values; json prints whole records.")] = Format.TEXT,
    key_format: Annotated[Format | None, typer.Option("--key-format", help="The format of keys. (default: as --format)")] = None,
    keys: Annotated[bool, typer.Option("--keys", "-k", help="Print key, separator and value.")] = False,
    key_separator: Annotated[str, typer.Option("--key-separator", "-K", metavar="SEP", help="Between key and value.")] = "\\t",
    null: Annotated[str, typer.Option("--null", metavar="WORD", help="How to print a null key or value.")] = "null",
    template: Annotated[
        str | None,
        typer.Option("--template", "-t", help="The form of a line: '{time} {partition}:{offset} {key} {value} {headers}'."),
    ] = None,
    isolation: Annotated[
        str,
        typer.Option(
            "--isolation",
            metavar="read_committed|read_uncommitted",
            help="Read only committed records, or also those of open and aborted transactions.",
        ),
    ] = "read_committed",
    schema: Annotated[
        bool, typer.Option("--schema", help="Print keys and values that name a schema of a registry as JSON.")
    ] = False,
    registry: RegistryUrl = None,
    properties: Properties = None,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Print records. By default all, from the beginning to the present end."""
    if json_output:
        format_ = Format.JSON
    if isolation not in ("read_committed", "read_uncommitted"):
        raise Failure(f"--isolation {isolation!r} is neither read_committed nor read_uncommitted", exit_code=EXIT_USAGE)
    selection = select(where, grep, regex=regex, ignore_case=ignore_case)
    now_ms = int(time.time() * 1000)
    first, last = parse_position(start, now_ms), None if until is None else parse_position(until, now_ms)
    if follow and last is not None and last.kind == "time" and last.value > now_ms:
        raise Failure(
            "--follow cannot stop at a future time: a partition without new records has no time",
            "stop it with `timeout`, or use --until with an offset",
            exit_code=EXIT_USAGE,
        )
    key_form = key_format or (Format.TEXT if format_ is Format.JSON else format_)
    writing = Writing(format_, key_form, keys, unescape(key_separator), null, None if template is None else unescape(template))
    connection = Connection(bootstrap_servers, command_config, parse_pairs(properties, "--property"))
    with ExitStack() as stack:
        reader = SchemaReader(stack.enter_context(registry_at(registry, command_config))) if schema else None
        printing = Printing(writing, selection, count, reader)
        if group is not None:
            _as_member(connection, group, topics, partition, first, until, printing, follow=follow, isolation=isolation)
            return
        bounds = find_bounds(connection, topics, partition, first, last, follow=follow, isolation=isolation)
        if not bounds.open():
            return
        consumer = connection.consumer(**reader_properties(isolation))
        try:
            with printing:
                _copy(connection, consumer, bounds, printing, follow=follow)
        finally:
            consumer.close()


def _as_member(
    connection: Connection,
    group: str,
    topics: list[str],
    partitions: list[int] | None,
    first: Position,
    until: str | None,
    printing: Printing,
    *,
    follow: bool,
    isolation: str,
) -> None:
    from ottla.cli.group.consume import consume_as_member

    if partitions or until is not None or first.kind not in ("beginning", "end"):
        raise Failure(
            "--group starts at the committed offsets: --partition, --until and other positions cannot be combined with it",
            "--from beginning or end is for partitions without a committed offset; `ottla group reset-offsets` changes offsets",
            exit_code=EXIT_USAGE,
        )
    consume_as_member(connection, group, topics, first, printing, follow=follow, isolation=isolation)


class Printing:
    """Prints the records that are selected, up to a number of them. At its end it says on stderr how many it read for them."""

    def __init__(self, writing: Writing, selection: Selection, count: int | None, schemas: SchemaReader | None = None) -> None:
        self._writing = writing
        self._schemas = schemas
        self._selection = selection
        self._left = count
        self._tally = Tally()

    def __enter__(self) -> Printing:
        return self

    def __exit__(self, *_: object) -> None:
        sys.stdout.buffer.flush()
        if self._selection:
            note(self._tally.text())

    @property
    def finished(self) -> bool:
        return self._left == 0

    @property
    def batch_records(self) -> int:
        """How many records to ask for: with a selection nobody knows how many are needed."""
        return _BATCH_RECORDS if self._left is None or self._selection else min(_BATCH_RECORDS, max(self._left, 1))

    def take(self, message: Message) -> None:
        self._tally.add([message])
        # What the bytes of a value with a schema hold is known only when they are read.
        if self._schemas is None and not self._selection.may_take(message):
            return
        record = incoming(message)
        if self._schemas is not None:
            record = self._schemas.read(record)
        if not self._selection.takes(record):
            return
        sys.stdout.buffer.write(self._writing.line(record))
        self._tally.taken += 1
        if self._left is not None:
            self._left -= 1


def reader_properties(isolation: str = "read_committed") -> dict[str, Any]:
    return {
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "isolation.level": isolation,
        "enable.auto.offset.store": False,
        "fetch.error.backoff.ms": 100,
    }


def next_messages(consumer: Consumer, count: int) -> list[Message]:
    """Up to `count` messages, as soon as there is one. (`Consumer.consume` alone waits for all of them.)"""
    first = consumer.poll(_POLL_S)
    return [] if first is None else [first, *consumer.consume(count - 1, 0)] if count > 1 else [first]


def _copy(connection: Connection, consumer: Consumer, bounds: Bounds, printing: Printing, *, follow: bool) -> None:
    from confluent_kafka import KafkaError, TopicPartition

    wanted = bounds.open()
    consumer.assign([TopicPartition(topic, index, bounds.start[topic, index]) for topic, index in sorted(wanted)])
    out = sys.stdout.buffer
    silent_since = time.monotonic()
    while wanted:
        for message in next_messages(consumer, printing.batch_records):
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
                printing.take(message)
                if printing.finished:
                    return
                if end is not None and offset + 1 >= end:
                    wanted.discard(key)
            elif error.code() == KafkaError._PARTITION_EOF:
                # The last offsets may hold no visible record (markers, aborted or compacted records).
                silent_since = time.monotonic()
                if (end is not None and (message.offset() or 0) >= end) or not follow:
                    wanted.discard(key)
            elif error.code() in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT):
                continue
            elif error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                continue  # librdkafka looks for a coordinator although no group is used
            else:
                out.flush()
                raise explain(error, f"{key[0]}-{key[1]}")
        out.flush()
        if follow:
            note_if_away(connection)
        elif time.monotonic() - silent_since > _SILENCE_S and connection.last_error is not None:
            raise broker_away(connection)


def broker_away(connection: Connection) -> Failure:
    return Failure(f"the broker at {connection.bootstrap_servers} went down before the end", code="BROKER_AWAY")


def note_if_away(connection: Connection) -> None:
    """Tell a user of --follow that records are missing because no broker answers."""
    if connection.went_down():
        note(f"waiting for {connection.bootstrap_servers} to come back…")
