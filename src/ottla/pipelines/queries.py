"""Runs a streaming query that ends by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.pipelines import spark_errors
from ottla.pipelines.definitions import Flow

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_ATTEMPTS = 10


def run_to_end(writer: DataStreamWriter, flow: Flow) -> None:
    """Run a query with Trigger.AvailableNow. PipelineError at the user's line if it fails."""
    for attempt in range(1, _ATTEMPTS + 1):
        query = writer.start()
        try:
            query.awaitTermination()
            return
        except Exception as error:
            if attempt == _ATTEMPTS or not spark_errors.is_slow_worker(error):
                raise spark_errors.query_failure(error, flow) from error
        finally:
            query.stop()
