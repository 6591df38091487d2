"""Appends to `_schemas` with acks=all, as the only producer of its kind (SR16).

The producer has a transactional id, although it makes no transactions: the coordinator gives each new writer a higher epoch, and
once the new writer's first record is in the log, the partition refuses what an old writer still sends. So a leader that was
paused cannot overwrite what its successor wrote.

1. `begin` is called before the first append, and again after any failure, so that it is known what a failed append did.
2. An append is retried with the same sequence numbers, so that it is in the log once.
3. `Fenced`: another writer has begun since. Nothing more is written until `begin`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from ottla.client.brokers import BrokerFailed
from ottla.client.channel import error_code
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.batch import SEQUENCE_MAX
from ottla.records.record import build_batch
from ottla.registry.log_format import LogRecord
from ottla.registry.partition import TRANSACTION, Partition

T = TypeVar("T")

_ALL_IN_SYNC: Final = -1
_INIT_VERSIONS: Final = (0, 4)
_PRODUCE_VERSIONS: Final = (3, 9)
_TRANSACTION_TIMEOUT_MS: Final = 60_000
_REQUEST_TIMEOUT_MS: Final = 10_000
_BACKOFF_S: Final = 0.1
_FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})


class Fenced(Exception):
    """Another registry writes now."""


class WriteFailed(Exception):
    """Whether the records are in the log is unknown. `begin` finds out."""


class TooLarge(Exception):
    """The topic does not take a record of this size. It is not in the log."""


class LogWriter:
    def __init__(self, partition: Partition, transactional_id: str, now_ms: Callable[[], int]) -> None:
        """`now_ms` is the time of records."""
        self._partition = partition
        self._now_ms = now_ms
        self._transactional_id = transactional_id
        self._producer_id = self._epoch = -1
        self._sequence = 0

    async def begin(self, timeout_s: float) -> None:
        """Become the writer: appends of the writer before are refused after our first one. WriteFailed."""
        self._producer_id, self._epoch = await self._persist(self._init, timeout_s)
        self._sequence = 0

    async def append(self, records: Sequence[LogRecord], timeout_s: float) -> int:
        """Append records as one batch. Returns the offset after the last one. Fenced, WriteFailed, TooLarge."""
        assert self._producer_id >= 0, "append before begin"
        now_ms = self._now_ms()
        batch = build_batch(
            [(key, value, (), now_ms) for key, value in records],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=self._sequence,
        )
        try:
            base_offset = await self._persist(lambda: self._produce(batch), timeout_s)
        except (WriteFailed, Fenced):
            self._producer_id = -1
            raise
        self._sequence = (self._sequence + len(records)) & SEQUENCE_MAX
        return base_offset + len(records)

    @property
    def has_begun(self) -> bool:
        return self._producer_id >= 0

    def stop(self) -> None:
        """Append nothing more until `begin`."""
        self._producer_id = -1

    async def _persist(self, attempt: Callable[[], Awaitable[T]], timeout_s: float) -> T:
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_s
        while True:
            try:
                return await attempt()
            except KafkaError as error:
                if error.code in _FENCED:
                    raise Fenced(str(error)) from None
                if error.code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
                    raise TooLarge(str(error)) from None
                failure: Exception = error
                retriable = error.code.retriable
            except BrokerFailed as error:
                failure, retriable = error, True
            if not retriable or loop.time() + _BACKOFF_S > until:
                raise WriteFailed(f"cannot write to {self._partition}: {failure}") from None
            await asyncio.sleep(_BACKOFF_S)

    async def _init(self) -> tuple[int, int]:
        request = InitProducerIdRequest(transactional_id=self._transactional_id, transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS)
        answer = await self._partition.call_coordinator(
            self._transactional_id, TRANSACTION, "init_producer_id", request, _INIT_VERSIONS
        )
        if answer.error_code:
            raise KafkaError(error_code(answer.error_code), f"transactional id {self._transactional_id}")
        return answer.producer_id, answer.producer_epoch

    async def _produce(self, batch: bytes) -> int:
        request = ProduceRequest(
            acks=_ALL_IN_SYNC,
            timeout_ms=_REQUEST_TIMEOUT_MS,
            topic_data=[
                TopicProduceData(name=self._partition.topic, partition_data=[PartitionProduceData(index=0, records=batch)])
            ],
        )
        answer = await self._partition.call("produce", request, _PRODUCE_VERSIONS)
        part = answer.responses[0].partition_responses[0]
        if part.error_code:
            raise self._partition.failed(part.error_code)
        return int(part.base_offset)
