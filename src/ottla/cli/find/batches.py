"""Reads the record batches of partitions, decompressed, without looking at single records. Never prints.

A fetch is on its way while the one before it is searched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from ottla.cli.connection import Connection, split_servers
from ottla.cli.failure import Failure
from ottla.client.blocking import BrokerAway, Client
from ottla.client.offsets import EARLIEST, list_offsets
from ottla.client.options import ClientOptions
from ottla.errors import ErrorCode, KafkaError, MalformedInput
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from ottla.records.batch import BatchInfo
from ottla.records.columns import BatchReader
from ottla.types import TopicPartition

Section = tuple[BatchInfo, bytes]
"""A batch and the fields of its records, as `records.walk` knows them."""

FETCH_BYTES: Final = 4 << 20
_WITH_TOPIC_NAMES: Final = 12
"""From version 13 on a fetch names topics by their ids."""
_WAIT_MS: Final = 100
_PATIENCE_MS: Final = 15_000


class BatchSource:
    """A client of its own. One thread at a time may use it."""

    def __init__(self, connection: Connection, isolation: str) -> None:
        servers = tuple(split_servers(connection.bootstrap_servers))
        options = ClientOptions(
            servers, client_id="ottla-cli", security=connection.security, api_timeout_ms=_PATIENCE_MS, metadata_max_age_ms=60_000
        )
        self._servers = connection.bootstrap_servers
        self._client = Client(options)
        self._committed = isolation == "read_committed"
        self._read_bytes = self._read_offsets = self._batch_bytes_max = 0

    def close(self) -> None:
        self._client.close()

    def read(self, where: TopicPartition, start: int, end: int, fetch_bytes: int = FETCH_BYTES) -> Iterator[Section]:
        """The batches that have visible records in [start, end). Compacted records, markers and aborted records have none.

        Records that retention deletes meanwhile are left out. The caller must end the iteration before it begins another.
        """
        try:
            yield from self._read(where, start, end, fetch_bytes)
        except BrokerAway as error:
            raise Failure(f"the broker at {self._servers} went down before the end", str(error), code="BROKER_AWAY") from None
        except KafkaError as error:
            raise Failure(f"{where.topic}-{where.partition}: {error}", code=error.code.name) from None

    def _read(self, where: TopicPartition, start: int, end: int, fetch_bytes: int) -> Iterator[Section]:
        at, idle_ms = start, 0
        ahead: Callable[[], Any] | None = None
        try:
            while at < end:
                try:
                    data = self._fetch(where, at, self._size(at, end, fetch_bytes), ahead)
                except KafkaError as error:
                    if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                        raise
                    at = self._after_deletion(where, at, end)
                    continue
                finally:
                    ahead = None
                reader = self._reader(data, at, end)
                after = reader.end_offset()
                if at < after < end:
                    ahead = self._ahead(where, after, self._size(after, end, fetch_bytes))
                yield from self._sections(where, reader)
                if reader.next_offset > at:
                    idle_ms = 0
                    self._read_offsets += reader.next_offset - at
                elif self._ends_at(data) <= at:
                    return  # nothing visible is left: the log was cut
                elif (idle_ms := idle_ms + _WAIT_MS) > _PATIENCE_MS:
                    raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"no records come at offset {at}")
                at = reader.next_offset
        finally:
            if ahead is not None:
                self._drop(ahead)

    def _reader(self, data: PartitionData, start: int, end: int) -> BatchReader:
        aborted = [(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()]
        records: Any = data.records
        return BatchReader(b"" if records is None else records, start, end, aborted, self._committed)

    def _sections(self, where: TopicPartition, reader: BatchReader) -> Iterator[Section]:
        while True:
            try:
                found = reader.next_section()
            except MalformedInput as error:
                raise Failure(
                    f"{where.topic}-{where.partition} at offset {reader.next_offset}: {error}",
                    "see `ottla log dump` on the broker",
                    code="CORRUPT_MESSAGE",
                ) from None
            if found is None:
                return
            self._read_bytes += found[0].size
            self._batch_bytes_max = max(self._batch_bytes_max, found[0].size)
            yield found

    def _size(self, at: int, end: int, most: int) -> int:
        """How much to fetch for the offsets up to `end`, by the batches so far: the last one whole, and little beyond it."""
        if not self._read_offsets:
            return most
        needed = (end - at) * self._read_bytes // self._read_offsets
        return min(most, needed + needed // 32 + self._batch_bytes_max)

    def _ends_at(self, data: PartitionData) -> int:
        return data.last_stable_offset if self._committed and data.last_stable_offset >= 0 else data.high_watermark

    def _fetch(self, where: TopicPartition, offset: int, size: int, ahead: Callable[[], Any] | None) -> PartitionData:
        if ahead is not None:
            try:
                return _only(ahead())
            except (BrokerAway, KafkaError):
                pass  # the one below is repeated
        request = self._request(where, offset, size)
        return _only(self._client.call_leader(where.topic, where.partition, request, max_version=_WITH_TOPIC_NAMES))

    def _ahead(self, where: TopicPartition, offset: int, size: int) -> Callable[[], Any] | None:
        request = self._request(where, offset, size)
        try:
            return self._client.send_leader(where.topic, where.partition, request, max_version=_WITH_TOPIC_NAMES)
        except (BrokerAway, KafkaError):
            return None

    def _request(self, where: TopicPartition, offset: int, size: int) -> FetchRequest:
        asked = FetchPartition(partition=where.partition, fetch_offset=offset, partition_max_bytes=size)
        return FetchRequest(
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=size,
            isolation_level=int(self._committed),
            topics=[FetchTopic(topic=where.topic, partitions=[asked])],
        )

    def _after_deletion(self, where: TopicPartition, offset: int, end: int) -> int:
        first = list_offsets(self._client, {where: EARLIEST})[where].offset
        return min(first, end) if first > offset else end

    def _drop(self, ahead: Callable[[], Any]) -> None:
        """Take the answer that nobody waits for: the next one on the connection must be that of the next request."""
        try:
            ahead()
        except (BrokerAway, KafkaError):
            pass


def _only(answer: Any) -> PartitionData:
    found: PartitionData = answer.responses[0].partitions[0]
    return found
