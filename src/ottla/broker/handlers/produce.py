"""Produce: append what producers send.

acks=0 gets no reply, and an error closes the connection, which is all the producer will notice (W01). acks=1 is answered after
the append, acks=all when the high watermark has passed the records or the time is over (F27).
Versions 0 to 2 carry message formats that are not stored; they are advertised, because librdkafka takes their absence for an
ancient broker (KAFKA-18659), and answered with UNSUPPORTED_VERSION. From version 13 on topics are named by id.
Transactional records are appended where the transaction's coordinator says that the partition is part of it, or the partition has
records of it already (T10). From version 12 on asking is adding (KIP-890).
Batches that unpack to a lot are checked elsewhere (`large_batches`), and then go the whole way once more, with what was found. A
connection's next request waits for them, so a producer's batches keep their order.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.handlers.current_leaders import name_leaders
from ottla.broker.handlers.produce_quick import quick as quick
from ottla.broker.network.context import CloseConnection, RequestContext
from ottla.broker.replicas.commit_wait import CommitWait, wait_for_commits
from ottla.broker.replicas.partition import ACKS_ALL, VerifiedTransaction
from ottla.errors import ErrorCode, KafkaError
from ottla.ports import Part
from ottla.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.records.batch import LENGTH_AT, LOG_OVERHEAD, PRODUCER_ID_AT, RECORDS_AT, TRANSACTIONAL_BIT
from ottla.records.validate import Checked, MuchToUnpack, RecordsRefused, Rules
from ottla.types import NO_PRODUCER_ID, Buffer, ProducerIdAndEpoch, TopicPartition

if TYPE_CHECKING:
    from ottla.broker.coordinators.transaction_verifier import Refusals, RefusalsLater
    from ottla.broker.replicas.partition import Partition

    Ask = Callable[[list[TopicPartition]], Refusals | RefusalsLater]

VERSIONS = (0, 13)

_FORMAT_V2_FROM = 3
_ZSTD_FROM = 7
_TOPIC_IDS_FROM = 13
_ZSTD = 4
_ATTRIBUTES_LOW_BYTE = 22
_BUMPS_EPOCHS_FROM = 12
_LEADERS_FROM = 10
_PRODUCER = struct.Struct(">qhi")
_LENGTH = struct.Struct(">i")

_ASK_TIMES = 10
"""Whether a partition may be written to, while markers come in between."""

Findings = Mapping[int, Checked | KafkaError]
"""What was found elsewhere, by the place of the batch among those of the request."""
Waits = list[tuple[CommitWait, PartitionProduceResponse]]
"""Appended records that are not committed yet, each with its place in the response."""
Reply = ProduceResponse | Awaitable[ProduceResponse | None] | None


def handle(request: ProduceRequest, context: RequestContext) -> Reply:
    return _handle(request, context, None)


def _handle(request: ProduceRequest, context: RequestContext, findings: Findings | None) -> Reply:
    refusal = _refusal_of_all(request, context.version)
    if request.transactional_id is None or refusal is not None:
        return _append(request, context, refusal, None, findings)
    try:
        refusals = _verify(request, request.transactional_id, context)
    except KafkaError as error:
        return _append(request, context, error, None, findings)
    if isinstance(refusals, dict):
        return _append(request, context, None, refusals, findings)
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                data.records = bytearray(data.records)  # the request's memory is soon another's
    return _append_later(request, context, refusals, findings)


def _verify(request: ProduceRequest, transactional_id: str, context: RequestContext) -> Refusals | RefusalsLater:
    """Ask the coordinator about the partitions that have no records of the transaction yet."""
    partitions = context.broker.partitions
    wanted: list[TopicPartition] = []
    asked_about: list[Partition] = []
    producer: ProducerIdAndEpoch | None = None
    for topic in request.topic_data:
        name = partitions.topic_name(topic.topic_id) if context.version >= _TOPIC_IDS_FROM else topic.name
        for data in topic.partition_data:
            found = _transactional_producer(data.records)
            if found is None or name is None:
                continue
            author, sequence = found
            if producer is not None and author != producer:
                raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "records of two producers in one transactional request")
            producer = author
            key = TopicPartition(name, data.index)
            partition = partitions.find(key)
            # What cannot be written anyway shall not become part of the transaction.
            if partition is None or not partition.is_leader or partition.is_offline:
                continue
            producers = partition.log.producers
            known = producers.get(author.producer_id)
            if known is not None and author.producer_epoch < known.epoch:
                # Nor what is refused for its epoch: to ask would be to add, and the marker would be refused for the same reason.
                continue
            if not producers.has_ongoing_transaction(*author):
                producers.attempt(*author, sequence, bumps_epochs=context.version >= _BUMPS_EPOCHS_FROM)
                wanted.append(key)
                asked_about.append(partition)
    if producer is None or not wanted:
        return {}
    producer_id, epoch = producer

    def ask(about: list[TopicPartition]) -> Refusals | RefusalsLater:
        return context.broker.verifier.verify(transactional_id, producer_id, epoch, about, "produce", context.version)

    answer = ask(wanted)
    return answer if isinstance(answer, dict) else partial(_guarded, ask, answer, asked_about, producer_id)


async def _guarded(ask: Ask, answer: RefusalsLater, partitions: list[Partition], producer_id: int) -> Refusals:
    """The coordinator's answer, if no marker has come meanwhile: what it said may have been of a transaction that is over now.

    It may as well be of the next one, whose producer did not wait for the markers of the one before (KIP-890): so it is asked
    again where the guard is void.
    """
    refusals: dict[TopicPartition, KafkaError] = {}
    for times_left in reversed(range(_ASK_TIMES)):
        guards = [(partition, partition.start_verification(producer_id)) for partition in partitions]
        refusals |= await answer()
        partitions = []
        for partition, guard in guards:
            key = partition.topic_partition
            if not partition.end_verification(producer_id, guard, keep=key not in refusals) and key not in refusals:
                partitions.append(partition)
        if not partitions or not times_left:
            break
        again = ask([partition.topic_partition for partition in partitions])
        if isinstance(again, dict):
            refusals.update(again)
            return refusals
        answer = again
    for partition in partitions:
        refusals[partition.topic_partition] = KafkaError(
            ErrorCode.INVALID_TXN_STATE, "the transaction ended while it was being asked about"
        )
    return refusals


def _transactional_producer(records: Part | None) -> tuple[ProducerIdAndEpoch, int] | None:
    """Who wrote a transactional batch, and its first sequence; None of another, or of what is none."""
    if not isinstance(records, Buffer) or len(records) < RECORDS_AT:
        return None
    if not records[_ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_BIT:
        return None
    producer_id, epoch, sequence = _PRODUCER.unpack_from(records, PRODUCER_ID_AT)
    return (ProducerIdAndEpoch(producer_id, epoch), sequence) if producer_id > NO_PRODUCER_ID else None


async def _append_later(
    request: ProduceRequest, context: RequestContext, refusals: RefusalsLater, findings: Findings | None
) -> ProduceResponse | None:
    return await _awaited(_append(request, context, None, await refusals(), findings))


async def _awaited(reply: Reply) -> ProduceResponse | None:
    return reply if reply is None or isinstance(reply, ProduceResponse) else await reply


class _Large(NamedTuple):
    """A batch that has to be unpacked elsewhere, and the place of its answer."""

    topic: TopicProduceData
    data: PartitionProduceData
    records: Buffer
    rules: Rules
    results: list[PartitionProduceResponse]


async def _append_large(
    request: ProduceRequest, context: RequestContext, large: list[_Large], others: Reply
) -> ProduceResponse | None:
    """Have the large batches checked, and append them as a request of their own: whether they may be written is asked anew, as
    a transaction may have ended meanwhile. `others` is the reply to the rest."""
    findings: dict[int, Checked | KafkaError] = {}
    for place, batch in enumerate(large):
        try:
            findings[place] = await context.broker.large_batches.check(batch.records, batch.rules)
        except KafkaError as error:
            findings[place] = error
    topics = [TopicProduceData(name=b.topic.name, topic_id=b.topic.topic_id, partition_data=[b.data]) for b in large]
    again = ProduceRequest(
        transactional_id=request.transactional_id, acks=request.acks, timeout_ms=request.timeout_ms, topic_data=topics
    )
    reply = await _awaited(_handle(again, context, findings))
    response = await _awaited(others)
    if reply is not None:
        for batch, answer in zip(large, reply.responses, strict=True):
            batch.results.extend(answer.partition_responses)
        if response is not None and reply.node_endpoints:
            _name_leaders(response, context)
    return response


def _append(
    request: ProduceRequest,
    context: RequestContext,
    refusal: KafkaError | None,
    refusals: Refusals | None,
    findings: Findings | None,
) -> Reply:
    """Append to all partitions. `refusal`: none may be written to. `refusals`: of a transaction, those that may not."""
    version, acks, broker = context.version, request.acks, context.broker
    transaction = VerifiedTransaction(version >= _BUMPS_EPOCHS_FROM) if refusals is not None else None
    partitions = broker.partitions
    now_ms = broker.world.clock.now_ms()
    answers: list[TopicProduceResponse] = []
    first_error: KafkaError | None = None
    waits: Waits | None = None
    large: list[_Large] | None = None
    place = -1
    for topic in request.topic_data:
        name: str | None = topic.name
        if version >= _TOPIC_IDS_FROM:
            name = partitions.topic_name(topic.topic_id)
        results: list[PartitionProduceResponse] = []
        answers.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=results))
        for data in topic.partition_data:
            place += 1
            try:
                if refusal is not None:
                    raise refusal
                if name is None:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {topic.topic_id.hex()}")
                records = data.records if data.records is not None else b""
                if version < _ZSTD_FROM and _uses_zstd(records):
                    raise KafkaError(
                        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce version {_ZSTD_FROM}, this is {version}"
                    )
                key = TopicPartition(name, data.index)
                if refusals and key in refusals:
                    raise refusals[key]
                partition = partitions.get(key)
                found = findings.get(place) if findings is not None else None
                if isinstance(found, KafkaError):
                    raise found
                info = partition.append(records, acks, now_ms, transaction=transaction, checked=found)
            except KafkaError as error:
                if isinstance(error, MuchToUnpack) and broker.large_batches.admit(len(records)):
                    data.records = records = bytearray(records)  # the request's memory is soon another's
                    large = large if large is not None else []
                    large.append(_Large(topic, data, records, partition.rules, results))
                    continue
                if isinstance(error, MuchToUnpack):
                    error = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "too many large batches wait to be unpacked; send it again")
                if first_error is None:
                    first_error = error
                results.append(_failed(data.index, error))
            else:
                answer = PartitionProduceResponse(
                    index=data.index,
                    base_offset=info.first_offset,
                    log_append_time_ms=info.log_append_time_ms,
                    log_start_offset=info.log_start_offset,
                )
                results.append(answer)
                if acks and partition.awaits(acks, info.last_offset + 1):
                    waits = waits if waits is not None else []
                    # After an ISR shrink nothing commits before enough replicas are back (R12, R13): the producer retries.
                    wait = CommitWait(partitions, partition, info.last_offset + 1, acks, ends_under_min_isr=acks == ACKS_ALL)
                    waits.append((wait, answer))
    if large is None:
        return _reply(request, context, answers, first_error, waits)
    size = sum(len(batch.records) for batch in large)
    try:
        reply = _reply(request, context, answers, first_error, waits)
    except CloseConnection:
        broker.large_batches.release(size)
        raise
    task = asyncio.ensure_future(_append_large(request, context, large, reply))
    task.add_done_callback(lambda _: broker.large_batches.release(size))  # also of one that is given up before it began
    return task


def _reply(
    request: ProduceRequest,
    context: RequestContext,
    answers: list[TopicProduceResponse],
    first_error: KafkaError | None,
    waits: Waits | None,
) -> Reply:
    """Now, or when what was appended is safe."""
    if request.acks == 0:
        if first_error is not None:
            raise CloseConnection(f"an acks=0 produce request that failed: {first_error}")
        return None
    response = ProduceResponse(responses=answers)
    if waits is None:
        if first_error is not None:
            _name_leaders(response, context)
        return response
    return wait_for_commits(
        context.broker.purgatory, [wait for wait, _ in waits], request.timeout_ms, lambda: _answer(response, waits, context)
    )


def _name_leaders(response: ProduceResponse, context: RequestContext) -> None:
    """Of the partitions that are led elsewhere (KIP-951)."""
    if context.version >= _LEADERS_FROM:
        response.node_endpoints = name_leaders(
            context.broker.partitions,
            context.broker.metadata,
            context.listener_name,
            _led_elsewhere(response, context),
            LeaderIdAndEpoch,
            NodeEndpoint,
        )


def _led_elsewhere(
    response: ProduceResponse, context: RequestContext
) -> Iterator[tuple[TopicPartition, PartitionProduceResponse]]:
    for topic in response.responses:
        name = context.broker.partitions.topic_name(topic.topic_id) if context.version >= _TOPIC_IDS_FROM else topic.name
        for answer in topic.partition_responses:
            if name is not None and answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                yield TopicPartition(name, answer.index), answer


def _answer(response: ProduceResponse, waits: Waits, context: RequestContext) -> ProduceResponse:
    for wait, answer in waits:
        answer.error_code = wait.error.code if wait.error is not None else ErrorCode.NONE
    if any(answer.error_code for topic in response.responses for answer in topic.partition_responses):
        _name_leaders(response, context)
    return response


def refuse(request: ProduceRequest, error: KafkaError) -> ProduceResponse | None:
    if request.acks == 0:
        return None
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[_failed(data.index, error) for data in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )


def _refusal_of_all(request: ProduceRequest, version: int) -> KafkaError | None:
    """What forbids the request as a whole; it is then the answer for each of its partitions."""
    if version < _FORMAT_V2_FROM:
        return KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, f"Produce version {version} is not supported, use {_FORMAT_V2_FROM} or above"
        )
    if request.transactional_id is None and _has_transactional_records(request):
        # One such batch speaks for all of them, before anything else is looked at.
        return KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactional records came without a transactional id"
        )
    if request.acks not in (-1, 0, 1):
        return KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be 0, 1 or -1 (all), not {request.acks}")
    return None


def _has_transactional_records(request: ProduceRequest) -> bool:
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if (
                isinstance(records, Buffer)
                and len(records) >= RECORDS_AT
                and records[_ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_BIT
                and len(records) >= LOG_OVERHEAD + _LENGTH.unpack_from(records, LENGTH_AT)[0]  # half a batch is none
            ):
                return True
    return False


def _uses_zstd(records: Buffer) -> bool:
    return len(records) > _ATTRIBUTES_LOW_BYTE and records[_ATTRIBUTES_LOW_BYTE] & 7 == _ZSTD


def _failed(index: int, error: KafkaError) -> PartitionProduceResponse:
    answer = PartitionProduceResponse(index=index, error_code=error.code, base_offset=-1, error_message=error.detail)
    if isinstance(error, RecordsRefused):
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=batch_index, batch_index_error_message=message)
            for batch_index, message in error.record_errors
        ]
    return answer
