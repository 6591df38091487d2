"""Schemas of a registry: subjects and versions, and records that are read with them."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from confluent_kafka import Producer

from ottla.client.schema_registry import RegistryOptions, SchemaRegistry
from ottla.schemas.framing import write_id
from ottla.testing import Registry
from tests.console.running import RunningConsole, running_console
from tests.kit.ottla_command import Ottla
from tests.kit.subject import Subject
from tests.kit.wait import until

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "to", "type": ["null", "string"]}],
}
WITH_NOTE = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": "string", "default": ""}]}
WITHOUT_DEFAULT = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": "string"}]}
PROTO = 'syntax = "proto3"; message Other { int32 n = 1; } message Order { string to = 1; string card = 2; }'


@pytest.fixture(scope="module")
def registry(subject: Subject) -> Iterator[Registry]:
    with Registry(subject.bootstrap_servers) as registry:
        yield registry


@pytest.fixture(scope="module")
def console(subject: Subject, registry: Registry) -> Iterator[RunningConsole]:
    masks = ("--mask", "masked-*:value.card", "--mask", "masked-*:value.owner.card")
    with running_console(subject.bootstrap_servers, "--registry", registry.url, *masks) as console:
        yield console


@pytest.fixture
def name() -> str:
    """A subject, with what must be escaped in a path."""
    return f"s/{uuid.uuid4().hex[:8]} ä-value"


def at(subject: str) -> str:
    return f"/api/schemas/{quote(subject, safe='')}"


def draft(schema: object, **more: object) -> dict[str, Any]:
    return {"schema": json.dumps(schema), **more}


def test_the_life_of_a_subject(console: RunningConsole, name: str) -> None:
    assert console.get("/api/session")["registry"] is True
    first = console.post(at(name), draft(ORDER))
    assert (first["compatible"], first["version"]) == (True, 1)
    # A check changes nothing.
    fits = console.post(at(name), draft(WITH_NOTE, dry_run=True))
    assert fits == {"compatible": True, "messages": []}
    refused = console.post(at(name), draft(WITHOUT_DEFAULT, dry_run=True))
    assert not refused["compatible"]
    assert "note" in refused["messages"][0]
    assert refused["messages"][1:] == ["compared with version 1", "compatibility is BACKWARD"]
    assert console.post(at(name), draft(ORDER, dry_run=True))["version"] == 1
    assert "note" in console.refused("POST", at(name), 409, draft(WITHOUT_DEFAULT))["message"]
    assert console.refused("POST", at(name), 400, {"schema": "{"})["code"] == "BAD_REQUEST"
    second = console.post(at(name), draft(WITH_NOTE))
    assert (second["version"], second["id"] != first["id"]) == (2, True)

    found = console.get(at(name))
    assert (found["compatibility"], found["compatibility_of"], found["versions_total"]) == ("BACKWARD", "registry", 2)
    assert [(each["version"], each["id"], each["type"]) for each in found["versions"]] == [
        (1, first["id"], "AVRO"),
        (2, second["id"], "AVRO"),
    ]
    assert json.loads(console.get(f"{at(name)}/versions/latest")["schema"]) == WITH_NOTE
    assert json.loads(console.get(f"{at(name)}/versions/1")["schema"]) == ORDER
    changed = console.get(f"{at(name)}/diff?from=1")
    assert (changed["from"], changed["to"]) == (1, 2)
    assert '+      "name": "note",' in changed["diff"].splitlines()
    assert console.refused("GET", f"{at(name)}/diff?from=x", 400)["code"] == "BAD_REQUEST"
    assert console.refused("GET", f"{at(name)}/versions/3", 404)["code"] == "NOT_FOUND"

    assert console.call("PUT", f"{at(name)}/compatibility", {"level": "NONE"})["compatibility"] == "NONE"
    assert console.get(at(name))["compatibility_of"] == "subject"
    assert console.post(at(name), draft(WITHOUT_DEFAULT, dry_run=True))["compatible"]
    assert console.call("PUT", f"{at(name)}/compatibility", {"level": None})["compatibility"] == "BACKWARD"
    assert console.refused("PUT", f"{at(name)}/compatibility", 400, {"level": "SOME"})["code"] == "BAD_REQUEST"

    entries = [each for each in console.get("/api/audit")["entries"] if each["subject"] == name]
    assert [(each["action"], each["result"]) for each in entries][-3:] == [
        ("register_schema", "failed"),
        ("register_schema", "failed"),
        ("register_schema", "ok"),
    ]


def test_subjects_are_listed_and_deleted(console: RunningConsole) -> None:
    word = uuid.uuid4().hex[:8]
    names = [f"{word}-{letter}" for letter in "abc"]
    for each in names:
        console.post(at(each), draft(ORDER))
    listed = console.get(f"/api/schemas?search={word}&limit=2&offset=1")
    assert (listed["matched"], [each["subject"] for each in listed["subjects"]]) == (3, names[1:])
    assert listed["subjects"][0]["versions"] == [1]
    assert console.get(f"/api/schemas?search={word}*b")["matched"] == 1

    refused = console.refused("DELETE", at(names[0]), 404, {"permanent": True})
    assert "40405" in refused["message"]  # delete it first
    deleted = {"subject": names[0], "versions": [1], "permanent": False}
    assert console.call("DELETE", at(names[0]), {}) == deleted
    assert console.refused("GET", at(names[0]), 404)["code"] == "NOT_FOUND"
    assert console.get(f"/api/schemas?search={word}")["matched"] == 2
    hidden = console.get(f"/api/schemas?search={word}&deleted=1")["subjects"]
    assert hidden[0] == {"subject": names[0], "versions": [1], "deleted": True}
    assert [each["deleted"] for each in console.get(f"{at(names[0])}?deleted=1")["versions"]] == [True]
    assert console.call("DELETE", at(names[0]), {"permanent": True}) == {**deleted, "permanent": True}
    assert console.get(f"/api/schemas?search={word}&deleted=1")["matched"] == 2
    assert console.call("DELETE", at(names[1]), {"version": 1})["versions"] == [1]


def test_references(console: RunningConsole, name: str) -> None:
    console.post(at(f"{name}-order"), draft(ORDER))
    reference = {"name": "Order", "subject": f"{name}-order", "version": 1}
    schema = {"type": "record", "name": "Basket", "fields": [{"name": "first", "type": "Order"}]}
    console.post(at(name), draft(schema, references=[reference]))
    assert console.get(at(name))["versions"][0]["references"] == [reference]
    assert console.refused("POST", at(name), 400, draft(schema, references=[{"name": "Order"}]))["code"] == "BAD_REQUEST"


def test_metadata_and_rules_are_shown(console: RunningConsole, registry: Registry, name: str) -> None:
    metadata = {"properties": {"owner": "ada"}}
    rule = {"name": "positive", "kind": "CONDITION", "type": "CEL", "mode": "WRITE", "expr": "true", "disabled": False}
    rules = {"domainRules": [rule]}
    with SchemaRegistry(RegistryOptions(registry.url)) as client:
        body = {"schema": json.dumps(ORDER), "metadata": metadata, "ruleSet": rules}
        client.request("POST", f"/subjects/{quote(name, safe='')}/versions", body)
    (version,) = console.get(at(name))["versions"]
    assert (version["metadata"], version["rules"]) == (metadata, rules)


def test_roles(subject: Subject, registry: Registry, tmp_path: Path, name: str) -> None:
    tokens = {role: f"{role}-token-0123456789" for role in ("viewer", "editor", "admin")}
    path = tmp_path / "tokens"
    path.write_text("".join(f"{role} {token}\n" for role, token in tokens.items()))
    path.chmod(0o600)

    def as_(role: str) -> dict[str, str]:
        return {"authorization": f"Bearer {tokens[role]}"}

    properties = tmp_path / "client.properties"
    properties.write_text(f"schema.registry.url={registry.url}\n")
    with running_console(subject.bootstrap_servers, "--command-config", str(properties), "--tokens", str(path)) as console:
        assert console.refused("GET", "/api/schemas", 401)["code"] == "LOGIN_REQUIRED"
        assert console.refused("POST", at(name), 403, draft(ORDER), **as_("viewer"))["code"] == "FORBIDDEN"
        console.post(at(name), draft(ORDER), **as_("editor"))
        assert console.get(at(name), **as_("viewer"))["versions_total"] == 1
        assert console.refused("DELETE", at(name), 403, {}, **as_("editor"))["code"] == "FORBIDDEN"
        console.call("DELETE", at(name), {}, **as_("admin"))


# Records


@pytest.fixture
def schemas(registry: Registry) -> Iterator[SchemaRegistry]:
    with SchemaRegistry(RegistryOptions(registry.url)) as client:
        yield client


def write(subject: Subject, topic: str, *values: bytes, key: bytes | None = None) -> None:
    producer = Producer({"bootstrap.servers": subject.bootstrap_servers, "linger.ms": 0})
    for value in values:
        producer.produce(topic, value, key, partition=0)
    assert producer.flush(60) == 0


def avro_order(number: int, to: str) -> bytes:
    """An Order without its schema id, of numbers below 64 and short names."""
    return bytes([number << 1, 2, len(to) << 1]) + to.encode()


@pytest.fixture
def filled(subject: Subject, schemas: SchemaRegistry, topic: str) -> str:
    """Avro, JSON Schema and Protobuf in turn, then what has no schema, and what has one that is not there or does not fit."""
    avro = schemas.register(f"{topic}-value", "AVRO", json.dumps(ORDER))
    json_schema = schemas.register("any", "JSON", '{"type": "object"}')
    protobuf = schemas.register(f"{topic}-other", "PROTOBUF", PROTO)
    write(
        subject,
        topic,
        write_id(avro) + avro_order(7, "Ana"),
        write_id(json_schema) + b'{"id": 8}',
        write_id(protobuf) + b"\2\2" + b"\x0a\x03Eva",  # the message at [1]
        b'{"id": 9}',
        write_id(1_000_000) + b"x",
        write_id(avro) + b"\x80",
    )
    return topic


def test_values_are_read_with_their_schemas(console: RunningConsole, filled: str) -> None:
    records, _ = console.records(f"/api/topics/{filled}/records?order=oldest")
    values = [record["value"] for record in records]
    assert [each["format"] for each in values] == ["avro", "json_schema", "protobuf", "json", "hex", "hex"]
    assert [json.loads(each["text"]) for each in values[:4]] == [
        {"id": 7, "to": {"string": "Ana"}},
        {"id": 8},
        {"to": "Eva"},
        {"id": 9},
    ]
    assert values[0]["schema"] == {
        "id": values[0]["schema"]["id"],
        "type": "AVRO",
        "subject": f"{filled}-value",
        "version": 1,
    }
    assert (values[1]["schema"]["subject"], values[2]["schema"]["type"]) == ("any", "PROTOBUF")
    assert "schema" not in values[3]
    assert "40403" in values[4]["tried"][0]["why"]
    assert (values[5]["tried"][0]["format"], "not AVRO" in values[5]["tried"][0]["why"]) == ("avro", True)
    whole = console.get(f"/api/topics/{filled}/records/0/0")
    assert base64.b64decode(whole["value"]["base64"])[5:] == avro_order(7, "Ana")
    wanted = console.get(f"/api/topics/{filled}/records/0/3?value_format=avro")["value"]
    assert (wanted["format"], "not the magic byte" in wanted["tried"][0]["why"]) == ("hex", True)
    wanted = console.get(f"/api/topics/{filled}/records/0/0?value_format=protobuf")["value"]
    assert (wanted["format"], "is AVRO" in wanted["tried"][0]["why"]) == ("hex", True)


@pytest.mark.parametrize(
    ("query", "offsets"),
    [
        ("where=value.id==7", [0]),
        ("where=value.id>=8", [1, 3]),
        ('where=value.to=="Eva"', [2]),
        ("search=%22id%22:+7", [0]),
        ("search=%22TO%22&ignore_case=1", [0, 2]),
        ("where=value.id==7&value_format=hex", []),
    ],
)
def test_selections_see_what_was_read(console: RunningConsole, filled: str, query: str, offsets: list[int]) -> None:
    records, end = console.records(f"/api/topics/{filled}/records?order=oldest&{query}")
    assert ([record["offset"] for record in records], end["complete"]) == (offsets, True)
    exported = console.request("GET", f"/api/topics/{filled}/export?format=jsonl&order=oldest&{query}").text
    assert [json.loads(each)["offset"] for each in exported.splitlines()] == offsets


def test_commands_to_copy_read_schemas_too(console: RunningConsole, filled: str) -> None:
    path = f"/api/topics/{filled}/snippets"
    assert "--schema" in console.get(f"{path}?where=value.id==7")["ottla"]
    assert "--schema" not in console.get(f"{path}?key_format=text&value_format=text")["ottla"]


def test_records_are_read_as_they_come(console: RunningConsole, filled: str) -> None:
    with console.events(f"/api/topics/{filled}/records?live=1&from=beginning&where=value.id==7") as events:
        records = next(document["records"] for event, document in events if event == "records")
    assert [(each["offset"], each["value"]["format"]) for each in records] == [(0, "avro")]


def test_keys_with_a_schema(console: RunningConsole, subject: Subject, schemas: SchemaRegistry, topic: str) -> None:
    key = write_id(schemas.register(f"{topic}-key", "AVRO", '"long"')) + b"\x54"
    write(subject, topic, b"one", key=key)
    (record,), _ = console.records(f"/api/topics/{topic}/records?search=42")
    assert (record["key"]["text"], record["key"]["schema"]["subject"]) == ("42", f"{topic}-key")
    word = quote(base64.b64encode(key), safe="")
    found, _ = console.records(f"/api/topics/{topic}/records?all_partitions=1&key_base64={word}")
    assert [each["offset"] for each in found] == [0]
    assert console.refused("GET", f"/api/topics/{topic}/records?key_base64=-", 400)["code"] == "BAD_REQUEST"


def test_fields_of_schemas_are_masked(
    console: RunningConsole, subject: Subject, schemas: SchemaRegistry, ottla: Ottla, registry: Registry
) -> None:
    topic = f"masked-{uuid.uuid4().hex[:8]}"
    ottla.ok("topic", "create", topic)
    owner = {"type": "record", "name": "Owner", "fields": [{"name": "card", "type": "string"}]}
    schema = {"type": "record", "name": "Paid", "fields": [{"name": "owner", "type": ["null", owner]}]}
    avro = schemas.register(f"{topic}-value", "AVRO", json.dumps(schema))
    protobuf = schemas.register(f"{topic}-other", "PROTOBUF", PROTO)
    write(subject, topic, write_id(avro) + b"\2\x08secr", write_id(protobuf) + b"\2\2\x12\x04secr", write_id(avro) + b"\x80secr")
    answers = [
        console.records(f"/api/topics/{topic}/records?order=oldest")[0],
        [console.get(f"/api/topics/{topic}/records/0/{offset}") for offset in range(3)],
    ]
    for records in answers:
        assert [each.get("masked") for each in records] == [True] * 3
        texts = [each["value"]["text"] for each in records]
        assert json.loads(texts[0]) == {"owner": {"Owner": {"card": "***"}}}
        assert json.loads(texts[1]) == {"card": "***"}
        assert texts[2] == "***"
    hidden = ("secr", base64.b64encode(b"secr").decode(), b"secr".hex(), b"secr".hex(" "), base64.b64encode(b"\4secr").decode())
    for query in ("", "&value_format=hex", "&value_format=base64", "&value_format=avro", "&value_format=text"):
        said = console.request("GET", f"/api/topics/{topic}/export?format=jsonl{query}").text
        said += json.dumps([console.get(f"/api/topics/{topic}/records/0/{offset}?{query[1:]}") for offset in range(3)])
        assert not any(word in said for word in hidden), query
    assert console.records(f"/api/topics/{topic}/records?search=secr")[0] == []
    assert console.records(f"/api/topics/{topic}/records?where=value.card==%22secr%22")[0] == []
    ottla.run("topic", "delete", topic)


def test_a_registry_that_is_away(subject: Subject, schemas: SchemaRegistry, topic: str) -> None:
    with Registry(subject.bootstrap_servers) as own:
        with SchemaRegistry(RegistryOptions(own.url)) as client:
            known = client.register(f"{topic}-value", "AVRO", json.dumps(ORDER))
            other = client.register(f"{topic}-other", "AVRO", '"string"')
        write(subject, topic, write_id(known) + avro_order(7, "Ana"), write_id(other) + b"\x06Ana")
        with running_console(subject.bootstrap_servers, "--registry", own.url) as console:
            path = f"/api/topics/{topic}/records"
            assert console.get(f"{path}/0/0")["value"]["format"] == "avro"
            own.stop()
            assert console.refused("GET", "/api/schemas", 503)["code"] == "REGISTRY_AWAY"
            # What is known is still read; what is not can be shown, but not searched.
            records, end = console.records(f"{path}?order=oldest")
            assert ([each["value"]["format"] for each in records], end["complete"]) == (["avro", "hex"], True)
            assert "no schema registry answers" in records[1]["value"]["tried"][0]["why"]
            _, end = console.records(f"{path}?where=value.id==7")
            assert (end["reason"], end["error"]["code"]) == ("error", "REGISTRY_AWAY")
            own.start()
            found = until(lambda: console.records(f"{path}?search=%22Ana%22")[0], "the registry is asked again")
            assert {each["offset"] for each in found} == {0, 1}


def test_without_a_registry(subject: Subject, topic: str) -> None:
    write(subject, topic, b"\0\0\0\0\1x")
    with running_console(subject.bootstrap_servers) as console:
        assert console.get("/api/session")["registry"] is False
        for method, path in (("GET", "/api/schemas"), ("GET", "/api/schemas/a"), ("GET", "/api/schemas/a/versions/1")):
            assert console.refused(method, path, 404)["code"] == "NO_REGISTRY"
        assert console.refused("POST", "/api/schemas/a", 404, draft(ORDER))["code"] == "NO_REGISTRY"
        found = console.get(f"/api/topics/{topic}/records/0/0?value_format=avro")["value"]
        assert "no schema registry" in found["tried"][0]["why"]
