"""Change events of Debezium as rows, and rows that delete in a compacted topic (F82)."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from ottla import pipelines as p
from ottla.client.schema_registry import RegistryOptions, SchemaRegistry
from ottla.pipelines import PipelineError
from ottla.schemas.framing import write_id

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.testing import Registry
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


# As Debezium's connector for PostgreSQL registers it through an Avro converter.
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "namespace": "shop.public.things",
    "fields": [
        {
            "name": "before",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "Value",
                    "fields": [
                        {"name": "id", "type": "long"},
                        {"name": "name", "type": ["null", "string"], "default": None},
                        {
                            "name": "price",
                            "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}],
                        },
                    ],
                    "connect.name": "shop.public.things.Value",
                },
            ],
            "default": None,
        },
        {"name": "after", "type": ["null", "Value"], "default": None},
        {
            "name": "source",
            "type": {
                "type": "record",
                "name": "Source",
                "namespace": "io.debezium.connector.postgresql",
                "fields": [{"name": "table", "type": "string"}, {"name": "lsn", "type": ["null", "long"], "default": None}],
                "connect.name": "io.debezium.connector.postgresql.Source",
            },
        },
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ],
    "connect.name": "shop.public.things.Envelope",
}
KEY = {"type": "record", "name": "Key", "namespace": "shop.public.things", "fields": [{"name": "id", "type": "long"}]}


@pytest.mark.slow
def test_f82_avro_events_of_a_registry_reach_a_compacted_topic(shop: Shop, ottla_registry: Registry) -> None:
    """As Debezium with an Avro converter writes them: byte 0, the id of the schema, and the event."""
    import fastavro

    source, out, letters = shop.topic("changes"), shop.topic("out"), shop.topic("dlq")
    client = SchemaRegistry(RegistryOptions(ottla_registry.url))

    def framed(subject: str, schema: dict[str, Any], document: Any) -> bytes:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), document)
        return write_id(client.register(f"{source}-{subject}", "AVRO", json.dumps(schema))) + stream.getvalue()

    def row(number: int, name: str | None, price: str | None) -> dict[str, Any]:
        return {"id": number, "name": name, "price": None if price is None else Decimal(price)}

    def record(op: str, number: int, before: Any, after: Any) -> Any:
        found = {"before": before, "after": after, "op": op, "ts_ms": 1, "source": {"table": "things", "lsn": 5}}
        return framed("key", KEY, {"id": number}), framed("value", ENVELOPE, found)

    removed = record("d", 2, row(2, None, None), None)
    shop.produce(
        source,
        [
            record("r", 1, None, row(1, "ada", "1.50")),
            record("c", 2, None, row(2, "bob", "2.00")),
            record("c", 3, None, row(3, "eve", None)),
            record("u", 1, row(1, "ada", "1.50"), row(1, "ada", "10.25")),
            removed,
            (removed[0], None),
            (record("d", 3, None, None)[0], None),  # compaction has taken the event itself
            (b"no key", None),
            (removed[0], b"no event"),
        ],
    )
    file = shop.pipeline(f"""
from ottla import pipelines as p

events = p.debezium(subject="{source}-value", registry="{ottla_registry.url}", columns=("op",))
changes = p.source("{source}", events, name="changes", dead_letter="{letters}")
p.sql(changes, to=p.sink("{out}", key="id"), name="topic", query="SELECT * FROM changes")
""")
    shop.run(file)
    latest = {message.key(): message.value() for message in shop.read(out)}
    assert {key: value and json.loads(value) for key, value in latest.items()} == {
        b"1": {"id": 1, "name": "ada", "price": 10.25, "op": "u"},
        b"2": None,
        b"3": None,
    }
    reasons = [dict(message.headers())["ottla.reason"].decode() for message in shop.read(letters)]
    assert len(reasons) == 2
    assert all(reason.startswith("no value of a schema registry") for reason in reasons)
    wrong = (
        file.read_text().replace(f"{source}-value", f"{source}-key").replace("columns=", f'key_subject="{source}-key", columns=')
    )
    file.write_text(wrong)
    with pytest.raises(PipelineError, match="has no field 'before': it is no change event"):
        shop.run(file, storage=str(shop.folder / "other"))


def test_change_events_have_a_schema_or_a_subject() -> None:
    with pytest.raises(PipelineError, match="either a schema, as JSON, or a subject, as Avro"):
        p.debezium()
    with pytest.raises(PipelineError, match="either a schema, as JSON, or a subject, as Avro"):
        p.debezium("id long", subject="things-value")
    with pytest.raises(PipelineError, match="the subject of the keys of 'things' is not known"):
        p.debezium(subject="things")
    with pytest.raises(PipelineError, match="'dateFormat' is an option of JSON"):
        p.debezium(subject="things-value", dateFormat="yyyy")
    with pytest.raises(PipelineError, match="type 'lung' is unknown"):
        p.source("things", p.debezium("id lung"))
