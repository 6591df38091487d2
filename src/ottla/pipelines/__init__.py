"""Pipelines on Spark: what to read, what to make of it, where it goes.

    from ottla import pipelines as p
    from pyspark.sql import functions as F

    orders = p.source("orders", p.json("order_id string, customer string, amount double, at timestamp"), dead_letter="orders.dlq")

    @p.flow(orders, to=p.sink("revenue", key="customer"))
    def revenue(orders):
        return (orders.withWatermark("at", "1 minute")
                      .groupBy(F.window("at", "10 seconds"), "customer")
                      .agg(F.sum("amount").alias("total")))

`ottla pipeline check|run|status|reset orders.py` does the rest. The words here only build frozen definitions that know the file
and line that declared them: importing a pipeline starts no Spark and imports no pyspark.

The rooms: `definitions` and `values` (the words), `loading` (a file becomes definitions), `graph` (their order; what cannot be is
refused), `project` (where and how it runs), `topics` (are they there), `java` and `session` (a Spark), `reading` (a source as a
DataFrame), `encoding` (a DataFrame as records), `producing` (what tasks do), `sequences` (whose turn it is), `exactly_once` (one
transaction per micro-batch), `tables`, `dead_letters`, `checkpoint`, `scratch`, `running`, `progress`, `standing` (how far it is,
and beginning anew), `failure` (what is wrong, and in which line). `source` with its neighbours (`source_options`, `source_plan`,
`source_offsets`, `source_read`) and the module `pyspark_ottla` are `format("ottla")`; it needs nothing of the rest but `workers`.
"""

from __future__ import annotations

import sys
from types import ModuleType

from ottla.pipelines.definitions import Files, Flow, Sink, Source, Table, files, flow, jdbc, sink, source, sql, table
from ottla.pipelines.failure import PipelineError
from ottla.pipelines.values import Avro, Bytes, Json, String, avro, bytes, json, string

__all__ = [
    "Avro",
    "Bytes",
    "Files",
    "Flow",
    "Json",
    "PipelineError",
    "Sink",
    "Source",
    "String",
    "Table",
    "avro",
    "bytes",
    "files",
    "flow",
    "jdbc",
    "json",
    "sink",
    "source",
    "sql",
    "string",
    "table",
]


class _Words(ModuleType):
    """Python binds a submodule's name in its package when it is first imported: `p.source` must stay the word."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (isinstance(value, ModuleType) and name in __all__):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Words
