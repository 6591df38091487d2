"""Rows that replace and delete others, in real databases: PostgreSQL, MariaDB, H2 (F82)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ottla.pipelines import PipelineError
from ottla.pipelines.exactly_once import ExactlyOnceSink

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.databases import Database
    from tests.pipelines.conftest import Shop

UPSERT = """
from ottla import pipelines as p

orders = p.source("{source}", p.json("id long, customer string, amount double, gone boolean"), name="orders"{more})

@p.flow(orders, to=p.jdbc("{url}", "orders", mode="upsert", key="id", delete_when="gone"{history}))
def current(orders):
    return orders.selectExpr("id", "customer", "amount", "gone")
"""


def order(number: int, customer: str, amount: float, gone: bool = False) -> Any:
    return (f"{number}", {"id": number, "customer": customer, "amount": amount, "gone": gone})


class Target:
    """A new database of one of the kinds, and what is in it."""

    def __init__(self, shop: Shop, kind: str, server: Database | None, folder: Path) -> None:
        self.shop, self.kind, self.server = shop, kind, server
        self.name = "d" + shop.prefix.rstrip(".")
        if server is None:
            self.url = f"jdbc:h2:{folder}/h2;DB_CLOSE_DELAY=-1"
        else:
            self.url = server.create_database(self.name)

    def execute(self, statement: str) -> None:
        if self.server is not None:
            self.server.execute(self.name, statement)
            return
        connection = self._connection()
        connection.createStatement().executeUpdate(statement)
        connection.close()

    def _connection(self) -> Any:
        jvm: Any = self.shop.spark._jvm
        jvm.org.apache.spark.sql.execution.datasources.jdbc.DriverRegistry.register("org.h2.Driver")
        return jvm.java.sql.DriverManager.getConnection(self.url)

    def rows(self, query: str) -> list[tuple[str, ...]]:
        if self.server is not None:
            return self.server.rows(self.name, query)
        connection = self._connection()
        found, rows = connection.createStatement().executeQuery(query), []
        while found.next():
            rows.append(tuple(found.getString(n + 1) or "NULL" for n in range(found.getMetaData().getColumnCount())))
        connection.close()
        return rows

    @property
    def orders(self) -> list[tuple[str, str, float]]:
        columns = '"id", "customer", "amount"' if self.kind == "h2" else "id, customer, amount"
        found = self.rows(f"SELECT {columns} FROM orders")
        return sorted((number, customer, float(amount)) for number, customer, amount in found)

    @property
    def tables(self) -> set[str]:
        schema = {"postgresql": "'public'", "mariadb": "DATABASE()", "h2": "'PUBLIC'"}[self.kind]
        found = self.rows(f"SELECT table_name FROM information_schema.tables WHERE table_schema = {schema}")
        return {name.lower() for (name,) in found}


@pytest.fixture(params=["postgresql", "mariadb", "h2"])
def target(shop: Shop, request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    kind = request.param
    return Target(shop, kind, None if kind == "h2" else request.getfixturevalue(kind), tmp_path)


@pytest.fixture
def in_postgresql(shop: Shop, postgresql: Database, tmp_path: Path) -> Target:
    return Target(shop, "postgresql", postgresql, tmp_path)


def test_f82_rows_replace_and_delete_others_and_every_batch_is_in_once(
    shop: Shop, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver dies once after the database has the batch, and before Kafka has it."""
    source = shop.topic("orders", 2)
    file = shop.pipeline(UPSERT.format(source=source, url=target.url, more="", history=""))
    shop.produce(
        source, [order(1, "ada", 1), order(2, "bob", 2), order(3, "eve", 3), order(1, "ada", 10), order(3, "eve", 0, True)]
    )
    with monkeypatch.context() as patch:
        patch.setattr(ExactlyOnceSink, "_commit", lambda self, *arguments: 1 / 0)
        with pytest.raises(PipelineError):
            shop.run(file)
    assert target.orders == [("1", "ada", 10.0), ("2", "bob", 2.0)]
    target.execute(
        "UPDATE orders SET amount = 11 WHERE id = 1" if target.kind != "h2" else 'UPDATE orders SET "amount" = 11 WHERE "id" = 1'
    )
    shop.produce(
        source,
        [order(2, "bob", 0, True), order(4, "joe", 4), order(5, "it's 😀 é", 5), order(4, "joe", 0, True), order(4, "jo", 6)],
    )
    shop.run(file)
    # The first batch was not written again: it would have undone the change.
    assert target.orders == [("1", "ada", 11.0), ("4", "jo", 6.0), ("5", "it's 😀 é", 5.0)]
    assert target.tables == {"orders", "ottla_batches"}


def test_f82_history_keeps_what_was_replaced_and_deleted(shop: Shop, target: Target) -> None:
    source = shop.topic("orders", 1)
    file = shop.pipeline(UPSERT.format(source=source, url=target.url, more="", history=", history=True"))
    shop.produce(source, [order(1, "ada", 1), order(1, "ada", 1), order(1, "ada", 2), order(2, "bob", 1), order(3, "x", 1, True)])
    shop.run(file)
    shop.produce(source, [order(1, "ada", 2), order(1, "ada", 3), order(2, "bob", 0, True), order(4, "joe", 4)])
    shop.run(file)
    shop.produce(source, [order(1, "ada", 3), order(2, "bob", 7), order(4, "Joe", 4)])
    shop.run(file)
    quote = '"' if target.kind == "h2" else ""
    columns = ", ".join(f"{quote}{name}{quote}" for name in ("id", "amount", "valid_from", "valid_to", "current"))
    found = sorted(
        (n, a, start, end, current[0].lower() in "t1")
        for n, a, start, end, current in target.rows(f"SELECT {columns} FROM orders")
    )
    by_id = {number: [row[1:] for row in sorted(found, key=lambda row: row[2]) if row[0] == number] for number in "1234"}
    assert [(float(amount), current) for amount, _, _, current in by_id["1"]] == [(1, False), (2, False), (3, True)]
    assert [end for _, _, end, _ in by_id["1"]] == [*(start for _, start, _, _ in by_id["1"][1:]), "NULL"]
    assert [(float(amount), current) for amount, _, _, current in by_id["2"]] == [(1, False), (7, True)]
    assert by_id["2"][0][2] < by_id["2"][1][1]
    assert by_id["3"] == []
    assert [row[3] for row in by_id["4"]] == [False, True]


def test_f82_a_tombstone_deletes_by_the_key_of_its_record(shop: Shop, in_postgresql: Target) -> None:
    source = shop.topic("names")
    text = """
from ottla import pipelines as p

names = p.source("{source}", p.json("name string, size int"), name="names", key=p.string())
to = p.jdbc("{url}", "shop.names", mode="upsert", key=["name", "part"])
p.sql(names, to=to, name="current", query="SELECT key AS name, 'a' AS part, size FROM names")
"""
    in_postgresql.execute("CREATE SCHEMA shop")
    file = shop.pipeline(text.format(source=source, url=in_postgresql.url))
    shop.produce(source, [("ada", {"size": 1}), ("bob", {"size": 2})])
    shop.run(file)
    shop.produce(source, [("ada", None), ("bob", {"size": 3})])
    shop.run(file)
    assert in_postgresql.rows("SELECT name, size FROM shop.names") == [("bob", "3")]
    shop.produce(source, [(None, {"size": 1})])
    with pytest.raises(PipelineError, match=r"1 rows of the batch have no name, part, the key of table 'shop.names'") as caught:
        shop.run(file)
    assert caught.value.place is not None
    assert caught.value.place.line == 5
    assert in_postgresql.rows("SELECT COUNT(*) FROM shop.names") == [("1",)]


def test_f82_keys_that_differ_in_case_are_different(shop: Shop, target: Target) -> None:
    source = shop.topic("names")
    text = """
from ottla import pipelines as p

names = p.source("{source}", p.json("name string, size int"), name="names")
p.sql(names, to=p.jdbc("{url}", "names", mode="upsert", key="name"), name="current", query="SELECT * FROM names")
"""
    shop.produce(source, [("k", {"name": name, "size": size}) for size, name in enumerate(["ada", "Ada", "ada"])])
    shop.run(shop.pipeline(text.format(source=source, url=target.url)))
    columns = '"name", "size"' if target.kind == "h2" else "name, size"
    assert sorted(target.rows(f"SELECT {columns} FROM names")) == [("Ada", "1"), ("ada", "2")]


@pytest.mark.parametrize(
    ("columns", "history", "said"),
    [
        ("id bigint primary key, amount double precision", "", "has no column 'customer', which flow 'current' writes"),
        (
            "id int primary key, customer text, amount double precision",
            "",
            "column 'id' of table 'orders' is int, flow 'current' writes bigint",
        ),
        ("id bigint, customer text, amount double precision", "", "table 'orders' has no unique key on id"),
        ("id bigint primary key, customer text, amount double precision", ", history=True", "has no column 'valid_from'"),
    ],
)
def test_f82_a_table_that_does_not_fit_is_refused_before_anything_is_written(
    shop: Shop, in_postgresql: Target, columns: str, history: str, said: str
) -> None:
    source = shop.topic("orders")
    file = shop.pipeline(UPSERT.format(source=source, url=in_postgresql.url, more="", history=history))
    shop.produce(source, [order(1, "ada", 1)])
    in_postgresql.execute(f"CREATE TABLE orders ({columns})")
    with pytest.raises(PipelineError) as caught:
        shop.run(file)
    assert said in caught.value.message
    assert caught.value.hint
    assert in_postgresql.tables == {"orders"}
    assert not (shop.folder / "storage" / "current").exists()


def test_f82_what_killed_drivers_left_is_dropped(shop: Shop, in_postgresql: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Staging tables, also those of an append."""
    from ottla.pipelines.spark_jvm import JdbcConnection

    source = shop.topic("orders")
    text = (
        UPSERT.format(source=source, url=in_postgresql.url, more="", history="")
        + f"""
p.sql(orders, to=p.jdbc("{in_postgresql.url}", "log"), name="log", query="SELECT id, amount FROM orders")
"""
    )
    file = shop.pipeline(text)
    shop.produce(source, [order(1, "ada", 1)])
    execute = JdbcConnection.execute

    def killed(self: JdbcConnection, statement: str, *parameters: Any) -> int:
        return 0 if statement.startswith("DROP") else execute(self, statement, *parameters)

    with monkeypatch.context() as patch:
        patch.setattr(JdbcConnection, "execute", killed)
        shop.run(file)
    assert len(in_postgresql.tables) == 5, in_postgresql.tables
    shop.produce(source, [order(2, "bob", 1)])
    shop.run(file)
    assert in_postgresql.tables == {"orders", "log", "ottla_batches"}
    assert len(in_postgresql.rows("SELECT * FROM log")) == 2


def test_f82_two_flows_may_make_the_table_of_batches_at_once(
    shop: Shop, in_postgresql: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both look for it, and one of them comes second."""
    from ottla.pipelines.spark_jvm import JdbcConnection

    source = shop.topic("orders")
    file = shop.pipeline(UPSERT.format(source=source, url=in_postgresql.url, more="", history=""))
    shop.produce(source, [order(1, "ada", 1)])
    shop.run(file)
    has = JdbcConnection.has
    missed: list[str] = []

    def too_early(self: JdbcConnection, table: str) -> bool:
        if table == "ottla_batches" and not missed:
            missed.append(table)
            return False
        return has(self, table)

    monkeypatch.setattr(JdbcConnection, "has", too_early)
    shop.produce(source, [order(2, "bob", 2)])
    shop.run(file)
    assert missed
    assert in_postgresql.orders == [("1", "ada", 1.0), ("2", "bob", 2.0)]
