"""Rows that replace and delete others by their key, in databases and in Delta and Iceberg tables.

Compares what a flow writes with its table, and puts the changes of a batch in order. Writes nothing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ottla.pipelines import deletes
from ottla.pipelines.definitions import Flow, Table
from ottla.pipelines.failure import PipelineError
from ottla.pipelines.tables.merge import CURRENT, FROM, ORDER, TO, VALID_FROM, VALID_TO

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DELETES = "_ottla_deletes"
"""The column that says whether a change deletes."""
_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_FLOATS = ("float", "double")
_TIMES = ("timestamp", "timestamp_ntz")

Fold = Callable[[str], str]
"""Makes names of columns equal that are the same column."""


def check(flow: Flow, table: Table, frame: DataFrame) -> None:
    """PipelineError if the flow's result lacks a column of the key, or if `delete_when` or `history` does not fit it."""
    missing = [name for name in table.key if name not in frame.columns]
    if missing:
        raise PipelineError(
            f"flow {flow.name!r} has no column {missing[0]!r} for the key of table {table.path!r}",
            table.place,
            hint=f"its columns are {', '.join(frame.columns) or 'none'}",
        )
    deletes.condition(frame, table.key, table.delete_when, table.place)
    for field in frame.schema.fields if table.history else ():
        if field.name.lower() in (VALID_FROM, VALID_TO, CURRENT):
            raise PipelineError(
                f"flow {flow.name!r} has a column {field.name!r}, which history=True writes itself",
                table.place,
                hint="give it another name in the flow",
            )
        if re.search(r"\b(map<|variant)", field.dataType.simpleString()):
            raise PipelineError(
                f"column {field.name!r} of flow {flow.name!r} is {field.dataType.simpleString()}, which Spark cannot compare: "
                "history=True has to",
                table.place,
                hint="write it as JSON with to_json, or as an array of pairs with map_entries",
            )


def columns_of(flow: Flow, table: Table, frame: DataFrame, found: Mapping[str, str], fold: Fold) -> dict[str, str]:
    """The table's columns to write, by the flow's names. `found` are its columns, with Spark's types. PipelineError if one does
    not fit.

    They are those of the flow, but a flag that deletes only where the table has it.
    """
    there = {fold(name): name for name in found}
    flags = deletes.flags(frame, table.delete_when)
    columns = {}
    for field in frame.schema.fields:
        name, kind = field.name, field.dataType.simpleString()
        column = there.get(fold(name))
        if column is None:
            if name in flags:
                continue
            raise PipelineError(
                f"table {table.path!r} has no column {name!r}, which flow {flow.name!r} writes",
                table.place,
                hint=f"its columns are {', '.join(found)}; add it with ALTER TABLE, or leave it out of the flow",
            )
        if not is_assignable(kind, found[column]):
            raise PipelineError(
                f"column {name!r} of table {table.path!r} is {found[column]}, flow {flow.name!r} writes {kind}",
                table.place,
                hint=f'cast it in the flow: F.col("{name}").cast("{found[column]}")',
            )
        columns[name] = column
    if table.history:
        absent = [name for name in (VALID_FROM, VALID_TO, CURRENT) if fold(name) not in there]
        if absent:
            raise PipelineError(
                f"table {table.path!r} has no column {absent[0]!r}, which history=True writes",
                table.place,
                hint=f"add {VALID_FROM}, {VALID_TO} (timestamps) and {CURRENT} (boolean), or let the flow create the table",
            )
    return columns


def without_key(flow: Flow, table: Table, count: int) -> PipelineError:
    return PipelineError(
        f"flow {flow.name!r}: {count} rows of the batch have no {', '.join(table.key)}, the key of table {table.path!r}",
        table.place,
        hint='filter them out; a tombstone has its key in the record only: take it from there with columns=("key",)',
    )


def ordered(table: Table, frame: DataFrame, columns: Mapping[str, str]) -> DataFrame:
    """The rows with the table's names of `columns`, DELETES and ORDER."""
    from pyspark.sql import functions as F

    data = [F.col(f"`{name}`").alias(column) for name, column in columns.items()]
    deleted = deletes.condition(frame, table.key, table.delete_when, table.place).alias(DELETES)
    # Tasks read topics and partitions in their order, and the records of each by offset.
    return frame.select(*data, deleted, F.monotonically_increasing_id().alias(ORDER))


def versions(changes: DataFrame, columns: list[str], key: list[str]) -> DataFrame:
    """The changes of each key, numbered from 1 in ORDER, no two equal ones in succession; FROM and TO say when each is valid."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    by_key = Window.partitionBy(*(F.col(f"`{name}`") for name in key)).orderBy(ORDER)
    values = F.struct(DELETES, *(F.when(~F.col(DELETES), F.col(f"`{name}`")).alias(name) for name in columns))
    before = F.lag(values).over(by_key)
    changes = changes.withColumn("_ottla_same", values.eqNullSafe(before)).where("NOT _ottla_same").drop("_ottla_same")
    number = F.row_number().over(by_key)
    # The time of the batch; several changes of a key within it follow each other by a microsecond.
    starts = F.timestamp_micros(F.lit(time.time_ns() // 1000) + number - 1)
    return changes.withColumn(FROM, starts).withColumn(TO, F.lead(starts).over(by_key)).withColumn(ORDER, number.cast("long"))


def is_assignable(kind: str, column: str) -> bool:
    """Whether every value of Spark's type `kind` fits a column that Spark reads as `column`."""
    if kind == column or kind == "void":
        return True
    if kind in _INTEGERS:
        if column.startswith("decimal"):
            return True
        return column in _INTEGERS and _INTEGERS.index(kind) <= _INTEGERS.index(column)
    if kind in _FLOATS:
        return column in _FLOATS and _FLOATS.index(kind) <= _FLOATS.index(column)
    if kind in _TIMES:
        return column in _TIMES
    text = ("string", "varchar", "char")
    if kind.startswith(text) or column.startswith(text):
        return kind.startswith(text) and column.startswith(text)
    if kind.startswith("decimal") and column.startswith("decimal"):
        (precision, scale), (there, scale_there) = _decimal(kind), _decimal(column)
        return scale <= scale_there and precision - scale <= there - scale_there
    return False


def _decimal(kind: str) -> tuple[int, int]:
    numbers: list[Any] = re.findall(r"\d+", kind)
    return (int(numbers[0]), int(numbers[1])) if len(numbers) == 2 else (10, 0)
