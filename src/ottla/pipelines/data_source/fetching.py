"""Reads offset ranges in a task of Spark: fetches ahead, decodes into columns, yields Arrow record batches.

`failOnDataLoss` also applies here: data may be lost between planning and reading.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from ottla.client.blocking import BrokerAway, Client
from ottla.client.offsets import EARLIEST, list_offsets
from ottla.errors import ErrorCode, KafkaError, MalformedInput
from ottla.pipelines.data_source.offsets import OffsetRange
from ottla.pipelines.data_source.options import SourceOptions
from ottla.pipelines.data_source.planning import FAIL_ON_DATA_LOSS_HINT, DataLost
from ottla.pipelines.data_source.registry import NO_DECODINGS, Decoding, decoded, schema_headers
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from ottla.records.columns import BatchReader, Columns
from ottla.types import ZERO_UUID

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger("ottla.source")

ROWS_MAX: Final = 32_768
SIZE_BYTES_MAX: Final = 8 * 1024 * 1024
"""Limit of one Arrow batch, which is in memory twice: here and in the JVM."""
_FETCH_VERSION_MIN_BY_ID: Final = 13
_FETCH_VERSION_MAX: Final = 17
_WAIT_MS: Final = 500


class Fetcher:
    """Fetches the bytes of a range, one request ahead of the reader."""

    def __init__(self, client: Client, options: SourceOptions, entry: OffsetRange, topic_id: bytes) -> None:
        self._client = client
        self._options = options
        self._entry = entry
        self._topic_id = topic_id
        self._ahead: tuple[int, Callable[[], Any]] | None = None

    def fetch(self, offset: int) -> PartitionData:
        """The fetched data at this offset. Retries until the client's timeout."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            try:
                answer = ahead[1]()
                if ahead[0] == offset:
                    return _only(answer)
            except (BrokerAway, KafkaError) as error:
                # The request below has retries.
                logger.debug("Prefetch failed: %s", error)
        where = self._entry.where
        return _only(self._client.call_leader(where.topic, where.partition, self._request(offset), **self._versions))

    def ahead(self, offset: int) -> None:
        """Send the fetch of this offset while the caller decodes."""
        where = self._entry.where
        try:
            self._ahead = offset, self._client.send_leader(where.topic, where.partition, self._request(offset), **self._versions)
        except (BrokerAway, KafkaError) as error:
            logger.debug("Prefetch failed: %s", error)

    @property
    def _versions(self) -> dict[str, Any]:
        by_id = self._topic_id != ZERO_UUID
        return {"api": "fetch", "max_version": _FETCH_VERSION_MAX if by_id else _FETCH_VERSION_MIN_BY_ID - 1}

    def _request(self, offset: int) -> Callable[[int], FetchRequest]:
        where, size = self._entry.where, self._options.fetch_bytes

        def request(version: int) -> FetchRequest:
            return FetchRequest(
                max_wait_ms=_WAIT_MS,
                min_bytes=1,
                max_bytes=size,
                isolation_level=1 if self._options.read_committed else 0,
                topics=[
                    FetchTopic(
                        topic=where.topic,
                        topic_id=self._topic_id if version >= _FETCH_VERSION_MIN_BY_ID else ZERO_UUID,
                        partitions=[FetchPartition(partition=where.partition, fetch_offset=offset, partition_max_bytes=size)],
                    )
                ],
            )

        return request


def _only(answer: Any) -> PartitionData:
    found: PartitionData = answer.responses[0].partitions[0]
    return found


def read_ranges(
    options: SourceOptions,
    entries: Iterable[tuple[OffsetRange, bytes]],
    schema: pa.Schema,
    decodings: Mapping[str, Decoding] = NO_DECODINGS,
) -> Iterator[pa.RecordBatch]:
    """The rows of these ranges, in order. Each range comes with the id of its topic."""
    with Client(options.client) as client:
        yield from read_with(client, options, entries, schema, decodings)


def read_with(
    client: Client,
    options: SourceOptions,
    entries: Iterable[tuple[OffsetRange, bytes]],
    schema: pa.Schema,
    decodings: Mapping[str, Decoding] = NO_DECODINGS,
) -> Iterator[pa.RecordBatch]:
    """`read_ranges` by a client that stays open. If it is not read to its end, a fetch may be under way."""
    for entry, topic_id in entries:
        yield from _read_range(client, options, entry, topic_id, schema, decodings)


def _read_range(
    client: Client,
    options: SourceOptions,
    entry: OffsetRange,
    topic_id: bytes,
    schema: pa.Schema,
    decodings: Mapping[str, Decoding],
) -> Iterator[pa.RecordBatch]:
    """The rows of a range. Each offset is read, skipped (compacted, control batch, aborted) or reported as lost."""
    columns = Columns(bool(decodings) or (options.include_headers and "headers" in schema.names))
    fetcher = Fetcher(client, options, entry, topic_id)
    offset = entry.start
    idle = 0
    while offset < entry.end:
        try:
            data = fetcher.fetch(offset)
        except KafkaError as error:
            offset = _after_loss(client, options, entry, offset, error)
            continue
        aborted = [(txn.producer_id, txn.first_offset) for txn in data.aborted_transactions or ()]
        assert isinstance(data.records, memoryview | bytes | bytearray | None)
        reader = BatchReader(data.records or b"", offset, entry.end, aborted, options.read_committed)
        after = reader.end_offset()
        if offset < after < entry.end:
            fetcher.ahead(after)
        try:
            while reader.fill(columns, ROWS_MAX, SIZE_BYTES_MAX):
                yield to_arrow(columns, entry, schema, decodings)
                columns.clear()
        except MalformedInput as error:
            raise MalformedInput(f"{entry.where} at offset {reader.next_offset}: {error}") from None
        idle = 0 if reader.next_offset > offset else idle + 1
        if idle * _WAIT_MS > options.client.api_timeout_ms:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{entry.where} returns no records at offset {offset} (high watermark {data.high_watermark}); "
                f"the query wants {entry.start} to {entry.end - 1}",
            )
        offset = reader.next_offset
    if columns.rows:
        yield to_arrow(columns, entry, schema, decodings)


def _after_loss(client: Client, options: SourceOptions, entry: OffsetRange, offset: int, error: KafkaError) -> int:
    """The offset to continue at after lost data. Raises with failOnDataLoss, or if the error is not about lost data."""
    where = entry.where
    if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
        first = list_offsets(client, {where: EARLIEST})[where].offset
        after = min(first, entry.end) if first > offset else entry.end
        what = f"offsets {offset} to {after - 1} of {where} are gone: its log now starts at {first}"
    elif error.code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        after = entry.end
        what = f"{where} was deleted before the query read its offsets {offset} to {entry.end - 1}"
    else:
        raise error
    if options.fail_on_data_loss:
        raise DataLost(f"{what}; {FAIL_ON_DATA_LOSS_HINT}")
    logger.warning("%s; continuing with the remaining records", what)
    return after


def to_arrow(
    columns: Columns, entry: OffsetRange, schema: pa.Schema, decodings: Mapping[str, Decoding] = NO_DECODINGS
) -> pa.RecordBatch:
    """The columns of the schema as an Arrow batch. DoesNotDecode."""
    import pyarrow as pa

    rows = columns.rows

    def bytes_array(kind: pa.DataType, column: Any) -> pa.Array:
        return pa.Array.from_buffers(kind, column.rows, _buffers(*column.buffers()), column.nulls)

    def headers_array(kind: pa.DataType) -> pa.Array:
        element = kind.value_type
        keys = bytes_array(element.field(0).type, columns.header_keys)
        values = bytes_array(element.field(1).type, columns.header_values)
        pairs = pa.StructArray.from_arrays([keys, values], fields=[element.field(0), element.field(1)])
        return pa.Array.from_buffers(kind, rows, _buffers(*columns.headers()), columns.headers_null, children=[pairs])

    def make(name: str, kind: pa.DataType) -> pa.Array:
        decoding = decodings.get(name)
        if decoding is not None:
            given = bytes_array(pa.binary(), columns.keys if name == "key" else columns.values)
            headers = None
            if decoding.header.encode() in columns.header_keys.buffers()[2]:
                kind_of_headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
                headers = schema_headers(headers_array(kind_of_headers), decoding.header)
            return decoded(given, headers, decoding, kind, place_of)
        if name == "key":
            return bytes_array(kind, columns.keys)
        if name == "value":
            return bytes_array(kind, columns.values)
        if name == "topic":
            topic = entry.where.topic.encode()
            return pa.Array.from_buffers(kind, rows, _buffers(None, _steps(len(topic), rows), topic * rows), 0)
        if name == "partition":
            number = entry.where.partition.to_bytes(4, "little", signed=True)
            return pa.Array.from_buffers(kind, rows, _buffers(None, number * rows), 0)
        if name == "offset":
            return pa.Array.from_buffers(kind, rows, _buffers(None, columns.offsets()), 0)
        if name == "timestamp":
            return pa.Array.from_buffers(kind, rows, _buffers(None, columns.timestamps_us()), 0)
        if name == "timestampType":
            return pa.Array.from_buffers(kind, rows, _buffers(None, columns.timestamp_types()), 0)
        assert name == "headers"
        return headers_array(kind)

    def place_of(row: int) -> str:
        offset = int.from_bytes(columns.offsets()[8 * row : 8 * row + 8], "little")
        return f"{entry.where} offset {offset}"

    return pa.RecordBatch.from_arrays([make(field.name, field.type) for field in schema], schema=schema)


def _buffers(*parts: bytes | None) -> list[Any]:
    import pyarrow as pa

    return [None if part is None else pa.py_buffer(part) for part in parts]


def _steps(size: int, rows: int) -> bytes:
    """Arrow's offsets buffer for `rows` strings of one size."""
    from array import array

    steps = array("i", range(0, size * rows + 1, size)) if size else array("i", bytes(4 * (rows + 1)))
    return steps.tobytes()
