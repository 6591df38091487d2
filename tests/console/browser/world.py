"""A cluster with something on every page of the console: topics, groups, transactions, a pipeline, dead letters.

Works on any Kafka. What users name is hostile in places (`HOSTILE`): keys, values, headers, group and client ids, error texts.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.client.options import plain_options
from ottla.pipelines import graph, loading, progress, project
from ottla.pipelines.failure import PipelineError, Place
from ottla.pipelines.published import documents
from ottla.pipelines.published.publisher import Publisher
from ottla.pipelines.running import PipelineRun
from tests.kit.wait import until, until_done

HOSTILE = '<img src=x onerror="window.__hacked=1"><script>window.__hacked=2</script>{{7*7}}'
PLAIN = "unexpected end of text"
"""In place of HOSTILE where it should look good."""
GROUP, LAGGING, HOSTILE_GROUP = "billing", "reports", "evil/<b>&%23 group"
RECORDS = 600

PIPELINE = """
from ottla import pipelines as p

orders = p.source("orders", p.json("id long"), dead_letter="orders.dlq")
prices = p.files("/data/prices", "id long", static=True, name="prices")
cleaned = p.sql(orders, prices, to=p.sink("orders-clean"), name="clean", query="SELECT * FROM orders")
revenue = p.sql(cleaned, to=p.sink("revenue"), name="revenue", query="SELECT * FROM cleaned")
"""
SPARK: dict[str, Any] = {
    "name": "shop.clean",
    "batchId": 41,
    "timestamp": "2026-01-01T00:00:00.000Z",
    "numInputRows": 900,
    "inputRowsPerSecond": 850.0,
    "processedRowsPerSecond": 1200.0,
    "durationMs": {
        "addBatch": 310,
        "walCommit": 22,
        "commitOffsets": 31,
        "queryPlanning": 9,
        "latestOffset": 4,
        "triggerExecution": 380,
    },
    "eventTime": {"watermark": "2026-01-01T00:00:10.000Z"},
    "stateOperators": [{"numRowsTotal": 4200, "memoryUsedBytes": 1_400_000}],
    "sources": [{"endOffset": {"orders": {"0": 90, "1": 95}}, "latestOffset": {"orders": {"0": 102, "1": 99}}}],
}


def create_topics(servers: str, *topics: NewTopic) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics(list(topics)).values():
        try:
            future.result(30)
        except KafkaException as error:
            if "TOPIC_ALREADY_EXISTS" not in str(error):
                raise


def create_topic(servers: str, name: str, partitions: int = 1) -> None:
    create_topics(servers, NewTopic(name, partitions, 1))


def write(servers: str, topic: str, records: list[dict[str, Any]]) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
    for record in records:
        producer.produce(topic, **record)
    assert producer.flush(60) == 0


def order(number: int) -> dict[str, Any]:
    value = {
        "id": 9_007_199_254_740_993 + number,
        "customer": {"name": ["ada", "grace", "edsger", "barbara"][number % 4], "city": "Prague"},
        "amount": round(number * 7.25 % 500, 2),
        "lines": [{"sku": f"A-{number % 17}", "count": 1 + number % 3}],
        "express": number % 5 == 0,
    }
    return {
        "key": f"customer-{number % 40}",
        "value": json.dumps(value),
        "headers": [("trace", f"t-{number:05}"), ("source", "web")],
    }


def letter(number: int, text: str) -> dict[str, Any]:
    headers = {
        "trace": f"t-{number:05}",
        "ottla.topic": "orders",
        "ottla.partition": "0",
        "ottla.offset": str(number),
        "ottla.flow": "clean",
        "ottla.reason": "amount is missing" if number % 3 else f"no json: {text}",
    }
    return {
        "key": f"customer-{number}",
        "value": json.dumps({"id": number, "note": "no amount"}),
        "headers": list(headers.items()),
    }


def seed(servers: str, hostile: bool) -> None:
    create_topics(
        servers,
        NewTopic("orders", 3, 1, config={"retention.ms": "604800000", "cleanup.policy": "delete"}),
        NewTopic("orders-clean", 3, 1),
        NewTopic("revenue", 1, 1, config={"cleanup.policy": "compact"}),
        NewTopic("payments", 2, 1),
        NewTopic("orders.dlq", 2, 1),
        NewTopic("empty", 1, 1),
    )
    write(servers, "orders", [order(number) for number in range(RECORDS)])
    for step in range(5):
        write(
            servers,
            "revenue",
            [{"key": "ada", "value": json.dumps({"customer": "ada", "total": 100 + step * 7, "orders": 3 + step})}],
        )
    write(servers, "orders-clean", [order(number) for number in range(RECORDS - 40)])
    write(servers, "orders.dlq", [letter(number, HOSTILE if hostile else PLAIN) for number in range(9)])
    commit(servers, LAGGING, [TopicPartition("orders", partition, 20) for partition in range(3)])
    if not hostile:
        return
    create_topic(servers, "hostile")
    records: list[dict[str, Any]] = [
        {"key": HOSTILE, "value": HOSTILE, "headers": [(HOSTILE, HOSTILE)]},
        {
            "key": json.dumps({HOSTILE: HOSTILE}),
            "value": json.dumps({HOSTILE: [HOSTILE, {"a": HOSTILE}], "__proto__": {"polluted": 1}}),
        },
        {"key": None, "value": None},
        {"key": b"\xff\xfe\x00\x01", "value": bytes(range(256)), "headers": [("binary", b"\x00\xff"), ("none", None)]},
        {"key": "", "value": ""},
    ]
    write(servers, "hostile", records)
    commit(servers, HOSTILE_GROUP, [TopicPartition("orders", 0, 5)])


def commit(servers: str, group: str, offsets: list[TopicPartition]) -> None:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False})
    consumer.assign(offsets)
    until(lambda: consumer.commit(offsets=offsets, asynchronous=False), "offsets are committed", ignoring=KafkaException)
    consumer.close()


@contextmanager
def member(servers: str, client: str) -> Iterator[None]:
    """A member of GROUP which reads `payments` and `orders`."""
    over = threading.Event()
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": GROUP,
            "client.id": client,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 200,
            "log_level": 0,
        }
    )
    consumer.subscribe(["orders", "payments"])

    def read() -> None:
        while not over.is_set():
            consumer.poll(0.1)

    thread = threading.Thread(target=read, name="member", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        consumer.close()


@contextmanager
def open_transaction(servers: str) -> Iterator[None]:
    producer = Producer(
        {"bootstrap.servers": servers, "transactional.id": "payments-1", "transaction.timeout.ms": 600_000, "log_level": 0}
    )
    until_done(lambda: producer.init_transactions(30), "a transactional id", ignoring=KafkaException)
    producer.begin_transaction()
    producer.produce("payments", "settled", key="ada")
    producer.commit_transaction(30)
    producer.begin_transaction()
    producer.produce("payments", "pending", key="ada")
    producer.flush(30)
    try:
        yield
    finally:
        try:
            producer.abort_transaction(10)
        except KafkaException:
            pass  # the broker of a test that stops it


@contextmanager
def pipeline(servers: str, error: str) -> Iterator[None]:
    """A pipeline `shop` that publishes itself: one flow runs, one failed. There is no Spark in it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "shop.py"
        file.write_text(PIPELINE)
        settings = project.override(project.read(file), bootstrap_servers=servers)
        described = documents.Run(settings, graph.plan(loading.load(file)))
        run = PipelineRun(cast(Any, None), described.project, described.plan)
        watch = progress.Watch("shop.", {}, None)
        run.queries["clean"] = cast(Any, None)
        run.failures["revenue"] = PipelineError(f"cannot resolve column amonut: {error}", Place(str(file), 6))
        watch.hear({**SPARK, "timestamp": time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())})
        with Publisher(plain_options(servers), described, lambda ended: documents.of_flows(described, run, watch, ended)):
            yield


@contextmanager
def world(servers: str, *, hostile: bool = True) -> Iterator[None]:
    """All of it, while the block runs."""
    seed(servers, hostile)
    with ExitStack() as stack:
        stack.enter_context(member(servers, HOSTILE if hostile else "billing-1"))
        stack.enter_context(open_transaction(servers))
        stack.enter_context(pipeline(servers, HOSTILE if hostile else "no such column"))
        yield
