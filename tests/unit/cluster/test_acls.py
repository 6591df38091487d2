"""Access control entries as Kafka's AclAuthorizer writes them in the tree (F59)."""

from __future__ import annotations

import pytest

from ottla.cluster.acls import AclEntry, Resource, acl_path, decode_acl_change, decode_acls
from ottla.ports import StoreError

ENTRY = b'{"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow","operation":"Read","host":"*"}]}'


def test_entries_are_read_as_kafka_writes_them() -> None:
    assert decode_acls("/kafka-acl/Topic/t", ENTRY) == {AclEntry("User:alice", "*", "Read", "Allow")}
    assert decode_acls("/kafka-acl/Topic/t", b'{"version":1,"acls":[]}') == frozenset()


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"version":1}', b'{"acls":[{}]}', b'{"acls":[3]}', b"\xff"])
def test_what_cannot_be_understood_is_said(data: bytes) -> None:
    with pytest.raises(StoreError, match="/kafka-acl/Topic/t cannot be parsed"):
        decode_acls("/kafka-acl/Topic/t", data)


@pytest.mark.parametrize(
    ("data", "resource"),
    [
        (b"TOPIC:a:b", Resource("Topic", "a:b")),
        (b"Topic:*", Resource("Topic", "*")),
        (b"TransactionalId:t", Resource("TransactionalId", "t")),
        (b"TRANSACTIONAL_ID:t", Resource("TransactionalId", "t")),
        (b'{"version":1,"resourceType":"GROUP","name":"g","patternType":"PREFIXED"}', Resource("Group", "g", "PREFIXED")),
        (b"Topic", None),
        (b"Nothing:x", None),
        (b"{}", None),
        (b'{"resourceType":1,"name":2,"patternType":3}', None),
        (b"\xff", None),
        (b"", None),
    ],
)
def test_a_notice_names_a_resource_in_either_form(data: bytes, resource: Resource | None) -> None:
    assert decode_acl_change(data) == resource


def test_where_the_entries_of_a_resource_lie() -> None:
    assert acl_path(Resource("Topic", "t")) == "/kafka-acl/Topic/t"
    assert acl_path(Resource("Group", "g", "PREFIXED")) == "/kafka-acl-extended/prefixed/Group/g"
