from __future__ import annotations

from ottla.errors import ErrorCode
from ottla.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from tests.kit.admin import MetadataBroker, on_broker
from tests.kit.handlers import every_version


@every_version("delete_acls")
def test_without_an_authorizer_every_filter_is_refused(version: int) -> None:
    async def test(broker: MetadataBroker) -> None:
        filters = [DeleteAclsFilter(resource_type_filter=1, operation=1, permission_type=1)]
        response = await broker.ask("delete_acls", version, DeleteAclsRequest(filters=filters * 2))
        found = [(result.error_code, result.matching_acls) for result in response.filter_results]
        assert found == [(ErrorCode.SECURITY_DISABLED, [])] * 2

    on_broker(test)
