"""Pipelines on Spark: sources, flows over them, and the topics and tables that flows write.

    from ottla import pipelines as p
    from pyspark.sql import functions as F

    orders = p.source("orders", p.json("order_id string, customer string, amount double, at timestamp"), dead_letter="orders.dlq")

    @p.flow(orders, to=p.sink("revenue", key="customer"))
    def revenue(orders):
        return (orders.withWatermark("at", "1 minute")
                      .groupBy(F.window("at", "10 seconds"), "customer")
                      .agg(F.sum("amount").alias("total")))

`ottla pipeline check|run|status|reset orders.py` works with such a file. These functions only build frozen definitions that know
the line that declared them: importing a pipeline starts no Spark and imports no pyspark.

The modules, in the order of a run:
- `declare`, `definitions`, `values`: the functions above and what they build; `loading` runs the file, `graph` orders and checks
  the flows, `project` reads the settings, `failure` is the error that names the user's line;
- `preflight` looks at the settings, `topics` asks the cluster for the topics, `java` and `session` start Spark;
- `frames` turns definitions into DataFrames, with `reading` (a source), `encoding` (a sink), `avro_columns`,
  `registry_columns` (values with a schema id) and its `registry_functions`;
- `change_events` reads those of Debezium, `deletes` knows which rows delete;
- `running` starts, watches and stops the queries, with `restarts`, `alerts` and `housekeeping`; `progress`, `progress_table`,
  `progress_metrics` show them;
- `published` tells the cluster about the run, for consoles and exporters;
- `expectations` are the conditions on a flow's rows;
- `exactly_once` writes a micro-batch in one Kafka transaction, with `producing` and `sequences` (in tasks), `tables`,
  `dead_letters`, `checkpoint`, `marker`;
- `preview` shows what a flow makes of the last records, `interactive` is for notebooks; `trial`, `trial_cases` run flows on given
  rows;
- `upgrading` makes another version of the code live: `versions` (kept code), `edits` (what an edit touches), `shadow` and
  `comparison` (results of both), `rebuilding` (state), `switching` (the switch), `takeover` (what a driver does about it);
- `status` and `reset` look at flows and start them anew; `deployment` writes what runs a pipeline elsewhere.

`data_source` is `format("ottla")`. `spark_jvm` holds all access to Spark's JVM objects, `spark_errors` all decisions from Spark's
error texts.
"""

from __future__ import annotations

from ottla.pipelines.declare import cluster, expect, files, flow, jdbc, sink, source, sql, table
from ottla.pipelines.definitions import Cluster, Files, Flow, Sink, Source, Table
from ottla.pipelines.failure import PipelineError
from ottla.pipelines.interactive import run
from ottla.pipelines.registry_functions import from_registry, to_registry
from ottla.pipelines.values import (
    Avro,
    Bytes,
    Debezium,
    Framed,
    Json,
    String,
    avro,
    bytes,
    debezium,
    json,
    json_schema,
    protobuf,
    string,
)

__all__ = [
    "Avro",
    "Bytes",
    "Cluster",
    "Debezium",
    "Files",
    "Flow",
    "Framed",
    "Json",
    "PipelineError",
    "Sink",
    "Source",
    "String",
    "Table",
    "avro",
    "bytes",
    "cluster",
    "debezium",
    "expect",
    "files",
    "flow",
    "from_registry",
    "jdbc",
    "json",
    "json_schema",
    "protobuf",
    "run",
    "sink",
    "source",
    "sql",
    "string",
    "table",
    "to_registry",
]
