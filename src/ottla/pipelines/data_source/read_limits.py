"""Names of Spark that differ between its releases: the limits of a micro-batch, and a reader that gives rows beside a plan.

Spark 4.1 has no limits for sources in Python; their names then stand for nothing that Spark passes.
"""

from __future__ import annotations

__all__ = [
    "ARE_KNOWN",
    "TAKES_ROWS",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "ReadMinRows",
    "SimpleReader",
    "SupportsTriggerAvailableNow",
]

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
except ModuleNotFoundError:  # before Spark 4.2

    class ReadLimit:  # type: ignore[no-redef]
        def __init__(self, rows: int = 0) -> None:
            self.max_rows = self.min_rows = rows

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        pass

    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        pass

    class ReadMinRows(ReadLimit):  # type: ignore[no-redef]
        pass

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        pass

    ARE_KNOWN = False
else:
    ARE_KNOWN = True

try:
    from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper as SimpleReader
except ImportError:  # it is private

    class SimpleReader:  # type: ignore[no-redef]
        pass

    TAKES_ROWS = False
else:
    TAKES_ROWS = ARE_KNOWN
    """Whether Spark takes rows beside a plan from a `SimpleReader`, which it wants to be one of its own, and knows limits."""
