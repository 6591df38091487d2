"""Fetch: read record batches, in a session or without, now or when there is enough.

The reply comes at once if it has `min_bytes`, if any partition has an error or diverges, if no partition is asked for, or if the
client does not want to wait. Otherwise the fetch waits in purgatory for its partitions to grow, until `max_wait_ms` (F31).
Served from version 4 on: older versions need older message formats. A consumer that names its rack may be sent to a follower
there (KIP-392), if `replica.selector.class` says so. Followers serve consumers what they know to be committed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from functools import partial
from typing import Final

from ottla.broker.handlers.current_leaders import name_leaders
from ottla.broker.network.context import RequestContext
from ottla.broker.network.purgatory import Purgatory
from ottla.broker.replicas.fetch_read import FetchRead, FetchSource, PartitionRead
from ottla.errors import ErrorCode, KafkaError
from ottla.ports import Clock
from ottla.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from ottla.replication.fetch_session import FetchPartition, FetchSessionCache, PartitionKey
from ottla.types import NO_LEADER_EPOCH, ZERO_UUID, TopicPartition

_SESSIONS_FROM: Final = 7
_TOPIC_IDS_FROM: Final = 13
_LEADERS_FROM: Final = 16
_FINAL_EPOCH: Final = -1
_NOT_LEADER: Final = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
_FENCED: Final = int(ErrorCode.FENCED_LEADER_EPOCH)


def handle(
    fetch_source: FetchSource,
    fetch_sessions: FetchSessionCache,
    purgatory: Purgatory,
    clock: Clock,
    request: FetchRequest,
    context: RequestContext,
) -> FetchResponse | Awaitable[FetchResponse]:
    version = context.version
    replica_id, replica_epoch = request.replica_id, -1
    if request.replica_state is not None:
        replica_id, replica_epoch = request.replica_state.replica_id, request.replica_state.replica_epoch
    meter = context.meter
    if meter is not None:
        if replica_id >= 0:
            meter.exempt = True
        else:
            request.max_bytes = min(request.max_bytes, meter.fetch_bytes_max())
    session = fetch_sessions.begin(
        request.session_id,
        request.session_epoch if version >= _SESSIONS_FROM else _FINAL_EPOCH,
        _wanted(request),
        _forgotten(request),
        uses_topic_ids=version >= _TOPIC_IDS_FROM,
        privileged=replica_id >= 0,
        now_ms=int(clock.monotonic() * 1000),
    )
    if session.error:
        return FetchResponse(error_code=int(session.error))
    fetch = FetchRead(fetch_source, session, request, version, replica_id, replica_epoch, context.denied_topics)
    if replica_id >= 0:
        fetch.follower_progress()
    fetch.read()
    if fetch.enough() or request.max_wait_ms <= 0 or not fetch.keys:
        return _response(fetch, clock, context)
    # A follower that waited for records is also told what was committed meanwhile.
    answer = _response if replica_id < 0 else _response_read_again
    return purgatory.wait(fetch.keys, request.max_wait_ms, fetch.read_enough, partial(answer, fetch, clock, context))


def _wanted(request: FetchRequest) -> list[FetchPartition]:
    found: list[FetchPartition] = []
    for topic in request.topics:
        topic_id = topic.topic_id
        name = topic.topic if topic_id == ZERO_UUID else None
        for asked in topic.partitions:
            epoch = asked.current_leader_epoch
            found.append(
                FetchPartition(
                    name,
                    topic_id,
                    asked.partition,
                    asked.fetch_offset,
                    asked.partition_max_bytes,
                    epoch if epoch > NO_LEADER_EPOCH else NO_LEADER_EPOCH,
                    asked.last_fetched_epoch,
                    asked.log_start_offset,
                )
            )
    return found


def _forgotten(request: FetchRequest) -> list[PartitionKey]:
    found: list[PartitionKey] = []
    for topic in request.forgotten_topics_data:
        name = topic.topic_id if topic.topic_id != ZERO_UUID else topic.topic
        for partition in topic.partitions:
            found.append((name, partition))
    return found


def _response_read_again(fetch: FetchRead, clock: Clock, context: RequestContext) -> FetchResponse:
    fetch.read()
    return _response(fetch, clock, context)


def _response(fetch: FetchRead, clock: Clock, context: RequestContext) -> FetchResponse:
    meter = context.meter
    if meter is not None and not meter.exempt and not meter.fetched(fetch.response_bytes()):
        error, session_id = fetch.finish_throttled()
        return FetchResponse(error_code=error, session_id=session_id)
    error, session_id, reads = fetch.finish(int(clock.monotonic() * 1000))
    topics: list[FetchableTopicResponse] = []
    partitions: list[PartitionData] = []
    last: FetchPartition | None = None
    leaders_wanted = False
    for read in reads:
        wanted = read.wanted
        if last is None or not _same_topic(last, wanted):
            partitions = []
            topics.append(FetchableTopicResponse(topic=wanted.topic or "", topic_id=wanted.topic_id, partitions=partitions))
            last = wanted
        partitions.append(_partition_data(read, fetch.committed))
        if read.error_code == _NOT_LEADER or read.error_code == _FENCED:
            leaders_wanted = True
    response = FetchResponse(error_code=error, session_id=session_id, responses=topics)
    if leaders_wanted and context.version >= _LEADERS_FROM:
        source = fetch.source
        response.node_endpoints = name_leaders(
            source.partitions, source.metadata, context.listener_name, _refused(response, source), LeaderIdAndEpoch, NodeEndpoint
        )
    return response


def _same_topic(one: FetchPartition, other: FetchPartition) -> bool:
    return one.topic_id == other.topic_id and (one.topic_id != ZERO_UUID or one.topic == other.topic)


def _partition_data(read: PartitionRead, committed: bool) -> PartitionData:
    data = PartitionData(
        partition_index=read.wanted.partition,
        error_code=read.error_code,
        high_watermark=read.high_watermark,
        last_stable_offset=read.last_stable_offset,
        log_start_offset=read.log_start_offset,
        aborted_transactions=None,
        preferred_read_replica=read.preferred,
        records=read.records if read.records is not None else b"",
    )
    if read.divergence is not None:
        data.diverging_epoch = EpochEndOffset(epoch=read.divergence.leader_epoch, end_offset=read.divergence.offset)
    if read.lists_aborted(committed):
        data.aborted_transactions = [
            AbortedTransaction(producer_id=txn.producer_id, first_offset=txn.first_offset) for txn in read.aborted or ()
        ]
    return data


def _refused(response: FetchResponse, source: FetchSource) -> Iterator[tuple[TopicPartition, PartitionData]]:
    for topic in response.responses:
        name = source.partitions.topic_name(topic.topic_id)
        for answer in topic.partitions:
            if name is not None and (answer.error_code == _NOT_LEADER or answer.error_code == _FENCED):
                yield TopicPartition(name, answer.partition_index), answer


def refuse(request: FetchRequest, error: KafkaError) -> FetchResponse:
    code = int(error.code)
    return FetchResponse(
        error_code=code,
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    PartitionData(partition_index=asked.partition, error_code=code, high_watermark=-1, records=b"")
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
