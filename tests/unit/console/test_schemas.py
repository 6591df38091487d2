"""A registry is asked for an id once, and not without end for ids that it does not know."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from ottla.client.schema_registry import RegistryFailed, RegistryOptions, SchemaRegistry
from ottla.console.records.documents import Showing
from ottla.console.records.schemas import AWAY_S, REFUSED_MAX, REFUSED_S, Schemas
from ottla.schemas.framing import KEY_HEADER, VALUE_HEADER, write_guid, write_id


class FakeRegistry(SchemaRegistry):
    """Knows schemas by id; the others are not there. Counts what it is asked."""

    def __init__(self, *texts: str) -> None:
        super().__init__(RegistryOptions("http://nowhere"))
        self.texts = dict(enumerate(texts, 1))
        self.asked: list[str] = []
        self.away = False

    def request(self, method: str, path: str, body: object = None, query: Any = None) -> Any:
        self.asked.append(path)
        if self.away:
            raise RegistryFailed("no schema registry answers at http://nowhere")
        schema_id = int(path.split("/")[3])
        if schema_id not in self.texts:
            raise RegistryFailed("schema not found", 40403)
        if path.endswith("/versions"):
            return [{"subject": "other-value", "version": 3}, {"subject": "orders-value", "version": 1}]
        return {"schema": self.texts[schema_id]}


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_an_id_is_asked_for_once(clock: Clock) -> None:
    registry = FakeRegistry('"string"')
    schemas = Schemas(registry, clock)
    for _ in range(3):
        reading = schemas.read(write_id(1) + b"\x06Ana")
        assert reading is not None
        assert (reading.format, reading.text) == ("avro", '"Ana"')
        document = schemas.document(reading, "orders", "value")
        assert document == {"id": 1, "type": "AVRO", "subject": "orders-value", "version": 1}
        assert schemas.document(reading, "others", "key")["subject"] == "other-value"
    assert registry.asked == ["/schemas/ids/1", "/schemas/ids/1/versions"]
    assert schemas.read(b"{}") is None
    assert schemas.read(b"\0\0\0") is None


def test_unknown_ids_are_asked_for_again_later(clock: Clock) -> None:
    registry = FakeRegistry()
    schemas = Schemas(registry, clock)
    for _ in range(2):
        reading = schemas.read(write_id(1) + b"\x06Ana")
        assert reading is not None
        assert (reading.format, reading.text, reading.why, reading.away) == ("schema", None, "schema not found", False)
    assert len(registry.asked) == 1
    registry.texts[1] = '"string"'
    clock.now_s += REFUSED_S
    reading = schemas.read(write_id(1) + b"\x06Ana")
    assert reading is not None
    assert reading.text == '"Ana"'


def test_bytes_that_only_look_like_ids_do_not_flood_the_registry(clock: Clock) -> None:
    registry = FakeRegistry()
    schemas = Schemas(registry, clock)
    for number in range(REFUSED_MAX + 50):
        schemas.read(write_id(100 + number))
    assert len(registry.asked) == REFUSED_MAX
    clock.now_s += REFUSED_S
    schemas.read(write_id(7))
    assert len(registry.asked) == REFUSED_MAX + 1


def test_a_registry_that_is_away_is_asked_now_and_then(clock: Clock) -> None:
    registry = FakeRegistry('"string"', '"long"')
    schemas = Schemas(registry, clock)
    schemas.read(write_id(1) + b"\x06Ana")
    registry.away = True
    for _ in range(3):
        reading = schemas.read(write_id(2) + b"\x02")
        assert reading is not None
        assert reading.away
    assert len(registry.asked) == 2
    known = schemas.read(write_id(1) + b"\x06Ana")
    assert known is not None
    assert known.text == '"Ana"'
    registry.away = False
    clock.now_s += AWAY_S
    reading = schemas.read(write_id(2) + b"\x02")
    assert reading is not None
    assert reading.text == "1"


def test_a_value_cannot_claim_to_be_endless(clock: Clock) -> None:
    schemas = Schemas(FakeRegistry(json.dumps({"type": "array", "items": "null"})), clock)
    reading = schemas.read(write_id(1) + b"\xfe\xff\xff\xff\xff\x0f\0")
    assert reading is not None
    assert (reading.text, "no bytes" in reading.why) == (None, True)


def test_topics_of_brokers_have_no_schemas(clock: Clock) -> None:
    showing = Showing(schemas=Schemas(FakeRegistry(), clock))
    framed = write_id(1) + b"x"
    assert showing.concerns("orders", None, framed, [])
    assert showing.concerns("orders", None, b"x", [(VALUE_HEADER, write_guid(uuid.uuid4()))])
    assert not showing.concerns("orders", None, b"x", [(KEY_HEADER, write_guid(uuid.uuid4()))])
    assert not showing.concerns("__consumer_offsets", framed, framed, [])
    assert not Showing(key_format="text", value_format="hex", schemas=showing.schemas).decodes


def test_errors_do_not_tell_logins() -> None:
    registry = SchemaRegistry(RegistryOptions("http://ada:secret@127.0.0.1:1"))
    with pytest.raises(RegistryFailed, match=r"at http://127\.0\.0\.1:1:") as failed:
        registry.request("GET", "/subjects")
    assert "secret" not in str(failed.value)
