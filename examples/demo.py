"""A live demo: orders stream into a broker, and a pipeline on Spark sums them up exactly once. Run it with `make demo`.

It starts a broker on a free port, produces orders through librdkafka (one malformed, one of a negative amount), runs
`examples/revenue.py` on a local Spark, kills the broker with SIGKILL half-way and restarts it on the same files. Then it compares
the acknowledged orders with the results of the pipeline: none lost, none doubled, the two bad records in the dead-letter topic.
Where `ottla[registry,avro]` is installed, orders are Avro with the schema of a registry, else JSON. Where PostgreSQL is
installed, a second pipeline (`examples/totals.py`) upserts the results into a table, one row a customer. At the end it edits the
pipeline and upgrades it, which shows what the edit changes. It leaves no processes or files.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from rich.console import Console
from rich.live import Live
from rich.table import Table

# The servers of databases that tests start.
sys.path.insert(0, str(Path(__file__).parents[1]))

from ottla.client.schema_registry import RegistryOptions, SchemaRegistry
from ottla.client.schema_values import SchemaValues
from ottla.pipelines import PipelineError, graph, loading, progress, project, running, session
from ottla.pipelines.status import status
from ottla.testing import Broker, Registry
from tests.kit.databases import Database, PostgreSQL, driver_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPELINE = Path(__file__).parent / "revenue.py"
TOTALS = Path(__file__).parent / "totals.py"
CUSTOMERS = ("ada", "bohumil", "clara", "dora", "emil", "franz", "grete", "hermann")
ORDERS = 9_000
SECONDS = 30.0
MALFORMED = b'{"id": 4711, "customer": "franz", "cents": "a lot"'
SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "cents", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}
EDIT = ('F.sum("cents")', 'F.sum(F.greatest("cents", F.lit(1000)))')
"""An order counts for at least 10.00."""
TIMEOUT_S = 240.0


@dataclass
class Tally:
    orders: Counter[str] = field(default_factory=Counter)
    cents: Counter[str] = field(default_factory=Counter)
    windows: Counter[tuple[str, str]] = field(default_factory=Counter)


def client(bootstrap_servers: str, **more: Any) -> dict[str, Any]:
    """Client properties that silence librdkafka's log lines, which would disturb the live table. Callbacks still get errors."""
    logger = logging.getLogger("demo.librdkafka")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return {"bootstrap.servers": bootstrap_servers, "reconnect.backoff.max.ms": 200, "logger": logger, **more}


Encode = Callable[[int, str, int, datetime], bytes]
"""The value of an order: its id, customer, cents and time."""


def as_json(number: int, customer: str, cents: int, at: datetime) -> bytes:
    return json.dumps({"id": number, "customer": customer, "cents": cents, "at": at.isoformat()}).encode()


def registry(broker: Broker) -> AbstractContextManager[Registry | None]:
    """A schema registry; None if what it needs is not installed."""
    needed = ("fastavro", "jsonschema", "starlette", "uvicorn")
    return Registry(broker) if all(importlib.util.find_spec(each) for each in needed) else nullcontext()


def with_schema(url: str) -> Encode:
    """Register the schema of orders. They are encoded with it."""
    values = SchemaValues(SchemaRegistry(RegistryOptions(url)))
    values.registry.register("orders-value", "AVRO", json.dumps(SCHEMA))
    schema = values.registry.version("orders-value")

    def encode(number: int, customer: str, cents: int, at: datetime) -> bytes:
        micros = int(at.timestamp() * 1_000_000)
        return values.encode(json.dumps({"id": number, "customer": customer, "cents": cents, "at": micros}), schema)

    return encode


def send_orders(bootstrap_servers: str, encode: Encode, acknowledged: Tally, half_way: threading.Event) -> None:
    """Produce orders, evenly over SECONDS, with an idempotent producer. Counts those that the broker has acknowledged."""
    producer = Producer(client(bootstrap_servers, **{"acks": "all", "linger.ms": 5, "enable.idempotence": True}))
    chance = random.Random(1883)

    def delivered(customer: str, cents: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise SystemExit(f"an order was not accepted: {error}")
        if cents > 0:
            acknowledged.orders[customer] += 1
            acknowledged.cents[customer] += cents

    began = time.monotonic()
    for number in range(ORDERS):
        customer = chance.choice(CUSTOMERS)
        now, cents = datetime.now(UTC), chance.randrange(100, 20_000)
        order = encode(number, customer, cents, now)
        producer.produce("orders", key=customer, value=order, on_delivery=partial(delivered, customer, cents))
        if number == ORDERS // 3:
            for value in (MALFORMED, encode(4712, "franz", -100, now)):
                producer.produce("orders", key="franz", value=value, on_delivery=partial(delivered, "franz", 0))
        if number == ORDERS // 2:
            half_way.set()
        producer.poll(max(began + number * SECONDS / ORDERS - time.monotonic(), 0))
    producer.flush()
    # An order of tomorrow moves the watermark and closes today's windows. Its own window stays open and is not counted.
    tomorrow = encode(-1, "nobody", 0, datetime.now(UTC) + timedelta(days=1))
    for partition in range(3):
        producer.produce("orders", key="nobody", value=tomorrow, partition=partition)
    producer.flush()


def reason_of(letter: Message) -> str:
    """Why a record is in the dead letter queue."""
    value = dict(letter.headers() or [])["ottla.reason"]
    assert isinstance(value, bytes)
    return value.decode()


def view(seen: Tally, watch: progress.Watch, dead: int, note: str) -> Table:
    found = watch.latest.get("revenue")
    caption = f"{note}\n"
    if found is not None:
        caption += (
            f"batch {found['batch']}: {found['rows_per_s']:,.0f} orders/s in, {found['batch_ms']:,} ms, of it the transaction "
            f"{found['transaction_ms'] or 0:.0f} ms; lag {found['lag'] or 0:,}; {dead} dead letters"
        )
    table = Table(title="revenue, live from the topic", caption=caption, title_justify="left", caption_justify="left")
    table.add_column("customer")
    for column in ("windows", "orders", "revenue"):
        table.add_column(column, justify="right")
    for customer in CUSTOMERS:
        windows = sum(1 for name, _ in seen.windows if name == customer)
        table.add_row(customer, str(windows), f"{seen.orders[customer]:,}", f"{seen.cents[customer] / 100:,.2f}")
    table.add_section()
    table.add_row("all", str(len(seen.windows)), f"{seen.orders.total():,}", f"{seen.cents.total() / 100:,.2f}")
    return table


def database() -> AbstractContextManager[Database | None]:
    """A server of PostgreSQL; None if it is not installed."""
    return PostgreSQL() if shutil.which("postgres") or list(Path("/usr/lib/postgresql").glob("*/bin/postgres")) else nullcontext()


def upsert(spark: SparkSession, bootstrap_servers: str, storage: str, server: Database) -> dict[str, tuple[int, int]]:
    """Upsert the windows into a table. Its rows: orders and cents by customer."""
    os.environ["OTTLA_TOTALS"] = server.create_database("shop")
    settings = project.override(
        project.read(TOTALS), bootstrap_servers=bootstrap_servers, storage=f"{storage}/totals", name="totals"
    )
    with running.PipelineRun(spark, settings, graph.plan(loading.load(TOTALS)), once=True) as run:
        run.start()
        while run.running:
            run.wait(1)
    rows = server.rows("shop", "SELECT customer, orders, cents FROM totals ORDER BY cents DESC")
    return {customer: (int(orders), int(cents)) for customer, orders, cents in rows}


def upgrade(bootstrap_servers: str, storage: str) -> bool:
    """Run `ottla pipeline upgrade` on an edited copy of the pipeline. It prints what the edit changes."""
    with tempfile.TemporaryDirectory(prefix="ottla-demo-") as folder:
        edited = Path(folder) / PIPELINE.name
        edited.write_text(PIPELINE.read_text().replace(*EDIT))
        words = ("pipeline", "upgrade", str(edited), "-b", bootstrap_servers, "--storage", storage, "--sample", "3", "--yes")
        return subprocess.run([sys.executable, "-P", "-m", "ottla", *words], check=False).returncode == 0


def main() -> int:
    console = Console()
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="ottla-demo-") as storage,
        Broker() as broker,
        registry(broker) as schemas,
        database() as server,
    ):
        servers = broker.bootstrap_servers
        for topic, partitions in (("orders", 3), ("revenue", 3), ("orders.dlq", 1)):
            broker.create_topic(topic, partitions)
        console.print(f"demo: broker {servers} ready after {(time.monotonic() - began) * 1000:.0f} ms; starting Spark")
        encode: Encode = as_json
        if schemas is None:
            console.print("demo: orders are JSON: ottla[registry,avro] is not installed")
        else:
            os.environ["OTTLA_REGISTRY"] = schemas.url
            encode = with_schema(schemas.url)
            console.print(f"demo: orders are Avro, their schema is in the registry {schemas.url}")
        settings = project.override(project.read(PIPELINE), bootstrap_servers=servers, storage=storage, trigger="500 ms")
        plan = graph.plan(loading.load(PIPELINE))
        try:
            jars = {} if server is None else {"spark.jars": ",".join(map(str, driver_jars()))}
            spark = session.start("demo", "local[2]", {"spark.sql.shuffle.partitions": "2", **jars})
        except PipelineError as error:
            console.print(f"demo: {error}; {error.hint}")
            return 1
        console.print(f"demo: Spark ready after {time.monotonic() - began:.0f} s; starting the pipeline {PIPELINE.name}")

        acknowledged, seen, half_way = Tally(), Tally(), threading.Event()
        sender = threading.Thread(target=send_orders, args=(servers, encode, acknowledged, half_way), daemon=True)
        run = running.PipelineRun(spark, settings, plan)
        watch = progress.Watch(f"{settings.name}.", run.sinks)
        listener = progress.listen(spark, watch)
        consumer = Consumer(client(servers, **{"group.id": "demo", "isolation.level": "read_committed"}))
        consumer.assign([TopicPartition("revenue", number, 0) for number in range(3)] + [TopicPartition("orders.dlq", 0, 0)])
        letters: list[Message] = []
        note = f"producing {ORDERS:,} orders; a window is written ten seconds after its end"
        try:
            with run, Live(view(seen, watch, 0, note), console=console, refresh_per_second=8) as live:
                run.start()
                sender.start()
                started, timed_out = time.monotonic(), False
                while sender.is_alive() or seen.orders.total() < acknowledged.orders.total() or len(letters) < 2:
                    if time.monotonic() - started > TIMEOUT_S:
                        timed_out = True
                        break
                    for message in consumer.consume(500, 0.1):
                        if message.error() is not None:
                            continue
                        if message.topic() == "orders.dlq":
                            letters.append(message)
                            continue
                        window = json.loads(message.value() or b"")
                        seen.windows[window["customer"], window["since"]] += 1
                        seen.orders[window["customer"]] += window["orders"]
                        seen.cents[window["customer"]] += window["cents"]
                    run.wait(0)
                    if half_way.is_set():
                        half_way.clear()
                        broker.kill()
                        broker.restart()
                        note = "the broker was killed (SIGKILL) and restarted on the same files"
                    live.update(view(seen, watch, len(letters), note))
            sender.join()
        finally:
            consumer.close()
            spark.streams.removeListener(listener)
        group = status(settings, plan)[0]
        table = None if server is None else upsert(spark, servers, storage, server)
        spark.stop()

        if timed_out:
            console.print(f"demo: not done after {TIMEOUT_S:.0f} s; the counts below are incomplete")
        doubled = [window for window, count in seen.windows.items() if count > 1]
        same = acknowledged.orders == seen.orders and acknowledged.cents == seen.cents
        same_table = table in (
            None,
            {name: (acknowledged.orders[name], acknowledged.cents[name]) for name in acknowledged.orders},
        )
        reasons = sorted(reason_of(letter) for letter in letters)
        sent, written = acknowledged.orders.total(), seen.orders.total()
        console.print(
            f"\ndemo: {sent:,} orders acknowledged, {written:,} in {len(seen.windows)} windows; {sent - written:,} lost, "
            f"{len(doubled)} windows doubled, sums {'equal' if same else 'DIFFERENT'}"
        )
        if table is None:
            console.print("demo: no table: PostgreSQL is not installed")
        else:
            what = f"{len(seen.windows)} windows became {len(table)} rows, one a customer"
            console.print(f"demo: table totals in PostgreSQL: {what}; sums {'equal' if same_table else 'DIFFERENT'}")
        console.print(f"demo: {len(letters)} records in the dead-letter topic: {'; '.join(reasons) or 'none'}")
        console.print(f"demo: group {group.group_id}: lag {group.lag}; {run.sinks['revenue'].totals.batches} transactions")
        console.print(f"\ndemo: edited {EDIT[0]} to {EDIT[1]}; upgrading")
        upgraded = upgrade(servers, storage)
    console.print(f"demo: done after {time.monotonic() - began:.0f} s; all processes stopped, all files removed")
    return 0 if same and same_table and not doubled and len(letters) == 2 and group.lag == 0 and upgraded else 1


if __name__ == "__main__":
    sys.exit(main())
