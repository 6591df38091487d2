"""ListOffsets: the offset for a timestamp, or of an end of the log (F32, W06).

A timestamp gives the first record at or after it among those the client may read; without one the offset is -1 without an error.
Special timestamps: -1 the end, -2 the start, -3 the record with the largest timestamp, -4 the start of the local log (here the
same as -2), -5 and -6 the ends of tiered storage (there is none: -1). Other negative ones are refused before the partition is
looked up. A partition that is listed twice gets one result, an error. Replica id -2 is Kafka's debugging consumer: a follower
answers it too, from its own log. Version 0 is not served.

A long search does not block the loop: workers search batches that decompress to megabytes (`large_batches`), and after some
megabytes of batch headers the search yields.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from ottla.broker.network.context import RequestContext
from ottla.broker.replicas.large_batches import LargeBatches
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.partitions import Partitions
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


def handle(
    partitions: Partitions, large_batches: LargeBatches, request: ListOffsetsRequest, context: RequestContext
) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
    answers: dict[TopicPartition, ListOffsetsPartitionResponse] = {}
    unfinished: list[tuple[TopicPartition, ListOffsetsPartition, Unfinished]] = []
    for topic in request.topics:
        for asked in topic.partitions:
            key = TopicPartition(topic.name, asked.partition_index)
            try:
                if key in answers:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, f"{key} appears more than once in the request")
                _check_timestamp(asked.timestamp, context.version)
                answers[key] = _look_up(partitions.get(key), asked, request, context.version)
            except Unfinished as search:
                answers[key] = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
                unfinished.append((key, asked, search))
            except KafkaError as error:
                answers[key] = _failed(asked, error)
    if not unfinished:
        return _response(answers)
    return _look_further(answers, unfinished, partial(_finish, partitions, large_batches, request, context.version))


def _response(answers: dict[TopicPartition, ListOffsetsPartitionResponse]) -> ListOffsetsResponse:
    topics: dict[str, ListOffsetsTopicResponse] = {}
    for (name, _), answer in answers.items():
        topics.setdefault(name, ListOffsetsTopicResponse(name=name)).partitions.append(answer)
    return ListOffsetsResponse(topics=list(topics.values()))


def _failed(asked: ListOffsetsPartition, error: KafkaError) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=error.code)


async def _look_further(
    answers: dict[TopicPartition, ListOffsetsPartitionResponse],
    unfinished: list[tuple[TopicPartition, ListOffsetsPartition, Unfinished]],
    finish: Callable[[TopicPartition, ListOffsetsPartition, Unfinished], Awaitable[ListOffsetsPartitionResponse]],
) -> ListOffsetsResponse:
    """Finish the long searches, one after the other. A partition refused as a duplicate meanwhile stays refused."""
    for key, asked, search in unfinished:
        if not answers[key].error_code:
            try:
                answers[key] = await finish(key, asked, search)
            except KafkaError as error:
                answers[key] = _failed(asked, error)
    return _response(answers)


async def _finish(
    partitions: Partitions,
    large_batches: LargeBatches,
    request: ListOffsetsRequest,
    version: int,
    key: TopicPartition,
    asked: ListOffsetsPartition,
    search: Unfinished,
) -> ListOffsetsPartitionResponse:
    """Continue a search. Other requests ran meanwhile: leadership, high watermark and log start offset are read anew, and a match
    is dropped if the log was replaced or truncated."""
    while True:
        log = partitions.get(key).log
        truncations = log.truncations
        looked: _Looked | None = _Looked(search.next_offset, None)
        error: OSError | KafkaError | None = None
        try:
            if search.look is not None:
                looked = _Looked(search.next_offset, await large_batches.look(search.look))
            else:
                await asyncio.sleep(0)
        except (OSError, KafkaError) as failure:
            error = failure
        partition = partitions.get(key)
        if partition.log is not log or log.truncations != truncations:
            looked = None
        elif error is not None:
            raise partition.failed(error) if isinstance(error, OSError) else error
        try:
            return _look_up(partition, asked, request, version, looked)
        except Unfinished as more:
            search = more


class _Looked(NamedTuple):
    """The progress of a search by timestamp: `found`, or no match before `next_offset`."""

    next_offset: int
    found: OffsetByTime | None


def _search(partition: Partition, timestamp: int, looked: _Looked | None) -> OffsetByTime | None:
    found = looked.found if looked is not None else None
    if timestamp == MAX_TIMESTAMP:
        # Also if the record was deleted meanwhile, as in Kafka: a new search would find it again.
        return found if found is not None else partition.offset_of_max_timestamp()
    if found is not None and found.offset >= partition.log.log_start_offset:
        return found
    return partition.offset_for_timestamp(timestamp, looked.next_offset if looked is not None and found is None else 0)


def _check_timestamp(timestamp: int, version: int) -> None:
    if timestamp < 0 and version < _KNOWN_FROM.get(timestamp, 1 << 16):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"ListOffsets version {version} does not support timestamp {timestamp}")


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
        end_offset = log.last_stable_offset
    else:
        end_offset = log.high_watermark

    def answer(timestamp_ms: int, offset: int, leader_epoch: int) -> ListOffsetsPartitionResponse:
        return ListOffsetsPartitionResponse(
            partition_index=asked.partition_index,
            timestamp=timestamp_ms,
            offset=offset,
            # Versions before 4 have no such field.
            leader_epoch=leader_epoch if version >= 4 else NO_LEADER_EPOCH,
        )

    if request.replica_id == _CONSUMER and partition.epoch_start_offset > log.high_watermark:
        # A new leader does not know the high watermark yet: it must not return less than its predecessor did (R04, KIP-207).
        not_yet = KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE if version >= _NOT_AVAILABLE_FROM else ErrorCode.LEADER_NOT_AVAILABLE)
    else:
        not_yet = None
    if timestamp == LATEST and not_yet is not None:
        raise not_yet
    if timestamp == LATEST:
        return answer(NO_TIMESTAMP, end_offset, partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return answer(NO_TIMESTAMP, log.log_start_offset, log.epochs.epoch_at(log.log_start_offset))
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
            ListOffsetsTopicResponse(name=topic.name, partitions=[_failed(asked, error) for asked in topic.partitions])
            for topic in request.topics
        ]
    )
