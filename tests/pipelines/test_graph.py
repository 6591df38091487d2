"""Definitions and their plan, without Spark (F77)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ottla import pipelines as p
from ottla.pipelines.graph import plan
from ottla.pipelines.loading import load

ORDERS = """
from ottla import pipelines as p

orders = p.source("orders", p.json("id long, amount double"), dead_letter="orders.dlq")


@p.flow(orders, to=p.sink("revenue", key="id"))
def revenue(orders):
    return orders.groupBy("id").sum("amount")


p.sql(orders, to=p.sink("big-orders", key="id"), query="SELECT * FROM orders WHERE amount > 10")
"""


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def body(*frames: object) -> object:
    return frames[0]


def test_a_file_becomes_flows_that_know_their_place(tmp_path: Path) -> None:
    flows = load(write(tmp_path / "orders.py", ORDERS))
    assert [(flow.name, flow.place.line) for flow in flows] == [("revenue", 7), ("big_orders", 12)]
    assert all(flow.place.file.endswith("orders.py") for flow in flows)
    source = flows[0].inputs[0]
    assert isinstance(source, p.Source)
    assert (source.name, source.topics, source.dead_letter, source.place.line) == ("orders", ("orders",), "orders.dlq", 4)
    found = plan(flows)
    assert found.queries == tuple(flows)
    assert found.sources(flows[1]) == (source,)


def test_loading_imports_no_pyspark(tmp_path: Path) -> None:
    """F77: importing a pipeline starts nothing, and costs nothing."""
    file = write(tmp_path / "orders.py", ORDERS)
    check = f"import sys; from ottla.pipelines.loading import load; load({str(file)!r}); print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("import nothing_of_that_name", 1, "ModuleNotFoundError"),
        ("x = 1\nif x\n", 2, "expected ':'"),
        ("from ottla import pipelines as p\n\n\np.source('a b')", 4, "'a b' is not a topic name"),
        ("from ottla import pipelines as p\np.source('a', p.json())", 2, "needs a schema"),
        ("def f():\n    return 1 / 0\n\nf()", 2, "ZeroDivisionError"),
        ("raise SystemExit(3)", 1, "SystemExit"),
        ("from ottla import pipelines as p\np.source('a', columns=['kee'])", 2, "no column 'kee'"),
        ("from ottla import pipelines as p\np.table('/x', 'xls')", 2, "table format 'xls' is unknown"),
        ("from ottla import pipelines as p\np.table('/x', mode='upsert', key='a')", 2, "a parquet table cannot be upserted"),
        ("from ottla import pipelines as p\np.table('/x', 'delta', mode='upsert')", 2, "needs a key"),
        ("from ottla import pipelines as p\n@p.flow\ndef f(x): return x", 2, "needs its inputs"),
        ("from ottla import pipelines as p\np.flow(p.source('a'), to='b')(print)", 2, "is not a target"),
    ],
)
def test_a_file_that_does_not_load_says_where(tmp_path: Path, text: str, line: int, words: str) -> None:
    with pytest.raises(p.PipelineError) as caught:
        load(write(tmp_path / "bad.py", text))
    assert words in caught.value.message
    assert caught.value.place is not None
    assert (Path(caught.value.place.file).name, caught.value.place.line) == ("bad.py", line)


def test_a_file_without_flows_or_no_file(tmp_path: Path) -> None:
    with pytest.raises(p.PipelineError, match="declares no flow"):
        load(write(tmp_path / "empty.py", "x = 1"))
    with pytest.raises(p.PipelineError, match="no such file"):
        load(tmp_path / "nothing.py")


def test_names_reach_forward_and_unknown_ones_are_named() -> None:
    orders = p.source("orders")
    first = p.flow("later", to=p.sink("out"), name="first")(body)
    later = p.flow(orders, name="later")(body)
    found = plan([first, later])
    assert found.flows == (later, first)
    assert found.sources(first) == (orders,)
    with pytest.raises(p.PipelineError, match=r"test_graph.py:\d+: flow 'first' takes 'later', which is not declared"):
        plan([first])
    with pytest.raises(p.PipelineError) as caught:
        plan([p.flow("latter", to=p.sink("out"), name="first")(body), later])
    assert caught.value.hint == "did you mean 'later'?"


def test_a_flow_into_a_topic_is_read_back_from_it_and_a_view_is_not() -> None:
    orders = p.source("orders")
    view = p.flow(orders, name="view")(body)
    counts = p.flow(view, to=p.sink("counts"), name="counts")(body)
    alarms = p.flow(counts, to=p.sink("alarms"), name="alarms")(body)
    found = plan([view, counts, alarms])
    assert found.sources(counts) == (orders,)
    assert found.sources(alarms) == ()
    assert found.read_back(alarms) == (counts,)
    assert found.queries == (counts, alarms)


def refused(*flows: p.Flow) -> str:
    with pytest.raises(p.PipelineError) as caught:
        plan(flows)
    return str(caught.value)


def test_what_cannot_be_is_refused_with_names_and_places(tmp_path: Path) -> None:
    orders = p.source("orders")
    one = p.flow(orders, to=p.sink("a"), name="one")(body)
    other = p.flow(orders, to=p.sink("b"), name="one")(body)
    assert "flow 'one' is declared twice, first at " in refused(one, other)
    assert str(one.place) in refused(one, other)

    table = p.flow(orders, to=p.table("/lake/orders"), name="table")(body)
    again = p.flow(orders, to=p.table("/lake/orders/"), name="again")(body)
    assert f"which flow 'table' ({table.place}) writes" in refused(table, again)
    assert "which writes a table" in refused(table, p.flow(table, to=p.sink("c"), name="reader")(body))

    assert "has no target and no reader" in refused(p.flow(orders, name="lonely")(body))
    assert "declared twice and differently" in refused(
        one, p.flow(p.source("orders", p.bytes()), to=p.sink("z"), name="two")(body)
    )
    static = p.files("/somewhere", static=True)
    assert "only static files" in refused(p.flow(static, to=p.sink("z"), name="still")(body))


def test_circles_through_views_and_through_topics_are_refused() -> None:
    """F77: a circle is named with all its flows."""
    there = p.flow("back", name="there")(body)
    back = p.flow("there", to=p.sink("x"), name="back")(body)
    assert "flows form a cycle: " in refused(there, back)

    ping = p.flow(p.source("pong"), to=p.sink("ping"), name="pinger")(body)
    pong = p.flow(p.source("ping"), to=p.sink("pong"), name="ponger")(body)
    message = refused(ping, pong)
    assert f"'pinger' ({ping.place})" in message
    assert f"'ponger' ({pong.place})" in message
    own = p.flow(p.source(pattern="ev.*", name="all"), to=p.sink("events"), name="own")(body)
    assert "flows form a cycle: 'own'" in refused(own)


def test_dead_letters_go_where_nobody_else_writes_or_reads() -> None:
    own = p.source(pattern="orders.*", name="all", dead_letter="orders.dlq")
    assert "reads its own dead-letter topic" in refused(p.flow(own, to=p.sink("x"), name="f")(body))
    mixed = p.source("in", dead_letter="out")
    assert "the dead-letter topic 'out' of source 'in_' is the target of" in refused(
        p.flow(p.source("in", name="in_", dead_letter="out"), to=p.sink("out"), name="f")(body)
    )
    assert plan([p.flow(mixed, to=p.sink("else"), name="f")(body)]).queries
