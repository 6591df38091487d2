"""The pages of schemas, and records with schemas, on a real registry."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from ottla.client.schema_registry import RegistryOptions, SchemaRegistry
from ottla.schemas.framing import write_id
from ottla.testing import Broker, Registry
from tests.console.browser.conftest import Console, Open
from tests.console.browser.world import create_topic
from tests.kit.wait import until

pytestmark = pytest.mark.slow

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "customer", "type": "string"}]}
NOTE = {"name": "note", "type": "string"}
NEXT = {**ORDER, "fields": [*ORDER["fields"], {**NOTE, "default": ""}]}
WRONG = {**ORDER, "fields": [*ORDER["fields"], NOTE]}


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker() as broker:
        create_topic(broker.bootstrap_servers, "orders", 3)
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def registry(servers: str) -> Iterator[SchemaRegistry]:
    with Registry(servers) as running, SchemaRegistry(RegistryOptions(running.url)) as client:
        schema_id = client.register("orders-value", "AVRO", json.dumps(ORDER))
        producer = Producer({"bootstrap.servers": servers})
        producer.produce("orders", write_id(schema_id) + b"\x06Ana", "k", partition=0)
        assert producer.flush(60) == 0
        yield client


@pytest.fixture(scope="module")
def console(servers: str, registry: SchemaRegistry) -> Iterator[Console]:
    with Console(servers, "--registry", registry.options.url) as running:
        yield running


def test_a_version_is_checked_registered_compared_and_deleted(
    console: Console, open_page: Open, registry: SchemaRegistry
) -> None:
    page = open_page(console.url, "/schemas")
    page.see("orders-value", "Latest").page.get_by_role("link", name="orders-value").click()
    page.see("AVRO, schema id", "BACKWARD")
    page.button("New version…").click()
    text = page.page.get_by_label("Schema (Avro)")
    text.fill(json.dumps(WRONG))
    page.button("Check").click()
    page.see("It does not fit", "note")
    text.fill(json.dumps(NEXT))
    page.button("Check").click()
    page.see("It fits the compatibility")
    page.button("Register").click()
    page.see("Changed since version 1", '+ "name": "note"')
    assert registry.version("orders-value").version == 2
    page.button("Compatibility…").click()
    page.page.get_by_label("Level").select_option("FULL")
    page.button("Set").click()
    page.see("FULL")
    page.button("Delete version 2…").click()
    page.button("Delete").click()
    until(lambda: registry.version("orders-value").version == 1, "the end of version 2")


def test_a_record_shows_its_schema(console: Console, open_page: Open) -> None:
    page = open_page(console.url, "/topics/orders/records?where=value.customer+%3D%3D+%22Ana%22&record=0:0")
    page.see("avro, schema", "orders-value v1", "customer", "1 record")
    page.page.get_by_role("link", name="orders-value v1").click()
    page.see("AVRO, schema id")


@pytest.mark.parametrize(
    ("path", "shows"),
    [
        ("/topics/orders", ("High watermark", "Size", "Epoch")),
        ("/topics", ("orders", "In time", "Cleanup")),
        ("/groups", ("In time", "Coordinator")),
        ("/dead-letters", ("Not replayed", "Of pipelines")),
    ],
)
def test_a_table_fits(console: Console, open_page: Open, path: str, shows: tuple[str, ...]) -> None:
    page = open_page(console.url, path, width=1280)
    page.see(*shows)
    widths = "[...document.querySelectorAll('.table-box')].map((box) => [box.scrollWidth, box.clientWidth])"
    assert [each[0] - each[1] for each in page.page.evaluate(widths)] == [0]
    cut = "[...document.querySelectorAll('th, th *')].filter((one) => one.scrollWidth > one.clientWidth && one.clientWidth)"
    assert page.page.evaluate(f"{cut}.map((one) => one.innerText)") == []
