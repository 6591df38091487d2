"""Payments joined with the names and countries of their customers, a static table, in SQL.

Payments of unknown customers are kept, with nulls: an inner join would drop them silently.
"""

from pathlib import Path

from ottla import pipelines as p

payments = p.source("payments", p.json("id long, customer string, amount double"), dead_letter="payments.dlq")
customers = p.files(
    str(Path(__file__).parent / "data" / "customers.csv"),
    "customer string, name string, country string",
    format="csv",
    name="customers",
    static=True,
    options={"header": True},
)

p.sql(
    payments,
    customers,
    to=p.sink("payments_with_names", key="customer"),
    query="""
        SELECT p.id, p.customer, c.name, c.country, p.amount
        FROM payments p LEFT JOIN customers c ON p.customer = c.customer
    """,
)
