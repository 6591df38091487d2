"""Revenue by customer, every five seconds: the pipeline of `make demo`.

A window is written when it can no longer change, ten seconds of event time after its end. Records that do not parse, and orders
of less than nothing, go to `orders.dlq`. If OTTLA_REGISTRY is the address of a registry, orders are Avro with its schema, else
JSON.
"""

import os

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ottla import pipelines as p

avro, json = p.avro(subject="orders-value"), p.json("id long, customer string, cents long, at timestamp")
orders = p.source("orders", avro if "OTTLA_REGISTRY" in os.environ else json, dead_letter="orders.dlq")


@p.flow(orders)
@p.expect("not_negative", "cents >= 0", on_fail="dead_letter")
def accepted(orders: DataFrame) -> DataFrame:
    return orders


@p.flow(accepted, to=p.sink("revenue", key="customer"))
def revenue(accepted: DataFrame) -> DataFrame:
    windows = accepted.withWatermark("at", "10 seconds").groupBy(F.window("at", "5 seconds"), "customer")
    sums = windows.agg(F.count("*").alias("orders"), F.sum("cents").alias("cents"))
    return sums.select("customer", F.col("window.start").alias("since"), F.col("window.end").alias("until"), "orders", "cents")
