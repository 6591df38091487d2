from __future__ import annotations

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.headers import encode_request
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.registry import API_BY_NAME
from tests.kit.admin import MetadataBroker, on_broker
from tests.kit.handlers import every_version


@every_version("create_acls")
def test_without_an_authorizer_every_entry_is_refused(version: int) -> None:
    async def test(broker: MetadataBroker) -> None:
        entry = AclCreation(resource_type=2, resource_name="t", principal="User:alice", host="*", operation=3, permission_type=3)
        response = await broker.ask("create_acls", version, CreateAclsRequest(creations=[entry, entry]))
        assert [result.error_code for result in response.results] == [ErrorCode.SECURITY_DISABLED] * 2

    on_broker(test)


def test_ac06_version_0_cannot_carry_a_prefixed_pattern() -> None:
    entry = AclCreation(resource_type=2, resource_name="t", resource_pattern_type=4, principal="User:a", host="*", operation=3)
    with pytest.raises(ValueError, match="this version cannot carry resource_pattern_type"):
        encode_request(API_BY_NAME["create_acls"], 0, 1, "me", CreateAclsRequest(creations=[entry]))
