"""A real Prometheus on a loaded cluster of three: its answers are the truth, and every expression of the dashboards has data."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.generate.dashboards import DASHBOARDS
from ottla.generate.kinds import KINDS
from ottla.generate.scrape import Targets
from ottla.pipelines.progress_metrics import serve_metrics
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.kit.cluster import Cluster
from tests.kit.ottla_command import Ottla
from tests.kit.peers import Service, free_ports
from tests.kit.prometheus import Prometheus
from tests.kit.wait import until

RECORDS = 3000
TOPIC = "orders"


class ExporterProcess(Service):
    name = "exporter"

    def __init__(self, cluster: Cluster, port: int) -> None:
        super().__init__()
        self._bootstrap, self._port = cluster.bootstrap, port

    def command(self) -> list[str]:
        return Ottla(self._bootstrap).command(
            "exporter", "-b", self._bootstrap, "--listen", f"127.0.0.1:{self._port}", "--interval", "1"
        )

    def is_ready(self) -> bool:
        return "Read the whole cluster" in self.output


@dataclass
class Watched:
    cluster: Cluster
    prometheus: Prometheus


def flow_document() -> dict[str, Any]:
    now = datetime.now(UTC).isoformat()
    counts = dict.fromkeys(("rows_in", "records_out", "dead_letters", "late_rows", "batches", "run_again"), 7)
    gauges = dict.fromkeys(("lag", "rows_per_s", "batch_ms", "transaction_ms", "state_rows", "state_bytes"), 5)
    named = {"phases_ms": {"addBatch": 3}, "expectations": {"positive": 7}}
    progress = {**counts, **gauges, **named, "watermark": now, "checkpoint_at": now}
    return {"pipeline": "p", "flow": "f", "state": "running", "progress": progress}


@contextmanager
def load(cluster: Cluster) -> Iterator[None]:
    """Records, requests and errors as long as the body runs, in a topic of their own."""
    stop = threading.Event()

    def work() -> None:
        producer = cluster.producer()
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "load", "auto.offset.reset": "earliest"})
        consumer.subscribe(["load"])
        while not stop.wait(0.05):
            producer.produce("load", b"x" * 100)
            producer.poll(0)
            consumer.poll(0.01)
        producer.flush(60)
        consumer.close()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.fixture
def watched(cluster: Callable[..., Cluster], tmp_path: Path) -> Iterator[Watched]:
    ports = free_ports(5)
    brokers, exporter_port, pipeline_port = ports[:3], ports[3], ports[4]
    made = cluster(0, offsets_topic_replication_factor="3", transaction_state_log_replication_factor="3")
    for number, port in enumerate(brokers, 1):
        made.add(number, metrics_listener=f"127.0.0.1:{port}")
    made.until_agreed()
    serve_metrics(f"127.0.0.1:{pipeline_port}", lambda: [flow_document()])
    addresses = [f"127.0.0.1:{port}" for port in ports]
    targets = Targets(tuple(addresses[:3]), (addresses[3],), (addresses[4],), "shop")
    for kind in ("scrape", "rules", "alerts"):
        for name, text in KINDS[kind](targets).items():
            (tmp_path / name).write_text(re.sub("(scrape|evaluation)_interval: 15s", r"\1_interval: 1s", text))
    made.create_topic("load", 2)
    with load(made), ExporterProcess(made, exporter_port), Prometheus(tmp_path / "prometheus.yml") as prometheus:
        until(lambda: len(prometheus.query("up == 1")) == 5, "all targets are scraped")
        yield Watched(made, prometheus)


def told(cluster: Cluster) -> dict[tuple[str, int], int]:
    """The high watermarks that a client reads."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "asks"})
    found = {(TOPIC, each): consumer.get_watermark_offsets(TopicPartition(TOPIC, each), timeout=60)[1] for each in range(3)}
    consumer.close()
    return found


@pytest.mark.slow
def test_the_answers_of_prometheus(watched: Watched) -> None:
    cluster, prometheus = watched.cluster, watched.prometheus
    cluster.create_topic(TOPIC, 3)
    cluster.produce(TOPIC, [b"x" * 50] * RECORDS)
    ends = told(cluster)
    assert sum(ends.values()) == RECORDS
    committed = {key: end // 3 for key, end in ends.items()}
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "billing"})
    consumer.commit(offsets=[TopicPartition(*key, offset) for key, offset in committed.items()], asynchronous=False)
    consumer.close()
    transactional = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "t"})
    transactional.init_transactions(60)
    transactional.begin_transaction()
    transactional.produce("load", b"x")
    transactional.flush(60)
    for broker in cluster.brokers.values():
        unknown = ListOffsetsTopic(name="nowhere", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
        broker.ask("list_offsets", 6, ListOffsetsRequest(replica_id=-1, topics=[unknown]))

    messages_in = f'sum(kafka_server_brokertopicmetrics_messagesin_total{{topic="{TOPIC}"}})'
    until(lambda: prometheus.value(messages_in) == RECORDS, "messages in are those produced")
    until(
        lambda: prometheus.value(messages_in.replace("_total", "").replace("messagesin", "messagesinpersec")) == RECORDS,
        "under Confluent's name too",
    )
    lag = 'kafka_consumergroup_lag{consumergroup="billing",topic="orders"}'
    expected = {key: end - committed[key] for key, end in ends.items()}
    until(
        lambda: {(each["topic"], int(each["partition"])): value for each, value in prometheus.query(lag)} == expected,
        "lag is what a client computes",
    )
    assert prometheus.value("kafka_brokers") == 3
    assert prometheus.value('sum(kafka_topic_partition_in_sync_replica{topic="orders"})') == 9
    assert {each["strimzi_io_cluster"] for each, _ in prometheus.query("up")} == {"shop"}
    pods = {each["kubernetes_pod_name"] for each, _ in prometheus.query('up{job="kafka-broker"}')}
    assert len(pods) == 3
    assert all(pod.startswith("shop-127.0.0.1:") for pod in pods)

    asked = {expr: for_prometheus(expr) for dashboard in DASHBOARDS for expr in dashboard.expressions()}
    empty: list[str] = []

    def all_have_data() -> bool:
        empty[:] = [expr for expr, query in asked.items() if not prometheus.query(query)]
        return not empty

    until(all_have_data, lambda: "without data:\n" + "\n".join(empty), every_s=1)
    transactional.abort_transaction(60)


def for_prometheus(expr: str) -> str:
    """The expression with all chosen, as Grafana sends it."""
    return re.sub(r"\$\w+", ".*", expr.replace("$__rate_interval", "20s"))
