"""The two files that `ottla pipeline init` writes."""

from __future__ import annotations

PIPELINE = '''"""{name}: orders become revenue by customer, every ten seconds."""

from pyspark.sql import functions as F

from ottla import pipelines as p

orders = p.source(
    "orders",
    p.json("order_id string, customer string, amount double, at timestamp"),
    dead_letter="orders.dlq",
)


@p.flow(orders, to=p.sink("revenue", key="customer"))
def revenue(orders):
    windows = orders.withWatermark("at", "1 minute").groupBy(F.window("at", "10 seconds"), "customer")
    return windows.agg(F.sum("amount").alias("total"))


p.sql(orders, to=p.sink("big_orders", key="order_id"), query="SELECT * FROM orders WHERE amount > 1000")
'''
SETTINGS = """# How {name}.py runs. Every line can be overridden on the command line.
[pipeline]
bootstrap_servers = "127.0.0.1:9092"
storage = ".ottla/{name}"        # checkpoints and state: keep it
trigger = "1 second"

[spark]
master = "local[*]"

[spark.conf]
"spark.sql.shuffle.partitions" = 4
"""
