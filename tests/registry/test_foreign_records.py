"""SR11 and SR15: what others have written into the topic neither stops a registry nor is lost."""

from __future__ import annotations

import json

from confluent_kafka import Producer

from ottla.registry.log_format import SCHEMA, LogKey, SchemaVersion, key_bytes, schema_value
from ottla.testing import Broker, Registry
from tests.kit.wait import until
from tests.registry.conftest import Client
from tests.registry.test_http import STRING

LENIENT = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int", "default": "no int"}]})


def write(broker: Broker, *records: tuple[bytes, bytes]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    for key, value in records:
        producer.produce("_schemas", value, key)
    assert producer.flush(30) == 0


def schema_record(version: SchemaVersion) -> tuple[bytes, bytes]:
    return key_bytes(LogKey(SCHEMA, version.subject, version.version)), schema_value(version)


def test_sr11_records_that_are_none_are_skipped_and_named(broker: Broker, registry: Registry, client: Client) -> None:
    write(broker, (b"\xff", b"\xff"), (b'{"keytype":"SCHEMA"}', b"[]"), (b'{"keytype":"ASSOC","magic":0}', b"{}"))
    assert client.register("after-garbage", STRING) > 0
    assert "is skipped: its key is not JSON" in registry.log
    assert "ASSOC" not in registry.log


def test_sr11_a_schema_that_does_not_parse_is_shown_and_left_out_of_checks(
    broker: Broker, registry: Registry, client: Client, subject: str
) -> None:
    write(broker, schema_record(SchemaVersion(subject, 1, 80_001, "AVRO", '{"type":"nothing"}')))
    until(lambda: client.call("GET", "/schemas/ids/80001")[0] == 200)
    assert client.get("/schemas/ids/80001") == {"schema": '{"type":"nothing"}'}
    client.register(subject, STRING)
    assert client.get(f"/subjects/{subject}/versions") == [1, 2]
    assert f"Subject {subject} version 1 (id 80001) does not parse" in registry.log


def test_sr17_what_another_registry_let_in_still_counts_in_checks(broker: Broker, client: Client, subject: str) -> None:
    write(broker, schema_record(SchemaVersion(subject, 1, 80_002, "AVRO", LENIENT)))
    until(lambda: client.call("GET", "/schemas/ids/80002")[0] == 200)
    assert client.error("POST", f"/subjects/{subject}/versions", {"schema": STRING}) == 409
