"""Static inputs of joins that change while the flow runs (F82)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ottla import pipelines as p
from ottla.pipelines import PipelineError
from tests.kit.wait import until

if TYPE_CHECKING:
    from tests.kit.databases import Database
    from tests.pipelines.conftest import Shop

JOIN = """
from ottla import pipelines as p

orders = p.source("{source}", p.json("id long"), name="orders")
files = p.files("{folder}", "id long, name string", format="json", name="files", static=True, refresh="200 ms")
table = p.files("names", format="jdbc", name="rows", static=True, options={{"url": "{url}"}})
query = "SELECT o.id, f.name, r.name AS row FROM orders o LEFT JOIN files f ON f.id = o.id LEFT JOIN rows r ON r.id = o.id"
p.sql(orders, files, table, to=p.sink("{out}"), name="joined", query=query)
"""


def test_f82_static_tables_are_read_anew(shop: Shop, postgresql: Database) -> None:
    source, out, folder = shop.topic("orders"), shop.topic("out"), shop.folder / "names"
    database = "d" + shop.prefix.rstrip(".")
    url = postgresql.create_database(database)
    postgresql.execute(database, "CREATE TABLE names (id BIGINT, name TEXT); INSERT INTO names VALUES (1, 'eins')")
    folder.mkdir()
    (folder / "one.json").write_text('{"id": 1, "name": "one"}\n')
    file = shop.pipeline(JOIN.format(source=source, out=out, folder=folder, url=url))
    with shop.flows(file, once=False) as flows:
        flows.start()
        shop.produce(source, [{"id": 1}, {"id": 2}])
        until(lambda: len(shop.values(out)) == 2, "the first rows", 300, meanwhile=lambda: flows.wait(0.1))
        (folder / "two.json").write_text('{"id": 2, "name": "two"}\n')
        postgresql.execute(database, "INSERT INTO names VALUES (2, 'zwei')")

        def sees_both() -> bool:
            shop.produce(source, [{"id": 2}])
            flows.wait(0.5)
            return {"id": 2, "name": "two", "row": "zwei"} in shop.values(out)

        until(sees_both, "the new files and rows", 300)
    first = [json.dumps(value) for value in shop.values(out)[:2]]
    assert sorted(first) == ['{"id": 1, "name": "one", "row": "eins"}', '{"id": 2}']


def test_what_is_not_static_files_is_not_refreshed() -> None:
    with pytest.raises(PipelineError, match="files that arrive are read anyway"):
        p.files("/x", "id long", refresh="1 minute")
    with pytest.raises(PipelineError, match="a database is read anew in each batch"):
        p.files("x", format="jdbc", static=True, refresh="1 minute", options={"url": "jdbc:h2:mem:x"})
    with pytest.raises(PipelineError, match="refresh: 'often' is not a duration"):
        p.files("/x", "id long", static=True, refresh="often")
    with pytest.raises(PipelineError, match="is static and has a url"):
        p.files("x", format="jdbc", static=True)
