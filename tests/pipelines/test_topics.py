"""Topics that cannot be had are told before a Spark is started: one line, with the place that names them (F77)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from ottla.cli.app import app
from ottla.client.blocking import Client
from ottla.errors import ErrorCode, KafkaError
from ottla.pipelines import PipelineError, graph, loading, project, session, topics

if TYPE_CHECKING:
    from ottla.testing import Broker

TWO = """
from ottla import pipelines as p

orders = p.source("asked.{source}", name="orders", dead_letter="asked.dlq")
first = p.sql(orders, to=p.sink("asked.middle"), name="first", query="SELECT * FROM orders")
again = p.source("asked.middle", name="again")
p.sql(again, to=p.sink("asked.out"), name="second", query="SELECT * FROM again")
"""


def pipeline(folder: Path, source: str) -> Path:
    file = folder / "shop.py"
    file.write_text(TWO.format(source=source))
    return file


def ask(file: Path, servers: str) -> None:
    settings = project.override(project.read(file), bootstrap_servers=servers)
    topics.check(settings, graph.plan(loading.load(file)))


@pytest.mark.parametrize("command", ["run", "check"])
def test_a_missing_topic_is_told_before_spark_is_started(
    tmp_path: Path, ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    def started(*given: Any, **more: Any) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(session, "start", started)
    file = pipeline(tmp_path, "nowhere")
    found = CliRunner().invoke(app, ["pipeline", command, str(file), "-b", ottla_broker.bootstrap_servers])
    assert (found.exit_code, found.stdout) == (1, "")
    first, hint = found.stderr.splitlines()
    assert first.startswith(f"error: {file}:4: source 'orders': UNKNOWN_TOPIC_OR_PARTITION")
    assert hint == "  create it with `ottla topic create asked.nowhere`"


def test_what_is_written_here_or_was_read_before_may_be_missing(tmp_path: Path, ottla_broker: Broker) -> None:
    """The broker makes a topic that is written to; of one that was read before, failOnDataLoss decides."""
    ottla_broker.create_topic("asked.in", 1)
    ask(pipeline(tmp_path, "in"), ottla_broker.bootstrap_servers)
    file = pipeline(tmp_path, "gone")
    note = tmp_path / ".ottla" / "shop" / "first" / "ottla.json"
    note.parent.mkdir(parents=True)
    note.write_text(json.dumps({"pipeline": "shop", "flow": "first"}))
    ask(file, ottla_broker.bootstrap_servers)
    note.write_text(json.dumps({"pipeline": "other", "flow": "first"}))
    with pytest.raises(PipelineError, match=r"first is the checkpoint of other\.first, not of shop\.first"):
        ask(file, ottla_broker.bootstrap_servers)


@pytest.mark.parametrize(("topic", "line"), [("asked.in", 4), ("asked.dlq", 4), ("asked.out", 7)])
def test_a_topic_without_permission_is_told_with_its_line(
    tmp_path: Path, ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch, topic: str, line: int
) -> None:
    def refuses(self: Client, names: list[str], **more: Any) -> dict[str, Any]:
        if topic in names:
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"topic {topic}")
        return dict.fromkeys(names)

    monkeypatch.setattr(Client, "describe", refuses)
    with pytest.raises(PipelineError, match=f"TOPIC_AUTHORIZATION_FAILED.*{topic}") as caught:
        ask(pipeline(tmp_path, "in"), ottla_broker.bootstrap_servers)
    assert caught.value.place is not None
    assert caught.value.place.line == line
