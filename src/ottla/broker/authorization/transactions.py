"""Authorizes requests about producer ids and transactions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ottla.broker.authorization.guard import Guard
from ottla.broker.authorization.merging import Handle, Refuse, answer, filtered, split
from ottla.broker.authorization.rows import denied_error
from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.broker.network.context import RequestContext
from ottla.cluster.image import INTERNAL_TOPICS, ClusterImage
from ottla.errors import ErrorCode
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from ottla.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.list_transactions import ListTransactionsResponse
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.security.acl import (
    ALTER,
    CLUSTER,
    CLUSTER_ACTION,
    DESCRIBE,
    GROUP,
    IDEMPOTENT_WRITE,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    TWO_PHASE_COMMIT,
    WRITE,
)

_TOPIC_DENIED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_FROM_BROKERS: Final = 4
"""The version of AddPartitionsToTxn that brokers send; clients send older ones."""


def _require_transactional_id(guard: Guard, context: RequestContext, operation: int, transactional_id: str) -> None:
    if not guard.allows(context, operation, TRANSACTIONAL_ID, transactional_id):
        raise denied_error(TRANSACTIONAL_ID)


def init_producer_id(guard: Guard, handle: Handle, request: InitProducerIdRequest, context: RequestContext) -> Any:
    """WRITE on the transactional id; without one IDEMPOTENT_WRITE on the cluster, or WRITE on any topic (AC05)."""
    if request.transactional_id is not None:
        _require_transactional_id(guard, context, WRITE, request.transactional_id)
        if request.enable2_pc:
            _require_transactional_id(guard, context, TWO_PHASE_COMMIT, request.transactional_id)
    elif not guard.allows_on_cluster(context, IDEMPOTENT_WRITE, quietly=True) and not guard.allows_on_any(context, WRITE, TOPIC):
        raise denied_error(CLUSTER)
    return handle(request, context)


def end_txn(guard: Guard, handle: Handle, request: Any, context: RequestContext) -> Any:
    _require_transactional_id(guard, context, WRITE, request.transactional_id)
    return handle(request, context)


def add_offsets_to_txn(guard: Guard, handle: Handle, request: Any, context: RequestContext) -> Any:
    _require_transactional_id(guard, context, WRITE, request.transactional_id)
    if not guard.allows(context, READ, GROUP, request.group_id):
        raise denied_error(GROUP)
    return handle(request, context)


def write_txn_markers(guard: Guard, handle: Handle, request: Any, context: RequestContext) -> Any:
    """ALTER, of an administrator who ends a hanging transaction, or CLUSTER_ACTION, of a broker."""
    if not guard.allows_on_cluster(context, ALTER, quietly=True):
        guard.require_cluster(context, CLUSTER_ACTION)
    return handle(request, context)


def add_partitions_to_txn(
    guard: Guard, metadata: LocalMetadata, handle: Handle, request: AddPartitionsToTxnRequest, context: RequestContext
) -> Any:
    """All partitions or none: if one topic is denied, the others are OPERATION_NOT_ATTEMPTED."""
    if context.version >= _FROM_BROKERS:
        guard.require_cluster(context, CLUSTER_ACTION)
        return handle(request, context)
    _require_transactional_id(guard, context, WRITE, request.v3_and_below_transactional_id)
    topics = request.v3_and_below_topics
    names = [topic.name for topic in topics if topic.name not in INTERNAL_TOPICS]
    _, denied = split(guard, context, WRITE, names, str)
    if not denied:
        return handle(request, context)
    refused = {*denied, *INTERNAL_TOPICS}
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=code)
                    for number, code in _not_added(metadata.image, topic.name, topic.partitions, denied=topic.name in refused)
                ],
            )
            for topic in topics
        ]
    )


def _not_added(image: ClusterImage, name: str, partitions: Iterable[int], *, denied: bool) -> list[tuple[int, ErrorCode]]:
    if denied:
        return [(number, _TOPIC_DENIED) for number in partitions]
    topic = image.topics.get(name)
    count = len(topic.partitions) if topic is not None else 0
    return [
        (number, ErrorCode.OPERATION_NOT_ATTEMPTED if 0 <= number < count else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        for number in partitions
    ]


def txn_offset_commit(
    guard: Guard, handle: Handle, refuse: Refuse, request: TxnOffsetCommitRequest, context: RequestContext
) -> Any:
    """WRITE on the transactional id, READ on the group, READ on each topic."""
    _require_transactional_id(guard, context, WRITE, request.transactional_id)
    if not guard.allows(context, READ, GROUP, request.group_id):
        raise denied_error(GROUP)
    allowed, denied = split(guard, context, READ, request.topics, lambda topic: topic.name)
    if not denied:
        return handle(request, context)
    refused = [
        TxnOffsetCommitResponseTopic(
            name=topic.name,
            partitions=[
                TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=_TOPIC_DENIED)
                for each in topic.partitions
            ],
        )
        for topic in denied
    ]
    request.topics = allowed
    if not allowed:
        return TxnOffsetCommitResponse(topics=refused)

    def merge(response: TxnOffsetCommitResponse) -> TxnOffsetCommitResponse:
        response.topics += refused
        return response

    return answer(handle, refuse, request, context, merge)


def describe_transactions(
    guard: Guard, handle: Handle, refuse: Refuse, request: DescribeTransactionsRequest, context: RequestContext
) -> Any:
    """DESCRIBE on each transactional id. Of its topics only those are told that may be described."""
    allowed, denied = split(guard, context, DESCRIBE, request.transactional_ids, str, TRANSACTIONAL_ID)
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    refused = [TransactionState(transactional_id=each, error_code=code) for each in denied]
    if not allowed:
        return DescribeTransactionsResponse(transaction_states=refused)
    request.transactional_ids = allowed

    def merge(response: DescribeTransactionsResponse) -> DescribeTransactionsResponse:
        for state in response.transaction_states:
            state.topics, _ = split(guard, context, DESCRIBE, state.topics, lambda topic: topic.topic)
        response.transaction_states += refused
        return response

    return answer(handle, refuse, request, context, merge)


def list_transactions(guard: Guard, handle: Handle, request: Any, context: RequestContext) -> Any:
    """DESCRIBE on each transactional id that is listed."""

    def keep(response: ListTransactionsResponse) -> None:
        response.transaction_states, _ = split(
            guard, context, DESCRIBE, response.transaction_states, lambda state: state.transactional_id, TRANSACTIONAL_ID
        )

    return filtered(handle, request, context, keep)
