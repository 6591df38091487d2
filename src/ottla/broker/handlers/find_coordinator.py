"""FindCoordinator: the broker that coordinates a group or a transactional id (F37).

The first request for a group creates `__consumer_offsets`, the first for a transactional id `__transaction_state`; the reply
waits for it, where Kafka lets the client retry. Share groups are not supported: their keys get COORDINATOR_NOT_AVAILABLE, which
clients retry. Up to version 3 a request has one key; from version 4 on it has a list (KIP-699).
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Final

from ottla.broker.coordinators.group_coordinators import GroupCoordinators
from ottla.broker.coordinators.internal_topic import InternalTopic
from ottla.broker.coordinators.transaction_coordinators import TransactionCoordinators
from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.broker.network.context import RequestContext
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
_SHARE_FROM: Final = 6
_BATCHED_FROM: Final = 4
_NOBODY: Final = -1


def handle(
    groups: GroupCoordinators,
    transactions: TransactionCoordinators,
    metadata: LocalMetadata,
    request: FindCoordinatorRequest,
    context: RequestContext,
) -> FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]:
    known = (_GROUP, _TRANSACTION, _SHARE) if context.version >= _SHARE_FROM else (_GROUP, _TRANSACTION)
    keys = request.coordinator_keys if context.version >= _BATCHED_FROM else [request.key]
    if request.key_type not in known:
        detail = f"FindCoordinator version {context.version} has no key type {request.key_type}"
        return _answer(metadata, context, keys, KafkaError(ErrorCode.INVALID_REQUEST, detail))
    if request.key_type == _SHARE:
        return _answer(metadata, context, keys, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "share groups are not supported"))
    topic = (groups if request.key_type == _GROUP else transactions).shards.topic
    if keys and topic.known_leader_of(keys[0]) is None:
        return _after_creation(metadata, context, keys, topic)
    return _answer(metadata, context, keys, topic)


async def _after_creation(
    metadata: LocalMetadata, context: RequestContext, keys: Sequence[str], topic: InternalTopic
) -> FindCoordinatorResponse:
    try:
        await topic.leader_of(keys[0])
    except KafkaError as error:
        return _answer(metadata, context, keys, error)
    return _answer(metadata, context, keys, topic)


def _answer(
    metadata: LocalMetadata, context: RequestContext, keys: Sequence[str], topic: InternalTopic | KafkaError
) -> FindCoordinatorResponse:
    if isinstance(topic, KafkaError):
        found = [_nobody(key, topic) for key in keys]
    else:
        found = [_find(metadata, context.listener_name, key, topic) for key in keys]
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


def _find(metadata: LocalMetadata, listener: str, key: str, topic: InternalTopic) -> Coordinator:
    leader_id = topic.known_leader_of(key)
    leader = metadata.image.brokers.get(leader_id) if leader_id is not None else None
    endpoint = leader.endpoint(listener) if leader is not None else None
    if leader is None or endpoint is None:
        return _nobody(key, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{key} has no coordinator at the moment"))
    return Coordinator(key=key, node_id=leader.id, host=endpoint.host, port=endpoint.port)


def _nobody(key: str, error: KafkaError) -> Coordinator:
    return Coordinator(key=key, node_id=_NOBODY, host="", port=_NOBODY, error_code=error.code, error_message=error.detail)


def refuse(request: FindCoordinatorRequest, error: KafkaError) -> FindCoordinatorResponse | None:
    if request.coordinator_keys:
        return FindCoordinatorResponse(coordinators=[_nobody(key, error) for key in request.coordinator_keys])
    return FindCoordinatorResponse(error_code=error.code, error_message=error.detail, node_id=_NOBODY, host="", port=_NOBODY)
