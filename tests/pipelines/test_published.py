"""What a run publishes to the cluster, and who reads it there: needs a broker, no Spark (F80)."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from ottla.client.blocking import Client
from ottla.client.options import plain_options
from ottla.pipelines import PipelineError, graph, loading, progress, project
from ottla.pipelines.failure import Place
from ottla.pipelines.published import documents, requests, topic, view
from ottla.pipelines.published.publisher import Publisher
from ottla.pipelines.running import PipelineRun
from tests.kit.ottla_command import Ottla
from tests.kit.wait import until
from tests.pipelines.test_progress import PROGRESS, watched

if TYPE_CHECKING:
    from ottla.testing import Broker

SHOP = """
from ottla import pipelines as p

orders = p.source("orders", p.json("id long"), dead_letter="orders.dlq")
prices = p.files("/prices", "id long", static=True, name="prices")
cleaned = p.sql(orders, prices, name="cleaned", query="SELECT * FROM orders")
revenue = p.sql(cleaned, to=p.sink("revenue"), name="revenue", query="SELECT * FROM cleaned")
jdbc = p.jdbc("jdbc:postgresql://db/shop?password=hunter2", "totals", options={"user": "ada", "password": "hunter2"})
p.sql(revenue, to=jdbc, name="totals", query="SELECT 'hunter3' FROM revenue")
"""


@pytest.fixture
def shop(tmp_path: Path) -> documents.Run:
    """The run of a pipeline with a topic, files, a view, a dead letter and a database with a password."""
    file = tmp_path / "shop.py"
    file.write_text(SHOP)
    settings = project.read(file)
    settings = project.override(settings, bootstrap_servers="127.0.0.1:9092")
    return documents.Run(settings, graph.plan(loading.load(file)))


@pytest.fixture
def client(ottla_broker: Broker) -> Iterator[Client]:
    """Of a cluster to which nothing is published."""
    with Client(plain_options(ottla_broker.bootstrap_servers, api_timeout_ms=20_000)) as found:
        if topic.TOPIC in found.describe([topic.TOPIC]):
            topic.append(found, dict.fromkeys(topic.Reader(found).poll()))
        yield found


def run_of(described: documents.Run) -> PipelineRun:
    return PipelineRun(cast(Any, None), described.project, described.plan)


def published(client: Client) -> list[view.PublishedPipeline]:
    return view.pipelines(topic.Reader(client).poll())


def test_the_plan_is_a_graph_without_secrets(shop: documents.Run) -> None:
    plan = shop.plan_document()
    drawn = [(edge["from"]["name"], edge["to"]["name"], edge["dead_letter"]) for edge in plan["edges"]]
    assert drawn == [
        ("orders", "cleaned", False),
        ("/prices", "cleaned", False),
        ("cleaned", "revenue", False),
        ("revenue", "revenue", False),
        ("revenue", "orders.dlq", True),
        ("revenue", "totals", False),
        ("totals", "totals", False),
    ]
    assert [edge["from"]["kind"] for edge in plan["edges"]] == ["topic", "table", "flow", "flow", "flow", "topic", "flow"]
    assert [(flow["name"], flow["group"]) for flow in plan["flows"]] == [
        ("cleaned", None),
        ("revenue", "shop.revenue"),
        ("totals", "shop.totals"),
    ]
    assert plan["sources"][0]["dead_letter"] == "orders.dlq"
    assert "hunter" not in json.dumps(plan)


def test_a_run_is_published_from_start_to_end(shop: documents.Run, client: Client) -> None:
    """One line per batch would be too much: the flow is published when it changes, and in the end."""
    run, watch = run_of(shop), watched()
    with Publisher(client.options, shop, lambda error: documents.of_flows(shop, run, watch, error)):
        (pipeline,) = until(lambda: published(client), "the plan is published", 20)
        assert pipeline.plan["file"].endswith("shop.py")
        assert (pipeline.state(documents.now_ms()), [flow.name for flow in pipeline.flows]) == ("starting", ["revenue", "totals"])
        run.queries["revenue"] = run.queries["totals"] = cast(Any, None)
        watch.hear(PROGRESS)
        flow = until(
            lambda: next((each for each in published(client)[0].flows if each.progress), None), "a batch is published", 20
        )
        assert (flow.name, flow.state(documents.now_ms())) == ("revenue", "running")
        assert {"batch": 7, "lag": 7, "records_out": 90, "dead_letters": 2, "run_again": 1}.items() <= flow.progress.items()
        assert flow.error_text() == f"{shop.project.file}:7: a worker was lost"
        run._is_stopped = True
    (pipeline,) = published(client)
    assert {flow.state(documents.now_ms()) for flow in pipeline.flows} == {"stopped"}
    assert {flow.document["run"] for flow in pipeline.flows} == {shop.run_id}


def test_somebody_asks_a_run_to_stop(shop: documents.Run, client: Client) -> None:
    """Only this run: what was asked of another one is not for it."""
    run, watch, asked = run_of(shop), watched(), list[str]()
    topic.ensure(client)
    topic.append(client, requests.stop_request("shop", "an earlier run", "eve"))
    with Publisher(client.options, shop, lambda error: documents.of_flows(shop, run, watch, error), asked.append):
        until(lambda: published(client), "the plan is published", 20)
        topic.append(client, requests.stop_request("shop", "another run", "eve"))
        topic.append(client, requests.stop_request("other", shop.run_id, "eve"))
        topic.append(client, {requests.key_of("shop"): "no JSON"})
        topic.append(client, requests.stop_request("shop", shop.run_id, "ada"))
        until(lambda: asked, "the run is asked", 20)
        topic.append(client, requests.stop_request("shop", shop.run_id, "bob"))
    assert asked == ["ada"]
    (pipeline,) = published(client)
    assert [flow.name for flow in pipeline.flows] == ["revenue", "totals"], "a request is no flow"


@pytest.mark.parametrize(("states", "runs"), [(("failed", "running"), True), (("failed", "stopped"), False), ((), False)])
def test_a_pipeline_runs_while_one_of_its_flows_does(states: tuple[str, ...], runs: bool) -> None:
    at = {"heartbeat_ms": 1000, "heartbeat_interval_ms": 1000}
    flows = tuple(view.PublishedFlow(f"f{number}", {"state": state, **at}) for number, state in enumerate(states))
    pipeline = view.PublishedPipeline("shop", {}, flows)
    assert pipeline.runs(1500) == runs
    assert not pipeline.runs(10_000), "it was not heard for long"


def test_pipeline_stop_waits_until_it_has_stopped(shop: documents.Run, client: Client) -> None:
    run, watch = run_of(shop), watched()
    ottla = Ottla(str(client.options))

    def stop(by: str) -> None:
        run._is_stopped = True

    with Publisher(client.options, shop, lambda error: documents.of_flows(shop, run, watch, error), stop):
        until(lambda: published(client), "the plan is published", 20)
        done = ottla.run("pipeline", "stop", "shop")
        assert (done.returncode, done.stderr) == (0, "pipeline shop is stopped\n")
    assert "pipeline shop is stopped" in ottla.run("pipeline", "stop", "shop").stderr
    assert "has published nothing\n  did you mean shop?" in ottla.run("pipeline", "stop", "shp").stderr
    ottla.ok("pipeline", "forget", "shop")
    assert topic.Reader(client).poll() == {}, "the request is forgotten too"


def test_the_topic_is_compacted_and_made_once(shop: documents.Run, client: Client) -> None:
    topic.ensure(client)
    topic.ensure(client)
    text = Ottla(str(client.options)).ok("topic", "describe", topic.TOPIC, "--json")
    (found,) = [json.loads(text)] if isinstance(json.loads(text), dict) else json.loads(text)
    assert len(found["partitions"]) == 1
    configs = json.loads(Ottla(str(client.options)).ok("config", "describe", "topic", topic.TOPIC, "--json"))
    assert "compact" in json.dumps(configs)


@pytest.mark.parametrize("known", [True, False])
def test_a_failure_is_published_with_its_line(shop: documents.Run, client: Client, known: bool) -> None:
    """If it is not known which flow failed, all did."""
    run = run_of(shop)
    failure = PipelineError("no column amount", Place("shop.py", 8), hint="look at the query")

    def stop() -> None:
        with Publisher(client.options, shop, lambda error: documents.of_flows(shop, run, watched(), error)):
            if known:
                run.failures["totals"] = failure
                run._is_stopped = True
            raise failure

    with pytest.raises(PipelineError):
        stop()
    (pipeline,) = published(client)
    assert pipeline.state(documents.now_ms()) == "failed"
    shown = {flow.name: (flow.state(documents.now_ms()), flow.error_text()) for flow in pipeline.flows}
    assert shown["totals"] == ("failed", "shop.py:8: no column amount")
    assert shown["revenue"][0] == ("stopped" if known else "failed")


def test_a_broker_that_is_away_costs_one_line(shop: documents.Run, caplog: pytest.LogCaptureFixture) -> None:
    began = time.monotonic()
    away = plain_options("127.0.0.1:1")
    with (
        caplog.at_level(logging.INFO, "ottla.pipelines"),
        Publisher(away, shop, lambda error: documents.of_flows(shop, run_of(shop), watched(), error)),
    ):
        until(lambda: caplog.records, "the note", 30)
        flows_went_on = time.monotonic() - began
    assert flows_went_on < 30
    (record,) = caplog.records
    assert record.getMessage().startswith("Cannot publish progress to __ottla_pipelines: no broker answers: 127.0.0.1:1")
    assert "publish = false" in record.getMessage()


def test_a_driver_that_is_not_heard_of_is_lost() -> None:
    document = {"state": "running", "heartbeat_ms": 1_000_000, "heartbeat_interval_ms": 10_000, "progress": None}
    flow = view.PublishedFlow("revenue", document)
    assert flow.state(1_030_000) == "running"
    assert flow.state(1_030_001) == "lost"
    assert view.PublishedFlow("revenue", {**document, "state": "stopped"}).state(9_999_999) == "stopped"
    assert flow.checkpoint_age_s(1_030_000) is None
    aged = view.PublishedFlow("revenue", {**document, "progress": {"checkpoint_at": "1970-01-01T00:16:40.500Z"}})
    assert aged.checkpoint_age_s(1_030_000) == 29.5


def test_what_is_no_document_is_left_out() -> None:
    """Anybody may write to a topic, also a newer version."""
    plan = {"version": 1, "flows": [{"name": "revenue", "to": {}}, {"name": "removed", "to": {}}]}
    flow = {"version": 1, "place": "", "state": "stopped", "error": None, "progress": None} | {
        "heartbeat_ms": 1,
        "heartbeat_interval_ms": 1,
    }
    found = view.pipelines(
        {
            "shop": json.dumps(plan),
            "shop/revenue": json.dumps(flow),
            "shop/removed": json.dumps({"version": 1}),
            "shop/unplanned": json.dumps(flow),
            "newer": json.dumps({**plan, "version": 2}),
            "text": "{",
            "list": "[1]",
            "odd": json.dumps({"version": 1, "flows": "none"}),
        }
    )
    assert [(each.name, [flow.name for flow in each.flows]) for each in found] == [("shop", ["revenue"])]


def test_status_of_all_and_forget(shop: documents.Run, client: Client) -> None:
    ottla, run, watch = Ottla(str(client.options)), run_of(shop), watched()
    assert json.loads(ottla.ok("pipeline", "status", "--all", "--json")) == {"pipelines": []}
    assert "no pipeline has published" in ottla.run("pipeline", "status", "--all").stderr
    watch.hear(PROGRESS)
    with Publisher(client.options, shop, lambda error: documents.of_flows(shop, run, watch, error)):
        until(lambda: published(client), "the plan is published", 20)
        assert "runs on " in ottla.fails("pipeline", "forget", "shop")
        run._is_stopped = True
    header, revenue, totals = ottla.ok("pipeline", "status", "--all").splitlines()
    assert header.split() == ["PIPELINE", "FLOW", "STATE", "BATCH", "ROWS/S", "OUT", "LAG", "DEAD", "CHECKPOINT", "HEARD",
                              "DRIVER", "ERROR"]  # fmt: skip
    assert revenue.split()[:8] == ["shop", "revenue", "stopped", "7", "50.0", "90", "7", "2"]
    assert revenue.endswith("shop.py:7: a worker was lost")
    assert totals.split()[:5] == ["shop", "totals", "stopped", "-", "-"]
    (document,) = json.loads(ottla.ok("pipeline", "status", "--all", "--json"))["pipelines"]
    assert (document["pipeline"], document["state"], document["plan"]["flows"][0]["name"]) == ("shop", "stopped", "cleaned")
    assert document["flows"][0]["checkpoint_age_s"] > 0

    assert "did you mean shop?" in ottla.fails("pipeline", "forget", "shopp")
    ottla.ok("pipeline", "forget", "shop")
    assert published(client) == []


def test_wrong_words_of_status_are_usage_errors(ottla_broker: Broker) -> None:
    ottla = Ottla(ottla_broker.bootstrap_servers)
    assert "pass --all" in ottla.fails("pipeline", "status", code=2)
    assert "give it no FILE" in ottla.fails("pipeline", "status", "shop.py", "--all", code=2)
    assert "section [kafka]" in ottla.fails("pipeline", "status", "shop.py", "--command-config", "x", code=2)


def test_a_reader_begins_anew_if_the_topic_was_made_again(client: Client, ottla_broker: Broker) -> None:
    topic.ensure(client)
    reader = topic.Reader(client)
    topic.append(client, {"a": "1", "b": "2"})
    assert reader.poll() == {"a": "1", "b": "2"}
    topic.append(client, {"a": None, "b": "3"})
    assert reader.poll() == {"b": "3"}
    Ottla(ottla_broker.bootstrap_servers).ok("topic", "delete", topic.TOPIC, "--yes")
    until(lambda: reader.poll() == {}, "the topic is gone", 20)
    topic.ensure(client)
    topic.append(client, {"c": "4"})
    assert until(reader.poll, "the new topic is read", 20) == {"c": "4"}


def test_publishing_is_switched_off_in_the_settings(tmp_path: Path) -> None:
    (tmp_path / "shop.toml").write_text("[pipeline]\npublish = false\n")
    assert project.read(tmp_path / "shop.py").publish is False
    (tmp_path / "shop.toml").write_text('[pipeline]\npublish = "no"\n')
    with pytest.raises(PipelineError, match="publish = 'no' is neither true nor false"):
        project.read(tmp_path / "shop.py")


def test_progress_without_a_batch_keeps_what_is_known() -> None:
    watch = watched()
    watch.hear(PROGRESS)
    idle = {**PROGRESS, "numInputRows": 0, "durationMs": {"latestOffset": 2, "triggerExecution": 2}, "eventTime": {}}
    watch.hear(idle)
    found = watch.latest["revenue"]
    assert (found["rows_in"], found["checkpoint_at"]) == (100, "2026-01-01T00:00:00.120Z")
    assert found["lag_by_topic"] == {"a": 4, "b": 3}
    assert progress.lag_by_topic({"sources": [{"endOffset": 1, "latestOffset": 2}]}) == {}
