"""FindCoordinator: where a group or a transaction is coordinated.

Groups and transactions are not served yet, so no broker coordinates them: every key gets COORDINATOR_NOT_AVAILABLE, which clients
take as "ask again". Up to version 3 a request has one key and the reply one answer; from 4 on both have lists (KIP-699).
"""

from __future__ import annotations

from typing import Final

from ottla.broker.context import RequestContext
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

VERSIONS = (0, 6)

_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
_SHARE_FROM: Final = 6
_BATCHED_FROM: Final = 4
_NOBODY: Final = -1


def handle(request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
    known = (_GROUP, _TRANSACTION, _SHARE) if context.version >= _SHARE_FROM else (_GROUP, _TRANSACTION)
    if request.key_type not in known:
        error = KafkaError(
            ErrorCode.INVALID_REQUEST, f"version {context.version} knows no coordinator of type {request.key_type}"
        )
    else:
        what = ("groups", "transactions", "share groups")[request.key_type]
        error = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"this release does not coordinate {what} yet")
    if context.version < _BATCHED_FROM:
        return FindCoordinatorResponse(error_code=error.code, error_message=error.detail, node_id=_NOBODY, host="", port=_NOBODY)
    return FindCoordinatorResponse(coordinators=[_nobody(key, error) for key in request.coordinator_keys])


def _nobody(key: str, error: KafkaError) -> Coordinator:
    return Coordinator(key=key, node_id=_NOBODY, host="", port=_NOBODY, error_code=error.code, error_message=error.detail)


def refuse(request: FindCoordinatorRequest, error: KafkaError) -> FindCoordinatorResponse | None:
    if request.coordinator_keys:
        return FindCoordinatorResponse(coordinators=[_nobody(key, error) for key in request.coordinator_keys])
    return FindCoordinatorResponse(error_code=error.code, error_message=error.detail, node_id=_NOBODY, host="", port=_NOBODY)
