"""Record batches into columns and back (F78): the same records as `read_records` finds, in Arrow's layout."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.errors import MalformedInput
from ottla.records import compression
from ottla.records.batch import scan_batches
from ottla.records.column_writer import BatchWriter, BytesInput, HeadersInput
from ottla.records.columns import BatchReader, BytesColumn, Columns
from ottla.records.control import ABORT, COMMIT, marker_fields
from ottla.records.partitioner import murmur2, partition_of_keys
from ottla.records.record import Fields, Record, build_batch, read_records
from ottla.records.validate import Rules, check

NOW = 1_700_000_000_000
ALL = 1 << 62
CODECS = range(5)
ACCEPTED = Rules(timestamp_after_max_ms=1 << 62)

field = st.none() | st.binary(max_size=40) | st.integers(25, 300).map(lambda size: bytes(size))
header = st.tuples(st.text(max_size=6), st.none() | st.binary(max_size=30))
fields = st.tuples(field, field, st.lists(header, max_size=3), st.integers(0, 1 << 41))


def column_values(column: BytesColumn) -> list[bytes | None]:
    validity, offsets, data = column.buffers()
    ends = struct.unpack(f"<{column.rows + 1}i", offsets)
    assert len(data) == ends[-1]
    found: list[bytes | None] = []
    for row in range(column.rows):
        null = validity is not None and not validity[row >> 3] >> (row & 7) & 1
        found.append(None if null else data[ends[row] : ends[row + 1]])
        assert not null or ends[row] == ends[row + 1]
    assert found.count(None) == column.nulls
    assert validity is None or len(validity) == (column.rows + 7) // 8
    return found


def rows_of(columns: Columns) -> list[Record]:
    count = columns.rows
    offsets = struct.unpack(f"<{count}q", columns.offsets())
    times = struct.unpack(f"<{count}q", columns.timestamps_us())
    keys, values = column_values(columns.keys), column_values(columns.values)
    headers: list[list[tuple[str, bytes | None]]] = [[] for _ in range(count)]
    if columns.with_headers:
        validity, bounds = columns.headers()
        ends = struct.unpack(f"<{count + 1}i", bounds)
        names, contents = column_values(columns.header_keys), column_values(columns.header_values)
        for row in range(count):
            headers[row] = [((names[at] or b"").decode("utf-8", "replace"), contents[at]) for at in range(*ends[row : row + 2])]
            assert bool(headers[row]) == (validity is None or bool(validity[row >> 3] >> (row & 7) & 1))
    assert all(time % 1000 == 0 for time in times)
    return [Record(offsets[i], times[i] // 1000, keys[i], values[i], headers[i]) for i in range(count)]


def read(data: bytes, start: int = 0, end: int = ALL, **options: Any) -> tuple[list[Record], int]:
    columns = Columns(with_headers=True)
    reader = BatchReader(memoryview(data), start, end, **options)
    assert not reader.fill(columns, ALL, ALL)
    return rows_of(columns), reader.next_offset


def expected(data: bytes | bytearray) -> list[Record]:
    return [record for info in scan_batches(data)[0] for record in read_records(data, info)]


def plain(*values: bytes, **options: Any) -> bytes:
    return build_batch([(None, value, (), NOW) for value in values], **options)


def column_of(values: list[bytes | None], first: int = 0) -> BytesInput:
    data = b"".join(value or b"" for value in values)
    offsets = [0]
    for value in values:
        offsets.append(offsets[-1] + len(value or b""))
    bits = bytearray((len(values) + 7) // 8)
    for row, value in enumerate(values):
        bits[row >> 3] |= (value is not None) << (row & 7)
    return BytesInput(bytes(bits) if None in values else None, struct.pack(f"<{len(offsets)}i", *offsets), data, first)


def headers_of(lists: list[list[tuple[str, bytes | None]]]) -> HeadersInput:
    offsets = [0]
    for entry in lists:
        offsets.append(offsets[-1] + len(entry))
    bits = bytearray((len(lists) + 7) // 8)
    for row, entry in enumerate(lists):
        bits[row >> 3] |= bool(entry) << (row & 7)
    keys = column_of([name.encode() for entry in lists for name, _ in entry])
    values = column_of([value for entry in lists for _, value in entry])
    return HeadersInput(bytes(bits), struct.pack(f"<{len(offsets)}i", *offsets), keys, values)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(fields, min_size=1, max_size=20), max_size=4), st.sampled_from(CODECS), st.booleans())
def test_f78_columns_hold_what_the_batches_hold(batches: list[list[Fields]], codec: int, append_time: bool) -> None:
    data, offset = b"", 5
    for records in batches:
        data += build_batch(records, base_offset=offset, codec=codec, timestamp_type=int(append_time))
        offset += len(records)
    found, after = read(data)
    assert found == expected(data)
    assert after == (offset if batches else 0)


@pytest.mark.parametrize("codec", CODECS)
def test_f78_rows_outside_of_the_wanted_offsets_are_left_out(codec: int) -> None:
    data = plain(b"0", b"1", b"2", codec=codec) + plain(b"3", b"4", b"5", base_offset=3, codec=codec)
    found, after = read(data, 2, 4)
    assert [(row.offset, row.value) for row in found] == [(2, b"2"), (3, b"3")]
    assert after >= 4
    assert read(data, 6) == ([], 6)


def test_f78_a_batch_that_is_cut_off_is_read_next_time() -> None:
    whole = plain(b"a") + plain(b"b", base_offset=1)
    for missing in range(1, len(whole) // 2):
        found, after = read(whole[:-missing])
        assert [row.value for row in found] == [b"a"]
        assert after == 1


def test_f78_a_reader_stops_when_the_columns_are_full_and_goes_on() -> None:
    data = b"".join(plain(b"x" * 100, base_offset=number) for number in range(10))
    reader, columns, seen = BatchReader(data, 0, ALL), Columns(), []
    while True:
        more = reader.fill(columns, 3, ALL)
        seen.append(columns.rows)
        columns.clear()
        if not more:
            break
    assert seen == [3, 3, 3, 1]
    assert reader.next_offset == 10
    assert BatchReader(data, 0, ALL).fill(columns, ALL, 250)
    assert columns.rows == 2


def test_f78_where_to_fetch_next_is_known_before_anything_is_read() -> None:
    data = plain(b"a", b"b", base_offset=4) + plain(b"c", base_offset=9) + marker(COMMIT, 10, 1)
    for cut, after in ((0, 11), (5, 10), (len(data), 3)):
        reader = BatchReader(data[: len(data) - cut], 3, ALL)
        assert reader.end_offset() == after
        reader.fill(Columns(), ALL, ALL)
        assert reader.next_offset == after
    assert BatchReader(b"\xff" * 200, 3, ALL).end_offset() == 3


def test_f78_gaps_of_compaction_and_empty_batches_are_passed() -> None:
    first = plain(b"0", b"1", base_offset=10)
    empty = bytearray(plain(b"x", base_offset=12))
    del empty[61:]
    struct.pack_into(">i", empty, 8, len(empty) - 12)
    struct.pack_into(">i", empty, 57, 0)
    found, after = read(first + bytes(empty), 3, check_crc=False)
    assert [row.offset for row in found] == [10, 11]
    assert after == 13


def test_f78_timestamp_types_are_a_column() -> None:
    columns = Columns()
    data = plain(b"a") + plain(b"b", base_offset=1, timestamp_type=1)
    BatchReader(data, 0, ALL).fill(columns, ALL, ALL)
    assert struct.unpack("<2i", columns.timestamp_types()) == (0, 1)


def transaction(first: int, producer: int, *values: bytes) -> bytes:
    return plain(*values, base_offset=first, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True)


def marker(kind: int, offset: int, producer: int) -> bytes:
    return build_batch(
        [(*marker_fields(kind == COMMIT, 0), (), NOW)],
        base_offset=offset,
        producer_id=producer,
        producer_epoch=0,
        transactional=True,
        control=True,
    )


def test_f79_aborted_transactions_are_left_out_and_what_the_producer_writes_next_is_not() -> None:
    data = (
        transaction(0, 7, b"aborted-0", b"aborted-1")
        + transaction(2, 8, b"committed")
        + plain(b"plain", base_offset=3)
        + marker(ABORT, 4, 7)
        + transaction(5, 7, b"second")
        + marker(COMMIT, 6, 8)
        + marker(COMMIT, 7, 7)
    )
    found, after = read(data, aborted=[(7, 0)])
    assert [row.value for row in found] == [b"committed", b"plain", b"second"]
    assert after == 8
    found, after = read(data, aborted=[(7, 0)], read_committed=False)
    assert [row.value for row in found] == [b"aborted-0", b"aborted-1", b"committed", b"plain", b"second"]
    assert after == 8


def test_f79_an_abort_that_began_before_the_fetched_bytes_counts() -> None:
    data = transaction(5, 7, b"late") + marker(ABORT, 6, 7) + transaction(7, 7, b"next") + marker(COMMIT, 8, 7)
    assert [row.value for row in read(data, 5, aborted=[(7, 1)])[0]] == [b"next"]


def test_a_damaged_batch_is_refused() -> None:
    data = bytearray(plain(b"value"))
    data[-3] ^= 1
    with pytest.raises(MalformedInput, match="CRC"):
        read(bytes(data))


def test_an_old_format_is_named() -> None:
    data = bytearray(plain(b"value"))
    data[16] = 1
    with pytest.raises(MalformedInput, match="format 1"):
        read(bytes(data))


@settings(max_examples=200, deadline=None)
@given(st.lists(fields, min_size=1, max_size=5), st.integers(0), st.binary(min_size=1, max_size=4))
def test_bytes_that_are_no_records_are_malformed_or_read_never_worse(records: list[Fields], at: int, junk: bytes) -> None:
    data = bytearray(build_batch(records))
    place = 61 + at % (len(data) - 61)
    data[place : place + len(junk)] = junk[: len(data) - place]
    try:
        found, _ = read(bytes(data), check_crc=False)
    except MalformedInput:
        return
    assert len(found) <= len(records)


# Writing


def write(rows: list[Fields], order: list[int] | None = None, **options: Any) -> list[bytearray]:
    writer = BatchWriter(**options)
    given_order = None if order is None else struct.pack(f"<{len(order)}i", *order)
    batches = writer.add(
        given_order,
        len(rows) if order is None else len(order),
        column_of([row[0] for row in rows]),
        column_of([row[1] for row in rows]),
        headers=headers_of([list(row[2]) for row in rows]),
        timestamps=struct.pack(f"<{len(rows)}q", *(row[3] for row in rows)),
    )
    last = writer.finish()
    assert writer.finish() is None
    return batches + ([last] if last is not None else [])


@settings(max_examples=60, deadline=None)
@given(st.lists(fields, min_size=1, max_size=30), st.sampled_from(CODECS), st.integers(200, 2000))
def test_f79_what_is_written_is_what_was_given(rows: list[Fields], codec: int, batch_bytes_max: int) -> None:
    batches = write(
        rows, codec=codec, batch_bytes_max=batch_bytes_max, producer_id=9, producer_epoch=3, base_sequence=0, transactional=True
    )
    sequence, found = 0, []
    for batch in batches:
        ((info,), _) = scan_batches(batch)
        assert check(bytearray(batch), ACCEPTED, NOW).record_count == info.record_count
        assert (info.producer_id, info.producer_epoch, info.base_sequence) == (9, 3, sequence)
        assert info.is_transactional
        assert info.record_count == 1 or codec or len(batch) <= batch_bytes_max
        sequence += info.record_count
        records = read_records(batch, info)
        assert [record.offset for record in records] == list(range(len(records)))
        assert info.max_timestamp == max(record.timestamp for record in records)
        found += [(record.key, record.value, record.headers, record.timestamp) for record in records]
    assert found == [(key, value, list(headers), timestamp) for key, value, headers, timestamp in rows]
    if codec == compression.NONE and batches:
        as_before = build_batch(
            rows[: scan_batches(batches[0])[0][0].record_count],
            producer_id=9,
            producer_epoch=3,
            base_sequence=0,
            transactional=True,
        )
        assert batches[0] == as_before


def test_f79_only_the_rows_asked_for_in_their_order() -> None:
    rows: list[Fields] = [(b"%d" % number, None, (), NOW) for number in range(20)]
    (batch,) = write(rows, [17, 3, 3, 0])
    assert [record.key for record in expected(batch)] == [b"17", b"3", b"3", b"0"]
    with pytest.raises(IndexError):
        write(rows, [20])
    with pytest.raises(IndexError):
        write(rows, [-1])


def test_f79_sequences_wrap_and_columns_may_be_missing() -> None:
    writer = BatchWriter(producer_id=1, producer_epoch=0, base_sequence=0x7FFFFFFF)
    assert writer.add(None, 2, None, column_of([b"a", b"b"]), now_ms=NOW) == []
    first = writer.finish()
    assert first is not None
    assert writer.sequence == 1
    assert [(record.key, record.value, record.timestamp) for record in expected(first)] == [(None, b"a", NOW), (None, b"b", NOW)]


def test_f79_a_column_may_begin_later_and_count_microseconds() -> None:
    writer = BatchWriter()
    times = struct.pack("<2q", NOW * 1000 + 999, NOW * 1000 + 1999)
    writer.add(None, 2, None, column_of([b"x", None, b"a", b"b"], first=2), timestamps=times, timestamp_units_per_ms=1000)
    batch = writer.finish()
    assert batch is not None
    assert [(record.value, record.timestamp) for record in expected(batch)] == [(b"a", NOW), (b"b", NOW + 1)]


def test_columns_that_point_outside_of_their_data_are_refused() -> None:
    with pytest.raises(ValueError, match="outside"):
        BatchWriter().add(None, 1, None, BytesInput(None, struct.pack("<2i", 0, 9), b"short"))
    headers = HeadersInput(None, struct.pack("<2i", 0, 1), column_of([None]), column_of([b"v"]))
    with pytest.raises(ValueError, match="without a key"):
        BatchWriter().add(None, 1, None, None, headers=headers)


# Partitions

# As org.apache.kafka.common.utils.Utils.murmur2 gives them: its own test has the first six.
MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "hashed"), MURMUR2.items())
def test_f79_keys_hash_as_javas_producer_hashes_them(key: bytes, hashed: int) -> None:
    assert murmur2(key, 0, len(key)) == hashed & 0xFFFFFFFF


@settings(max_examples=60, deadline=None)
@given(st.lists(st.none() | st.binary(max_size=70), max_size=40), st.integers(1, 50), st.integers(0, 100))
def test_f79_a_column_of_keys_goes_where_each_goes_and_nulls_go_round(
    keys: list[bytes | None], partitions: int, next_null: int
) -> None:
    found = struct.unpack(f"<{len(keys)}i", partition_of_keys(column_of(keys), len(keys), partitions, next_null))
    turn = next_null
    for key, partition in zip(keys, found, strict=True):
        if key is None:
            assert partition == turn % partitions
            turn += 1
        else:
            assert partition == (murmur2(key, 0, len(key)) & 0x7FFFFFFF) % partitions


def test_f79_librdkafka_agrees_on_the_partitions_of_keys() -> None:
    """Its murmur2 partitioner is Java's; the cluster is one that librdkafka mocks."""
    from confluent_kafka import Message, Producer

    keys = [bytes(range(size)) for size in range(1, 40)]
    chosen: dict[bytes, int] = {}

    def delivered(error: object, message: Message) -> None:
        assert error is None
        chosen[message.key()] = message.partition()  # type: ignore[index, assignment]

    producer = Producer({"bootstrap.servers": "", "test.mock.num.brokers": 1, "partitioner": "murmur2", "log_level": 0})
    for key in keys:
        producer.produce("mocked", b"", key, on_delivery=delivered)
    assert producer.flush(30) == 0
    partitions = len(producer.list_topics("mocked", timeout=60).topics["mocked"].partitions)
    assert partitions > 1
    found = struct.unpack(f"<{len(keys)}i", partition_of_keys(column_of(list(keys)), len(keys), partitions))
    assert dict(zip(keys, found, strict=True)) == chosen
