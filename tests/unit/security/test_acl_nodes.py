"""ACLs in the metadata tree, as Kafka's AclAuthorizer writes them (AC08, F59)."""

from __future__ import annotations

import json

import pytest

from ottla.ports import StoreError
from ottla.security.acl import (
    ALL,
    ALLOW,
    DENY,
    DESCRIBE_CONFIGS,
    GROUP,
    PREFIXED,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    USER,
    AclEntry,
    ResourcePattern,
)
from ottla.security.acl_nodes import (
    acl_path,
    base_paths,
    change_path,
    decode_acknowledged,
    decode_acl_change,
    decode_acls,
    encode_acknowledged,
    encode_acl_change,
    encode_acls,
)

ENTRY = b'{"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow","operation":"Read","host":"*"}]}'
ALICE = AclEntry("User:alice", "*", READ, ALLOW)


def test_ac08_entries_are_read_and_written_as_kafka_does() -> None:
    assert decode_acls("/kafka-acl/Topic/t", ENTRY) == {ALICE}
    assert encode_acls([ALICE]) == ENTRY
    assert decode_acls("/kafka-acl/Topic/t", b'{"version":1,"acls":[]}') == frozenset()
    assert decode_acls("/kafka-acl/Topic/t", b"") == frozenset()
    several = {ALICE, AclEntry("User:CN=b,O=ü", "10.0.0.1", DESCRIBE_CONFIGS, DENY), AclEntry("User:*", "*", ALL, ALLOW)}
    assert decode_acls("/kafka-acl/Topic/t", encode_acls(several)) == several
    assert {each["operation"] for each in json.loads(encode_acls(several))["acls"]} == {"Read", "DescribeConfigs", "All"}


def test_names_in_upper_case_are_read_too() -> None:
    upper = ENTRY.replace(b"Read", b"DESCRIBE_CONFIGS").replace(b"Allow", b"ALLOW")
    assert decode_acls("/kafka-acl/Topic/t", upper) == {AclEntry("User:alice", "*", DESCRIBE_CONFIGS, ALLOW)}


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[]",
        b'{"version":1}',
        b'{"version":2,"acls":[]}',
        b'{"version":1,"acls":[{}]}',
        b'{"version":1,"acls":[3]}',
        b"\xff",
        b"[" * 100_000,
        ENTRY.replace(b"Read", b"Fly"),
        ENTRY.replace(b"alice", b"\\ud800"),
        ENTRY.replace(b"Allow", b"Perhaps"),
        ENTRY.replace(b"User:alice", b"alice"),
        ENTRY.replace(b'"*"', b"7"),
    ],
)
def test_what_cannot_be_parsed_is_said(data: bytes) -> None:
    with pytest.raises(StoreError, match="/kafka-acl/Topic/t cannot be parsed"):
        decode_acls("/kafka-acl/Topic/t", data)


@pytest.mark.parametrize(
    ("data", "resource"),
    [
        (b"TOPIC:a:b", ResourcePattern(TOPIC, "a:b")),
        (b"Topic:*", ResourcePattern(TOPIC, "*")),
        (b"TransactionalId:t", ResourcePattern(TRANSACTIONAL_ID, "t")),
        (b"TRANSACTIONAL_ID:t", ResourcePattern(TRANSACTIONAL_ID, "t")),
        (b'{"version":1,"resourceType":"GROUP","name":"g","patternType":"PREFIXED"}', ResourcePattern(GROUP, "g", PREFIXED)),
        (b"Topic", None),
        (b"Nothing:x", None),
        (b"{}", None),
        (b'{"resourceType":1,"name":2,"patternType":3}', None),
        (b'{"version":1,"resourceType":"GROUP","name":2,"patternType":"PREFIXED"}', None),
        (b'{"version":1,"resourceType":"GROUP","name":"g","patternType":"MATCH"}', None),
        (b"\xff", None),
        (b"", None),
    ],
)
def test_ac08_a_notification_names_a_resource_in_either_form(data: bytes, resource: ResourcePattern | None) -> None:
    assert decode_acl_change(data) == resource


@pytest.mark.parametrize("resource", [ResourcePattern(TRANSACTIONAL_ID, "t"), ResourcePattern(USER, "User:a", PREFIXED)])
def test_a_written_notification_is_read(resource: ResourcePattern) -> None:
    assert decode_acl_change(encode_acl_change(resource)) == resource


def test_ac08_the_bytes_of_notifications() -> None:
    assert encode_acl_change(ResourcePattern(TOPIC, "n")) == b"TOPIC:n"
    assert encode_acl_change(ResourcePattern(TRANSACTIONAL_ID, "n")) == b"TRANSACTIONAL_ID:n"
    prefixed = b'{"version":1,"resourceType":"TOPIC","name":"n","patternType":"PREFIXED"}'
    assert encode_acl_change(ResourcePattern(TOPIC, "n", PREFIXED)) == prefixed


def test_ac08_where_the_entries_of_a_resource_lie() -> None:
    assert acl_path(ResourcePattern(TOPIC, "t")) == "/kafka-acl/Topic/t"
    assert acl_path(ResourcePattern(GROUP, "g", PREFIXED)) == "/kafka-acl-extended/prefixed/Group/g"
    assert change_path(PREFIXED) == "/kafka-acl-extended-changes/acl_changes_"
    paths = base_paths()
    assert "/kafka-acl/DelegationToken" in paths
    assert all("/".join(path.split("/")[:-1]) in ("", *paths[:at]) for at, path in enumerate(paths)), "parents come first"


def test_acknowledgements_are_read_as_written() -> None:
    assert decode_acknowledged(encode_acknowledged(7, -1)) == (7, -1)
    for data in (b"", b"{", b"[]", b'{"literal":1}', b'{"literal":"x","prefixed":1}'):
        assert decode_acknowledged(data) == (-1, -1)
