"""The schema registry: registrations, look-ups and reads a second, the start on a full topic, memory.

    python -m bench registry [--schemas 100000] [--clients 8] [--seconds 10]
    python -m bench registry --values
    python -m bench registry --spark [--rows 1000000]

`--values`: CPU seconds of decoding Avro values, beside fastavro and, where its package has what it needs, Confluent's
deserializer. `--spark`: rows a second of Avro values with schema ids in Spark, beside Spark's `from_avro` on what is behind the
ids: a column of a table, and a topic, which Spark's own connector reads for `from_avro`. Else one Ottla broker, one registry, and
clients in processes of their own, all on this machine.
"""

from __future__ import annotations

import argparse
import http.client
import json
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.registry.log_format import SCHEMA, LogKey, SchemaVersion, key_bytes, schema_value
from ottla.testing import Broker, Registry

_HEADERS = {"content-type": "application/vnd.schemaregistry.v1+json"}
_FIELDS = 20


def schema(number: int) -> str:
    fields = [{"name": f"field_{index}", "type": "string"} for index in range(_FIELDS)]
    return json.dumps({"type": "record", "name": f"Record{number}", "fields": fields}, separators=(",", ":"))


def body(number: int) -> bytes:
    return json.dumps({"schema": schema(number)}).encode()


def register(number: int, first: int = 0) -> tuple[str, str, bytes | None]:
    number += first
    return "POST", f"/subjects/subject-{number}/versions", body(number)


def look_up(number: int) -> tuple[str, str, bytes | None]:
    return "POST", f"/subjects/subject-{number % 100}", body(number % 100)


def read(number: int) -> tuple[str, str, bytes | None]:
    return "GET", f"/schemas/ids/{1 + number % 100}", None


def calls(address: tuple[str, int], request: Callable[[int], tuple[str, str, bytes | None]], seconds: float, client: int) -> int:
    """One client: requests one after the other, for so long. Returns their number."""
    connection = http.client.HTTPConnection(*address, timeout=60)
    until = time.perf_counter() + seconds
    count = 0
    while time.perf_counter() < until:
        method, path, content = request(client * 1_000_000 + count)
        connection.request(method, path, content, _HEADERS)
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status == 200, text
        count += 1
    connection.close()
    return count


def rate(url: str, request: Callable[[int], tuple[str, str, bytes | None]], clients: int, seconds: float) -> float:
    host, _, port = url.removeprefix("http://").partition(":")
    with ProcessPoolExecutor(clients) as pool:
        counts = list(pool.map(partial(calls, (host, int(port)), request, seconds), range(clients)))
    return sum(counts) / seconds


def fill(bootstrap_servers: str, count: int) -> None:
    """Write the topic as a registry would have."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    topic = NewTopic("_schemas", 1, 1, config={"cleanup.policy": "compact"})
    admin.create_topics([topic])["_schemas"].result(30)
    producer = Producer({"bootstrap.servers": bootstrap_servers, "queue.buffering.max.messages": 1_000_000, "acks": "1"})
    for number in range(count):
        version = SchemaVersion(f"subject-{number}", 1, number + 1, "AVRO", schema(number))
        producer.produce("_schemas", schema_value(version), key_bytes(LogKey(SCHEMA, version.subject, 1)))
        producer.poll(0)
    producer.flush()


def resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "status", "type": "string"},
        {"name": "lines", "type": "int"},
        {"name": "paid", "type": "boolean"},
    ],
}
ROWS = 10_000


def framed_orders(count: int, schema_id: int = 1) -> list[bytes]:
    """Values of ORDER with their schema's id."""
    import io

    import fastavro

    from ottla.schemas.framing import PREFIX_BYTES, write_id

    parsed = fastavro.parse_schema(ORDER)
    framed = []
    for number in range(count):
        out = io.BytesIO(write_id(schema_id))
        out.seek(PREFIX_BYTES)
        row = {
            "id": number,
            "customer": f"customer-{number % 1000}",
            "amount": number / 7,
            "note": None if number % 2 else "a note",
        }
        more = {"at": 1_767_225_600_000_000 + number, "status": "NEW", "lines": number % 20, "paid": number % 2 == 0}
        fastavro.schemaless_writer(out, parsed, row | more)
        framed.append(out.getvalue())
    return framed


def in_spark(rows: int) -> None:
    import tempfile

    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark.sql import functions as F
    from pyspark.sql.avro.functions import from_avro

    from ottla import pipelines as p
    from ottla.client.schema_registry import RegistryOptions, SchemaRegistry
    from ottla.pipelines import session
    from ottla.schemas.framing import PREFIX_BYTES
    from tests.kit.peers import spark_avro_jars, spark_connector_jars

    jars = ",".join(map(str, spark_connector_jars() + spark_avro_jars()))
    with Broker() as broker, Registry(broker) as registry, tempfile.TemporaryDirectory() as folder:
        with SchemaRegistry(RegistryOptions(registry.url)) as client:
            schema_id = client.register("orders-value", "AVRO", json.dumps(ORDER))
        column = pa.array(framed_orders(ROWS, schema_id), pa.binary())
        for part in range(0, rows, ROWS):
            pq.write_table(pa.table({"value": column}), f"{folder}/{part}.parquet", compression="none")
        spark = session.start("bench", "local[2]", {"spark.driver.memory": "1g", "spark.jars": jars})
        servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
        broker.create_topic("orders", 4)
        table = spark.read.parquet(folder)
        table.write.format("ottla").options(**servers).option("topic", "orders").mode("append").save()
        value = p.avro(subject="orders-value", registry=registry.url)

        def stripped(frame: Any) -> Any:
            payload = F.expr(f"substring(value, {PREFIX_BYTES + 1})")
            return frame.select(from_avro(payload, json.dumps(ORDER)).alias("order")).select("order.*")

        def topic(format: str, **options: str) -> Any:
            return spark.read.format(format).options(**servers, **options).option("subscribe", "orders").load()

        url = {"registry.url": registry.url}
        cases: dict[str, Callable[[], Any]] = {
            "table, from_registry": lambda: table.select(p.from_registry("value", value).alias("order")).select("order.*"),
            "table, Spark's from_avro on the bytes behind the id": lambda: stripped(table),
            "table, bytes alone": lambda: table,
            'topic, format("ottla") with registry.url': lambda: topic("ottla", **url).select("value.*"),
            'topic, format("kafka") and from_avro': lambda: stripped(topic("kafka")),
            'topic, format("ottla"), bytes alone': lambda: topic("ottla").select("value"),
        }
        for name, made in cases.items():
            times = []
            for _ in range(4):
                began = time.perf_counter()
                made().write.format("noop").mode("overwrite").save()
                times.append(time.perf_counter() - began)
            print(f"{name}: {rows / min(times[1:]):,.0f} rows/s", flush=True)
        spark.stop()


def values() -> None:
    import io

    import fastavro
    import pyarrow as pa

    from ottla.pipelines import avro_arrow
    from ottla.schemas.framing import PREFIX_BYTES
    from ottla.schemas.work import SchemaText

    parsed, framed = fastavro.parse_schema(ORDER), framed_orders(ROWS)
    root = avro_arrow.root(SchemaText("AVRO", json.dumps(ORDER)))
    kinds = (pa.int64(), pa.string(), pa.float64(), pa.string(), pa.timestamp("us", "UTC"), pa.string(), pa.int32(), pa.bool_())
    names = [*(field["name"] for field in ORDER["fields"]), "reason"]  # type: ignore[index]
    target = pa.struct(list(zip(names, (*kinds, pa.string()), strict=True)))
    column = pa.array(framed, pa.binary())

    def by_fastavro() -> None:
        stream = io.BytesIO(b"".join([value[PREFIX_BYTES:] for value in framed]))
        pa.array([fastavro.schemaless_reader(stream, parsed, None) for _ in framed], target)

    cpu("into Arrow columns", lambda: avro_arrow.decode(column, root, lambda _: root, target, "reason"))
    cpu("by fastavro, into dicts and then Arrow", by_fastavro)
    try:
        from confluent_kafka.schema_registry import Schema
        from confluent_kafka.schema_registry.avro import AvroDeserializer
        from confluent_kafka.serialization import MessageField, SerializationContext
    except ImportError as error:
        print(f"Confluent's deserializer: {error.name} is missing; pip install 'confluent-kafka[avro,schemaregistry]'")
        return

    class Client:
        def get_schema(self, *_: object, **__: object) -> Schema:
            return Schema(json.dumps(ORDER), "AVRO")

        def get_associations_by_resource_name(self, *_: object, **__: object) -> list[object]:
            return []

    deserialize = AvroDeserializer(Client())
    context = SerializationContext("orders", MessageField.VALUE)
    cpu("by Confluent's AvroDeserializer, into dicts", lambda: [deserialize(value, context) for value in framed])


def cpu(what: str, act: Callable[[], object]) -> None:
    best = float("inf")
    for _ in range(5):
        began = time.process_time()
        act()
        best = min(best, time.process_time() - began)
    print(f"{what}: {best / ROWS * 1e6:.2f} us of CPU for a row, {ROWS / best:,.0f} rows/s", flush=True)


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench registry", description=__doc__)
    parser.add_argument("--schemas", type=int, default=100_000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--values", action="store_true")
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--rows", type=int, default=1_000_000)
    options = parser.parse_args(words)
    if options.values:
        values()
        return
    if options.spark:
        in_spark(options.rows)
        return
    settings = {"group.initial.rebalance.delay.ms": 0}
    with Broker(settings) as broker, Registry(broker) as registry:
        for number in range(100):
            register_once(registry.url, number)
        first = 0
        for clients in (1, options.clients):
            for name, request in (
                ("registrations", partial(register, first=first)),
                ("look-ups", look_up),
                ("reads by id", read),
            ):
                found = rate(registry.url, request, clients, options.seconds)
                print(f"{name}, {clients} clients: {found:,.0f}/s", flush=True)
            first += 1_000_000_000
        assert registry.process is not None
        print(f"memory: {resident_mb(registry.process.pid):.0f} MB", flush=True)
    with Broker(settings) as broker:
        fill(broker.bootstrap_servers, options.schemas)
        registry = Registry(broker, start_timeout_s=600)
        began = time.perf_counter()
        with registry:
            took = time.perf_counter() - began
            assert registry.process is not None
            print(f"start with {options.schemas:,} schemas: {took:.1f} s, {resident_mb(registry.process.pid):.0f} MB")


def register_once(url: str, number: int) -> None:
    host, _, port = url.removeprefix("http://").partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    method, path, content = register(number)
    connection.request(method, path, content, _HEADERS)
    answer = connection.getresponse()
    text = answer.read()
    assert answer.status == 200, text
    connection.close()
