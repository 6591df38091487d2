from __future__ import annotations

import asyncio

from ottla.errors import ErrorCode
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from tests.kit.handlers import RecordedControlRequests, call_handler, every_version


@every_version("update_metadata")
def test_the_request_goes_on_with_its_version_and_connection(version: int) -> None:
    requests = RecordedControlRequests(UpdateMetadataResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH))
    request = UpdateMetadataRequest(controller_id=4, controller_epoch=7)
    response = asyncio.run(
        call_handler({"control_requests": requests}, "update_metadata", version, request, connection_number=12)
    )
    assert response.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    [(handled_version, handled, number)] = requests.handled
    assert isinstance(handled, UpdateMetadataRequest)
    assert (handled_version, handled.controller_id, handled.controller_epoch, number) == (version, 4, 7, 12)
