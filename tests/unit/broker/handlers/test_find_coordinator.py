from __future__ import annotations

from admin_kit import MetadataBroker, every_version, on_broker

from ottla.errors import ErrorCode
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest


@every_version("find_coordinator")
def test_nobody_coordinates_yet_in_each_versions_layout(version: int) -> None:
    async def test(broker: MetadataBroker) -> None:
        if version < 4:
            response = await broker.ask("find_coordinator", version, FindCoordinatorRequest(key="g"))
            assert (response.error_code, response.node_id, response.host, response.port) == (
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                -1,
                "",
                -1,
            )
        else:
            response = await broker.ask("find_coordinator", version, FindCoordinatorRequest(coordinator_keys=["g", "h"]))
            assert [(found.key, found.error_code, found.node_id) for found in response.coordinators] == [
                ("g", ErrorCode.COORDINATOR_NOT_AVAILABLE, -1),
                ("h", ErrorCode.COORDINATOR_NOT_AVAILABLE, -1),
            ]

    on_broker(test)


def test_types_of_keys() -> None:
    async def test(broker: MetadataBroker) -> None:
        for version, kind, code in (
            (1, 1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
            (1, 2, ErrorCode.INVALID_REQUEST),
            (3, 9, ErrorCode.INVALID_REQUEST),
        ):
            response = await broker.ask("find_coordinator", version, FindCoordinatorRequest(key="g", key_type=kind))
            assert response.error_code == code
            assert response.error_message
        for version, kind, code in (
            (5, 2, ErrorCode.INVALID_REQUEST),
            (6, 2, ErrorCode.COORDINATOR_NOT_AVAILABLE),
            (6, -1, ErrorCode.INVALID_REQUEST),
        ):
            request = FindCoordinatorRequest(coordinator_keys=["g"], key_type=kind)
            assert (await broker.ask("find_coordinator", version, request)).coordinators[0].error_code == code

    on_broker(test)
