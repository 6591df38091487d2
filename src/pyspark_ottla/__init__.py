"""Makes `format("ottla")` known to Spark, which looks for modules named `pyspark_…` that have a `DefaultSource`."""

from __future__ import annotations

from ottla.pipelines.data_source.readers import OttlaSource as DefaultSource

__all__ = ["DefaultSource"]
