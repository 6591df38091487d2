"""Payments with the names and countries of who paid: a stream joined with a table of customers, in SQL.

A payment of somebody unknown is kept, with nulls: an inner join would lose it without a word.
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
