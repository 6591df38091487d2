"""FindCoordinator: where a group or a transaction is coordinated (F37).

The first request for a group creates the topic of offsets, the first for a transactional id that of transactions; it is answered
when that is done, where Kafka has the client ask again. Share groups are not served yet: their keys get
COORDINATOR_NOT_AVAILABLE, which clients take as "ask again".
Up to version 3 a request has one key and the reply one answer; from 4 on both have lists (KIP-699).
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, Final

from ottla.broker.coordinators.shard_host import ShardHost
from ottla.broker.network.context import RequestContext
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

VERSIONS = (0, 6)

_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
_SHARE_FROM: Final = 6
_BATCHED_FROM: Final = 4
_NOBODY: Final = -1


def handle(
    request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]:
    known = (_GROUP, _TRANSACTION, _SHARE) if context.version >= _SHARE_FROM else (_GROUP, _TRANSACTION)
    keys = request.coordinator_keys if context.version >= _BATCHED_FROM else [request.key]
    if request.key_type not in known:
        return _answer(
            context,
            keys,
            KafkaError(ErrorCode.INVALID_REQUEST, f"version {context.version} knows no coordinator of type {request.key_type}"),
        )
    if request.key_type == _SHARE:
        return _answer(
            context, keys, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "this release does not coordinate share groups yet")
        )
    broker = context.broker
    host: ShardHost[Any] = broker.coordinators if request.key_type == _GROUP else broker.transactions
    if keys and host.known_leader_of(keys[0]) is None:
        return _after_creation(context, keys, host)
    return _answer(context, keys, host)


async def _after_creation(context: RequestContext, keys: Sequence[str], host: ShardHost[Any]) -> FindCoordinatorResponse:
    try:
        await host.leader_of(keys[0])
    except KafkaError as error:
        return _answer(context, keys, error)
    return _answer(context, keys, host)


def _answer(context: RequestContext, keys: Sequence[str], host: ShardHost[Any] | KafkaError) -> FindCoordinatorResponse:
    found = [_nobody(key, host) if isinstance(host, KafkaError) else _find(context, key, host) for key in keys]
    if context.version >= _BATCHED_FROM:
        return FindCoordinatorResponse(coordinators=found)
    only = found[0]
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _find(context: RequestContext, key: str, host: ShardHost[Any]) -> Coordinator:
    broker = context.broker
    leader_id = host.known_leader_of(key)
    leader = broker.image.brokers.get(leader_id) if leader_id is not None else None
    endpoint = leader.endpoint(context.listener_name) if leader is not None else None
    if leader is None or endpoint is None:
        return _nobody(key, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"nobody coordinates {key} now"))
    return Coordinator(key=key, node_id=leader.id, host=endpoint.host, port=endpoint.port)


def _nobody(key: str, error: KafkaError) -> Coordinator:
    return Coordinator(key=key, node_id=_NOBODY, host="", port=_NOBODY, error_code=error.code, error_message=error.detail)


def refuse(request: FindCoordinatorRequest, error: KafkaError) -> FindCoordinatorResponse | None:
    if request.coordinator_keys:
        return FindCoordinatorResponse(coordinators=[_nobody(key, error) for key in request.coordinator_keys])
    return FindCoordinatorResponse(error_code=error.code, error_message=error.detail, node_id=_NOBODY, host="", port=_NOBODY)
