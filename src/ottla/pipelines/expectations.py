"""Expectations: conditions on the rows of a flow's result, and what becomes of rows that do not meet them.

A stream counts these rows in an observed metric named after the flow. Rows of `drop` and `dead_letter` are not written.
`dead_letters` sends the dead letters and stops the flow.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from ottla.pipelines.definitions import DEAD_LETTER, DROP, Expectation, Flow
from ottla.pipelines.failure import PipelineError
from ottla.pipelines.spark_errors import first_line

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

UNMET = "_ottla_unmet"
"""The column that names the expectation for which a row becomes a dead letter."""


def metric(flow: Flow) -> str:
    return f"ottla.expect.{flow.name}"


def label(query: Flow, flow: Flow, expectation: Expectation) -> str:
    """The name of an expectation in the progress of a query: that of a view has the view's name before it."""
    return expectation.name if flow.name == query.name else f"{flow.name}.{expectation.name}"


def observed(frame: DataFrame, flow: Flow) -> DataFrame:
    """The frame, which now counts the rows that do not meet each expectation. PipelineError if a condition is not one."""
    from pyspark.sql import functions as F

    if not flow.expectations:
        return frame
    for each in flow.expectations:
        try:
            kind = frame.select(F.expr(each.condition)).schema.fields[0].dataType.simpleString()
        except Exception as error:
            raise PipelineError(
                f"flow {flow.name!r}: expectation {each.name!r}: {first_line(error)}",
                each.place,
                hint=f"the columns of the flow's result are {', '.join(frame.columns)}",
            ) from None
        if kind != "boolean":
            raise PipelineError(
                f"flow {flow.name!r}: expectation {each.name!r}: {each.condition!r} is {kind}, not a condition", each.place
            )
    counts = [F.count_if(~_met(each)).alias(each.name) for each in flow.expectations]
    try:
        return frame.observe(metric(flow), *counts)
    except Exception as error:
        said = f"flow {flow.name!r}: its expectations: {first_line(error)}"
        raise PipelineError(said, flow.expectations[0].place, hint="a condition is about one row") from None


def accepted(frame: DataFrame, flow: Flow) -> DataFrame:
    """The rows to write."""
    needed = [_met(each) for each in flow.expectations if each.on_fail in (DROP, DEAD_LETTER)]
    return frame.where(reduce(lambda one, other: one & other, needed)) if needed else frame


def refused(frame: DataFrame, flow: Flow) -> DataFrame:
    """The rows that become dead letters, with the name of the first expectation they do not meet in UNMET."""
    from pyspark.sql import functions as F

    name = F.lit(None).cast("string")
    for each in reversed(with_action(flow, DEAD_LETTER)):
        name = F.when(~_met(each), each.name).otherwise(name)
    return frame.withColumn(UNMET, name).where(F.col(UNMET).isNotNull())


def with_unmet(frame: DataFrame, flow: Flow, column: str) -> DataFrame:
    """All rows, with the names of the expectations that each does not meet in a column of that name."""
    from pyspark.sql import functions as F

    names = [F.when(~_met(each), each.name) for each in flow.expectations]
    return frame.withColumn(column, F.concat_ws(", ", *names)) if names else frame


def with_action(flow: Flow, on_fail: str) -> list[Expectation]:
    return [each for each in flow.expectations if each.on_fail == on_fail]


def _met(expectation: Expectation) -> Column:
    """True or false, never null."""
    from pyspark.sql import functions as F

    return F.coalesce(F.expr(expectation.condition), F.lit(False))
