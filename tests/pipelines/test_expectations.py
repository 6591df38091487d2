"""Expectations: conditions on the rows of a flow, and what becomes of rows that do not meet them (F81)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla import pipelines as p
from ottla.pipelines.data_source.read_limits import ARE_KNOWN
from ottla.pipelines.exactly_once import ExactlyOnceSink
from ottla.pipelines.graph import plan
from ottla.pipelines.loading import load

if TYPE_CHECKING:
    from tests.pipelines.conftest import Shop

HEAD = """
from ottla import pipelines as p
from pyspark.sql import functions as F

orders = p.source("{source}", p.json("id long, customer string, amount double"), name="orders"{more})
"""
FOUR_WAYS = (
    HEAD
    + """
@p.flow(orders, to=p.sink("{out}", key="customer"))
@p.expect("known", "customer <> 'eve'", on_fail="drop")
@p.expect("positive", "amount > 0", on_fail="dead_letter")
@p.expect("small", "amount < 100")
def checked(orders):
    return orders.selectExpr("id", "upper(customer) AS name", "customer", "amount * 2 / 2 AS amount")

p.sql(orders, to=p.sink("{other}"), name="big", query="SELECT id, amount FROM orders WHERE id > 1",
      expect=[p.expect("even", "id % 2 = 0", on_fail="dead_letter")])
"""
)


def headers_of(message: Any) -> dict[str, str]:
    return {name: value.decode() for name, value in message.headers()}


# Declaring


def test_expectations_stack_in_any_order_around_a_flow() -> None:
    source = p.source("orders", p.json("id long"))

    @p.expect("outer", "id > 0")
    @p.flow(source, to=p.sink("out"))
    @p.expect("first", "id > 1", on_fail="drop")
    @p.expect("second", "id > 2", on_fail="stop")
    def orders(frame: Any) -> Any:
        return [frame]

    assert [(each.name, each.on_fail) for each in orders.expectations] == [
        ("outer", "warn"),
        ("first", "drop"),
        ("second", "stop"),
    ]
    assert orders(1) == [1]
    query = p.sql(source, query="SELECT 1", to=p.sink("out"), expect=p.expect("one", "true"))
    assert [each.name for each in query.expectations] == ["one"]


def test_an_expectation_above_the_flow_replaces_it_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "orders.py"
    file.write_text(
        HEAD.format(source="orders", more="")
        + '@p.expect("a", "id > 0")\n@p.flow(orders, to=p.sink("out"))\ndef copy(orders):\n    return orders\n'
    )
    flows = load(file)
    assert [(flow.name, len(flow.expectations)) for flow in flows] == [("copy", 1)]


@pytest.mark.parametrize(
    ("arguments", "more", "words"),
    [
        ({"name": "not positive", "condition": "x"}, {}, "a name has letters, digits and _ only"),
        ({"name": "a", "condition": " "}, {}, "expectation 'a' has no condition"),
        ({"name": "a", "condition": "x", "on_fail": "ignore"}, {}, "on_fail='ignore' is unknown"),
        ({"name": "a", "condition": "id > 0", "on_fail": "dead_letter"}, {}, "source 'orders' has none"),
    ],
)
def test_mistakes_are_refused_without_spark(arguments: dict[str, Any], more: dict[str, Any], words: str) -> None:
    source = p.source("orders", p.json("id long"), **more)
    with pytest.raises(p.PipelineError) as caught:
        plan([p.sql(source, query="SELECT 1", to=p.sink("out"), expect=p.expect(**arguments))])
    assert words in caught.value.message
    assert caught.value.place is not None
    assert caught.value.place.file == __file__


def test_a_name_is_given_once() -> None:
    source = p.source("orders", p.json("id long"))
    with pytest.raises(p.PipelineError, match="two expectations 'a'"):
        p.sql(source, query="SELECT 1", to=p.sink("out"), expect=[p.expect("a", "id > 0"), p.expect("a", "id > 1")])


# Running


def test_rows_are_counted_dropped_and_their_records_become_dead_letters(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch runs twice: what the first attempt sent is aborted, and counts once."""
    source, out, other, letters = shop.topic("orders"), shop.topic("out"), shop.topic("other"), shop.topic("dlq")
    file = shop.pipeline(FOUR_WAYS.format(source=source, out=out, other=other, more=f', dead_letter="{letters}"'))
    rows = [("ada", 5.0), ("bob", -1.0), ("eve", 7.0), ("eve", -2.0), ("cay", 500.0)]
    shop.produce(
        source,
        [(name, {"id": n, "customer": name, "amount": amount}) for n, (name, amount) in enumerate(rows)],
        headers=[("trace", b"7")],
    )
    shop.produce(source, [("bad", b"{nonsense")])
    commit, failed = ExactlyOnceSink._commit, []

    def fails_once(self: ExactlyOnceSink, *arguments: Any) -> None:
        if self.flow.name not in failed:
            failed.append(self.flow.name)
            raise OSError("cut")
        commit(self, *arguments)

    monkeypatch.setattr(ExactlyOnceSink, "_commit", fails_once)
    flows = shop.run(file)
    assert sorted(failed) == ["big", "checked"]
    assert [value["id"] for value in shop.values(out)] == [0, 4]
    assert [value["id"] for value in shop.values(other)] == [2, 4]
    totals = flows.sinks["checked"].totals
    assert totals.unmet == {"known": 2, "positive": 2, "small": 1}
    assert totals.dead_letters == 3  # two rows, and the record that does not parse, which `big` reads too
    assert flows.sinks["big"].totals.unmet == {"even": 1}
    assert flows.sinks["big"].totals.dead_letters == 1

    found = shop.read(letters)
    assert sorted((headers_of(each)["ottla.flow"], headers_of(each)["ottla.reason"], each.key()) for each in found) == [
        ("big", "even", b"eve"),
        ("checked", "positive", b"bob"),
        ("checked", "positive", b"eve"),
        ("checked", "the value is no JSON", b"bad"),
    ]
    bob = next(each for each in found if each.key() == b"bob")
    assert json.loads(bob.value()) == {"id": 1, "customer": "bob", "amount": -1.0}
    assert headers_of(bob) == {
        "trace": "7",
        "ottla.topic": source,
        "ottla.partition": "0",
        "ottla.offset": "1",
        "ottla.flow": "checked",
        "ottla.reason": "positive",
        "ottla.expectation": "amount > 0",
    }


def test_without_one_record_the_row_becomes_the_dead_letter_and_views_have_expectations(shop: Shop) -> None:
    """Rows of an aggregation come of many records."""
    source, out, letters = shop.topic("orders"), shop.topic("out"), shop.topic("dlq")
    text = (
        HEAD
        + """
@p.flow(orders)
@p.expect("positive", "amount > 0", on_fail="dead_letter")
def good(orders):
    return orders.where("id < 100")

@p.flow(good, to=p.sink("{out}"), output_mode="update")
@p.expect("rich", "total > 10", on_fail="dead_letter")
def totals(good):
    return good.groupBy("customer").agg(F.sum("amount").alias("total"))
"""
    )
    file = shop.pipeline(text.format(source=source, out=out, more=f', dead_letter="{letters}"'))
    rows = [("ada", 5.0), ("bob", 20.0), ("ada", 1.0), ("bob", -50.0)]
    shop.produce(source, [{"id": n, "customer": name, "amount": amount} for n, (name, amount) in enumerate(rows)])
    flows = shop.run(file)
    assert shop.values(out) == [{"customer": "bob", "total": 20.0}]
    assert flows.sinks["totals"].totals.unmet == {"rich": 1, "good.positive": 1}
    found = {headers_of(each)["ottla.flow"]: each for each in shop.read(letters)}
    assert found.keys() == {"good", "totals"}
    assert json.loads(found["good"].value())["id"] == 3
    assert headers_of(found["good"])["ottla.offset"] == "3"
    assert json.loads(found["totals"].value()) == {"customer": "ada", "total": 6.0}
    assert headers_of(found["totals"]) == {"ottla.flow": "totals", "ottla.reason": "rich", "ottla.expectation": "total > 10"}


def test_stop_lets_nothing_of_the_batch_through(shop: Shop, tmp_path: Path) -> None:
    source, out = shop.topic("orders"), shop.topic("out")
    text = (
        HEAD
        + 'p.sql(orders, to={to}, name="copy", query="SELECT * FROM orders", expect=p.expect("a", "id > 1", on_fail="{stop}"))'
    )
    shop.produce(source, [{"id": n, "customer": "ada", "amount": 1.0} for n in (1, 2, 3)])
    for to in (f'p.sink("{out}")', f'p.table("{tmp_path}/table", "json")'):
        file = shop.pipeline(text.format(source=source, to=to, more="", stop="stop"))
        with pytest.raises(p.PipelineError, match="flow 'copy' stops: 1 row does not meet expectation 'a': id > 1") as caught:
            shop.run(file, storage=str(tmp_path / f"storage{len(to)}"))
        assert caught.value.place is not None
        assert caught.value.place.file == str(file)
    assert shop.read(out) == []
    assert list(tmp_path.glob("table/**/*.json")) == []
    # With a row to drop instead, the same checkpoint goes on.
    file.write_text(text.format(source=source, to=to, more="", stop="drop"))
    flows = shop.run(file, storage=str(tmp_path / f"storage{len(to)}"))
    assert flows.sinks["copy"].totals.records == 2


@pytest.mark.parametrize(
    ("condition", "words"),
    [("amont > 0", "amont"), ("amount", "is double, not a condition"), ("sum(amount) > 1", "its expectations")],
)
def test_a_condition_that_is_none_is_refused_at_its_line(shop: Shop, condition: str, words: str) -> None:
    text = HEAD + 'p.sql(orders, to=p.sink("out"), query="SELECT * FROM orders", expect=p.expect("a", "{condition}"))'
    file = shop.pipeline(text.format(source=shop.topic("orders"), more="", condition=condition))
    with pytest.raises(p.PipelineError) as caught:
        shop.run(file)
    assert words in caught.value.message
    assert caught.value.place is not None
    assert caught.value.place.line == 6


def test_records_behind_the_watermark_go_to_their_topic(shop: Shop) -> None:
    source, out, late = shop.topic("orders"), shop.topic("out"), f"{shop.prefix}late"
    text = """
from ottla import pipelines as p
from pyspark.sql import functions as F

orders = p.source("{source}", p.json("id long, at timestamp"), name="orders", options={pace})

@p.flow(orders, to=p.sink("{out}"), late="{late}")
def counts(orders):
    return orders.withWatermark("at", "1 second").groupBy(F.window("at", "10 seconds")).count()
"""
    times = ["00:00:01", "00:05:00", "00:06:00", "00:00:02"]
    file = shop.pipeline(text.format(source=source, out=out, late=late, pace={"maxOffsetsPerTrigger": 1} if ARE_KNOWN else {}))
    records = [(time, {"id": n, "at": f"2026-01-01T{time}Z"}) for n, time in enumerate(times)]
    # One batch for each record.
    for some in [records] if ARE_KNOWN else [[record] for record in records]:
        shop.produce(source, some)
        shop.run(file)
    (found,) = shop.read(late)
    assert (found.key(), json.loads(found.value())["id"]) == (b"00:00:02", 3)
    headers = headers_of(found)
    assert (headers["ottla.reason"], headers["ottla.offset"], headers["ottla.flow"]) == ("late", "3", "counts")
    assert [value["count"] for value in shop.values(out)] == [1, 1]
