"""`ottla perf`: measures produce and consume throughput, and end-to-end latency.

The figures mean the same as those of Kafka's own tools. A megabyte is 1024 * 1024 bytes of keys and values. Produce latency is
from the call of the client to the acknowledgement. End-to-end latency is from that call to the record's arrival at a consumer,
one record at a time.
"""

from __future__ import annotations

import random
import string
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.connection import Connection
from ottla.cli.consume import Bounds, find_bounds, reader_properties
from ottla.cli.failure import Failure, explain
from ottla.cli.options import DEFAULT_BOOTSTRAP_SERVERS, Acks, Bootstrap, CommandConfig, Commands, Json, Properties, parse_pairs
from ottla.cli.output import print_document
from ottla.cli.positions import Position
from ottla.cli.produce import ensure_topic

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, Producer

app = Commands(help="Performance: produce, consume, latency.", no_args_is_help=True)

MB = 1024 * 1024
SAMPLES_MAX = 500_000
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
_PAYLOADS_MAX = 64
_PAYLOADS_BYTES = 1 << 20
_SILENCE_S = 30.0

Topic = Annotated[str, typer.Argument(metavar="TOPIC")]
Records = Annotated[int, typer.Option("--records", "-n", min=1, help="How many records.")]
Size = Annotated[int, typer.Option("--size", min=0, help="Bytes of each value.")]
Create = Annotated[bool, typer.Option("--create", help="Create the topic if it does not exist.")]
Compression = Annotated[str, typer.Option("--compression", "-z", metavar="none|gzip|snappy|lz4|zstd")]


class Latencies:
    """Latencies of many records in bounded memory.

    Like Kafka's own performance tool it keeps at most 500,000 evenly spaced samples, and the exact count, sum and maximum.
    """

    def __init__(self, expected: int | None = None) -> None:
        self._every = max(1, -(-(expected or 0) // SAMPLES_MAX))
        self._samples = array("d")
        self.count = 0
        self.total_s = 0.0
        self.max_s = 0.0

    def add(self, seconds: float) -> None:
        if self.count % self._every == 0:
            self._samples.append(seconds)
        self.count += 1
        self.total_s += seconds
        if seconds > self.max_s:
            self.max_s = seconds

    def summary_ms(self) -> dict[str, float]:
        if not self.count:
            return {}
        ordered = sorted(self._samples)
        found = {name: ordered[min(len(ordered) - 1, int(q * len(ordered)))] for name, q in QUANTILES.items()}
        values = {"avg": self.total_s / self.count, **found, "max": self.max_s}
        return {name: round(seconds * 1000, 3) for name, seconds in values.items()}


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr, if that is a terminal. Call the result with the number of records done."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = TextColumn(title), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[rate]}"), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total, rate="")
        started = time.monotonic()

        def show(done: int) -> None:
            bar.update(task, completed=done, rate=f"{done / max(time.monotonic() - started, 1e-9):,.0f} records/s")

        yield show


def payloads(size: int, seed: int = 0) -> list[bytes]:
    """Values to send in turn: random capital letters, as in Kafka's tool."""
    chosen = random.Random(seed)
    count = min(_PAYLOADS_MAX, 1 + _PAYLOADS_BYTES // max(size, 1))
    return [bytes(chosen.choices(string.ascii_uppercase.encode(), k=size)) for _ in range(count)]


def rates(records: int, size_bytes: int, elapsed_s: float) -> dict[str, float]:
    elapsed_s = max(elapsed_s, 1e-9)
    return {
        "records": records,
        "mb": round(size_bytes / MB, 3),
        "seconds": round(elapsed_s, 3),
        "records_per_s": round(records / elapsed_s, 1),
        "mb_per_s": round(size_bytes / MB / elapsed_s, 3),
    }


def _show(result: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_document(result)
        return
    parts = []
    if "mb_per_s" in result:
        parts.append(
            f"{result['records']:,} records in {result['seconds']:.2f} s:"
            f" {result['records_per_s']:,.0f} records/s, {result['mb_per_s']:.2f} MB/s"
        )
    if result.get("latency_ms"):
        parts.append("latency ms: " + ", ".join(f"{name} {value:.2f}" for name, value in result["latency_ms"].items()))
    print("\n".join(parts))


@app.add("produce", changes=True)
def perf_produce(
    topic: Topic,
    records: Records = 1_000_000,
    size: Size = 100,
    throughput: Annotated[float | None, typer.Option("--throughput", min=0.1, help="Limit of records per second.")] = None,
    acks: Acks = "all",
    compression: Compression = "none",
    create: Create = False,
    properties: Properties = None,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Produce records as fast as possible, or at --throughput. Measures throughput and latency."""
    connection = Connection(bootstrap_servers, command_config, parse_pairs(properties, "--property"))
    ensure_topic(connection, topic, create=create)
    producer = connection.producer(**{"acks": acks, "compression.type": compression, "linger.ms": 5})
    latencies, failures = Latencies(records), Failures()

    def on_delivery(error: Any, message: Message) -> None:
        if error is None:
            latencies.add(message.latency() or 0.0)
        else:
            failures.add(error)

    started = time.perf_counter()
    with progress("produce", records) as show:
        _produce_all(producer, topic, records, payloads(size), throughput, on_delivery, lambda: show(latencies.count))
        while producer.flush(0.2):
            show(latencies.count)
    elapsed_s = time.perf_counter() - started
    failures.raise_if_any(records)
    _show({**rates(records, records * size, elapsed_s), "latency_ms": latencies.summary_ms()}, as_json=json_output)


class Failures:
    """The number of records that were not written, and the first error."""

    def __init__(self) -> None:
        self.count = 0
        self.first: Any = None

    def add(self, error: Any) -> None:
        self.count += 1
        self.first = self.first or error

    def raise_if_any(self, records: int) -> None:
        if self.count:
            raise explain(self.first, f"{self.count} of {records} records were not written")


def _produce_all(
    producer: Producer,
    topic: str,
    records: int,
    values: list[bytes],
    throughput: float | None,
    on_delivery: Callable[[Any, Message], None],
    show: Callable[[], None],
) -> None:
    started = time.perf_counter()
    produce, poll, count = producer.produce, producer.poll, len(values)
    for index in range(records):
        if throughput is not None:
            ahead_s = index / throughput - (time.perf_counter() - started)
            while ahead_s > 0:
                poll(ahead_s)
                ahead_s = index / throughput - (time.perf_counter() - started)
        while True:
            try:
                produce(topic, values[index % count], on_delivery=on_delivery)
                break
            except BufferError:
                poll(0.05)
        if index % 1000 == 0:
            poll(0)
            show()


@app.add("consume")
def perf_consume(
    topic: Topic,
    records: Annotated[int | None, typer.Option("--records", "-n", min=1, help="How many. (default: all)")] = None,
    properties: Properties = None,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Read a topic from the beginning as fast as possible. Measures throughput."""
    connection = Connection(bootstrap_servers, command_config, parse_pairs(properties, "--property"))
    bounds = find_bounds(connection, [topic], None, Position("beginning"), None, follow=False)
    available = sum((end or 0) - bounds.start[key] for key, end in bounds.end.items())
    if records is not None and records > available:
        raise Failure(f"topic {topic} holds {available} records, not {records}", "write more with `ottla perf produce`")
    wanted = available if records is None else records
    consumer = connection.consumer(**reader_properties())
    try:
        started = time.perf_counter()
        with progress("consume", wanted) as show:
            count, size_bytes = _consume_all(consumer, bounds, wanted, show)
        elapsed_s = time.perf_counter() - started
    finally:
        consumer.close()
    _show(rates(count, size_bytes, elapsed_s), as_json=json_output)


def _consume_all(consumer: Consumer, bounds: Bounds, wanted: int, show: Callable[[int], None]) -> tuple[int, int]:
    from confluent_kafka import KafkaError, TopicPartition

    open_partitions = bounds.open()
    consumer.assign([TopicPartition(topic, index, bounds.start[topic, index]) for topic, index in sorted(open_partitions)])
    count = size_bytes = 0
    heard = time.monotonic()
    while open_partitions and count < wanted:
        messages = consumer.consume(min(10_000, wanted - count), 0.5)
        if messages:
            heard = time.monotonic()
        elif time.monotonic() - heard > _SILENCE_S:
            raise Failure(f"no record for {_SILENCE_S:.0f} s after {count} of {wanted} records", code="_TIMED_OUT")
        for message in messages:
            error = message.error()
            if error is None:
                count += 1
                size_bytes += len(message.value() or b"") + len(message.key() or b"")
            elif error.code() == KafkaError._PARTITION_EOF:
                open_partitions.discard((str(message.topic()), int(message.partition() or 0)))
            elif error.code() not in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT):
                raise explain(error, f"{message.topic()}-{message.partition()}")
        show(count)
    return count, size_bytes


@app.add("latency", changes=True)
def perf_latency(
    topic: Topic,
    records: Records = 1_000,
    size: Size = 100,
    acks: Acks = "all",
    create: Create = False,
    properties: Properties = None,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Produce a record, wait until a consumer has it, produce the next. Measures the latency of each."""
    from confluent_kafka import TopicPartition

    connection = Connection(bootstrap_servers, command_config, parse_pairs(properties, "--property"))
    ensure_topic(connection, topic, create=create)
    bounds = find_bounds(connection, [topic], None, Position("end"), None, follow=True)
    producer = connection.producer(**{"acks": acks, "linger.ms": 0, "message.timeout.ms": int(_SILENCE_S * 1000)})
    consumer = connection.consumer(**{**reader_properties(), "enable.partition.eof": False, "fetch.wait.max.ms": 500})
    consumer.assign([TopicPartition(name, index, offset) for (name, index), offset in bounds.start.items()])
    latencies, values, failures = Latencies(records), payloads(size), Failures()

    def on_delivery(error: Any, message: Message) -> None:
        if error is not None:
            failures.add(error)

    def round_trip(value: bytes) -> float:
        started = time.perf_counter()
        producer.produce(topic, value, on_delivery=on_delivery)
        producer.poll(0)
        while True:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                if message.value() != value:
                    raise Failure(f"another producer writes to {topic}", "use another topic")
                return time.perf_counter() - started
            producer.poll(0)
            failures.raise_if_any(1)
            if time.perf_counter() - started > _SILENCE_S:
                raise Failure(f"a record did not arrive within {_SILENCE_S:.0f} s", code="_TIMED_OUT")

    try:
        round_trip(values[0])  # connects and fetches metadata before the measurement
        started = time.perf_counter()
        with progress("latency", records) as show:
            for index in range(records):
                latencies.add(round_trip(values[index % len(values)]))
                if index % 50 == 0:
                    show(index)
        elapsed_s = time.perf_counter() - started
        producer.flush(5)
    finally:
        consumer.close()
    _show({**rates(records, records * size, elapsed_s), "latency_ms": latencies.summary_ms()}, as_json=json_output)
