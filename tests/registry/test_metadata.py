"""Metadata and rules of new versions, from the config and the version before, and compatibility within a group."""

from __future__ import annotations

import json
from typing import Any

from tests.registry.conftest import Client

STRING = '"string"'
RULE = {"name": "checkId", "kind": "CONDITION", "mode": "WRITE", "type": "CEL", "expr": "message.id > 0", "disabled": False}
OTHER = {"name": "other", "kind": "CONDITION", "mode": "READ", "type": "CEL", "expr": "true", "disabled": False}


def fields(*names: str) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": each, "type": "int", "default": 0} for each in names]})


def version(client: Client, subject: str, number: int | str) -> Any:
    found = client.get(f"/subjects/{subject}/versions/{number}")
    return {name: found.get(name) for name in ("version", "metadata", "ruleSet")}


def test_a_new_version_takes_over_the_metadata_and_rules_of_the_one_before(client: Client, subject: str) -> None:
    metadata = {"properties": {"owner": "ada"}}
    client.register(subject, fields("a"), metadata=metadata, ruleSet={"domainRules": [RULE]})
    client.register(subject, fields("a", "b"))
    assert version(client, subject, 2) == {"version": 2, "metadata": metadata, "ruleSet": {"domainRules": [RULE]}}
    client.register(subject, fields("a", "b", "c"), metadata={"properties": {"team": "x"}})
    assert version(client, subject, 3)["metadata"] == {"properties": {"team": "x"}}, "what the request has is not mixed"
    assert version(client, subject, 3)["ruleSet"] == {"domainRules": [RULE]}
    client.register(subject, fields("a", "b", "c", "d"), metadata={}, ruleSet={})
    assert version(client, subject, 4) == {"version": 4, "metadata": None, "ruleSet": None}


def test_the_same_schema_without_its_metadata_is_the_same_version(client: Client, subject: str) -> None:
    first = client.register(subject, STRING, metadata={"properties": {"owner": "ada"}})
    assert client.register(subject, STRING) == first
    assert client.get(f"/subjects/{subject}/versions") == [1]
    status, found = client.call("POST", f"/subjects/{subject}", {"schema": STRING})
    assert (status, found["version"]) == (200, 1)


def test_the_config_adds_defaults_and_overrides(client: Client, subject: str) -> None:
    config = {
        "defaultMetadata": {"properties": {"owner": "nobody", "tier": "3"}, "sensitive": ["tier"]},
        "overrideMetadata": {"properties": {"region": "eu"}, "tags": {"**.ssn": ["PII"]}},
        "defaultRuleSet": {"domainRules": [RULE, OTHER]},
        "overrideRuleSet": {"domainRules": [{**OTHER, "expr": "false"}]},
    }
    assert client.call("PUT", f"/config/{subject}", config)[0] == 200
    given = {"properties": {"owner": "ada", "region": "us"}}
    first = client.register(subject, STRING, metadata=given)
    assert version(client, subject, 1) == {
        "version": 1,
        "metadata": {
            "tags": {"**.ssn": ["PII"]},
            "properties": {"owner": "ada", "region": "eu", "tier": "3"},
            "sensitive": ["tier"],
        },
        "ruleSet": {"domainRules": [RULE, {**OTHER, "expr": "false"}]},
    }
    assert client.register(subject, STRING, metadata=given) == first, "what is added counts for what is the same"
    client.call("PUT", f"/config/{subject}", {"overrideMetadata": {"properties": {"region": "asia"}}})
    assert client.register(subject, STRING) != first
    assert version(client, subject, 2)["metadata"]["properties"] == {"owner": "ada", "region": "asia", "tier": "3"}


def test_the_property_confluent_version_is_kept_up_to_date(client: Client, subject: str) -> None:
    client.register(subject, fields("a"), version=-1)
    assert version(client, subject, 1)["metadata"] == {"properties": {"confluent:version": "1"}}
    assert client.register(subject, fields("a")), "without the property it is the same schema"
    client.register(subject, fields("a", "b"))
    assert version(client, subject, 2)["metadata"] == {"properties": {"confluent:version": "2"}}
    assert client.get(f"/subjects/{subject}/versions") == [1, 2]


def test_versions_of_other_compatibility_groups_are_not_compared(client: Client, subject: str) -> None:
    client.call("PUT", f"/config/{subject}", {"compatibility": "BACKWARD", "compatibilityGroup": "application.version"})
    one, two = ({"properties": {"application.version": each}} for each in "12")
    client.register(subject, STRING, metadata=one)
    client.register(subject, '"long"', metadata=two)
    body = {"schema": '"int"', "metadata": one}
    assert client.error("POST", f"/subjects/{subject}/versions", body) == 409, "the latest of its group is a string"
    path = f"/compatibility/subjects/{subject}/versions"
    assert client.call("POST", path, body)[1] == {"is_compatible": False}
    assert client.call("POST", path, {**body, "metadata": two})[1] == {"is_compatible": False}, "an int does not read a long"
    assert client.call("POST", path, {**body, "metadata": {}})[1] == {"is_compatible": True}, "nothing is in that group"
    client.register(subject, '"double"', metadata=two)


def test_metadata_of_a_wrong_shape_is_refused(client: Client, subject: str) -> None:
    for given in ({"properties": ["a"]}, {"tags": {"a": "b"}}, {"sensitive": [1]}):
        assert client.error("POST", f"/subjects/{subject}/versions", {"schema": STRING, "metadata": given}) == 400
    assert client.error("PUT", f"/config/{subject}", {"defaultMetadata": {"properties": {"a": 1}}}) == 400


def test_rules_that_cannot_be_are_refused(client: Client, subject: str) -> None:
    for given in (
        {"domainRules": [{"kind": "CONDITION"}]},
        {"domainRules": [{**RULE, "name": "1st"}]},
        {"domainRules": [{**RULE, "type": None}]},
        {"domainRules": [{**RULE, "mode": "UPGRADE"}]},
        {"migrationRules": [RULE]},
        {"domainRules": [{**RULE, "onFailure": "NONE,ERROR"}]},
        {"domainRules": [RULE], "encodingRules": [RULE]},
    ):
        assert client.error("POST", f"/subjects/{subject}/versions", {"schema": STRING, "ruleSet": given}) == 42210
    assert client.error("PUT", f"/config/{subject}", {"overrideRuleSet": {"migrationRules": {}}}) == 42210


def test_what_of_a_config_is_not_applied_is_refused(client: Client, subject: str) -> None:
    for config in ({"compatibilityPolicy": "LOGICAL"}, {"compatibilityPolicy": "other"}, {"validateRules": True}):
        assert client.error("PUT", f"/config/{subject}", config) == 42203
    assert client.call("PUT", f"/config/{subject}", {"validateRules": False, "compatibilityPolicy": "lenient"}) == (
        200,
        {"validateRules": False, "compatibilityPolicy": "LENIENT"},
    )


def test_the_lenient_policy_lets_properties_come_and_go(client: Client, subject: str) -> None:
    def schema(*names: str, **more: object) -> dict[str, Any]:
        return {"schema": json.dumps({"type": "object", "properties": {each: {"type": "string"} for each in names}} | more)}

    first, second = schema("a"), schema("a", "b")
    client.register(subject, **first, schemaType="JSON")
    path = f"/compatibility/subjects/{subject}/versions"
    fits = {"is_compatible": True}
    assert client.call("POST", path, {**second, "schemaType": "JSON"})[1] != fits
    client.call("PUT", f"/config/{subject}", {"compatibilityPolicy": "LENIENT"})
    assert client.call("POST", path, {**second, "schemaType": "JSON"})[1] == fits
    assert client.call("POST", path, {**schema(additionalProperties=False), "schemaType": "JSON"})[1] == fits
    changed = {"schema": json.dumps({"type": "object", "properties": {"a": {"type": "integer"}}}), "schemaType": "JSON"}
    assert client.call("POST", path, changed)[1] != fits
    required = {**schema("a", "b", required=["b"]), "schemaType": "JSON"}
    assert client.call("POST", path, required)[1] != fits


def test_fields_are_validated_if_the_config_says_so(client: Client, subject: str) -> None:
    reserved = {"properties": {"confluent:reserved": "b, c"}}
    client.register(subject, fields("a"), metadata=reserved)
    client.register(f"{subject}-2", {"type": "object", "properties": {"$$a": {}}}, schemaType="JSON")
    for each in (subject, f"{subject}-3"):
        client.call("PUT", f"/config/{each}", {"validateFields": True, "compatibility": "NONE"})
    path = f"/subjects/{subject}/versions"
    status, answer = client.call("POST", path, {"schema": fields("a", "b")})
    assert status == 409, "the metadata are taken over"
    assert "FIELD_CONFLICTS_WITH_RESERVED_FIELD" in answer["message"]
    status, answer = client.call(
        "POST", path, {"schema": fields("a", "x"), "metadata": {"properties": {"confluent:reserved": "b"}}}
    )
    assert status == 409
    assert "RESERVED_FIELD_REMOVED" in answer["message"]
    assert client.register(subject, fields("a", "x"))
    body = {"schema": json.dumps({"type": "object", "properties": {"$$a": {}}}), "schemaType": "JSON"}
    assert client.error("POST", f"/subjects/{subject}-3/versions", body) == 42201


def test_metadata_and_rules_have_one_form(client: Client, subject: str) -> None:
    """Whatever the order that a client sends them in: they belong to the GUID of a schema."""
    rule = {"type": "CEL", "name": "r", "tags": ["b", "a", "b"], "params": {"z": "1", "a": "2"}}
    metadata = {"sensitive": ["z", "a"], "properties": {"z": "1", "a": "2"}, "tags": {"b": ["y", "x"], "a": ["x"]}, "nonsense": 1}
    first = client.register(subject, STRING, metadata=metadata, ruleSet={"enableAt": "CLIENT", "domainRules": [rule]})
    assert json.dumps(version(client, subject, 1)) == json.dumps({
        "version": 1,
        "metadata": {"tags": {"a": ["x"], "b": ["x", "y"]}, "properties": {"a": "2", "z": "1"}, "sensitive": ["a", "z"]},
        "ruleSet": {
            "domainRules": [
                {
                    "name": "r", "kind": "TRANSFORM", "mode": "WRITEREAD", "type": "CEL", "tags": ["a", "b"],
                    "params": {"a": "2", "z": "1"}, "disabled": False,
                }
            ],
            "enableAt": "CLIENT",
        },
    })  # fmt: skip
    other = {"tags": {"b": ["x", "y"], "a": ["x"]}, "properties": {"a": "2", "z": "1"}, "sensitive": ["a", "z"]}
    assert client.register(subject, STRING, metadata=other) == first
    for wrong in ({"kind": "X"}, {"tags": "a"}, {"params": {"a": 1}}, {"disabled": 1}, {"expr": 1}):
        body = {"schema": STRING, "ruleSet": {"domainRules": [{**rule, **wrong}]}}
        assert client.error("POST", f"/subjects/{subject}/versions", body) == 42210
    body = {"schema": STRING, "ruleSet": {"enableAt": "NOWHERE"}}
    assert client.error("POST", f"/subjects/{subject}/versions", body) == 42210
