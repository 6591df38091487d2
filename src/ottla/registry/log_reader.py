"""Reads `_schemas` from its start and goes on, record by record, into the state.

1. Records are applied in the order of their offsets, each once.
2. It never stops for a record: what is refused is logged with its offset (SR11).
3. While no broker answers it goes on trying; the state stays as it is.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final, Protocol

from ottla.client.brokers import BrokerFailed
from ottla.errors import ErrorCode, KafkaError, MalformedInput
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.records.batch import scan_batches
from ottla.records.record import read_records
from ottla.registry.partition import Partition

_FETCH_VERSIONS: Final = (4, 12)
_LIST_OFFSETS_VERSIONS: Final = (1, 7)
_FETCH_BYTES: Final = 4 << 20
_FETCH_WAIT_MS: Final = 5_000
_PAUSE_S: Final = 0.5
_EARLIEST, _LATEST = -2, -1
_CONSUMER: Final = -1

logger = logging.getLogger("ottla.registry")


class Replica(Protocol):
    """What the log is read into."""

    def apply(self, key: bytes | None, value: bytes | None) -> str | None:
        """Apply a record. Returns why it is refused."""
        ...

    def clear(self) -> None:
        """Forget everything: the log is read again from its start."""
        ...


class LogReader:
    def __init__(self, partition: Partition, replica: Replica) -> None:
        self._partition = partition
        self._replica = replica
        self.next_offset = -1
        """The first offset that is not applied yet; -1 before the first record is looked for."""
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    async def end(self) -> int:
        """The offset that the next record of the log gets. BrokerFailed, KafkaError."""
        return await self._offset_at(_LATEST)

    async def run(self) -> None:
        """Read until cancelled."""
        silent = False
        while True:
            try:
                if self.next_offset < 0:
                    self._move_to(await self._offset_at(_EARLIEST))
                await self._read()
                silent = False
            except (BrokerFailed, KafkaError, MalformedInput) as error:
                if not silent:
                    logger.warning("Cannot read %s, trying again: %s", self._partition, error)
                silent = True
                await asyncio.sleep(_PAUSE_S)

    async def reach(self, offset: int, timeout_s: float) -> None:
        """Wait until everything before this offset is applied. TimeoutError."""
        if self.next_offset >= offset:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = offset, future
        self._waiting.append(waiting)
        try:
            await asyncio.wait_for(future, timeout_s)
        finally:
            if waiting in self._waiting:
                self._waiting.remove(waiting)

    async def _read(self) -> None:
        request = FetchRequest(
            replica_id=_CONSUMER,
            max_wait_ms=_FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=_FETCH_BYTES,
            topics=[
                FetchTopic(
                    topic=self._partition.topic,
                    partitions=[FetchPartition(partition=0, fetch_offset=self.next_offset, partition_max_bytes=_FETCH_BYTES)],
                )
            ],
        )
        answer = await self._partition.call("fetch", request, _FETCH_VERSIONS)
        if answer.error_code:
            raise self._partition.failed(answer.error_code)
        part = answer.responses[0].partitions[0]
        if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._return_to_log()
        elif part.error_code:
            raise self._partition.failed(part.error_code)
        elif part.records:
            self._apply_batches(part.records)
            await asyncio.sleep(0)  # a long log must not keep requests waiting

    def _apply_batches(self, data: Any) -> None:
        batches, _ = scan_batches(data)
        for batch in batches:
            if batch.last_offset < self.next_offset:
                continue
            for record in () if batch.is_control else read_records(data, batch):
                if record.offset >= self.next_offset:
                    why = self._replica.apply(record.key, record.value)
                    if why is not None:
                        key = (record.key or b"").decode("utf-8", "replace")
                        logger.error("Record %s at offset %d of %s is skipped: %s", key, record.offset, self._partition, why)
            self._move_to(batch.last_offset + 1)

    async def _return_to_log(self) -> None:
        """The log does not have our offset: its start moved on, or it is shorter than it was."""
        start, end = await self._offset_at(_EARLIEST), await self._offset_at(_LATEST)
        if self.next_offset > end:
            logger.error(
                "%s ends at offset %d, but this registry has read to %d: the topic lost records or was created again. "
                "Reading it again from its start",
                self._partition,
                end,
                self.next_offset,
            )
            self._replica.clear()
        self._move_to(start)

    def _move_to(self, offset: int) -> None:
        self.next_offset = offset
        for waiting in list(self._waiting):
            offset, future = waiting
            if offset <= self.next_offset:
                self._waiting.remove(waiting)
                if not future.done():
                    future.set_result(None)

    async def _offset_at(self, position: int) -> int:
        request = ListOffsetsRequest(
            replica_id=_CONSUMER,
            topics=[
                ListOffsetsTopic(
                    name=self._partition.topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=position)]
                )
            ],
        )
        answer = await self._partition.call("list_offsets", request, _LIST_OFFSETS_VERSIONS)
        part = answer.topics[0].partitions[0]
        if part.error_code:
            raise self._partition.failed(part.error_code)
        return int(part.offset)
