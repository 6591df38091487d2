"""ListOffsets: the offset of a time, or of an end of the log (F32, W06).

A time gives the first record at or after it among those the client may read; none is offset -1 without an error. Below zero:
-1 the end, -2 the start, -3 the record with the largest timestamp, -4 the start of what is on local disk (here the same as -2),
-5 and -6 the ends of what is in tiered storage (there is none: -1). Another one is refused before the partition is looked for.
A partition that is listed twice gets one answer, an error. Replica id -2 is Kafka's debugging consumer: a follower answers it
too, with what is in its log.
Version 0, with its lists of segment offsets, is not served.

Nobody waits for a search that takes long: a batch that unpacks to megabytes is looked into by a worker (`large_batches`), and
after some megabytes of headers the others have their turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.network.context import RequestContext
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.storage.results import OffsetByTime
from ottla.storage.time_lookup import Unfinished
from ottla.types import NO_LEADER_EPOCH, NO_OFFSET, NO_TIMESTAMP, TopicPartition

if TYPE_CHECKING:
    from ottla.broker.replicas.partition import Partition

VERSIONS = (1, 11)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

_KNOWN_FROM = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
_READ_COMMITTED = 1
_CONSUMER = -1
_DEBUGGING_CONSUMER = -2
_NOT_AVAILABLE_FROM = 5


def handle(request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
    answers: dict[TopicPartition, ListOffsetsPartitionResponse] = {}
    unfinished: list[tuple[TopicPartition, ListOffsetsPartition, Unfinished]] = []
    for topic in request.topics:
        for asked in topic.partitions:
            key = TopicPartition(topic.name, asked.partition_index)
            try:
                if key in answers:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, f"{key} is asked for more than once")
                _check_timestamp(asked.timestamp, context.version)
                answers[key] = _look_up(context.broker.partitions.get(key), asked, request, context.version)
            except Unfinished as search:
                answers[key] = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
                unfinished.append((key, asked, search))
            except KafkaError as error:
                answers[key] = _failed(asked, error)
    return _look_further(request, context, answers, unfinished) if unfinished else _response(answers)


def _response(answers: dict[TopicPartition, ListOffsetsPartitionResponse]) -> ListOffsetsResponse:
    topics: dict[str, ListOffsetsTopicResponse] = {}
    for (name, _), answer in answers.items():
        topics.setdefault(name, ListOffsetsTopicResponse(name=name)).partitions.append(answer)
    return ListOffsetsResponse(topics=list(topics.values()))


def _failed(asked: ListOffsetsPartition, error: KafkaError) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=error.code)


async def _look_further(
    request: ListOffsetsRequest,
    context: RequestContext,
    answers: dict[TopicPartition, ListOffsetsPartitionResponse],
    unfinished: list[tuple[TopicPartition, ListOffsetsPartition, Unfinished]],
) -> ListOffsetsResponse:
    """The answers that take longer, one after the other. One that was refused as a duplicate meanwhile stays refused."""
    for key, asked, search in unfinished:
        if not answers[key].error_code:
            try:
                answers[key] = await _finish(key, asked, search, request, context)
            except KafkaError as error:
                answers[key] = _failed(asked, error)
    return _response(answers)


async def _finish(
    key: TopicPartition, asked: ListOffsetsPartition, search: Unfinished, request: ListOffsetsRequest, context: RequestContext
) -> ListOffsetsPartitionResponse:
    """Others come in between: who leads, what is committed, where the log begins is asked anew each time; and if this is another
    log by now, or it was cut, what was found in it counts for nothing."""
    broker = context.broker
    while True:
        log = broker.partitions.get(key).log
        cuts = log.truncations
        looked: _Looked | None = _Looked(search.next_offset, None)
        error: OSError | KafkaError | None = None
        try:
            if search.look is not None:
                looked = _Looked(search.next_offset, await broker.large_batches.look(search.look))
            else:
                await asyncio.sleep(0)
        except (OSError, KafkaError) as failure:
            error = failure
        partition = broker.partitions.get(key)
        if partition.log is not log or log.truncations != cuts:
            looked = None
        elif error is not None:
            raise partition.failed(error) if isinstance(error, OSError) else error
        try:
            return _look_up(partition, asked, request, context.version, looked)
        except Unfinished as more:
            search = more


class _Looked(NamedTuple):
    """How far a search by time has come: `found`, or nothing before `next_offset`."""

    next_offset: int
    found: OffsetByTime | None


def _search(partition: Partition, timestamp: int, looked: _Looked | None) -> OffsetByTime | None:
    found = looked.found if looked is not None else None
    if timestamp == MAX_TIMESTAMP:
        # Also if it was deleted in front of others, as with Kafka: it would be found again, and again.
        return found if found is not None else partition.offset_of_max_timestamp()
    if found is not None and found.offset >= partition.log.log_start_offset:
        return found
    return partition.offset_for_timestamp(timestamp, looked.next_offset if looked is not None and found is None else 0)


def _check_timestamp(timestamp: int, version: int) -> None:
    if timestamp < 0 and version < _KNOWN_FROM.get(timestamp, 1 << 16):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {timestamp} is not known in ListOffsets version {version}")


def _look_up(
    partition: Partition, asked: ListOffsetsPartition, request: ListOffsetsRequest, version: int, looked: _Looked | None = None
) -> ListOffsetsPartitionResponse:
    timestamp = asked.timestamp
    if request.replica_id == _DEBUGGING_CONSUMER:
        partition.check_replica(asked.current_leader_epoch)
    else:
        partition.check_leader(asked.current_leader_epoch)
    log = partition.log
    if request.replica_id != _CONSUMER:
        end_offset = log.log_end_offset
    elif request.isolation_level == _READ_COMMITTED:
        end_offset = partition.last_stable_offset
    else:
        end_offset = partition.high_watermark

    def answer(timestamp_ms: int, offset: int, leader_epoch: int) -> ListOffsetsPartitionResponse:
        return ListOffsetsPartitionResponse(
            partition_index=asked.partition_index,
            timestamp=timestamp_ms,
            offset=offset,
            # Versions before 4 cannot carry it, and nobody asked.
            leader_epoch=leader_epoch if version >= 4 else NO_LEADER_EPOCH,
        )

    if request.replica_id == _CONSUMER and partition.epoch_start_offset > partition.high_watermark:
        # This leader does not know yet how much of the log was committed: a smaller offset than was seen before must not be told
        # (R04, KIP-207).
        not_yet = KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE if version >= _NOT_AVAILABLE_FROM else ErrorCode.LEADER_NOT_AVAILABLE)
    else:
        not_yet = None
    if timestamp == LATEST and not_yet is not None:
        raise not_yet
    if timestamp == LATEST:
        return answer(NO_TIMESTAMP, end_offset, partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return answer(NO_TIMESTAMP, log.log_start_offset, log.epoch_at(log.log_start_offset))
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return answer(NO_TIMESTAMP, NO_OFFSET, NO_LEADER_EPOCH)
    found = _search(partition, timestamp, looked)
    if (found is None or found.offset >= end_offset) and not_yet is not None:
        raise not_yet
    if found is None or found.offset >= end_offset:
        return answer(NO_TIMESTAMP, NO_OFFSET, NO_LEADER_EPOCH)
    return answer(found.timestamp_ms, found.offset, found.leader_epoch)


def refuse(request: ListOffsetsRequest, error: KafkaError) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=error.code)
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
