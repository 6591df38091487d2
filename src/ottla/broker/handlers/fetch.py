"""Fetch: read from partitions, in a session or without, now or when there is enough.

The reply comes at once if it has `min_bytes`, if any partition has an error or diverges, if nothing is asked, or if the client
does not want to wait; else the fetch waits in purgatory for its partitions to grow, until `max_wait_ms` (F31).
Served from version 4 on: older ones need older message formats. A consumer that names its rack may be sent to a follower there
(KIP-392), where `replica.selector.class` says so; followers serve what they know to be committed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator

from ottla.broker.handlers.fetch_quick import quick as quick
from ottla.broker.handlers.fetch_reply import response_of
from ottla.broker.network.context import RequestContext
from ottla.broker.replicas.fetch_read import FetchRead
from ottla.errors import KafkaError
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.replication.fetch_session import FetchPartition, PartitionKey
from ottla.types import NO_LEADER_EPOCH, ZERO_UUID

VERSIONS = (4, 18)

_TOPIC_IDS_FROM = 13
_SESSIONS_FROM = 7
_FINAL_EPOCH = -1


def handle(request: FetchRequest, context: RequestContext) -> FetchResponse | Awaitable[FetchResponse]:
    version, broker = context.version, context.broker
    replica_id, replica_epoch = request.replica_id, -1
    if request.replica_state is not None:
        replica_id, replica_epoch = request.replica_state.replica_id, request.replica_state.replica_epoch
    session = broker.fetch_sessions.begin(
        request.session_id,
        request.session_epoch if version >= _SESSIONS_FROM else _FINAL_EPOCH,
        list(_wanted(request)),
        _forgotten(request),
        uses_topic_ids=version >= _TOPIC_IDS_FROM,
        privileged=replica_id >= 0,
        now_ms=int(broker.world.clock.monotonic() * 1000),
    )
    if session.error:
        return FetchResponse(error_code=session.error)
    max_bytes = min(request.max_bytes, broker.fetch_bytes_max)
    fetch = FetchRead(
        broker,
        session,
        version=version,
        min_bytes=min(request.min_bytes, max_bytes),
        max_bytes=max_bytes,
        isolation_level=request.isolation_level,
        replica_id=replica_id,
        replica_epoch=replica_epoch,
        rack=request.rack_id if request.rack_id and replica_id < 0 and broker.selects_replicas else "",
    )
    if replica_id >= 0:
        fetch.follower_progress()
    fetch.read()
    if fetch.enough() or request.max_wait_ms <= 0 or not fetch.keys:
        return _response(fetch, context)
    answer = _response if replica_id < 0 else _late_response
    return broker.purgatory.wait(fetch.keys, request.max_wait_ms, fetch.read_enough, lambda: answer(fetch, context))


def _late_response(fetch: FetchRead, context: RequestContext) -> FetchResponse:
    """The reply to a follower that waited for records: it wants to know what was committed meanwhile."""
    fetch.read()
    return _response(fetch, context)


def _response(fetch: FetchRead, context: RequestContext) -> FetchResponse:
    error, session_id, told = fetch.finish()
    return response_of(error, session_id, told, fetch.committed, context)


def _wanted(request: FetchRequest) -> Iterator[FetchPartition]:
    for topic in request.topics:
        topic_id = topic.topic_id
        name = topic.topic if topic_id == ZERO_UUID else None
        for asked in topic.partitions:
            yield FetchPartition(
                name,
                topic_id,
                asked.partition,
                asked.fetch_offset,
                asked.partition_max_bytes,
                max(asked.current_leader_epoch, NO_LEADER_EPOCH),
                asked.last_fetched_epoch,
                asked.log_start_offset,
            )


def _forgotten(request: FetchRequest) -> Iterator[PartitionKey]:
    for topic in request.forgotten_topics_data:
        name = topic.topic_id if topic.topic_id != ZERO_UUID else topic.topic
        for partition in topic.partitions:
            yield name, partition


def refuse(request: FetchRequest, error: KafkaError) -> FetchResponse:
    return FetchResponse(
        error_code=error.code,
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    PartitionData(partition_index=asked.partition, error_code=error.code, high_watermark=-1, records=b"")
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
