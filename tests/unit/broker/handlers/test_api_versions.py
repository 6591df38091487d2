from __future__ import annotations

from ottla.broker.handlers import HANDLERS, served
from ottla.broker.handlers.api_versions import unsupported_version
from ottla.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.registry import API_BY_NAME
from tests.kit.admin import MetadataBroker, on_broker
from tests.kit.handlers import every_version


def request(name: str = "test", version: str = "1.0") -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name=name, client_software_version=version)


@every_version("api_versions")
def test_exactly_the_served_apis_are_advertised(version: int) -> None:
    async def test(broker: MetadataBroker) -> None:
        for in_cluster in (False, True):
            broker.served = served(in_cluster=in_cluster)
            response = await broker.ask("api_versions", version, request())
            found = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
            assert found == {key: (handler.min_version, handler.max_version) for key, handler in broker.served.items()}
            assert (API_BY_NAME["leader_and_isr"].key in found) == in_cluster

    on_broker(test)


def test_a_client_software_name_that_kip_511_forbids_is_refused() -> None:
    async def test(broker: MetadataBroker) -> None:
        for name, version in (("-x", "1"), ("x", ""), ("x y", "1")):
            response = await broker.ask("api_versions", 3, request(name, version))
            assert response.error_code == ErrorCode.INVALID_REQUEST
        assert (await broker.ask("api_versions", 2, request("-x", ""))).error_code == 0, "version 2 has no such fields"

    on_broker(test)


def test_an_unsupported_version_gets_the_supported_range() -> None:
    response = unsupported_version(HANDLERS[18])
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(each.api_key, each.min_version, each.max_version) for each in response.api_keys] == [(18, 0, 4)]
