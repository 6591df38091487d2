"""Revenue by customer, every five seconds: the pipeline of `make demo`.

A window is written when it can no longer change, ten seconds of event time after its end. Records that do not parse go to
`orders.dlq`.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ottla import pipelines as p

orders = p.source("orders", p.json("id long, customer string, cents long, at timestamp"), dead_letter="orders.dlq")


@p.flow(orders, to=p.sink("revenue", key="customer"))
def revenue(orders: DataFrame) -> DataFrame:
    windows = orders.withWatermark("at", "10 seconds").groupBy(F.window("at", "5 seconds"), "customer")
    sums = windows.agg(F.count("*").alias("orders"), F.sum("cents").alias("cents"))
    return sums.select("customer", F.col("window.start").alias("since"), F.col("window.end").alias("until"), "orders", "cents")
