"""Functions for plain PySpark: columns of values with schemas of a registry, in any DataFrame.

from ottla.pipelines import avro, from_registry, to_registry

orders = avro(subject="orders-value", registry="http://127.0.0.1:8081")
frame.select(from_registry("value", orders).alias("order")).select("order.*")
frame.select(to_registry(F.struct("id", "customer"), orders).alias("value"))
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ottla.pipelines import registry_columns
from ottla.pipelines.failure import PipelineError, Place
from ottla.pipelines.values import Avro, Framed

if TYPE_CHECKING:
    from pyspark.sql import Column

_REASON = "_ottla_reason"


def from_registry(
    column: Column | str,
    value: Avro | Framed,
    *,
    reason: str | None = None,
    headers: Column | str | None = None,
    key: bool = False,
) -> Column:
    """The struct of the reader's columns. What does not decode is null, or, with `reason`, a field of that name says why.

    `headers` is the column of the records' headers, one of which may name the schema of the value, or of the key with `key`.
    """
    from pyspark.sql import functions as F

    place = _caller()
    framed = _framed(value, place)
    given = F.col(column) if isinstance(column, str) else column
    header = None
    if headers is not None:
        header = registry_columns.header_of(F.col(headers) if isinstance(headers, str) else headers, key=key)
    found, kind = registry_columns.decoded(given, framed, place, reason or _REASON, header)
    if reason is not None:
        return found
    fields = [found[name].alias(name) for name in kind.fieldNames() if name != _REASON]
    return F.when(found.isNotNull() & found[_REASON].isNull(), F.struct(*fields))


def to_registry(column: Column | str, value: Avro | Framed) -> Column:
    """The bytes of a struct column: the schema is registered if the value gives one, else it is the subject's."""
    from pyspark.sql import functions as F

    place = _caller()
    given = F.col(column) if isinstance(column, str) else column
    return registry_columns.encoded_struct(given, _framed(value, place), place)


def _framed(value: Avro | Framed, place: Place) -> Framed:
    if not isinstance(value, Framed):
        raise PipelineError(f"{value!r} has no subject", place, hint="write avro(subject=…), json_schema(…) or protobuf(…)")
    return value


def _caller() -> Place:
    frame = sys._getframe(2)
    return Place(frame.f_code.co_filename, frame.f_lineno)
