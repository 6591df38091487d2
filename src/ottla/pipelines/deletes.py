"""Which rows of a flow delete what has their key: for tables that are upserted, and for compacted topics.

A row deletes if `delete_when` holds for it, or if its column `ottla_deleted` is true (`p.debezium` makes it). Without that column
it also deletes if it is a tombstone: all columns except the key are null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.pipelines.failure import PipelineError, Place
from ottla.pipelines.spark_errors import first_line

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

DELETED = "ottla_deleted"


def flags(frame: DataFrame, delete_when: str | None) -> tuple[str, ...]:
    """The columns that only say whether a row deletes: they are not data."""
    return tuple(name for name in frame.columns if name in (DELETED, delete_when))


def data_columns(frame: DataFrame, delete_when: str | None) -> tuple[str, ...]:
    left_out = flags(frame, delete_when)
    return tuple(name for name in frame.columns if name not in left_out)


def condition(frame: DataFrame, key: tuple[str, ...], delete_when: str | None, place: Place) -> Column:
    """Whether a row deletes, never null. PipelineError if `delete_when` is no condition on the columns."""
    from pyspark.sql import functions as F

    conditions = []
    if delete_when is not None:
        try:
            given = F.col(f"`{delete_when}`") if delete_when in frame.columns else F.expr(delete_when)
            kind = frame.select(given).schema[0].dataType.simpleString()
        except Exception as error:
            raise PipelineError(f"delete_when={delete_when!r}: {first_line(error)}", place) from None
        if kind != "boolean":
            raise PipelineError(
                f"delete_when={delete_when!r} is {kind}, not boolean", place, hint="write a condition: \"op = 'd'\""
            )
        conditions.append(given)
    if DELETED in frame.columns:
        conditions.append(F.col(DELETED))
    found = F.lit(False)
    for each in conditions:
        found = found | F.coalesce(each, F.lit(False))
    rest = [name for name in data_columns(frame, delete_when) if name not in key]
    if rest and DELETED not in frame.columns:
        tombstone = F.lit(True)
        for name in rest:
            tombstone = tombstone & F.col(f"`{name}`").isNull()
        found = found | tombstone
    return found
