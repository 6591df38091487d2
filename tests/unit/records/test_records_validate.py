"""What a producer may store and what it hears if it may not (F18, F20-F23, W04, W07)."""

from __future__ import annotations

import struct
from typing import Any

import cramjam
import pytest

from ottla.errors import ErrorCode
from ottla.records.batch import RECORDS_AT, batch_crc_ok, read_batch_header
from ottla.records.compression import CODEC_NAMES, GZIP, LZ4, NONE, SNAPPY, ZSTD
from ottla.records.own import own_marker
from ottla.records.record import build_batch, read_records
from ottla.records.validate import LOG_APPEND_TIME, PRODUCER, RECORD_ERRORS_MAX, Checked, RecordsRefused, Rules, check
from ottla.types import Buffer
from tests.kit.record_batches import NOW_MS, SAMPLE, record, with_header, with_section, zigzag

CODECS = range(len(CODEC_NAMES))
RULES = Rules()


def refused(records: Buffer, rules: Rules = RULES, now_ms: int = NOW_MS) -> RecordsRefused:
    before = bytes(records)
    with pytest.raises(RecordsRefused) as caught:
        check(records, rules, now_ms)
    assert bytes(records) == before, "what is refused is not touched"
    assert caught.value.detail
    return caught.value


def assert_sound(checked: Checked) -> None:
    """What the log relies on: the info is that of the bytes, and the CRC is right."""
    [info] = checked.batches
    again = read_batch_header(checked.buffer, 0)
    assert repr(info) == repr(again)
    assert batch_crc_ok(checked.buffer, info)
    assert checked.bytes == len(checked.buffer) == info.size
    assert checked.record_count == info.record_count == len(read_records(checked.buffer, info))
    assert checked.max_timestamp == info.max_timestamp
    checked.buffer[0] = checked.buffer[0]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", [bytearray, lambda b: memoryview(bytearray(b)), bytes, lambda b: memoryview(b)])
def test_a_sound_batch_is_kept_byte_for_byte(codec: int, kind: type) -> None:
    """W07"""
    batch = build_batch(SAMPLE, codec=codec, producer_id=1, producer_epoch=0, base_sequence=0)
    checked = check(kind(batch), RULES, NOW_MS)
    assert bytes(checked.buffer) == batch
    assert_sound(checked)
    assert (checked.max_timestamp, checked.offset_of_max_delta, checked.log_append_time_ms) == (NOW_MS + 7, 1, -1)


@pytest.mark.parametrize("kind", [bytearray, lambda b: memoryview(bytearray(b))])
def test_writable_memory_is_not_copied(kind: type) -> None:
    records = kind(build_batch(SAMPLE))
    assert check(records, RULES, NOW_MS).buffer is records


class TestOneBatch:
    @pytest.mark.parametrize("size", [0, 1, 11, 12, 16])
    def test_nothing_there(self, size: int) -> None:
        assert refused(build_batch(SAMPLE)[:size]).code == ErrorCode.INVALID_RECORD

    def test_torn(self) -> None:
        batch = build_batch(SAMPLE)
        for size in range(17, len(batch)):
            assert refused(batch[:size]).code == ErrorCode.INVALID_RECORD

    def test_two_batches(self) -> None:
        assert "exactly one" in str(refused(build_batch(SAMPLE) * 2))
        assert refused(build_batch(SAMPLE) * 2).code == ErrorCode.INVALID_RECORD

    def test_bytes_after_the_batch(self) -> None:
        assert refused(build_batch(SAMPLE) + b"\x00").code == ErrorCode.INVALID_RECORD

    @pytest.mark.parametrize("magic", [0, 1])
    def test_old_formats(self, magic: int) -> None:
        """W07: refused cleanly."""
        assert refused(with_header(build_batch(SAMPLE), magic=magic)).code == ErrorCode.INVALID_RECORD, "as Kafka says of them"

    def test_a_real_message_of_format_v1(self) -> None:
        body = struct.pack(">bbqi", 1, 0, NOW_MS, -1) + struct.pack(">i", 1) + b"v"
        message = struct.pack(">qiI", 0, len(body) + 4, 0) + body
        assert refused(message).code == ErrorCode.INVALID_RECORD, "as Kafka says of them"

    @pytest.mark.parametrize("magic", [3, 127, -1, -128])
    def test_unknown_formats(self, magic: int) -> None:
        assert refused(with_header(build_batch(SAMPLE), magic=magic)).code == ErrorCode.CORRUPT_MESSAGE

    @pytest.mark.parametrize("size", [60, 26, 25, 12, 0, -(2**31) + 12])
    def test_length_too_small(self, size: int) -> None:
        assert refused(with_header(build_batch(SAMPLE), size=size)).code == ErrorCode.CORRUPT_MESSAGE

    @pytest.mark.parametrize("size", [10_000, 2**31 - 1])
    def test_length_beyond_the_end(self, size: int) -> None:
        assert refused(with_header(build_batch(SAMPLE), size=size)).code == ErrorCode.INVALID_RECORD


class TestHeader:
    def test_crc(self) -> None:
        """W04"""
        batch = bytearray(build_batch(SAMPLE))
        for position in range(17, len(batch)):
            batch[position] ^= 1
            assert refused(batch).code == ErrorCode.CORRUPT_MESSAGE
            batch[position] ^= 1

    def test_size_limit(self) -> None:
        """F18"""
        batch = build_batch(SAMPLE)
        check(batch, Rules(max_message_bytes=len(batch)), NOW_MS)
        assert refused(batch, Rules(max_message_bytes=len(batch) - 1)).code == ErrorCode.MESSAGE_TOO_LARGE

    @pytest.mark.parametrize("base_offset", [1, -1, 2**63 - 1])
    def test_base_offset_is_zero(self, base_offset: int) -> None:
        assert refused(build_batch(SAMPLE, base_offset=base_offset)).code == ErrorCode.INVALID_RECORD

    @pytest.mark.parametrize(
        ("count", "last"), [(0, -1), (0, 0), (-1, -2), (4, 4), (4, 2), (3, 3), (2**31 - 1, 3), (-(2**31), 3)]
    )
    def test_count_and_last_offset_delta(self, count: int, last: int) -> None:
        batch = with_header(build_batch(SAMPLE), record_count=count, last_offset_delta=last)
        assert refused(batch).code == ErrorCode.INVALID_RECORD

    @pytest.mark.parametrize("codec", CODECS)
    @pytest.mark.parametrize("count", [3, 5, 2**31 - 1])
    def test_count_is_that_of_the_records(self, codec: int, count: int) -> None:
        batch = with_header(build_batch(SAMPLE, codec=codec), record_count=count, last_offset_delta=count - 1)
        assert refused(batch).code == ErrorCode.INVALID_RECORD

    def test_empty_batch(self) -> None:
        assert refused(build_batch([])).code == ErrorCode.INVALID_RECORD

    def test_control_batch(self) -> None:
        marker = bytes(own_marker(True, 0, 1, 0, NOW_MS).buffer)
        assert refused(marker).code == ErrorCode.INVALID_RECORD
        assert "control" in str(refused(marker))

    @pytest.mark.parametrize("codec", [5, 6, 7])
    def test_unknown_codec(self, codec: int) -> None:
        assert refused(with_header(build_batch(SAMPLE), attributes=codec)).code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE

    @pytest.mark.parametrize("attributes", [0x40, 0x80, 0x100, 0x4000, -0x8000])
    def test_attributes_that_are_not_for_clients(self, attributes: int) -> None:
        assert refused(with_header(build_batch(SAMPLE), attributes=attributes)).code == ErrorCode.INVALID_RECORD

    @pytest.mark.parametrize(
        "fields",
        [
            {"producer_id": 1, "producer_epoch": 0, "base_sequence": -1},
            {"producer_id": 1, "producer_epoch": -1, "base_sequence": 0},
            {"producer_id": 0, "producer_epoch": 0, "base_sequence": -7},
            {"producer_id": -2, "producer_epoch": 0, "base_sequence": 0},
            {"transactional": True},
        ],
    )
    def test_producer_fields_that_contradict(self, fields: dict[str, int]) -> None:
        assert refused(build_batch(SAMPLE, **fields)).code == ErrorCode.INVALID_RECORD  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        "fields",
        [
            {"producer_id": 0, "producer_epoch": 0, "base_sequence": 0},
            {"producer_id": 5, "producer_epoch": 32767, "base_sequence": 2**31 - 1, "transactional": True},
            # clients without idempotence leave these at whatever zero they had
            {"producer_id": -1, "producer_epoch": 0, "base_sequence": 0},
        ],
    )
    def test_producer_fields_that_agree(self, fields: dict[str, int]) -> None:
        assert_sound(check(build_batch(SAMPLE, **fields), RULES, NOW_MS))  # type: ignore[arg-type]


OVERLONG_VARINT = b"\x80\x80\x80\x80\x80\x00"
OVERFLOW_VARINT = b"\xff\xff\xff\xff\x1f"
OVERLONG_VARLONG = b"\x80" * 10 + b"\x00"
OVERFLOW_VARLONG = b"\xff" * 9 + b"\x02"


class TestRecords:
    @pytest.mark.parametrize("codec", CODECS)
    @pytest.mark.parametrize(
        ("case", "section"),
        [
            ("offset delta 1 first", record(1)),
            ("negative offset delta", record(-1)),
            ("record length negative", record(0, size=-1)),
            ("record length short", record(0, size=5)),
            ("record length long", record(0, size=7)),
            ("record length zero", b"\x00" + record(0)[1:]),
            ("record length huge", zigzag(2**31 - 1) + record(0)[1:]),
            ("record length overlong", OVERLONG_VARINT + record(0)[1:]),
            ("record length overflow", OVERFLOW_VARINT + record(0)[1:]),
            ("timestamp overlong", record(timestamp_delta=OVERLONG_VARLONG)),
            ("timestamp overflow", record(timestamp_delta=OVERFLOW_VARLONG)),
            ("key beyond the record", record(key=zigzag(5))),
            ("key length huge", record(key=zigzag(2**31 - 1))),
            ("key length overlong", record(key=OVERLONG_VARINT)),
            ("key length overflow", record(key=OVERFLOW_VARINT)),
            ("value beyond the record", record(value=zigzag(9))),
            ("value length huge", record(value=zigzag(2**31 - 1))),
            ("header count negative", record(headers=zigzag(-1))),
            ("header count 2^31 - 1", record(headers=zigzag(2**31 - 1))),
            ("header count one too many", record(headers=zigzag(2) + zigzag(0) + zigzag(0))),
            ("header key null", record(headers=zigzag(1) + zigzag(-1) + zigzag(-1))),
            ("header key beyond the record", record(headers=zigzag(1) + zigzag(100) + zigzag(-1))),
            ("header value beyond the record", record(headers=zigzag(1) + zigzag(0) + zigzag(100))),
            ("bytes after the headers", record(headers=zigzag(0) + b"x")),
            ("cut in the last varint", b"\x0e\x00\x00\x00\x01\x01\x80"),
            ("a byte after the last record", record(0) + b"\x00"),
            ("nothing", b""),
        ],
    )
    def test_broken(self, case: str, section: bytes, codec: int) -> None:
        assert refused(with_section(section, 1, codec)).code == ErrorCode.INVALID_RECORD, case

    @pytest.mark.parametrize("deltas", [(0, 2), (0, 0), (1, 0), (1, 2), (0, -1)])
    def test_offset_deltas_have_no_gap(self, deltas: tuple[int, int]) -> None:
        section = b"".join(record(delta) for delta in deltas)
        assert refused(with_section(section, 2)).code == ErrorCode.INVALID_RECORD

    def test_a_record_does_not_reach_into_the_next(self) -> None:
        section = record(0, value=zigzag(7)) + record(1)
        assert refused(with_section(section, 2)).code == ErrorCode.INVALID_RECORD
        assert refused(with_section(section, 1)).code == ErrorCode.INVALID_RECORD

    @pytest.mark.parametrize("padded", [b"\x80\x00", b"\x80\x80\x80\x80\x00"])
    def test_padded_varints_are_read_as_java_reads_them(self, padded: bytes) -> None:
        section = record(key=padded, value=padded, headers=padded, timestamp_delta=b"\x80" * 9 + b"\x00")
        assert_sound(check(with_section(section, 1, base_timestamp=NOW_MS), RULES, NOW_MS))

    def test_any_negative_length_is_null_as_in_java(self) -> None:
        checked = check(with_section(record(key=zigzag(-9), value=zigzag(-(2**31))), 1), RULES, NOW_MS)
        [read] = read_records(checked.buffer, checked.batches[0])
        assert (read.key, read.value) == (None, None)

    @pytest.mark.parametrize("size", [63, 64, 8191, 8192, 1_048_575, 1_048_576])
    def test_lengths_at_the_edges_of_varints(self, size: int) -> None:
        batch = build_batch([(b"k" * size, b"v" * size, [("h" * size, b"x" * size)], NOW_MS)])
        assert_sound(check(batch, Rules(max_message_bytes=2**31), NOW_MS))

    def test_many_records(self) -> None:
        """Offset deltas of one, two and three bytes."""
        checked = check(build_batch([(None, b"", [], NOW_MS + i % 3) for i in range(9000)]), RULES, NOW_MS)
        assert_sound(checked)
        assert (checked.record_count, checked.offset_of_max_delta) == (9000, 2)


class TestCompressed:
    @pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
    def test_garbage(self, codec: int) -> None:
        batch = with_section(b"not what it says, not at all", 1, attributes=codec)
        assert refused(batch).code == ErrorCode.CORRUPT_MESSAGE

    @pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
    def test_bomb(self, codec: int) -> None:
        """F23: the bound holds although the batch itself is small."""
        batch = build_batch([(None, bytes(2_000_000), [], NOW_MS)], codec=codec)
        assert len(batch) < 200_000
        assert refused(batch, Rules(decompressed_bytes_max=1_000_000)).code == ErrorCode.MESSAGE_TOO_LARGE
        assert_sound(check(batch, Rules(decompressed_bytes_max=2_000_020), NOW_MS))

    def test_compressed_twice(self) -> None:
        inner = build_batch(SAMPLE, codec=GZIP)[RECORDS_AT:]
        assert refused(with_section(inner, 4, GZIP)).code == ErrorCode.INVALID_RECORD

    def test_raw_snappy_is_kept(self) -> None:
        """librdkafka's form of it; Java reads both."""
        plain = build_batch(SAMPLE)
        packed = bytes(cramjam.snappy.compress_raw(plain[RECORDS_AT:]))
        batch = with_section(packed, 4, attributes=SNAPPY, base_timestamp=NOW_MS - 5, max_timestamp=NOW_MS + 7)
        checked = check(batch, RULES, NOW_MS)
        assert checked.buffer is batch
        assert_sound(checked)


class TestRecompression:
    @pytest.mark.parametrize("source", CODECS)
    @pytest.mark.parametrize("target", CODECS)
    def test_topic_codec_rules(self, source: int, target: int) -> None:
        """F22: recompressed only where the topic's codec is another one."""
        batch = build_batch(SAMPLE, codec=source, producer_id=3, producer_epoch=1, base_sequence=9, transactional=True)
        records = bytearray(batch)
        checked = check(records, Rules(compression=target), NOW_MS)
        assert (bytes(checked.buffer) == batch) == (source == target)
        assert bytes(records) == batch
        assert_sound(checked)
        [info] = checked.batches
        assert info.codec == target
        assert info.is_transactional
        assert (info.producer_id, info.producer_epoch, info.base_sequence) == (3, 1, 9)
        assert read_records(checked.buffer, info) == read_records(batch, read_batch_header(batch, 0))

    def test_level(self) -> None:
        records: list[Any] = [(None, b"%d %d" % (i, i * i), [], NOW_MS) for i in range(5000)]
        sizes = [check(build_batch(records), Rules(compression=ZSTD, compression_level=n), NOW_MS).bytes for n in (1, 19)]
        assert sizes[1] < sizes[0]

    def test_size_is_checked_again(self) -> None:
        """F18: small compressed, too large for a topic that stores it uncompressed."""
        batch = build_batch([(None, bytes(50_000), [], NOW_MS)], codec=ZSTD)
        rules = Rules(compression=NONE, max_message_bytes=10_000)
        assert refused(batch, rules).code == ErrorCode.MESSAGE_TOO_LARGE

    def test_with_log_append_time(self) -> None:
        batch = build_batch(SAMPLE, codec=GZIP)
        checked = check(batch, Rules(compression=LZ4, timestamp_type=LOG_APPEND_TIME), NOW_MS)
        assert_sound(checked)
        assert checked.batches[0].is_log_append_time
        assert {r.timestamp for r in read_records(checked.buffer, checked.batches[0])} == {NOW_MS}


class TestKeys:
    @pytest.mark.parametrize("codec", CODECS)
    def test_compacted_topic_wants_keys(self, codec: int) -> None:
        """W04"""
        error = refused(build_batch([*SAMPLE, (None, b"", [], NOW_MS)], codec=codec), Rules(compacted=True))
        assert error.code == ErrorCode.INVALID_RECORD
        assert [index for index, _ in error.record_errors] == [1, 4]
        assert all(message and "key" in message for _, message in error.record_errors)

    def test_empty_key_is_a_key(self) -> None:
        assert_sound(check(build_batch([SAMPLE[0], SAMPLE[2], SAMPLE[3]]), Rules(compacted=True), NOW_MS))

    def test_named_records_are_bounded(self) -> None:
        error = refused(build_batch([(None, b"", [], NOW_MS)] * (RECORD_ERRORS_MAX + 5)), Rules(compacted=True))
        assert len(error.record_errors) == RECORD_ERRORS_MAX


class TestTimestamps:
    @pytest.mark.parametrize("codec", CODECS)
    def test_range(self, codec: int) -> None:
        rules = Rules(timestamp_before_max_ms=100, timestamp_after_max_ms=10)
        timestamps = [NOW_MS, NOW_MS - 100, NOW_MS + 10]
        assert_sound(check(build_batch([(None, b"", [], t) for t in timestamps], codec=codec), rules, NOW_MS))
        timestamps = [NOW_MS - 101, NOW_MS, NOW_MS + 11, -1, 0]
        error = refused(build_batch([(None, b"", [], t) for t in timestamps], codec=codec), rules)
        assert error.code == ErrorCode.INVALID_TIMESTAMP
        assert [index for index, _ in error.record_errors] == [0, 2, 4]
        assert all(message and "timestamp" in message for _, message in error.record_errors)

    def test_default_takes_an_hour_ahead_and_any_past(self) -> None:
        assert_sound(check(build_batch([(None, b"", [], 0), (None, b"", [], NOW_MS + 3_600_000)]), RULES, NOW_MS))
        assert refused(build_batch([(None, b"", [], NOW_MS + 3_600_001)])).code == ErrorCode.INVALID_TIMESTAMP

    def test_no_timestamp_is_always_in_range(self) -> None:
        rules = Rules(timestamp_before_max_ms=0, timestamp_after_max_ms=0)
        checked = check(build_batch([(None, b"", [], -1)] * 2), rules, NOW_MS)
        assert_sound(checked)
        assert checked.max_timestamp == -1

    def test_a_bad_key_comes_before_a_bad_timestamp_but_the_code_is_the_timestamps(self) -> None:
        rules = Rules(compacted=True, timestamp_before_max_ms=10)
        error = refused(build_batch([(None, b"", [], 0), (b"k", b"", [], 0)]), rules)
        assert error.code == ErrorCode.INVALID_TIMESTAMP
        assert "key" in str(error.record_errors[0][1])
        assert "timestamp" in str(error.record_errors[1][1])

    @pytest.mark.parametrize(("base", "delta"), [(2**63 - 1, 1), (2**63 - 1, 2**63 - 1), (-(2**63), -1), (-(2**63), -(2**63))])
    def test_sums_beyond_int64(self, base: int, delta: int) -> None:
        batch = with_section(record(timestamp_delta=zigzag(delta)), 1, base_timestamp=base)
        wide = Rules(timestamp_before_max_ms=2**63 - 1, timestamp_after_max_ms=2**63 - 1)
        assert refused(batch, wide).code == ErrorCode.INVALID_TIMESTAMP

    @pytest.mark.parametrize(("base", "delta"), [(2**63 - 1, -(2**63) + NOW_MS), (-(2**63), 2**63 - 1)])
    def test_sums_that_come_back_into_range(self, base: int, delta: int) -> None:
        batch = with_section(record(timestamp_delta=zigzag(delta)), 1, base_timestamp=base)
        assert_sound(check(batch, RULES, NOW_MS))

    @pytest.mark.parametrize("codec", CODECS)
    @pytest.mark.parametrize("claimed", [NOW_MS, NOW_MS + 8, -1, 2**63 - 1])
    def test_max_timestamp_is_that_of_the_records(self, codec: int, claimed: int) -> None:
        batch = build_batch(SAMPLE, codec=codec)
        checked = check(with_header(batch, max_timestamp=claimed), RULES, NOW_MS)
        assert checked.max_timestamp == NOW_MS + 7
        assert bytes(checked.buffer) == batch
        assert_sound(checked)

    @pytest.mark.parametrize("codec", CODECS)
    def test_log_append_time(self, codec: int) -> None:
        batch = build_batch(SAMPLE, codec=codec)
        rules = Rules(timestamp_type=LOG_APPEND_TIME, timestamp_before_max_ms=0, timestamp_after_max_ms=0)
        checked = check(batch, rules, NOW_MS + 99)
        assert_sound(checked)
        [info] = checked.batches
        assert info.is_log_append_time
        assert (info.max_timestamp, info.base_timestamp) == (NOW_MS + 99, NOW_MS - 5)
        assert (checked.max_timestamp, checked.log_append_time_ms, checked.offset_of_max_delta) == (NOW_MS + 99, NOW_MS + 99, 0)
        assert bytes(checked.buffer[RECORDS_AT:]) == batch[RECORDS_AT:]
        assert {r.timestamp for r in read_records(checked.buffer, info)} == {NOW_MS + 99}

    @pytest.mark.parametrize("timestamp_type", [0, 1])
    def test_log_append_time_is_the_brokers_to_set(self, timestamp_type: int) -> None:
        error = refused(build_batch(SAMPLE, timestamp_type=1), Rules(timestamp_type=timestamp_type))
        assert error.code == ErrorCode.INVALID_TIMESTAMP


def test_producer_means_keep() -> None:
    assert PRODUCER == -1
    assert Rules().compression == PRODUCER
