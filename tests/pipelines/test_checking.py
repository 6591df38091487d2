"""What `check` finds with a real Spark and no data: one message, with file and line (F77)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ottla.client.blocking import Client
from ottla.errors import ErrorCode, KafkaError
from ottla.pipelines import PipelineError, frames, graph, loading, project
from ottla.pipelines.data_source import read_limits

if TYPE_CHECKING:
    from tests.pipelines.conftest import Shop

HEAD = """from pyspark.sql import functions as F
from ottla import pipelines as p
orders = p.source("orders", p.json("id long, at timestamp"))
"""


def refused(shop: Shop, text: str) -> PipelineError:
    file = shop.pipeline(HEAD + text)
    with pytest.raises(PipelineError) as caught:
        frames.check(shop.spark, project.read(file), graph.plan(loading.load(file)))
    return caught.value


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (
            'p.sql(p.source("x", p.json("id lung")), to=p.sink("o"), query="SELECT * FROM x")',
            4,
            "type 'lung' is unknown; did you mean long?",
        ),
        ('p.sql(orders, to=p.sink("o"), query="SELECT nothing FROM orders")', 4, "nothing"),
        ('p.sql(orders, to=p.sink("o"), query="SELEC")', 4, "PARSE_SYNTAX_ERROR"),
        ('p.sql(orders, to=p.sink("o", key="kee"), query="SELECT * FROM orders")', 4, "no column 'kee' for the key"),
        ('p.sql(orders, to=p.sink("o", value=p.string()), query="SELECT * FROM orders")', 4, "but no column `value`"),
        ('p.sql(orders, to=p.table("/t", "delta"), query="SELECT * FROM orders")', 4, "delta is not installed"),
        ('@p.flow(orders, to=p.sink("o"))\ndef f(o):\n    return o.select("nothing")', 6, "nothing"),
        ('@p.flow(orders, to=p.sink("o"))\ndef f(o):\n    return 7', 4, "returns int"),
        ('@p.flow(orders, to=p.sink("o"))\ndef f(o, two):\n    return o', 4, "its function takes (o, two): missing"),
        ('@p.flow(orders, to=p.sink("o"))\ndef f(o):\n    return o.groupBy("id").count()', 4, "watermark"),
        (
            'S = p.source("x", options={"maxOffsetPerTrigger": 5})\np.sql(S, to=p.sink("o"), query="SELECT * FROM x")',
            4,
            "option maxOffsetPerTrigger: '5' is not possible, there is no such option; did you mean maxOffsetsPerTrigger?",
        ),
        (
            'S = p.source("x", p.avro(\'{"type": "record", "name": "r", "fields": [{"name": "a", "type": "wrong"}]}\'))\n'
            'p.sql(S, to=p.sink("o"), query="SELECT * FROM x")',
            4,
            "Avro schema does not parse: UnknownType: wrong",
        ),
        ('S = p.source("x", p.avro("{"))\np.sql(S, to=p.sink("o"), query="SELECT * FROM x")', 4, "Avro schema is not JSON"),
    ],
)
def test_mistakes_are_found_before_anything_runs(shop: Shop, text: str, line: int, words: str) -> None:
    error = refused(shop, text)
    assert words in error.message
    assert error.place is not None
    assert (error.place.file, error.place.line) == (str(shop.folder / "shop.py"), line)


@pytest.mark.parametrize("option", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"])
def test_spark_4_1_refuses_limits_by_name(shop: Shop, monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    monkeypatch.setattr(read_limits, "ARE_KNOWN", False)
    text = f'p.sql(p.source("x", options={{"{option}": "5"}}), to=p.sink("o"), query="SELECT * FROM x")'
    error = refused(shop, text)
    assert (error.message, error.hint) == (f"source 'x': {option} needs Spark 4.2 or newer", "leave it out")
    assert error.place is not None
    assert error.place.line == 4


def test_an_aggregate_without_a_watermark_is_told_of_output_mode(shop: Shop) -> None:
    error = refused(shop, '@p.flow(orders, to=p.sink("o"))\ndef f(o):\n    return o.groupBy("id").count()')
    assert error.hint == 'add withWatermark(…) before the aggregation, or write each change with output_mode="update"'


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ('p.sql(orders, to=p.sink("o"), query="SELECT * FROM order")', "the tables of the query are the flow's inputs: orders"),
        ('@p.flow(orders, to=p.sink("o"))\ndef f(o):\n    o.select("id")', "the function has to return its result"),
        (
            '@p.flow(orders, to=p.sink("o"))\ndef f(o):\n    o.show()\n    return o',
            "a flow only describes its result: leave out show()",
        ),
        ('@p.flow(orders, to=p.sink("o"))\ndef f(o):\n    return o.orderBy("id")', "a topic has no order of rows"),
    ],
)
def test_frequent_mistakes_have_a_remedy(shop: Shop, text: str, hint: str) -> None:
    assert (refused(shop, text).hint or "").startswith(hint)


def test_topics_that_are_missing_or_forbidden_are_named(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    file = shop.pipeline(HEAD.replace('"orders"', f'"{shop.prefix}none"') + 'p.sql(orders, to=p.sink("o"), query="SELECT 1")')
    topic = Client.topic

    def forbidden(self: Client, name: str, **more: Any) -> Any:
        if name == f"{shop.prefix}none":
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"topic {name}")
        return topic(self, name, **more)

    monkeypatch.setattr(Client, "topic", forbidden)
    with pytest.raises(PipelineError, match="TOPIC_AUTHORIZATION_FAILED") as caught:
        shop.run(file)
    assert caught.value.place is not None
    assert caught.value.place.line == 3
