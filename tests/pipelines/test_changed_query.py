"""A query that was changed between two runs, on a real Spark (F79)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ottla.pipelines import PipelineError

if TYPE_CHECKING:
    from tests.pipelines.conftest import Shop

SUMS = """
from pyspark.sql import functions as F
from ottla import pipelines as p

orders = p.source("{source}", p.json("id long, amount double"), name="orders")

@p.flow(orders, to=p.sink("{out}"), name="sums", output_mode="update")
def sums(orders):
    return orders.groupBy("id").agg({aggregate})
"""


def test_a_query_that_does_not_fit_its_state_is_told_of_reset(shop: Shop) -> None:
    names = {"source": shop.topic("in"), "out": shop.topic("out")}
    shop.produce(names["source"], [{"id": 1, "amount": 2.0}])
    shop.run(shop.pipeline(SUMS.format(**names, aggregate='F.sum("amount").alias("total")')))
    shop.produce(names["source"], [{"id": 1, "amount": 3.0}])
    file = shop.pipeline(SUMS.format(**names, aggregate='F.max(F.col("amount").cast("string")).alias("most")'))
    with pytest.raises(PipelineError) as caught:
        shop.run(file)
    assert caught.value.hint is not None
    assert "`ottla pipeline reset … --flow sums`" in caught.value.hint
