"""Produce: append record batches to partitions that this broker leads.

When a request is answered depends on its acks (`produce_replies`).
Versions 0 to 2 carry message formats that are not stored. They are advertised, because librdkafka takes their absence for an
ancient broker (KAFKA-18659), and answered with UNSUPPORTED_VERSION. From version 13 on topics are named by id.
Transactional records are appended if the partition is part of the producer's transaction (`produce_txn`).
A batch that decompresses to megabytes is validated in a worker (`large_batches`) and appended afterwards. The connection's next
request waits for it, so a producer's batches keep their order.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from ottla.broker.coordinators.transaction_verifier import Refusals, RefusalsLater, TransactionVerifier
from ottla.broker.handlers.produce_replies import ProduceReplies, Reply, Wait
from ottla.broker.handlers.produce_txn import verify
from ottla.broker.network.context import CloseConnection, RequestContext
from ottla.broker.replicas.large_batches import LargeBatches
from ottla.broker.replicas.partition import ACKS_ALL, Partition, VerifiedTransaction
from ottla.broker.replicas.partitions import Partitions
from ottla.errors import ErrorCode, KafkaError
from ottla.ports import Clock
from ottla.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.records.batch import is_transactional
from ottla.records.validate import Checked, MuchToUnpack, RecordsRefused
from ottla.types import Buffer, TopicPartition

_FORMAT_V2_FROM: Final = 3
_ZSTD_FROM: Final = 7
_BUMPS_EPOCHS_FROM: Final = 12
_TOPIC_IDS_FROM: Final = 13
_ZSTD: Final = 4
_ATTRIBUTES_LOW_BYTE: Final = 22


def handle(
    partitions: Partitions,
    produce_replies: ProduceReplies,
    verifier: TransactionVerifier,
    large_batches: LargeBatches,
    clock: Clock,
    request: ProduceRequest,
    context: RequestContext,
) -> Reply:
    return _Produce(partitions, produce_replies, verifier, large_batches, clock, context).answer(request, None)


class _LargeBatch(NamedTuple):
    """A batch that a worker has to validate, and the place of its response."""

    topic: TopicProduceData
    data: PartitionProduceData
    records: Buffer
    partition: Partition
    responses: list[PartitionProduceResponse]


class _Produce:
    """One request: its collaborators, and what became of its batches so far."""

    def __init__(
        self,
        partitions: Partitions,
        replies: ProduceReplies,
        verifier: TransactionVerifier,
        large_batches: LargeBatches,
        clock: Clock,
        context: RequestContext,
    ) -> None:
        self._partitions = partitions
        self._replies = replies
        self._verifier = verifier
        self._large_batches = large_batches
        self._clock = clock
        self._context = context
        self._version = context.version
        self._first_error: KafkaError | None = None
        self._waits: list[Wait] | None = None
        """Appended records that are not committed yet."""
        self._large: list[_LargeBatch] | None = None

    def answer(self, request: ProduceRequest, validated: list[Checked | KafkaError] | None) -> Reply:
        """`validated` are the results of batches that a worker has validated, in the order of the request."""
        refusal = self._refusal(request)
        if request.transactional_id is None or refusal is not None:
            return self._append(request, refusal, None, validated)
        try:
            refusals = verify(self._partitions, self._verifier, request, self._version)
        except KafkaError as error:
            return self._append(request, error, None, validated)
        if isinstance(refusals, dict):
            return self._append(request, None, refusals, validated)
        for topic in request.topic_data:
            for data in topic.partition_data:
                if data.records is not None:
                    data.records = bytearray(data.records)  # the receive buffer is reused once `handle` returns
        return self._append_verified(request, refusals, validated)

    def _refusal(self, request: ProduceRequest) -> KafkaError | None:
        """Why no batch of the request may be appended."""
        if self._version < _FORMAT_V2_FROM:
            return KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Produce version {self._version} is not supported, use {_FORMAT_V2_FROM} or above",
            )
        if request.transactional_id is None and _has_transactional_records(request):
            return KafkaError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactional records came without a transactional id"
            )
        acks = request.acks
        if acks != 1 and acks != ACKS_ALL and acks != 0:
            return KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be 0, 1 or -1 (all), not {acks}")
        return None

    async def _append_verified(
        self, request: ProduceRequest, refusals: RefusalsLater, validated: list[Checked | KafkaError] | None
    ) -> ProduceResponse | None:
        return await _awaited(self._append(request, None, await refusals(), validated))

    def _append(
        self,
        request: ProduceRequest,
        refusal: KafkaError | None,
        refusals: Refusals | None,
        validated: list[Checked | KafkaError] | None,
    ) -> Reply:
        """Append to all partitions of the request; to none with `refusal`, and not to the partitions in `refusals`."""
        transaction = VerifiedTransaction(self._version >= _BUMPS_EPOCHS_FROM) if refusals is not None else None
        acks = request.acks
        now_ms = self._clock.now_ms()
        topics: list[TopicProduceResponse] = []
        place = -1
        for topic in request.topic_data:
            responses: list[PartitionProduceResponse] = []
            topics.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=responses))
            for data in topic.partition_data:
                place += 1
                try:
                    partition = self._writable(topic, data, refusal, refusals)
                    records = data.records if data.records is not None else b""
                    checked: Checked | None = None
                    if validated is not None:
                        result = validated[place]
                        if isinstance(result, KafkaError):
                            raise result
                        checked = result
                    info = partition.append(records, acks, now_ms, transaction=transaction, checked=checked)
                except MuchToUnpack:
                    self._validate_later(topic, data, partition, responses)
                except KafkaError as error:
                    self._count_failure(topic, data, error)
                    responses.append(self._failed(data.index, error))
                else:
                    response = PartitionProduceResponse(
                        index=data.index,
                        base_offset=info.first_offset,
                        log_append_time_ms=info.log_append_time_ms,
                        log_start_offset=info.log_start_offset,
                    )
                    responses.append(response)
                    if acks != 0 and partition.awaits(acks, info.last_offset + 1):
                        self._wait(partition, acks, info.last_offset + 1, response)
        return self._reply(request, topics) if self._large is None else self._reply_later(request, topics, self._large)

    def _writable(
        self, topic: TopicProduceData, data: PartitionProduceData, refusal: KafkaError | None, refusals: Refusals | None
    ) -> Partition:
        """The partition of a batch, if the request may write to it."""
        if refusal is not None:
            raise refusal
        name = topic.name
        if self._version >= _TOPIC_IDS_FROM:
            found = self._partitions.topic_name(topic.topic_id)
            if found is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {topic.topic_id.hex()}")
            name = found
        elif self._version < _ZSTD_FROM and _uses_zstd(data.records):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce version {_ZSTD_FROM}, this is {self._version}"
            )
        key = (name, data.index)
        if refusals and key in refusals:
            raise refusals[TopicPartition(name, data.index)]
        partition = self._partitions.by_key.get(key)
        return partition if partition is not None else self._partitions.get(TopicPartition(name, data.index))

    def _wait(self, partition: Partition, acks: int, end_offset: int, response: PartitionProduceResponse) -> None:
        if self._waits is None:
            self._waits = []
        self._waits.append((self._replies.wait(partition, acks, end_offset), response))

    def _reply(self, request: ProduceRequest, topics: list[TopicProduceResponse]) -> Reply:
        return self._replies.reply(request, self._context, topics, self._waits, self._first_error)

    def _failed(self, index: int, error: KafkaError) -> PartitionProduceResponse:
        if self._first_error is None:
            self._first_error = error
        return _failed(index, error)

    def _count_failure(self, topic: TopicProduceData, data: PartitionProduceData, error: KafkaError) -> None:
        name = self._partitions.topic_name(topic.topic_id) if self._version >= _TOPIC_IDS_FROM else topic.name
        partition = self._partitions.by_key.get((name, data.index)) if name is not None else None
        if partition is not None and partition.traffic is not None:
            partition.traffic.append_failed(error, len(data.records) if data.records is not None else 0)

    # Large batches

    def _validate_later(
        self,
        topic: TopicProduceData,
        data: PartitionProduceData,
        partition: Partition,
        responses: list[PartitionProduceResponse],
    ) -> None:
        assert data.records is not None
        if not self._large_batches.admit(len(data.records)):
            busy = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "too many large batches wait for validation; send it again")
            responses.append(self._failed(data.index, busy))
            return
        data.records = records = bytearray(data.records)  # the receive buffer is reused once `handle` returns
        if self._large is None:
            self._large = []
        self._large.append(_LargeBatch(topic, data, records, partition, responses))

    def _reply_later(self, request: ProduceRequest, topics: list[TopicProduceResponse], large: list[_LargeBatch]) -> Reply:
        large_batches = self._large_batches
        size = sum(len(batch.records) for batch in large)
        try:
            reply = self._reply(request, topics)
        except CloseConnection:
            large_batches.release(size)
            raise
        task = asyncio.ensure_future(self._append_large(request, large, reply))
        task.add_done_callback(lambda _: large_batches.release(size))  # also if it is cancelled before it began
        return task

    async def _append_large(self, request: ProduceRequest, large: list[_LargeBatch], others: Reply) -> ProduceResponse | None:
        """Validate the large batches in a worker, and append them as a request of their own: a transaction may have ended
        meanwhile. `others` is the reply to the rest of the request."""
        validated: list[Checked | KafkaError] = []
        for batch in large:
            try:
                validated.append(await self._large_batches.check(batch.records, batch.partition.rules))
            except KafkaError as error:
                validated.append(error)
        topics = [TopicProduceData(name=b.topic.name, topic_id=b.topic.topic_id, partition_data=[b.data]) for b in large]
        again = ProduceRequest(
            transactional_id=request.transactional_id, acks=request.acks, timeout_ms=request.timeout_ms, topic_data=topics
        )
        produce = _Produce(self._partitions, self._replies, self._verifier, self._large_batches, self._clock, self._context)
        reply = await _awaited(produce.answer(again, validated))
        response = await _awaited(others)
        if reply is not None:
            for batch, answer in zip(large, reply.responses, strict=True):
                batch.responses.extend(answer.partition_responses)
            if response is not None and reply.node_endpoints:
                self._replies.name_leaders(response, self._context)
        return response


async def _awaited(reply: Reply) -> ProduceResponse | None:
    return reply if reply is None or isinstance(reply, ProduceResponse) else await reply


def _has_transactional_records(request: ProduceRequest) -> bool:
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if records is not None and is_transactional(records):
                return True
    return False


def _uses_zstd(records: Buffer | None) -> bool:
    return records is not None and len(records) > _ATTRIBUTES_LOW_BYTE and records[_ATTRIBUTES_LOW_BYTE] & 7 == _ZSTD


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


def _failed(index: int, error: KafkaError) -> PartitionProduceResponse:
    response = PartitionProduceResponse(index=index, error_code=int(error.code), base_offset=-1, error_message=error.detail)
    if isinstance(error, RecordsRefused):
        response.record_errors = [
            BatchIndexAndErrorMessage(batch_index=batch_index, batch_index_error_message=message)
            for batch_index, message in error.record_errors
        ]
    return response
