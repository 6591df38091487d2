"""Spark's limits of a micro-batch. Spark 4.1 has none for Python sources; its names then stand for nothing that Spark passes."""

from __future__ import annotations

__all__ = ["ARE_KNOWN", "ReadAllAvailable", "ReadLimit", "ReadMaxRows", "ReadMinRows", "SupportsTriggerAvailableNow"]

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
