"""Ottla's own client of a registry, and values with schemas, against a running registry."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator

import pytest

from ottla.client.schema_registry import RegistryFailed, RegistryOptions, SchemaRegistry, verdict_words
from ottla.client.schema_values import NotOfSchema, SchemaValues
from ottla.runtime.free_ports import free_port
from ottla.schemas.framing import NotFramed
from ottla.schemas.model import AVRO, JSON, PROTOBUF, Reference
from ottla.testing import Registry

RECORD = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "to", "type": ["null", "string"]}],
}


@pytest.fixture
def client_of(registry: Registry) -> Iterator[SchemaRegistry]:
    with SchemaRegistry(RegistryOptions.of({"url": registry.url})) as client:
        yield client


def test_a_schema_is_registered_found_and_read_back(client_of: SchemaRegistry, subject: str) -> None:
    text = json.dumps(RECORD)
    schema_id = client_of.register(subject, AVRO, text)
    assert client_of.register(subject, AVRO, text) == schema_id
    assert client_of.schema(schema_id).schema_type == AVRO
    assert client_of.lookup(subject, AVRO, text).version == 1
    assert client_of.version(subject).schema_id == schema_id
    assert client_of.parsed(schema_id).name == "Order"


def test_what_an_id_stands_for_is_asked_once(client_of: SchemaRegistry, subject: str, monkeypatch: pytest.MonkeyPatch) -> None:
    schema_id = client_of.register(subject, AVRO, '"string"')
    client_of.parsed(schema_id)
    monkeypatch.setattr(client_of, "request", lambda *_: pytest.fail("asked again"))
    client_of.parsed(schema_id)


def test_sr07_references_of_references_are_resolved(client_of: SchemaRegistry, subject: str) -> None:
    def proto(name: str, *imports: str) -> str:
        lines = "".join(f'import "{each}.proto"; ' for each in imports)
        fields = " ".join(f"{each.upper()} {each} = {number};" for number, each in enumerate(imports, 1))
        return f'syntax = "proto3"; {lines}message {name} {{ {fields} }}'

    def reference(name: str) -> Reference:
        return Reference(f"{name}.proto", f"{subject}-{name}", 1)

    client_of.register(f"{subject}-a", PROTOBUF, proto("A"))
    client_of.register(f"{subject}-b", PROTOBUF, proto("B", "a"), [reference("a")])
    schema_id = client_of.register(subject, PROTOBUF, proto("C", "b", "a"), [reference("b"), reference("a")])
    assert [each.name for each in client_of.parsed(schema_id).references] == ["a.proto", "b.proto"]


def test_a_refusal_says_what_the_registry_said(client_of: SchemaRegistry, subject: str) -> None:
    with pytest.raises(RegistryFailed, match=subject) as refused:
        client_of.version(f"{subject}/with a slash")
    assert refused.value.code == 40401
    with pytest.raises(RegistryFailed) as refused:
        client_of.register(subject, AVRO, "{")
    assert refused.value.code == 42201


def test_another_address_answers_if_one_does_not(registry: Registry, subject: str) -> None:
    away = f"http://127.0.0.1:{free_port()}"
    with SchemaRegistry(RegistryOptions(f"{away},{registry.url}")) as client:
        assert client.register(subject, JSON, "{}")
    with SchemaRegistry(RegistryOptions(away)) as client, pytest.raises(RegistryFailed, match="no schema registry answers"):
        client.schema(1)


@pytest.mark.parametrize("url", ["127.0.0.1:8081", "ftp://x", "http://"])
def test_a_wrong_address_is_named(url: str) -> None:
    with pytest.raises(ValueError, match="no address"):
        SchemaRegistry(RegistryOptions(url))


def test_options_are_those_of_confluent_s_clients() -> None:
    options = RegistryOptions.of({"url": "https://a,https://b/", "basic.auth.user.info": "u:p", "ssl.ca.location": "ca.pem"})
    assert options.urls == ["https://a", "https://b"]
    assert "u:p" not in repr(options)
    assert pickle.loads(pickle.dumps(options)) == options
    with pytest.raises(ValueError, match="unknown registry setting urls"):
        RegistryOptions.of({"urls": "x"})


@pytest.mark.parametrize(
    ("schema_type", "schema", "value"),
    [
        (AVRO, json.dumps(RECORD), '{"id": 7, "to": {"string": "Ana"}}'),
        (JSON, '{"type": "object", "properties": {"id": {"type": "integer"}}}', '{"id": 7, "to": "Ana"}'),
        (PROTOBUF, 'syntax = "proto3"; message Order { int64 id = 1; string to = 2; }', '{"id": "7", "to": "Ana"}'),
    ],
)
def test_values_are_encoded_and_decoded(
    client_of: SchemaRegistry, subject: str, schema_type: str, schema: str, value: str
) -> None:
    values = SchemaValues(client_of)
    client_of.register(subject, schema_type, schema)
    data = values.encode(value, client_of.version(subject))
    assert json.loads(values.decode(data)) == json.loads(value)
    with pytest.raises(NotOfSchema):
        values.encode('{"id": "x"}', client_of.version(subject))
    with pytest.raises(NotFramed):
        values.decode(b"{}")
    with pytest.raises(NotOfSchema):
        values.decode(data[:-1])


def test_a_verdict_in_words() -> None:
    """Ours, and with quotes as Confluent's registry writes them."""
    messages = [
        "{errorType:'A', description:'the reader's x is gone at /fields/1', additionalInfo:'keep x'}",
        '{errorType:"READER_FIELD_MISSING", description:"The field x", additionalInfo:"x"}',
        '{errorType:"PROPERTY_ADDED", description:"a property"}',
        "{oldSchemaVersion: 3}",
        "{oldSchema: '{}'}",
        "{validateFields: 'false', compatibility: 'FULL'}",
        "{compatibility: 'FULL'}",
    ]
    assert verdict_words(messages) == [
        "the reader's x is gone at /fields/1: keep x",
        "The field x: x",
        "a property",
        "compared with version 3",
        "{validateFields: 'false', compatibility: 'FULL'}",
        "compatibility is FULL",
    ]
