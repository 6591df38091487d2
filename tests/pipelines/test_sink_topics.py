"""The topics that a pipeline writes: what `check` says of them, how `run` makes them; needs a broker, no Spark (F77)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla import pipelines as p
from ottla.client.blocking import Client
from ottla.client.options import plain_options
from ottla.client.topics import topic_config
from ottla.pipelines import PipelineError, graph, loading, project, topics
from tests.kit.ottla_command import Ottla

if TYPE_CHECKING:
    from ottla.pipelines.graph import Plan
    from ottla.pipelines.project import Project
    from ottla.testing import Broker

SHOP = """
from ottla import pipelines as p

orders = p.source("sinks.in", name="orders", dead_letter="sinks.dlq")
p.sql(orders, to=p.sink("sinks.out", partitions=3, config={"retention.ms": 86400000, "cleanup.policy": "compact,delete"}),
      name="copy", query="SELECT * FROM orders")
"""


@pytest.fixture
def shop(tmp_path: Path, ottla_broker: Broker) -> tuple[Project, Plan]:
    ottla = Ottla(ottla_broker.bootstrap_servers)
    for name in ("sinks.in", "sinks.out", "sinks.dlq"):
        ottla.run("topic", "delete", name, "--yes")
    ottla_broker.create_topic("sinks.in", 1)
    file = tmp_path / "shop.py"
    file.write_text(SHOP)
    settings = project.override(project.read(file), bootstrap_servers=ottla_broker.bootstrap_servers)
    return settings, graph.plan(loading.load(file))


def sink_of(plan: Plan) -> p.Sink:
    sink = plan.queries[0].to
    assert isinstance(sink, p.Sink)
    return sink


def test_what_is_missing_is_told_and_created_as_declared(shop: tuple[Project, Plan], ottla_broker: Broker) -> None:
    settings, plan = shop
    topics.check(settings, plan)
    found = {each.topic: (each.use, each.partitions, each.place.rpartition(":")[2]) for each in topics.missing(settings, plan)}
    assert found == {"sinks.dlq": ("dead letters", None, "4"), "sinks.out": ("sink", 3, "5")}
    options = plain_options(ottla_broker.bootstrap_servers)
    for _ in range(2):
        topics.ensure_sink(options, sink_of(plan))
    with Client(options) as client:
        assert len(client.topic("sinks.out").partitions) == 3
        config = topic_config(client, "sinks.out", ["retention.ms", "cleanup.policy", "nonsense"])
        assert config == {"retention.ms": "86400000", "cleanup.policy": "compact,delete"}
    topics.check(settings, plan)
    assert [each.topic for each in topics.missing(settings, plan)] == ["sinks.dlq"]


def test_a_topic_that_is_not_as_declared_is_refused_at_its_line(shop: tuple[Project, Plan], ottla_broker: Broker) -> None:
    settings, plan = shop
    ottla_broker.create_topic("sinks.out", 2)
    with pytest.raises(PipelineError, match=r"shop.py:5: topic 'sinks.out' has 2 partitions, the sink declares 3") as caught:
        topics.check(settings, plan)
    assert "`ottla topic alter sinks.out -p 3`" in (caught.value.hint or "")
    ottla = Ottla(ottla_broker.bootstrap_servers)
    ottla.ok("topic", "alter", "sinks.out", "-p", "3")
    with pytest.raises(PipelineError, match=r"has retention.ms=604800000, the sink declares retention.ms=86400000") as caught:
        topics.ensure_sink(plain_options(ottla_broker.bootstrap_servers), sink_of(plan))
    command = (caught.value.hint or "").split("`")[1].removeprefix("ottla ").split()
    ottla.ok(*command)
    ottla.ok("config", "set", "topic", "sinks.out", "cleanup.policy=compact,delete")
    topics.check(settings, plan)


def test_a_setting_that_topics_do_not_have(shop: tuple[Project, Plan], ottla_broker: Broker) -> None:
    assert shop
    sink = p.sink("sinks.out", config={"retention": 1})
    with pytest.raises(PipelineError, match=r"sinks\.out.*retention"):
        topics.ensure_sink(plain_options(ottla_broker.bootstrap_servers), sink)
    ottla_broker.create_topic("sinks.out", 1)
    with pytest.raises(PipelineError, match="has no setting retention"):
        topics.ensure_sink(plain_options(ottla_broker.bootstrap_servers), sink)


@pytest.mark.parametrize("partitions", [0, -1, "3", True])
def test_partitions_are_a_number(partitions: object) -> None:
    with pytest.raises(PipelineError, match="is not a number of partitions"):
        p.sink("out", partitions=partitions)  # type: ignore[arg-type]
    with pytest.raises(PipelineError, match="is not a dict"):
        p.sink("out", config=json.dumps({}))  # type: ignore[arg-type]
