"""Several pipelines in one Spark application."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.cli.pipeline.running import run_flows
from ottla.pipelines import PipelineError, graph, loading, project

if TYPE_CHECKING:
    from tests.pipelines.conftest import Shop

COPY = """
from ottla import pipelines as p

orders = p.source("{source}", p.json("id long"), name="orders")
p.sql(orders, to=p.sink("{out}"), name="copy", query="SELECT * FROM orders")
"""


def test_one_that_fails_stops_no_other(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    """Both have a source `orders` and a flow `copy`."""
    pipelines, outs = [], []
    for name, value in (("east", b'{"id": 1}'), ("east.bad", b"{"), ("west", b'{"id": 2}')):
        source, out = shop.topic(f"{name}-orders"), shop.topic(f"{name}-out")
        shop.produce(source, [value])
        file = shop.pipeline(COPY.format(source=source, out=out), name)
        file = file.rename(shop.folder / f"{name.replace('.', '_')}.py")
        settings = project.override(
            project.read(file),
            name=name,
            bootstrap_servers=shop.broker.bootstrap_servers,
            storage=str(shop.folder / name),
        )
        pipelines.append((settings, graph.plan(loading.load(file))))
        outs.append(out)
    with pytest.raises(PipelineError, match="the value is no JSON"):
        run_flows(shop.spark, pipelines, once=True, json_output=True)
    assert [[value["id"] for value in shop.values(out)] for out in outs] == [[1], [], [2]]
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    found = {(each["pipeline"], each["flow"], each.get("records_out"), each.get("event")) for each in told}
    assert found == {("east", "copy", 1, None), ("east.bad", "copy", None, "failed"), ("west", "copy", 1, None)}


def test_what_cannot_share_a_spark_is_refused(tmp_path: Path) -> None:
    east, west = project.Project(Path("east.py"), "east"), project.Project(Path("west.py"), "west", conf={"a": "1"})
    assert project.shared([east]).name == "east"
    assert project.shared([east, west]).conf == {"a": "1"}
    for other, said in (
        (project.Project(Path("w.py"), "east"), "two pipelines are named 'east'"),
        (project.Project(Path("w.py"), "w", master="yarn"), "have different masters"),
        (project.Project(Path("w.py"), "w", conf={"a": "2"}), "has another a than the others"),
    ):
        with pytest.raises(PipelineError, match=said):
            project.shared([east, west, other])


def test_modules_of_the_same_name_are_refused(tmp_path: Path) -> None:
    files = []
    for name in ("east", "west"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "names_of_both.py").write_text("TOPIC = 't'\n")
        files.append(tmp_path / name / f"{name}.py")
        files[-1].write_text("import names_of_both\n" + COPY.format(source="s", out=name))
        loading.load(files[-1])
    with pytest.raises(PipelineError, match="have the same name"):
        loading.refuse_shared_modules(files)
