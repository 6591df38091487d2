"""A broker that goes away under a running pipeline, and does not come back in time: one message, and nothing is lost (F79)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from ottla.pipelines import PipelineError
from ottla.testing import Broker

if TYPE_CHECKING:
    from tests.pipelines.conftest import Shop

COPY = """
from ottla import pipelines as p

orders = p.source("in", p.json("id long"), name="orders")
p.sql(orders, to=p.sink("out", key="id"), name="copy", query="SELECT * FROM orders")
"""
IMPATIENT = """
[kafka]
"default.api.timeout.ms" = 3000
"""


def test_a_broker_that_stays_away_stops_the_flow_and_the_next_start_goes_on(shop: Shop) -> None:
    with Broker() as broker:
        shop.broker = broker
        for name in ("in", "out"):
            broker.create_topic(name, 2)
        file = shop.pipeline(COPY)
        file.with_suffix(".toml").write_text(IMPATIENT)
        shop.produce("in", [{"id": number} for number in range(10)])
        flows = shop.flows(file, once=False)
        try:
            flows.start()
            while flows.sinks["copy"].totals.records < 10:
                flows.wait(0.1)
            broker.kill()
            with pytest.raises(PipelineError, match=r"no broker answers: .*Connection refused") as caught:
                flows.wait(300)
        finally:
            flows.stop()
        assert broker.bootstrap_servers in str(caught.value)
        assert "\n" not in str(caught.value)

        broker.start()
        shop.produce("in", [{"id": number} for number in range(10, 20)])
        file.with_suffix(".toml").unlink()
        shop.run(file)
        assert Counter(value["id"] for value in shop.values("out")) == Counter(range(20))
