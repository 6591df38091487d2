"""A table with one row for each customer, in PostgreSQL: what `make demo` upserts the windows of `revenue.py` into.

OTTLA_TOTALS is the address of the database.
"""

import os

from ottla import pipelines as p

windows = p.source(
    "revenue",
    p.json("customer string, orders long, cents long"),
    name="windows",
    options={"maxOffsetsPerTrigger": 30},
)

p.sql(
    windows,
    to=p.jdbc(os.environ.get("OTTLA_TOTALS", "jdbc:postgresql://127.0.0.1/shop"), "totals", mode="upsert", key="customer"),
    name="totals",
    output_mode="update",
    query="SELECT customer, sum(orders) AS orders, sum(cents) AS cents FROM windows GROUP BY customer",
)
