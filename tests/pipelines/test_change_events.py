"""Change events of Debezium as rows, and rows that delete in a compacted topic (F82)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ottla.pipelines import PipelineError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.databases import Database
    from tests.pipelines.conftest import Shop

PIPELINE = """
from ottla import pipelines as p

changes = p.source("{source}", p.debezium("id long, name string, size int"), name="changes", dead_letter="{letters}")
p.sql(changes, to=p.jdbc("{url}", "things", mode="upsert", key="id"), name="table", query="SELECT {columns} FROM changes")
p.sql(changes, to=p.sink("{out}", key="id"), name="topic", query="SELECT * FROM changes")
"""


def row(number: int, name: str | None, size: int | None) -> dict[str, Any]:
    return {"id": number, "name": name, "size": size}


def event(op: str, before: Any, after: Any, *, with_schema: bool = False) -> Any:
    number = (after or before or {"id": None})["id"]
    found = {"before": before, "after": after, "op": op, "ts_ms": 1, "source": {"table": "things", "lsn": 5}}
    key = {"id": number}
    if with_schema:
        return json.dumps({"schema": {"type": "struct"}, "payload": key}), {"schema": {"type": "struct"}, "payload": found}
    return json.dumps(key), found


def test_f82_events_with_and_without_a_schema_reach_a_table_and_a_compacted_topic(shop: Shop, postgresql: Database) -> None:
    source, out, letters = shop.topic("changes"), shop.topic("out"), shop.topic("dlq")
    name = "d" + shop.prefix.rstrip(".")
    url = postgresql.create_database(name)
    file = shop.pipeline(PIPELINE.format(source=source, out=out, letters=letters, url=url, columns="id, name"))
    with pytest.raises(PipelineError, match="leaves out the column ottla_deleted"):
        shop.run(file)
    file.write_text(PIPELINE.format(source=source, out=out, letters=letters, url=url, columns="*"))
    shop.produce(
        source,
        [
            event("r", None, row(1, "ada", 1)),
            event("c", None, row(2, "bob", 2), with_schema=True),
            event("c", None, row(3, "eve", 3)),
            event("c", None, row(4, "joe", 4)),
            event("u", row(1, "ada", 1), row(1, "ada", 10), with_schema=True),
            event("d", row(2, None, None), None, with_schema=True),
            (json.dumps({"schema": {}, "payload": {"id": 2}}), None),
            (json.dumps({"id": 3}), None),  # compaction has taken the event itself
            event("u", None, row(4, None, None)),
            (None, None),
            event("t", None, None),
            ("7", {"id": 7}),
            ("7", {"op": "c"}),
            event("c", None, {"id": "seven"}),
            ("7", b"{"),
        ],
    )
    flows = shop.run(file)
    rows = postgresql.rows(name, "SELECT id, name, size FROM things ORDER BY id")
    # A row of nulls is no removal if it does not come as one.
    assert rows == [("1", "ada", "10"), ("4", "NULL", "NULL")]
    latest = {message.key(): message.value() for message in shop.read(out)}
    assert {key: value and json.loads(value) for key, value in latest.items()} == {
        b"1": row(1, "ada", 10),
        b"2": None,
        b"3": None,
        b"4": {"id": 4},
    }
    reasons = sorted(dict(message.headers())["ottla.reason"].decode() for message in shop.read(letters))
    assert reasons == [
        "a tombstone without a key",
        "the change event has no row",
        "the table was truncated: no row says which rows are gone",
        "the value does not fit the schema",
        "the value is no JSON",
        "the value is no change event of Debezium",
    ]
    assert flows.sinks["table"].totals.dead_letters + flows.sinks["topic"].totals.dead_letters == 6


def test_f82_a_row_that_deletes_is_a_tombstone_in_its_topic(shop: Shop) -> None:
    source, out = shop.topic("orders"), shop.topic("out")
    file = shop.pipeline(f"""
from ottla import pipelines as p

orders = p.source("{source}", p.json("id long, note string, gone boolean"), name="orders")
p.sql(orders, to=p.sink("{out}", key="id", delete_when="gone"), name="current", query="SELECT * FROM orders")
""")
    shop.produce(source, [{"id": 1, "note": "a"}, {"id": 2, "note": "b", "gone": True}, {"id": 3}])
    shop.run(file)
    found = {message.key(): message.value() for message in shop.read(out)}
    assert found == {b"1": b'{"id":1,"note":"a"}', b"2": None, b"3": None}


def test_f82_what_deletes_must_be_a_condition(shop: Shop, tmp_path: Path) -> None:
    source = shop.topic("orders")
    text = """
from ottla import pipelines as p

orders = p.source("{source}", p.json("id long, note string"), name="orders")
p.sql(orders, to=p.sink("{source}-out", key="id", delete_when="{when}"), name="current", query="SELECT * FROM orders")
"""
    for when, said in (("note", "is string, not boolean"), ("gone", "delete_when='gone': ")):
        with pytest.raises(PipelineError, match=said) as caught:
            shop.run(shop.pipeline(text.format(source=source, when=when)))
        assert caught.value.place is not None
        assert caught.value.place.line == 5
