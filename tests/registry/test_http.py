"""SR01 to SR03: content types, errors, paths, and the answers of each endpoint."""

from __future__ import annotations

import json
import uuid
from urllib.parse import quote

import pytest

from tests.registry.conftest import V1, Client

STRING, INT = '"string"', '"int"'


def record(name: str, *fields: str) -> str:
    return json.dumps(
        {"type": "record", "name": name, "fields": [{"name": each, "type": "int", "default": 0} for each in fields]},
        separators=(",", ":"),
    )


# SR01


@pytest.mark.parametrize(
    ("accept", "status", "answered"),
    [
        (None, 200, V1),
        ("*/*", 200, V1),
        ("application/json", 200, "application/json"),
        ("application/vnd.schemaregistry+json", 200, "application/vnd.schemaregistry+json"),
        ("application/vnd.schemaregistry.v1+json, application/json; q=0.5", 200, V1),
        ("application/vnd.schemaregistry.v1+json; q=0.1, application/json", 200, "application/json"),
        ("text/html", 406, V1),
    ],
)
def test_sr01_answers_in_the_type_that_the_client_accepts(client: Client, accept: str | None, status: int, answered: str) -> None:
    answer = client.http.get("/subjects", headers={"accept": accept} if accept else {})
    assert (answer.status_code, answer.headers["content-type"]) == (status, answered)


@pytest.mark.parametrize(
    ("content_type", "status"),
    [(V1, 200), ("application/json; charset=utf-8", 200), ("application/octet-stream", 200), ("text/plain", 415)],
)
def test_sr01_reads_bodies_of_known_types(client: Client, subject: str, content_type: str, status: int) -> None:
    answer = client.http.post(
        f"/subjects/{subject}/versions", content=json.dumps({"schema": STRING}), headers={"content-type": content_type}
    )
    assert answer.status_code == status
    assert status == 200 or answer.json() == {"error_code": 415, "message": "HTTP 415 Unsupported Media Type"}


def test_sr01_unknown_fields_are_ignored_and_metadata_kept(client: Client, subject: str) -> None:
    metadata = {"properties": {"owner": "ada"}}
    rules = {
        "domainRules": [{"name": "r", "kind": "CONDITION", "mode": "WRITE", "type": "CEL", "expr": "true", "disabled": False}]
    }
    schema_id = client.register(subject, STRING, metadata=metadata, ruleSet=rules, nonsense=1)
    assert client.get(f"/subjects/{subject}/versions/1") == {
        "subject": subject,
        "version": 1,
        "id": schema_id,
        "metadata": metadata,
        "ruleSet": rules,
        "schema": STRING,
    }


def test_sr01_newer_fields_only_for_clients_that_take_them(client: Client, subject: str) -> None:
    newer = {"confluent-accept-unknown-properties": "true"}
    schema_id = client.register(subject, STRING)
    status, answer = client.call("POST", f"/subjects/{subject}/versions", {"schema": STRING}, headers=newer)
    assert (status, answer["id"], answer["version"], answer["schema"]) == (200, schema_id, 1, STRING)
    found = client.get(f"/schemas/guids/{answer['guid']}")
    assert found == {"schema": STRING}
    assert {"context": ".", "id": schema_id} in client.get(f"/schemas/guids/{answer['guid']}/ids")
    assert client.error("GET", f"/schemas/guids/{uuid.uuid4()}") == 40403
    assert client.get(f"/schemas/guids/{uuid.uuid4()}/ids") == []


# SR02


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("GET", "/subjects/none/versions", None, 40401),
        ("GET", "/subjects/none/versions/1", None, 40401),
        ("GET", "/subjects/none/versions/latest/referencedby", None, 40401),
        ("POST", "/subjects/none", {"schema": STRING}, 40401),
        ("DELETE", "/subjects/none", None, 40401),
        ("DELETE", "/subjects/none/versions/1", None, 40401),
        ("GET", "/schemas/ids/999999", None, 40403),
        ("GET", "/schemas/ids/999999/schema", None, 40403),
        ("GET", "/schemas/ids/999999/subjects", None, 40403),
        ("GET", "/schemas/ids/999999/versions", None, 40403),
        ("GET", "/schemas/ids/text", None, 404),
        ("GET", "/config/none", None, 40408),
        ("DELETE", "/config/none", None, 40401),
        ("GET", "/mode/none", None, 40409),
        ("DELETE", "/mode/none", None, 40401),
        ("GET", "/subjects/none/versions/0", None, 42202),
        ("GET", "/subjects/none/versions/first", None, 42202),
        ("GET", "/subjects/none/versions/-2", None, 42202),
        ("GET", "/subjects/none/versions/2147483648", None, 42202),
        ("PUT", "/config", {"compatibility": "SIDEWAYS"}, 42203),
        ("PUT", "/config/none", {"compatibility": 1}, 42203),
        ("PUT", "/mode/none", {"mode": "UPSIDEDOWN"}, 42204),
        ("PUT", "/mode/none", {"mode": "FORWARD"}, 42204),
        ("POST", "/subjects/none/versions", {"schema": '{"type":"nothing"}'}, 42201),
        ("POST", "/subjects/none/versions", {"schema": ""}, 42201),
        ("POST", "/subjects/none/versions", {"schema": STRING, "schemaType": "XML"}, 42201),
        ("POST", "/subjects/none/versions", {"schema": STRING, "id": 5}, 42205),
        ("POST", "/subjects/none/versions", {"schema": STRING, "version": 2}, 42201),
        ("POST", "/subjects/__GLOBAL/versions", {"schema": STRING}, 42208),
        ("POST", "/subjects/a%0Ab/versions", {"schema": STRING}, 42208),
        ("POST", "/compatibility/subjects/none/versions/1", {"schema": STRING}, 40402),
        ("POST", "/compatibility/subjects/none/versions/x", {"schema": STRING}, 42202),
        ("POST", "/subjects/none/versions", [1], 400),
        ("POST", "/subjects/none/versions", {"schema": {"type": "string"}}, 400),
        ("POST", "/subjects/none/versions", {"schema": STRING, "references": [{}]}, 400),
        ("POST", "/subjects/none/versions", None, 422),
        ("GET", "/nothing", None, 404),
        ("GET", "/subjects/a/b", None, 404),
        ("PATCH", "/subjects", None, 405),
        ("DELETE", "/subjects", None, 405),
    ],
)
def test_sr02_errors(client: Client, method: str, path: str, body: object, code: int) -> None:
    assert client.error(method, path, body) == code


def test_sr02_a_body_that_is_no_json(client: Client, subject: str) -> None:
    answer = client.http.post(f"/subjects/{subject}/versions", content="{")
    assert (answer.status_code, answer.json()["error_code"]) == (400, 400)
    surrogate = client.http.post(f"/subjects/{subject}/versions", content='{"schema":"\\"\\ud800\\""}')
    assert surrogate.status_code == 400


def test_sr02_version_not_found_in_a_subject_that_exists(client: Client, subject: str) -> None:
    client.register(subject, STRING)
    assert client.error("GET", f"/subjects/{subject}/versions/2") == 40402
    assert client.error("POST", f"/subjects/{subject}", {"schema": INT}) == 40403
    assert client.error("POST", f"/subjects/{subject}/versions", {"schema": INT}) == 409


# SR03


@pytest.mark.parametrize("name", ["a/b", "a b", "ü%", "a+b", "a?b=c", "versions", "../x"])
def test_sr03_a_subject_is_decoded_after_routing(client: Client, name: str) -> None:
    subject = f"{name}-{uuid.uuid4().hex[:8]}"
    client.register(quote(subject, safe=""), STRING)
    assert subject in client.get("/subjects")
    assert client.get(f"/subjects/{quote(subject, safe='')}/versions/1")["subject"] == subject


def test_sr03_contexts_may_be_encoded(client: Client, subject: str) -> None:
    client.register(f"%3A.ctx%3A{subject}", STRING)
    assert client.get(f"/subjects/:.ctx:{subject}/versions") == [1]


# The table


def test_root_types_and_metadata(client: Client) -> None:
    assert client.get("/") == {}
    assert client.get("/schemas/types") == ["JSON", "PROTOBUF", "AVRO"]
    clusters = client.get("/v1/metadata/id")["scope"]["clusters"]
    assert clusters["schema-registry-cluster"] == "schema-registry"
    assert len(clusters["kafka-cluster"]) == 22
    assert set(client.get("/v1/metadata/version")) == {"version", "commitId"}


def test_subjects_by_prefix_page_and_deletion(client: Client, subject: str) -> None:
    names = [f"{subject}-{letter}" for letter in "abc"]
    for name in names:
        client.register(name, STRING)
    assert client.call("DELETE", f"/subjects/{names[1]}") == (200, [1])
    prefix = {"subjectPrefix": f"{subject}-"}
    assert client.get("/subjects", params=prefix) == [names[0], names[2]]
    assert client.get("/subjects", params=prefix | {"deleted": "true"}) == names
    assert client.get("/subjects", params=prefix | {"deletedOnly": "true"}) == [names[1]]
    assert client.get("/subjects", params=prefix | {"deleted": "true", "offset": 1, "limit": 1}) == [names[1]]


def test_versions_latest_and_text(client: Client, subject: str) -> None:
    first, second = record("r", "a"), record("r", "a", "b")
    ids = [client.register(subject, first), client.register(subject, second)]
    assert client.get(f"/subjects/{subject}/versions") == [1, 2]
    for version in ("2", "latest", "-1", "Latest"):
        assert client.get(f"/subjects/{subject}/versions/{version}") == {
            "subject": subject,
            "version": 2,
            "id": ids[1],
            "schema": second,
        }
    assert client.http.get(f"/subjects/{subject}/versions/1/schema").text == first
    assert client.http.get(f"/schemas/ids/{ids[0]}/schema").text == first


def test_look_up(client: Client, subject: str) -> None:
    schema_id = client.register(subject, STRING)
    status, answer = client.call("POST", f"/subjects/{subject}", {"schema": '{"type": "string"}'})
    assert (status, answer) == (200, {"subject": subject, "version": 1, "id": schema_id, "schema": STRING})
    client.call("DELETE", f"/subjects/{subject}")
    assert client.error("POST", f"/subjects/{subject}", {"schema": STRING}) == 40401
    assert client.call("POST", f"/subjects/{subject}?deleted=true", {"schema": STRING})[0] == 200


def test_look_up_of_nothing_and_of_types_that_do_not_exist(client: Client, subject: str) -> None:
    assert client.error("POST", f"/subjects/{subject}", {}) == 40401
    client.register(subject, STRING)
    assert client.error("POST", f"/subjects/{subject}", {"schema": " "}) == 40403
    assert client.error("POST", f"/compatibility/subjects/{subject}/versions/latest", {}) == 42201
    assert client.error("POST", f"/subjects/{subject}/versions", {"schema": STRING, "schemaType": "avro"}) == 42201
    assert client.error("GET", "/schemas/ids/-1") == 40403


def test_sr07_a_reference_to_the_latest_version_is_stored_with_its_number(client: Client, subject: str) -> None:
    client.register(f"{subject}-r", {"type": "record", "name": "R", "fields": []})
    schema = {"type": "record", "name": "S", "fields": [{"name": "r", "type": "R"}]}
    references = [{"name": "R", "subject": f"{subject}-r", "version": -1}]
    schema_id = client.register(subject, schema, references=references)
    assert client.get(f"/subjects/{subject}/versions/1")["references"] == [{**references[0], "version": 1}]
    assert client.register(subject, schema, references=references) == schema_id, "it is the same schema"
    client.register(f"{subject}-r", {"type": "record", "name": "R", "fields": [], "doc": "new"})
    assert client.get(f"/subjects/{subject}-r/versions/2/referencedby") == []


def test_ids_tell_their_subjects_and_versions(client: Client, subject: str) -> None:
    other = f"{subject}-other"
    schema = record(subject.replace("-", "_"))
    schema_id = client.register(subject, schema)
    assert client.register(other, schema) == schema_id
    assert client.get(f"/schemas/ids/{schema_id}/subjects") == [subject, other]
    assert client.get(f"/schemas/ids/{schema_id}/versions") == [
        {"subject": subject, "version": 1},
        {"subject": other, "version": 1},
    ]
    client.call("DELETE", f"/subjects/{other}")
    assert client.get(f"/schemas/ids/{schema_id}/subjects") == [subject]
    assert client.get(f"/schemas/ids/{schema_id}/subjects", params={"deleted": "true"}) == [subject, other]
    found = client.get(f"/schemas/ids/{schema_id}", params={"fetchMaxId": "true"})
    assert found["schema"] == schema
    assert found["maxId"] >= schema_id


def test_schemas_of_all_subjects(client: Client, subject: str) -> None:
    client.register(subject, record("r", "a"))
    client.register(subject, record("r", "a", "b"))
    assert [each["version"] for each in client.get("/schemas", params={"subjectPrefix": subject})] == [1, 2]
    latest = client.get("/schemas", params={"subjectPrefix": subject, "latestOnly": "true"})
    assert [(each["subject"], each["version"]) for each in latest] == [(subject, 2)]


def test_compatibility(client: Client, subject: str) -> None:
    path = f"/compatibility/subjects/{subject}/versions"
    assert client.call("POST", path, {"schema": STRING}) == (200, {"is_compatible": True})
    assert client.call("POST", f"{path}/latest", {"schema": STRING}) == (200, {"is_compatible": True})
    client.register(subject, STRING)
    assert client.call("POST", path, {"schema": INT}) == (200, {"is_compatible": False})
    status, answer = client.call("POST", f"{path}/1?verbose=true", {"schema": INT})
    assert (status, answer["is_compatible"]) == (200, False)
    assert any("TYPE_MISMATCH" in message for message in answer["messages"])
    assert client.call("POST", f"{path}?verbose=true", {"schema": STRING}) == (200, {"is_compatible": True, "messages": []})
    status, answer = client.call("POST", f"{path}?verbose=true", {"schema": '"wrong"'})
    assert (status, answer["is_compatible"], len(answer["messages"])) == (200, False, 1)
    assert client.error("POST", path, {"schema": '"wrong"'}) == 42201
    assert client.error("POST", f"{path}/7", {"schema": INT}) == 40402


def test_config(client: Client, subject: str) -> None:
    assert client.get("/config")["compatibilityLevel"] == "BACKWARD"
    assert client.call("PUT", f"/config/{subject}", {"compatibility": "full"}) == (200, {"compatibility": "FULL"})
    assert client.get(f"/config/{subject}") == {"compatibilityLevel": "FULL"}
    assert client.call("PUT", f"/config/{subject}", {"normalize": True}) == (
        200,
        {"compatibility": "FULL", "normalize": True},
    )
    assert client.call("DELETE", f"/config/{subject}") == (200, {"compatibilityLevel": "FULL", "normalize": True})
    assert client.error("GET", f"/config/{subject}") == 40408
    assert client.get(f"/config/{subject}", params={"defaultToGlobal": "true"}) == {"compatibilityLevel": "BACKWARD"}


def test_mode(client: Client, subject: str) -> None:
    assert client.get("/mode") == {"mode": "READWRITE"}
    assert client.call("PUT", f"/mode/{subject}", {"mode": "READONLY"}) == (200, {"mode": "READONLY"})
    assert client.get(f"/mode/{subject}") == {"mode": "READONLY"}
    assert client.error("POST", f"/subjects/{subject}/versions", {"schema": STRING}) == 42205
    assert client.call("DELETE", f"/mode/{subject}") == (200, {"mode": "READONLY"})
    assert client.get(f"/mode/{subject}", params={"defaultToGlobal": "true"}) == {"mode": "READWRITE"}
    client.register(subject, STRING)


# SR10


def test_sr10_contexts_have_ids_of_their_own(client: Client, subject: str) -> None:
    context = f".{subject}"
    first = client.register(f":{context}:s", STRING)
    assert first == 1
    assert client.register("t", INT, path=f"/contexts/{context}") == 2
    assert context in client.get("/contexts")
    assert client.get(f"/contexts/{context}/subjects") == [f":{context}:s", f":{context}:t"]
    assert client.get(f"/contexts/{context}/schemas/ids/1")["schema"] == STRING
    assert client.get(f"/contexts/{context}/subjects/s/versions/latest")["subject"] == f":{context}:s"
    assert client.get("/schemas/ids/2", params={"subject": f":{context}:t"})["schema"] == INT
    assert client.get("/subjects", params={"subjectPrefix": f":{context}:"}) == [f":{context}:s", f":{context}:t"]
    assert client.call("PUT", f"/contexts/{context}/config", {"compatibility": "NONE"})[0] == 200
    assert client.get(f"/config/:{context}:") == {"compatibilityLevel": "NONE"}
    assert client.register(f":{context}:s", INT) == 2
    assert client.get(f"/config/:{context}:s", params={"defaultToGlobal": "true"}) == {"compatibilityLevel": "NONE"}
    assert client.error("DELETE", f"/contexts/{context}") == 42211


# SR11


def test_sr11_a_body_over_the_limit(client: Client, subject: str) -> None:
    assert client.error("POST", f"/subjects/{subject}/versions", {"schema": " " * (1 << 20)}) == 42209


def test_sr11_nesting_over_the_limit(client: Client, subject: str) -> None:
    deep = '{"type":"array","items":' * 101 + STRING + "}" * 101
    assert client.error("POST", f"/subjects/{subject}/versions", {"schema": deep}) == 42201
    answer = client.http.post(f"/subjects/{subject}/versions", content="[" * 100_000)
    assert answer.status_code == 400


def test_sr04_a_schema_with_its_references_in_its_text_is_the_same(client: Client, subject: str) -> None:
    """As Java's serializers send Avro schemas. A reference to version -1 is one to the latest."""
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}]}

    def outer(kind: object) -> str:
        fields = [{"name": "a", "type": kind}, {"name": "b", "type": "Inner"}]
        return json.dumps({"type": "record", "name": "Outer", "fields": fields})

    client.register("any", STRING, path=f"/contexts/.{subject}")  # has no such reference
    client.register(f"{subject}-inner", inner)
    reference = {"name": "Inner", "subject": f"{subject}-inner", "version": 1}
    first = client.register(subject, outer("Inner"), references=[reference])
    assert client.register(subject, outer(inner)) == first
    latest = {"schema": outer("Inner"), "references": [{**reference, "version": -1}]}
    for body in ({"schema": outer(inner)}, latest):
        status, found = client.call("POST", f"/subjects/{subject}", body)
        assert (status, found.get("version"), found.get("references")) == (200, 1, [reference])
    assert client.get(f"/subjects/{subject}/versions") == [1]
    other = {**inner, "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "int", "default": 0}]}
    assert client.error("POST", f"/subjects/{subject}", {"schema": outer(other)}) == 40403
    client.register(f"{subject}-inner", other)
    assert client.error("POST", f"/subjects/{subject}", latest) == 40403
