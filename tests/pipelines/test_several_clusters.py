"""Sources and sinks on other clusters than the pipeline's own (F77, F79, F80)."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla import pipelines as p
from ottla.client.blocking import Client
from ottla.client.offsets import commit_offsets, committed_offsets
from ottla.client.options import plain_options
from ottla.client.transactions import CommittedOffset
from ottla.console.graph import nodes_and_links
from ottla.pipelines import graph, loading, project, topics
from ottla.pipelines.failure import PipelineError
from ottla.pipelines.marker import Marker, marker_in
from ottla.pipelines.published import documents
from ottla.pipelines.reset import reset
from ottla.pipelines.status import status
from ottla.types import TopicPartition
from tests.kit.ottla_command import Ottla
from tests.pipelines.conftest import Shop, read_topic

if TYPE_CHECKING:
    from ottla.testing import Broker

BOTH_WAYS = """
from ottla import pipelines as p

p.cluster("east", {"bootstrap.servers": "${EAST}"})
orders = p.source("orders", p.json("id long"), dead_letter="bad", cluster="east")
copied = p.sql(orders, to=p.sink("orders"), name="copied", query="SELECT * FROM orders")
p.sql(copied, to=p.sink("back", cluster="east"), name="back", query="SELECT * FROM copied")
"""


def settings_of(folder: Path, text: str, toml: str = "", env: str | None = None) -> project.Project:
    (folder / "shop.py").write_text(text)
    (folder / "shop.toml").write_text(toml)
    return project.read(folder / "shop.py", env=env)


# Declaring


def test_a_name_stands_for_a_cluster_of_the_file_or_of_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EAST", "east:9092")
    monkeypatch.setenv("PASSWORD", "hunter2")
    toml = """
[clusters.east]
"sasl.password" = "${PASSWORD}"

[clusters.west]
"bootstrap.servers" = "west:9092"

[env.prod.clusters.west]
"bootstrap.servers" = "west.prod:9092"
"""
    found = settings_of(tmp_path, BOTH_WAYS, toml, "prod")
    plan = graph.plan(loading.load(tmp_path / "shop.py"))
    east = next(each for each in plan.clusters if each is not None)
    assert found.kafka_options(east) == {"kafka.bootstrap.servers": "east:9092", "kafka.sasl.password": "hunter2"}
    assert found.clusters["west"] == {"bootstrap.servers": "west.prod:9092"}
    assert "hunter2" not in repr(plan)
    assert "EAST" not in repr(plan)
    assert [plan.home(flow) for flow in plan.queries] == [None, east]
    assert [plan.clusters_read(flow) for flow in plan.queries] == [(east,), (None,)]


def test_mistakes_name_the_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EAST", raising=False)
    found = settings_of(tmp_path, BOTH_WAYS)
    east = graph.plan(loading.load(tmp_path / "shop.py")).clusters[0]
    with pytest.raises(PipelineError, match=r"shop\.py:4: cluster 'east': \$\{EAST\}: the environment has no variable EAST"):
        found.kafka_options(east)
    for text, said in (
        ('p.source("in", cluster="eest")', r"shop\.py:4: cluster 'eest' is not declared"),
        ('p.source("in", cluster=p.cluster("none", {}))', r"shop\.py:4: cluster 'none' is not declared"),
        ('p.source("in", cluster=p.cluster("x", {"a": 1}))', r"shop\.py:4: cluster 'x' has no bootstrap\.servers"),
    ):
        found = settings_of(
            tmp_path, f'from ottla import pipelines as p\n\n\ns = {text}\np.sql(s, to=p.sink("o"), query="SELECT 1")'
        )
        plan = graph.plan(loading.load(tmp_path / "shop.py"))
        with pytest.raises(PipelineError, match=said):
            found.kafka_options(plan.clusters[0])
    twice = 'from ottla import pipelines as p\np.cluster("a", {})\np.cluster("a", {})'
    settings_of(tmp_path, twice)
    with pytest.raises(PipelineError, match=r"shop\.py:3: cluster 'a' is declared twice, first at .*shop\.py:2"):
        loading.load(tmp_path / "shop.py")
    assert "cluster 'east' is not declared" in Ottla("").fails("pipeline", "check", _undeclared(tmp_path))


def _undeclared(folder: Path) -> str:
    (folder / "undeclared.py").write_text(BOTH_WAYS.replace("p.cluster(", "print("))
    return str(folder / "undeclared.py")


def test_topics_of_two_clusters_are_two_topics() -> None:
    east, west = (p.cluster(name, {"bootstrap.servers": f"{name}:9092"}) for name in ("east", "west"))
    orders = p.source("orders", cluster=east)
    copy = p.sql(orders, to=p.sink("orders", cluster=west), name="copy", query="SELECT 1")
    assert [flow.name for flow in graph.plan([copy]).flows] == ["copy"]
    back = p.sql(p.source("orders", name="o", cluster=west), to=p.sink("orders", cluster=east), name="back", query="SELECT 1")
    with pytest.raises(PipelineError, match="flows form a cycle"):
        graph.plan([copy, back])
    for other in (p.source("orders", name="o"), p.source(pattern="ord.*", name="o", cluster=west)):
        both = p.sql(orders, other, to=p.sink("all"), query="SELECT 1")
        with pytest.raises(PipelineError, match="flow 'all' reads topic 'orders' of two clusters"):
            graph.plan([both])
    patterns = [p.source(pattern=".*", name=name, cluster=cluster) for name, cluster in (("a", east), ("b", west))]
    with pytest.raises(PipelineError, match="reads topics of two clusters by patterns"):
        graph.plan([p.sql(*patterns, to=p.sink("all"), query="SELECT 1")])


def test_a_table_is_at_home_where_its_first_topic_is() -> None:
    east = p.cluster("east", {"bootstrap.servers": "east:9092"})
    flow = p.sql(p.source("a", cluster=east), p.source("b"), to=p.table("/t"), name="t", query="SELECT 1")
    assert graph.plan([flow]).home(flow) == east


def test_the_graph_shows_the_clusters(tmp_path: Path) -> None:
    found = settings_of(tmp_path, BOTH_WAYS)
    plan = documents.Run(found, graph.plan(loading.load(tmp_path / "shop.py"))).plan_document()
    assert plan["clusters"] == ["east"]
    assert plan["sources"][0]["cluster"] == "east"
    nodes, links = nodes_and_links(plan["edges"])
    assert set(nodes) == {"topic:east: orders", "flow:copied", "topic:orders", "dead_letter:bad", "flow:back", "topic:east: back"}
    assert ("topic:east: orders", "flow:copied") in links
    assert [name for name, node in nodes.items() if node["cluster"]] == ["topic:east: orders", "topic:east: back"]


# Two brokers


@pytest.fixture(scope="module")
def east() -> Iterator[Broker]:
    from ottla.testing import Broker

    with Broker() as broker:
        yield broker


def test_topics_are_looked_for_in_their_clusters(
    tmp_path: Path, ottla_broker: Broker, east: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EAST", east.bootstrap_servers)
    text = BOTH_WAYS.replace('"orders"', '"looked.orders"')
    found = project.override(settings_of(tmp_path, text), bootstrap_servers=ottla_broker.bootstrap_servers)
    plan = graph.plan(loading.load(tmp_path / "shop.py"))
    with pytest.raises(PipelineError, match=r"looked\.orders"):
        topics.check(found, plan)
    ottla_broker.create_topic("looked.orders", 1)
    with pytest.raises(PipelineError, match=r"looked\.orders"):
        topics.check(found, plan)
    east.create_topic("looked.orders", 3)
    topics.check(found, plan)
    assert [(each.topic, each.cluster) for each in topics.missing(found, plan)] == [("bad", None), ("back", "east")]
    # Progress: copied reads the east and commits there, for lag tools.
    reset(found, plan, ["copied"], "latest")
    with Client(plain_options(east.bootstrap_servers)) as client:
        assert set(committed_offsets(client, "shop.copied")) == {TopicPartition("looked.orders", number) for number in range(3)}
    with Client(plain_options(ottla_broker.bootstrap_servers)) as client:
        assert not committed_offsets(client, "shop.copied")
    assert [(each.flow, each.cluster, each.reads_clusters, each.lag) for each in status(found, plan)] == [
        ("copied", None, ("east",), 0),
        ("back", "east", (None,), None),
    ]
    words = ("pipeline", "status", str(tmp_path / "shop.py"), "-b", ottla_broker.bootstrap_servers)
    head, *rows = Ottla("").ok(*words).splitlines()
    assert head.split()[:3] == ["FLOW", "FROM", "TO"]
    assert [row.split()[:3] for row in rows] == [["copied", "east", "-"], ["back", "-", "east"]]


def test_a_cluster_that_is_away_is_named(tmp_path: Path, ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EAST", "127.0.0.1:1")
    found = project.override(settings_of(tmp_path, BOTH_WAYS), bootstrap_servers=ottla_broker.bootstrap_servers)
    with pytest.raises(PipelineError, match=r"shop\.py:4: cluster 'east': no broker answers: 127\.0\.0\.1:1"):
        topics.check(found, graph.plan(loading.load(tmp_path / "shop.py")))


def test_an_upgrade_that_commits_in_two_clusters_is_refused(
    tmp_path: Path, ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EAST", "127.0.0.1:1")
    settings_of(tmp_path, BOTH_WAYS)
    words = ("pipeline", "upgrade", str(tmp_path / "shop.py"), "-b", ottla_broker.bootstrap_servers, "--yes")
    said = Ottla("").fails(*words)
    assert "flow 'back' commits in cluster 'east', flow 'copied' in the pipeline's own cluster: versions of a pipeline" in said


# On Spark


def _markers(broker: Broker, group: str) -> list[tuple[str, int]]:
    with Client(plain_options(broker.bootstrap_servers)) as client:
        found = {where: marker_in(entry.metadata) for where, entry in committed_offsets(client, group).items()}
    return [(where.topic, marker.batch_id) for where, marker in found.items() if marker is not None]


def test_records_go_from_one_cluster_to_another_and_back(shop: Shop, east: Broker) -> None:
    start, letters, copy, back = (f"{shop.prefix}{name}" for name in ("start", "letters", "copy", "back"))
    east.create_topic(start, 2)
    file = shop.pipeline(f"""
from ottla import pipelines as p

east = p.cluster("east", {{"bootstrap.servers": "{east.bootstrap_servers}"}})
orders = p.source("{start}", p.json("id long"), name="orders", dead_letter="{letters}", cluster=east)
copied = p.sql(orders, to=p.sink("{copy}"), name="copied", query="SELECT * FROM orders",
               expect=[p.expect("small", "id < 100", on_fail="dead_letter")])
p.sql(copied, to=p.sink("{back}", cluster="east"), name="back", query="SELECT id + 1 AS id FROM copied")
""")
    there = Shop(shop.folder, east, shop.spark, "")
    values: list[Any] = [{"id": number} for number in range(6)]
    there.produce(start, [*values, b"no JSON", {"id": 100}])
    shop.run(file)
    assert sorted(each["id"] for each in shop.values(copy)) == list(range(6))
    assert sorted(each["id"] for each in there.values(back)) == list(range(1, 7))
    found = sorted((dict(message.headers()) for message in shop.read(letters)), key=lambda each: each["ottla.reason"])
    assert [(each["ottla.reason"], each["ottla.cluster"], each["ottla.topic"]) for each in found] == [
        (b"small", b"east", start.encode()),
        (b"the value is no JSON", b"east", start.encode()),
    ]
    # The marker is where the results are, the offsets are where the source is.
    assert _markers(shop.broker, "shop.copied") == [(copy, 0)]
    assert _markers(east, "shop.copied") == []
    assert _markers(east, "shop.back") == [(back, 0)]
    settings = project.override(
        project.read(file), bootstrap_servers=shop.broker.bootstrap_servers, storage=str(shop.folder / "storage")
    )
    assert [
        (each.flow, each.committed, each.lag, each.sink_batch) for each in status(settings, graph.plan(loading.load(file)))
    ] == [
        ("copied", 8, 0, 0),
        ("back", 7, 0, 0),  # the end of a transaction has an offset too
    ]
    there.produce(start, [{"id": 7}])
    shop.run(file)
    assert sorted(json.loads(each.value())["id"] for each in read_topic(east.bootstrap_servers, back)) == [1, 2, 3, 4, 5, 6, 8]
    done = Ottla(shop.broker.bootstrap_servers).run("dlq", "replay", letters, "--yes")
    assert f"of east:{start}, which this cluster does not have" in done.stderr


def test_a_preview_and_a_backfill_read_the_cluster_of_the_source(shop: Shop, east: Broker) -> None:
    from ottla.pipelines import backfill
    from ottla.pipelines.preview import preview
    from ottla.pipelines.project import TimeRange
    from ottla.pipelines.running import PipelineRun

    start, copy = f"{shop.prefix}start", shop.topic("copy")
    east.create_topic(start, 1)
    there = Shop(shop.folder, east, shop.spark, "")
    now_ms = int(time.time() * 1000)
    there.produce(start, [{"id": 1}], timestamp=now_ms - 200_000)
    there.produce(start, [{"id": 2}], timestamp=now_ms - 100_000)
    file = shop.pipeline(f"""
from ottla import pipelines as p

orders = p.source("{start}", p.json("id long"), name="orders", cluster="east")
p.sql(orders, to=p.sink("{copy}"), name="copied", query="SELECT * FROM orders")
""")
    file.with_suffix(".toml").write_text(f'[clusters.east]\n"bootstrap.servers" = "{east.bootstrap_servers}"\n')
    settings = project.override(
        project.read(file), bootstrap_servers=shop.broker.bootstrap_servers, storage=str(shop.folder / "storage")
    )
    plan = graph.plan(loading.load(file))
    assert preview(shop.spark, settings, plan, plan.flows[0]).rows == [{"id": 1}, {"id": 2}]
    stretch = TimeRange(now_ms - 150_000, now_ms)
    with PipelineRun(shop.spark, backfill.project_of(settings, stretch), backfill.plan_of(plan, [])[0]) as run:
        run.start()
        while run.running:
            run.wait(1)
    assert shop.values(copy) == [{"id": 2}]


VERSIONS = """
from pyspark.sql import functions as F
from ottla import pipelines as p

orders = p.source("{start}", p.json("id long, at timestamp"), name="orders", cluster="east")
p.sql(orders, to=p.sink("{start}", key="id"), name="copied", query="SELECT id, {version} AS v FROM orders")
p.sql(orders, to=p.sink("{same}"), name="same", query="SELECT id FROM orders")
local = p.source("{local}", p.json("id long"), name="local")
p.sql(orders, local, to=p.sink("{both}"), name="both",
      query="SELECT id, {version} AS v FROM orders UNION ALL SELECT id, {version} AS v FROM local")

@p.flow(orders, to=p.sink("{sums}"))
def sums(orders):
    found = orders.withWatermark("at", "1 second").groupBy(F.window("at", "10 seconds"))
    found = found.agg(F.sum("id").alias("ids"), F.max(F.lit({version})).alias("v"))
    return found.selectExpr("CAST(window.start AS long) AS start", "ids", "v")
"""


@pytest.mark.slow
def test_an_upgrade_goes_on_where_the_old_version_was_in_the_other_cluster(shop: Shop, east: Broker) -> None:
    """The group at home does not say it. It says where the marker is: on the topic that the flow writes, which here has the name
    of the one that it reads."""
    from ottla.pipelines import upgrading
    from ottla.pipelines.edits import State
    from ottla.pipelines.versions import Versions

    names = {name: f"{shop.prefix}{name}" for name in ("start", "same", "sums", "both", "local")}
    east.create_topic(names["start"], 2)
    for name in names:
        shop.topic(name)
    there = Shop(shop.folder, east, shop.spark, "")
    begin = 1_700_000_000

    def write(first: int, last: int) -> None:
        there.produce(names["start"], [(str(n), {"id": n, "at": begin + n}) for n in range(first, last)])
        shop.produce(names["local"], [{"id": -n} for n in range(first + 1, last + 1)])

    def edited(version: int) -> Path:
        file = shop.pipeline(VERSIONS.format(version=version, **names), "moving")
        file.with_suffix(".toml").write_text(f'[clusters.east]\n"bootstrap.servers" = "{east.bootstrap_servers}"\n')
        return file

    def upgraded(file: Path) -> dict[str, State]:
        given = project.override(
            project.read(file), bootstrap_servers=shop.broker.bootstrap_servers, storage=str(shop.folder / "storage")
        )
        new = upgrading.loaded(file)
        with topics.Clients(given) as clients:
            live = clients.live_project(new.plan)
            versions = Versions(shop.spark, given.storage)
            kept = versions.read(live.version)
            assert kept is not None
            work = upgrading.Upgrade(shop.spark, clients, live, upgrading.loaded_version(versions, kept), new)
            found = work.examine()
            over = work.stretch(found, 1000, None)
            assert over.records == 2 * (begun := len(there.read(names["start"])))
            copied = next(each.rows for each in work.shadowed(found, over, 5) if each.flow == "copied")
            assert copied.changed == begun
            work.switch(found)
            return {edit.flow: edit.state for edit in found}

    write(0, 40)
    shop.run(edited(1))
    # Left by a query before `reset`.
    with Client(plain_options(shop.broker.bootstrap_servers)) as client:
        stale = CommittedOffset(0, str(Marker("aaaa", 999, "0")))
        for flow in ("copied", "same"):
            commit_offsets(client, f"moving.{flow}", {TopicPartition(names["local"], 0): stale})
    states = {"copied": State.NONE, "same": State.KEPT, "both": State.NONE, "sums": State.REBUILT}
    assert upgraded(edited(2)) == states
    write(40, 80)
    shop.run(edited(2))
    # Two in succession: the second finds no batch of the first.
    upgraded(edited(3))
    upgraded(edited(4))
    write(80, 120)
    shop.run(edited(4))
    versions = {n: 1 if n < 40 else 2 if n < 80 else 4 for n in range(120)}
    assert Counter((row["id"], row["v"]) for row in shop.values(names["start"])) == Counter(versions.items())
    assert Counter(row["id"] for row in shop.values(names["same"])) == Counter(range(120))
    both = {**versions, **{-n - 1: version for n, version in versions.items()}}
    assert Counter((row["id"], row["v"]) for row in shop.values(names["both"])) == Counter(both.items())
    windows = {row["start"]: row["ids"] for row in shop.values(names["sums"])}
    assert len(windows) == len(shop.values(names["sums"]))
    assert windows == {begin + n: sum(range(n, n + 10)) for n in range(0, 110, 10)}
