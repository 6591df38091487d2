"""Pipelines on Apache Kafka from its jars: topics without permission, and lag as Kafka's own tool tells it (F77, F80)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.client.blocking import Client
from ottla.client.options import plain_options
from ottla.pipelines import PipelineError, graph, loading, project
from ottla.pipelines.published import documents, topic, view
from ottla.pipelines.published.publisher import Publisher
from tests.kit.peers import KAFKA_4, ApacheKafka, run_tool
from tests.kit.wait import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipelines.conftest import Shop

pytestmark = [pytest.mark.java, pytest.mark.slow]

COPY = """
from ottla import pipelines as p

orders = p.source("{source}", p.json("id long"), name="orders")
p.sql(orders, to=p.sink("{out}", key="id"), name="copy", query="SELECT * FROM orders")
"""


class Kafka(ApacheKafka):
    """Everybody may do everything, until a rule says otherwise."""

    def __init__(self) -> None:
        authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        settings: dict[str, Any] = {"authorizer.class.name": authorizer, "allow.everyone.if.no.acl.found": "true"}
        super().__init__(KAFKA_4, **settings)

    def create_topic(self, name: str, partitions: int = 1) -> None:
        words = ("--create", "--topic", name, "--partitions", str(partitions), "--replication-factor", "1")
        run_tool(KAFKA_4, "TopicCommand", "--bootstrap-server", self.bootstrap_servers, *words, check=True)

    def rules(self, *words: str) -> None:
        run_tool(KAFKA_4, "org.apache.kafka.tools.AclCommand", "--bootstrap-server", self.bootstrap_servers, *words, check=True)


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    with Kafka() as broker:
        yield broker


@pytest.fixture
def there(shop: Shop, kafka: Kafka, spark: SparkSession) -> Shop:
    """A shop whose broker is Apache Kafka."""
    return type(shop)(shop.folder, kafka, spark, f"k{os.getpid()}.")  # type: ignore[arg-type]


def test_a_topic_without_permission_is_named_and_nothing_is_lost(there: Shop, kafka: Kafka) -> None:
    source, out = there.topic("in", 2), there.topic("out", 2)
    file = there.pipeline(COPY.format(source=source, out=out))
    there.produce(source, [{"id": number} for number in range(20)])
    everybody = ("--deny-principal", "User:*", "--force")

    kafka.rules("--add", *everybody, "--operation", "Read", "--topic", source)
    with pytest.raises(PipelineError, match="TOPIC_AUTHORIZATION_FAILED") as caught:
        there.run(file)
    assert source in str(caught.value)
    kafka.rules("--remove", *everybody, "--operation", "Read", "--topic", source)

    kafka.rules("--add", *everybody, "--operation", "Write", "--topic", out)
    with pytest.raises(PipelineError, match="TOPIC_AUTHORIZATION_FAILED") as caught:
        there.run(file)
    assert out in str(caught.value)
    assert caught.value.place is not None
    assert caught.value.place.line == 5
    assert there.read(out) == []
    kafka.rules("--remove", *everybody, "--operation", "Write", "--topic", out)

    there.run(file)
    assert Counter(value["id"] for value in there.values(out)) == Counter(range(20))
    there.produce(source, [{"id": number} for number in range(20, 25)])
    words = ("--bootstrap-server", kafka.bootstrap_servers, "--describe", "--group", "shop.copy")
    told = run_tool(KAFKA_4, "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", *words, check=True).stdout
    rows = [line.split() for line in told.splitlines() if source in line]
    assert sum(int(row[3]) for row in rows) == 20, told
    assert sum(int(row[5]) for row in rows) == 5, told


def test_progress_is_published_there_and_a_refusal_costs_one_line(
    tmp_path: Path, kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "copy.py"
    file.write_text(COPY.format(source="in", out="out"))
    described = documents.Run(project.read(file), graph.plan(loading.load(file)))
    flow = described.flow_document("copy", documents.RUNNING, None)
    everybody = ("--deny-principal", "User:*", "--operation", "Write", "--topic", topic.TOPIC, "--force")
    with Client(plain_options(kafka.bootstrap_servers)) as client:
        kafka.rules("--add", *everybody)
        with Publisher(client.options, described, lambda error: {"copy": flow}):
            until(lambda: "TOPIC_AUTHORIZATION_FAILED" in caplog.text, "the note", 60)
        kafka.rules("--remove", *everybody)
        with Publisher(client.options, described, lambda error: {"copy": flow}):
            (pipeline,) = until(lambda: view.pipelines(topic.Reader(client).poll()), "it is published", 60)
    assert [(each.name, each.state(documents.now_ms())) for each in pipeline.flows] == [("copy", "running")]
    words = ("--bootstrap-server", kafka.bootstrap_servers, "--describe", "--topic", topic.TOPIC)
    told = run_tool(KAFKA_4, "TopicCommand", *words, check=True).stdout
    assert "cleanup.policy=compact" in told


def test_kafkas_own_tool_shows_the_lag_on_our_broker(shop: Shop) -> None:
    source, out = shop.topic("in", 2), shop.topic("out", 2)
    file = shop.pipeline(COPY.format(source=source, out=out))
    shop.produce(source, [{"id": number} for number in range(20)])
    shop.run(file)
    shop.produce(source, [{"id": number} for number in range(20, 25)])
    words = ("--bootstrap-server", shop.broker.bootstrap_servers, "--describe", "--group", "shop.copy")
    told = run_tool(KAFKA_4, "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", *words, check=True).stdout
    rows = [line.split() for line in told.splitlines() if source in line]
    assert sum(int(row[3]) for row in rows) == 20, told
    assert sum(int(row[5]) for row in rows) == 5, told
