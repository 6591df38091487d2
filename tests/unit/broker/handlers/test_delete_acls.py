from __future__ import annotations

from ottla.broker.controller.acl_requests import Deleted
from ottla.broker.handlers import delete_acls
from ottla.errors import ErrorCode, KafkaError
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


def test_ac09_a_filter_of_which_nothing_is_known_has_the_error_itself() -> None:
    deleted = Deleted(failure=KafkaError(ErrorCode.REQUEST_TIMED_OUT, "not yet enforced by broker 2"))
    result = delete_acls._result(deleted)
    assert (result.error_code, result.error_message) == (ErrorCode.REQUEST_TIMED_OUT, "not yet enforced by broker 2")
    assert result.matching_acls == []
    assert delete_acls._result(Deleted()).error_code == ErrorCode.NONE
