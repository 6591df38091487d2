"""Tests of flows, without a broker.

rows = ottla.testing.run_flow(revenue, {"orders": [{"customer": "ada", "amount": 2.0, "at": "2026-01-01T00:00:01Z"}]},
                              watermark="2026-01-01T00:01:00Z")
assert rows[0]["total"] == 2.0
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ottla.pipelines import session, trial
from ottla.pipelines.definitions import Flow
from ottla.pipelines.trial import DeadLetter, Record, Rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["DeadLetter", "Record", "Rows", "run_flow", "spark_session"]

_MASTER = "local[2]"
# Small data: more tasks and a better compiler cost more than they save.
_CONF = {"spark.sql.shuffle.partitions": "1", "spark.default.parallelism": "1", "spark.sql.adaptive.enabled": "false"}
_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def run_flow(
    flow: Flow,
    rows: Mapping[str, Sequence[Any]],
    *,
    watermark: datetime | str | None = None,
    spark: SparkSession | None = None,
) -> Rows:
    """Run a flow on rows, by the names of its sources (or topics), and return the rows that it writes.

    The flow may be a function or SQL, with windows, state, joins and expectations: it runs as a real streaming query. A row is a
    dict with the fields of the value and the columns that the source names (`key`, `timestamp`, …); or text, bytes or None, the
    value as it is; or a `Record`. A list of rows is one micro-batch, a list of lists one for each.

    The watermark follows from the rows, as in a run; `watermark` moves it on to a time after the last of them. The result has
    `dead_letters`, `unmet` and `late_rows`. PipelineError if the flow would stop.
    """
    if not isinstance(flow, Flow):
        raise TypeError(f"{flow!r} is not a flow: declare it with @p.flow(…) or p.sql(…)")
    moment = None if watermark is None else trial.instant(watermark)
    return trial.run_flow(spark or spark_session(), flow, rows, watermark=moment)


def spark_session(conf: Mapping[str, str] | None = None) -> SparkSession:
    """The Spark session of this process; if there is none, one for small data on this machine."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    os.environ.setdefault("SPARK_SUBMIT_OPTS", _JVM)
    return session.start("ottla-tests", _MASTER, {**(conf or {}), **_CONF})


@contextmanager
def small_spark(conf: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """`spark_session`, stopped afterwards if it was started here."""
    from pyspark.sql import SparkSession

    is_mine = SparkSession.getActiveSession() is None
    spark = spark_session(conf)
    try:
        yield spark
    finally:
        if is_mine:
            spark.stop()
