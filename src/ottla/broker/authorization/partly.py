"""Authorizes Produce, Fetch, OffsetCommit and requests of one group, where a part of the request is new or denied."""

from __future__ import annotations

from collections.abc import Awaitable, Container
from typing import Any, Final, TypeVar

from ottla.broker.authorization.guard import Guard
from ottla.broker.authorization.merging import Handle, Refuse, answer, split
from ottla.broker.network.context import CloseConnection, RequestContext
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.records.batch import is_transactional
from ottla.replication.fetch_session import FetchSessionCache
from ottla.security.acl import CLUSTER_ACTION, GROUP, READ, TRANSACTIONAL_ID, WRITE
from ottla.types import ZERO_UUID

T = TypeVar("T", TopicProduceData, OffsetCommitRequestTopic)

_PRODUCE_IDS_FROM: Final = 13
_FETCH_IDS_FROM: Final = 13
_COMMIT_IDS_FROM: Final = 10


class _Every:
    """All topics."""

    def __contains__(self, name: object) -> bool:
        return True


EVERY_TOPIC: Final[Container[str]] = _Every()


def of_group(guard: Guard, handle: Handle, request: Any, context: RequestContext) -> Any:
    """READ on the group that the request names: JoinGroup, SyncGroup, Heartbeat, LeaveGroup."""
    if not guard.allows(context, READ, GROUP, request.group_id):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "group authorization failed")
    return handle(request, context)


def produce(guard: Guard, handle: Handle, refuse: Refuse, request: ProduceRequest, context: RequestContext) -> Any:
    """WRITE on each topic, and on the transactional id if a batch is transactional (CVE-2018-17196)."""
    transactional_id = request.transactional_id
    if (
        transactional_id is not None
        and _has_transactional_records(request)
        and not guard.allows(context, WRITE, TRANSACTIONAL_ID, transactional_id)
    ):
        error = KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactional id authorization failed")
        if request.acks == 0:
            raise CloseConnection(f"an acks=0 Produce request was denied: {error}")
        raise error
    allowed, denied = _split_topics(guard, context, WRITE, request.topic_data, by_id=context.version >= _PRODUCE_IDS_FROM)
    if not denied:
        return handle(request, context)
    refused = [_not_written(topic) for topic in denied]
    request.topic_data = allowed
    if request.acks == 0:
        return _close_after(handle, request, context)
    if not request.topic_data:
        return ProduceResponse(responses=refused)

    def merge(response: ProduceResponse) -> ProduceResponse:
        response.responses += refused
        return response

    return answer(handle, refuse, request, context, merge)


def _split_topics(
    guard: Guard, context: RequestContext, operation: int, topics: list[T], *, by_id: bool
) -> tuple[list[T], list[T]]:
    """(allowed, denied). A topic id that nobody knows is no secret: it counts as allowed, and the handler tells."""
    names = {id(topic): guard.topic_name(topic.topic_id) if by_id else topic.name for topic in topics}
    known = [topic for topic in topics if names[id(topic)] is not None]
    _, denied = split(guard, context, operation, known, lambda topic: names[id(topic)] or "")
    if not denied:
        return topics, []
    hidden = {id(topic) for topic in denied}
    return [topic for topic in topics if id(topic) not in hidden], denied


def _close_after(handle: Handle, request: ProduceRequest, context: RequestContext) -> Any:
    """acks=0: the allowed topics are written, then the connection is closed, the only way to tell the producer."""
    response = handle(request, context) if request.topic_data else None
    if isinstance(response, Awaitable):
        return _close_later(response)
    raise CloseConnection("topics of an acks=0 Produce request were denied")


async def _close_later(response: Awaitable[Any]) -> None:
    await response
    raise CloseConnection("topics of an acks=0 Produce request were denied")


def _not_written(topic: TopicProduceData) -> TopicProduceResponse:
    return TopicProduceResponse(
        name=topic.name,
        topic_id=topic.topic_id,
        partition_responses=[
            PartitionProduceResponse(index=data.index, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, base_offset=-1)
            for data in topic.partition_data
        ],
    )


def _has_transactional_records(request: ProduceRequest) -> bool:
    return any(
        data.records is not None and is_transactional(data.records)
        for topic in request.topic_data
        for data in topic.partition_data
    )


def fetch(guard: Guard, fetch_sessions: FetchSessionCache, handle: Handle, request: FetchRequest, context: RequestContext) -> Any:
    """READ on each topic, also of those that the session has from earlier requests. A replica id needs CLUSTER_ACTION: it makes
    nobody a follower (CVE-2018-1288). Denied partitions stay in the session, as in Kafka, and fail one by one."""
    context.denied_topics = None
    session = fetch_sessions.find(request.session_id) if request.session_epoch > 0 else None
    if session is not None:
        session.reader = None  # the request may add partitions that are denied
    replica_id = request.replica_id if request.replica_state is None else request.replica_state.replica_id
    if replica_id >= 0:
        if not guard.allows_on_cluster(context, CLUSTER_ACTION):
            context.denied_topics = EVERY_TOPIC
        return handle(request, context)
    names: list[str | None] = []
    for topic in request.topics:
        name = guard.topic_name(topic.topic_id) if context.version >= _FETCH_IDS_FROM else topic.topic
        names += [name] * len(topic.partitions)
    if session is not None:
        for partition in session.partitions.values():
            by_name = partition.topic_id == ZERO_UUID
            names.append(partition.topic if by_name else guard.topic_name(partition.topic_id))
    _, denied = split(guard, context, READ, [name for name in names if name is not None], str)
    if denied:
        context.denied_topics = frozenset(denied)
    return handle(request, context)


def offset_commit(guard: Guard, handle: Handle, refuse: Refuse, request: OffsetCommitRequest, context: RequestContext) -> Any:
    if not guard.allows(context, READ, GROUP, request.group_id):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "group authorization failed")
    allowed, denied = _split_topics(guard, context, READ, request.topics, by_id=context.version >= _COMMIT_IDS_FROM)
    if not denied:
        return handle(request, context)
    refused = [_not_committed(topic) for topic in denied]
    request.topics = allowed
    if not request.topics:
        return OffsetCommitResponse(topics=refused)

    def merge(response: OffsetCommitResponse) -> OffsetCommitResponse:
        response.topics += refused
        return response

    return answer(handle, refuse, request, context, merge)


def _not_committed(topic: OffsetCommitRequestTopic) -> OffsetCommitResponseTopic:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code) for each in topic.partitions
        ],
    )
