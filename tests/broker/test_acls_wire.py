"""ACLs without an authorizer: each call is answered with SECURITY_DISABLED, as Apache Kafka answers it."""

from __future__ import annotations

import pytest

from ottla.cli.connection import Connection
from ottla.cli.plain_request import call
from ottla.errors import ErrorCode
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from ottla.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from ottla.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ottla.testing.broker import Broker

TOPIC, READ, ALLOW, ANY = 2, 3, 3, 1


@pytest.mark.parametrize("version", range(4))
def test_without_an_authorizer_there_are_no_acls(ottla_broker: Broker, version: int) -> None:
    connection = Connection(ottla_broker.bootstrap_servers)
    describe = DescribeAclsRequest(resource_type_filter=ANY, operation=ANY, permission_type=ANY)
    described = call(connection, "describe_acls", version, describe, DescribeAclsResponse)
    assert (described.error_code, described.resources) == (ErrorCode.SECURITY_DISABLED, [])
    creation = AclCreation(
        resource_type=TOPIC, resource_name="acl-wire", principal="User:alice", host="*", operation=READ, permission_type=ALLOW
    )
    create = CreateAclsRequest(creations=[creation, creation])
    created = call(connection, "create_acls", version, create, CreateAclsResponse)
    assert [result.error_code for result in created.results] == [ErrorCode.SECURITY_DISABLED] * 2
    delete = DeleteAclsRequest(filters=[DeleteAclsFilter(resource_type_filter=ANY, operation=ANY, permission_type=ANY)])
    deleted = call(connection, "delete_acls", version, delete, DeleteAclsResponse)
    assert [(result.error_code, result.matching_acls) for result in deleted.filter_results] == [(ErrorCode.SECURITY_DISABLED, [])]
