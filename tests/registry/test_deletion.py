"""SR04, SR06 and SR08 over HTTP: deleting, registering again, importing."""

from __future__ import annotations

from tests.registry.conftest import Client
from tests.registry.test_http import INT, STRING, record


def test_sr06_soft_then_permanent(client: Client, subject: str) -> None:
    schema_id = client.register(subject, STRING)
    assert client.error("DELETE", f"/subjects/{subject}?permanent=true") == 40405
    assert client.call("DELETE", f"/subjects/{subject}") == (200, [1])
    assert client.error("DELETE", f"/subjects/{subject}") == 40404
    assert client.error("GET", f"/subjects/{subject}/versions/latest") == 40401
    assert client.get(f"/subjects/{subject}/versions?deletedOnly=true") == [1]
    assert client.get(f"/subjects/{subject}/versions/1?deleted=true")["id"] == schema_id
    assert client.get(f"/schemas/ids/{schema_id}")["schema"] == STRING
    client.call("PUT", f"/config/{subject}", {"compatibility": "NONE"})
    assert client.call("DELETE", f"/subjects/{subject}?permanent=true") == (200, [1])
    assert client.error("DELETE", f"/subjects/{subject}?permanent=true") == 40401
    assert client.error("GET", f"/config/{subject}") == 40408


def test_sr06_versions_one_by_one(client: Client, subject: str) -> None:
    client.register(subject, record("r", "a"))
    client.register(subject, record("r", "a", "b"))
    assert client.error("DELETE", f"/subjects/{subject}/versions/1?permanent=true") == 40407
    assert client.call("DELETE", f"/subjects/{subject}/versions/1") == (200, 1)
    assert client.error("DELETE", f"/subjects/{subject}/versions/1") == 40406
    assert client.get(f"/subjects/{subject}/versions") == [2]
    assert client.get(f"/subjects/{subject}/versions?deletedAsNegative=true") == [-1, 2]
    assert client.call("DELETE", f"/subjects/{subject}/versions/1?permanent=true") == (200, 1)
    assert client.error("DELETE", f"/subjects/{subject}/versions/1") == 40402
    assert client.call("DELETE", f"/subjects/{subject}/versions/latest") == (200, 2)


def test_sr06_registered_again_is_a_new_version_of_the_same_id(client: Client, subject: str) -> None:
    schema_id = client.register(subject, STRING)
    client.call("DELETE", f"/subjects/{subject}")
    assert client.register(subject, STRING) == schema_id
    assert client.get(f"/subjects/{subject}/versions?deleted=true") == [2]


def test_sr06_a_referenced_version_is_not_deleted(client: Client, subject: str) -> None:
    inner = record("Inner", "a")
    client.register(f"{subject}-inner", inner)
    outer = '{"type":"record","name":"Outer","fields":[{"name":"i","type":"Inner"}]}'
    references = [{"name": "Inner", "subject": f"{subject}-inner", "version": 1}]
    schema_id = client.register(subject, outer, references=references)
    assert client.get(f"/subjects/{subject}-inner/versions/1/referencedby") == [schema_id]
    assert client.error("DELETE", f"/subjects/{subject}-inner") == 42206
    assert client.error("DELETE", f"/subjects/{subject}-inner/versions/1") == 42206
    assert client.get(f"/schemas/ids/{schema_id}") == {"references": references, "schema": outer}
    client.call("DELETE", f"/subjects/{subject}")
    assert client.call("DELETE", f"/subjects/{subject}-inner")[0] == 200
    assert client.error("DELETE", f"/subjects/{subject}-inner?permanent=true") == 42206


def test_sr07_a_missing_reference(client: Client, subject: str) -> None:
    references = [{"name": "Inner", "subject": f"{subject}-none", "version": 1}]
    assert client.error("POST", f"/subjects/{subject}/versions", {"schema": STRING, "references": references}) == 42201


def test_sr08_import_takes_ids_and_versions(client: Client, subject: str) -> None:
    assert client.call("PUT", f"/mode/{subject}", {"mode": "IMPORT"}) == (200, {"mode": "IMPORT"})
    assert client.error("POST", f"/subjects/{subject}/versions", {"schema": STRING}) == 42205
    schema = record(subject.replace("-", "_"))
    assert client.register(subject, schema, id=70_001, version=7) == 70_001
    # No compatibility check, and versions may have gaps.
    assert client.register(subject, record(subject.replace("-", "_") + "2"), id=70_002, version=9) == 70_002
    assert client.get(f"/subjects/{subject}/versions") == [7, 9]
    assert client.error("POST", f"/subjects/{subject}/versions", {"schema": INT, "id": 70_001, "version": 10}) == 42205
    client.call("DELETE", f"/mode/{subject}")
    assert client.register(f"{subject}-next", record(subject.replace("-", "_") + "3")) > 70_002


def test_sr08_import_mode_needs_no_live_subjects(client: Client, subject: str) -> None:
    client.register(subject, STRING)
    assert client.error("PUT", f"/mode/{subject}", {"mode": "IMPORT"}) == 42205
    assert client.call("PUT", f"/mode/{subject}?force=true", {"mode": "IMPORT"})[0] == 200
    client.call("PUT", f"/mode/{subject}", {"mode": "READWRITE"})


def test_sr04_registering_is_idempotent_also_without_compatibility(client: Client, subject: str) -> None:
    first, second = record("r", "a"), record("r", "b")
    client.call("PUT", f"/config/{subject}", {"compatibility": "NONE"})
    ids = [client.register(subject, first), client.register(subject, STRING), client.register(subject, second)]
    client.call("PUT", f"/config/{subject}", {"compatibility": "FULL_TRANSITIVE"})
    assert client.register(subject, STRING) == ids[1]
    assert client.get(f"/subjects/{subject}/versions") == [1, 2, 3]
