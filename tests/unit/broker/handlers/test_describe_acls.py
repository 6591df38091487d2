from __future__ import annotations

from ottla.errors import ErrorCode
from ottla.protocol.messages.describe_acls import DescribeAclsRequest
from tests.kit.admin import MetadataBroker, on_broker
from tests.kit.handlers import every_version


@every_version("describe_acls")
def test_without_an_authorizer_security_is_disabled(version: int) -> None:
    async def test(broker: MetadataBroker) -> None:
        request = DescribeAclsRequest(resource_type_filter=1, operation=1, permission_type=1)
        response = await broker.ask("describe_acls", version, request)
        assert (response.error_code, response.resources) == (ErrorCode.SECURITY_DISABLED, [])
        assert "authorizer" in response.error_message

    on_broker(test)
