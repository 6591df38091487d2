"""`ottla produce`: sends lines of stdin or of a file, or words of the command line, as records."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.connection import (
    MADE_BY_BROKERS,
    REQUEST_TIMEOUT_S,
    Connection,
    check_not_internal,
    result_of,
    unknown_partition,
    unknown_topic,
)
from ottla.cli.failure import EXIT_USAGE, Failure, explain
from ottla.cli.formats import Format, Headers, Outgoing, Reading, decode_bytes, parse_header, unescape, word_bytes
from ottla.cli.options import DEFAULT_BOOTSTRAP_SERVERS, Acks, Bootstrap, CommandConfig, Json, Properties, parse_pairs
from ottla.cli.output import counted, note, print_document, print_line
from ottla.cli.schema.place import RegistryUrl, registry_at
from ottla.cli.schema.records import SchemaWriter

if TYPE_CHECKING:
    from confluent_kafka import Message, Producer


@dataclass(slots=True)
class Written:
    """The records written to one partition. Deliveries of a partition come in offset order."""

    records: int
    first_offset: int | None
    last_offset: int | None


@dataclass(slots=True)
class Delivery:
    """The result of all records: counts and offsets by partition, and the first error."""

    topic: str
    each: bool = False
    as_json: bool = False
    records: int = 0
    bytes: int = 0
    partitions: dict[int, Written] = field(default_factory=dict)
    failed: int = 0
    first_error: Any = None

    def delivered(self, error: Any, message: Message) -> None:
        if error is not None:
            self.failed += 1
            self.first_error = self.first_error or error
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        if offset is not None and offset < 0:
            offset = None  # acks=0: the broker sends no offset
        self.records += 1
        self.bytes += len(message)
        seen = self.partitions.setdefault(partition, Written(0, offset, offset))
        seen.records += 1
        seen.last_offset = offset
        if self.each and self.as_json:
            print_line({"topic": self.topic, "partition": partition, "offset": offset})
        elif self.each:
            print(f"{self.topic}-{partition} offset {'unknown' if offset is None else offset}")

    def document(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "records": self.records,
            "failed": self.failed,
            "value_bytes": self.bytes,
            "partitions": [{"partition": partition, **asdict(written)} for partition, written in sorted(self.partitions.items())],
        }


def ensure_topic(connection: Connection, topic: str, *, create: bool) -> int:
    """The number of partitions of the topic. With `create`, a missing topic is created with the broker's defaults."""
    known = connection.metadata().topics
    if topic not in known:
        if not create:
            failure = unknown_topic(topic, known)
            if topic not in MADE_BY_BROKERS:
                failure.hint = f"{failure.hint}, or pass --create"
            raise failure
        check_not_internal([topic])
        from confluent_kafka.admin import NewTopic

        new = NewTopic(topic, num_partitions=-1, replication_factor=-1)
        result_of(connection.admin.create_topics([new], operation_timeout=REQUEST_TIMEOUT_S)[topic], f"topic {topic}")
        return len(connection.created_topic(topic).partitions)
    return len(connection.topic(topic).partitions)


def _lines(source: IO[bytes]) -> Iterator[bytes]:
    for line in source:
        yield line[:-2] if line.endswith(b"\r\n") else line.removesuffix(b"\n")


def _send(producer: Producer, topic: str, record: Outgoing, delivery: Delivery, number: int) -> None:
    from confluent_kafka import KafkaException

    parts = {"partition": record.partition, "timestamp": record.timestamp_ms, "headers": record.headers or None}
    arguments: dict[str, Any] = {name: part for name, part in parts.items() if part is not None}
    while True:
        try:
            producer.produce(topic, record.value, record.key, on_delivery=delivery.delivered, **arguments)
            return
        except BufferError:
            producer.poll(0.1)  # the client's queue is full: wait for acknowledgements
        except KafkaException as exception:
            raise explain(exception.args[0], f"line {number}") from None


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    values: Annotated[
        list[str] | None,
        typer.Argument(metavar="VALUE", help="Values to send. Without any, the lines of stdin.", show_default=False),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="FILE", help="Read lines from this file instead of stdin.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key of every record.")] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header of every record (repeatable).")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="The partition. (default: by the key's hash)")
    ] = None,
    format_: Annotated[Format, typer.Option("--format", help="The format of lines.")] = Format.TEXT,
    key_format: Annotated[Format | None, typer.Option("--key-format", help="The format of keys. (default: as --format)")] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", metavar="SEP", help="Lines are key, SEP, value (\\t for a tab).")
    ] = None,
    null: Annotated[
        str | None, typer.Option("--null", metavar="WORD", help="Send a key or value that equals WORD as null.")
    ] = None,
    compression: Annotated[
        str, typer.Option("--compression", "-z", metavar="none|gzip|snappy|lz4|zstd", help="The codec.")
    ] = "none",
    acks: Acks = "all",
    create: Annotated[bool, typer.Option("--create", help="Create the topic if it does not exist.")] = False,
    timeout_s: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=0.1, help="How long a record may take to be acknowledged.")
    ] = 30,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print partition and offset of each record.")] = False,
    schema: Annotated[
        str | None,
        typer.Option(
            "--schema",
            metavar="VERSION|FILE",
            help="Values are JSON of this schema: latest, a version of TOPIC-value, or a file that is registered there.",
        ),
    ] = None,
    key_schema: Annotated[
        str | None, typer.Option("--key-schema", metavar="VERSION|FILE", help="Likewise for keys and TOPIC-key.")
    ] = None,
    schema_header: Annotated[
        bool, typer.Option("--schema-header", help="Name the schema by its GUID in a header, not by its id before the value.")
    ] = False,
    registry: RegistryUrl = None,
    properties: Properties = None,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Send records, one for each VALUE or line.

    With --format json a line is {"key": …, "value": …, "headers": {…}, "partition": …, "timestamp": …}.
    """
    if values and file is not None:
        raise Failure("give values or --file, not both", exit_code=EXIT_USAGE)
    if format_ is Format.JSON and key_separator is not None:
        hint = "put the key into the object"
        raise Failure("--key-separator cannot be combined with --format json", hint, exit_code=EXIT_USAGE)
    if key_separator == "":
        raise Failure("--key-separator is empty", "give the text between key and value, as in -K :", exit_code=EXIT_USAGE)
    key_form = key_format or (Format.TEXT if format_ is Format.JSON else format_)
    reading = Reading(format_, key_form, None if key_separator is None else unescape(key_separator), null)
    constant_key = None if key is None else decode_bytes(word_bytes(key), key_form, "--key")
    constant_headers: Headers = [parse_header(text) for text in header or []]
    connection = Connection(bootstrap_servers, command_config, parse_pairs(properties, "--property"))
    partitions = ensure_topic(connection, topic, create=create)
    _check_partition(topic, partition, partitions)
    producer = connection.producer(**{"acks": acks, "compression.type": compression, "message.timeout.ms": int(timeout_s * 1000)})
    delivery = Delivery(topic, each=verbose, as_json=json_output)
    try:
        with ExitStack() as stack:
            source = _source(values, file, stack)
            writers = _schemas(topic, schema, key_schema, schema_header, registry, command_config, stack)
            stack.callback(producer.flush, timeout_s + 1)  # also after Ctrl-C or a bad line: earlier lines are sent
            for number, line in enumerate(source, 1):
                record = reading.record(line, number)
                record.key = constant_key if record.key is None else record.key
                record.headers = constant_headers + record.headers
                for writer in writers:
                    writer.write(record, f"line {number}")
                record.partition = partition if record.partition is None else record.partition
                _check_partition(topic, record.partition, partitions)
                _send(producer, topic, record, delivery, number)
                producer.poll(0)
                if delivery.failed and delivery.first_error.fatal():
                    break
    except Failure as bad_line:
        if delivery.records:
            bad_line.message += f" (written to {topic} before it: {counted(delivery.records, 'record')})"
        raise
    if delivery.failed:
        count = delivery.failed + delivery.records
        failure = explain(delivery.first_error, f"{delivery.failed} of {count} records were not written")
        if failure.code in ("_MSG_TIMED_OUT", "_TRANSPORT"):
            address = connection.bootstrap_servers
            failure.hint = f"no acknowledgement within {timeout_s:g} s; check that the broker at {address} runs"
        raise failure
    if json_output and not verbose:
        print_document(delivery.document())
    elif not json_output and not verbose:
        note(f"{counted(delivery.records, 'record')} to {topic}")


def _schemas(
    topic: str,
    value: str | None,
    key: str | None,
    by_header: bool,
    registry: str | None,
    command_config: Path | None,
    stack: ExitStack,
) -> list[SchemaWriter]:
    """What makes the bytes of values and keys that have a schema."""
    words = [(is_key, word) for is_key, word in ((False, value), (True, key)) if word is not None]
    if not words:
        if by_header:
            raise Failure("--schema-header needs --schema or --key-schema", exit_code=EXIT_USAGE)
        return []
    client = stack.enter_context(registry_at(registry, command_config))
    return [SchemaWriter(client, topic, word, key=is_key, by_header=by_header) for is_key, word in words]


def _check_partition(topic: str, partition: int | None, partitions: int) -> None:
    if partition is not None and not 0 <= partition < partitions:
        raise unknown_partition(topic, partition, partitions)


def _source(values: list[str] | None, file: Path | None, stack: ExitStack) -> Iterator[bytes]:
    if values:
        return iter([word_bytes(value) for value in values])
    if file is not None and str(file) != "-":
        try:
            return _lines(stack.enter_context(file.open("rb")))
        except OSError as error:
            raise Failure(f"cannot read {file}: {error.strerror}") from None
    if sys.stdin.isatty():
        note("One record per line; Ctrl-D ends.")
    return _lines(sys.stdin.buffer)
