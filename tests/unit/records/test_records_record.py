"""Records as values: reading, building, finding by timestamp (F20, F21, W06)."""

from __future__ import annotations

import pytest

from ottla.errors import MalformedInput
from ottla.records.batch import read_batch_header
from ottla.records.compression import CODEC_NAMES
from ottla.records.control import ABORT, COMMIT, control_type, coordinator_epoch_of
from ottla.records.own import own_marker
from ottla.records.record import Record, build_batch, offset_of_max_timestamp, offset_of_timestamp, read_records
from ottla.types import TimestampAndOffset
from tests.kit.record_batches import NOW_MS, SAMPLE, record, with_header, with_section, zigzag

CODECS = range(len(CODEC_NAMES))


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_built_is_read(codec: int) -> None:
    batch = build_batch(SAMPLE, base_offset=100, codec=codec)
    records = read_records(batch, read_batch_header(batch, 0))
    assert records == [
        Record(100 + index, timestamp, key, value, list(headers)) for index, (key, value, headers, timestamp) in enumerate(SAMPLE)
    ]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_batch_in_the_middle_of_a_buffer(kind: type) -> None:
    batch = build_batch(SAMPLE)
    buffer = kind(b"before" + batch + b"after")
    assert [r.value for r in read_records(buffer, read_batch_header(buffer, 6))] == [fields[1] for fields in SAMPLE]


def test_log_append_time_is_everyones_timestamp() -> None:
    batch = build_batch(SAMPLE, timestamp_type=1)
    assert {r.timestamp for r in read_records(batch, read_batch_header(batch, 0))} == {NOW_MS + 7}


def test_gaps_of_compaction_are_read() -> None:
    """L07: a cleaned batch keeps offsets and says how far it reached."""
    batch = with_section(record(2) + record(7), 2, last_offset_delta=9, base_offset=50)
    assert [r.offset for r in read_records(batch, read_batch_header(batch, 0))] == [52, 57]


def test_empty_batch_has_no_records() -> None:
    """L09: what compaction leaves of a producer's last batch."""
    batch = with_section(b"", 0, last_offset_delta=3)
    info = read_batch_header(batch, 0)
    assert read_records(batch, info) == []
    assert offset_of_timestamp(batch, info, 0) is None


@pytest.mark.parametrize("delta", [2**63 - 1, -(2**63), 2**62, -(2**62) - 1, 2**35, -1])
def test_extreme_timestamp_deltas(delta: int) -> None:
    batch = with_section(record(timestamp_delta=zigzag(delta)), 1, base_timestamp=0)
    info = read_batch_header(batch, 0)
    assert read_records(batch, info)[0].timestamp == delta
    assert offset_of_max_timestamp(batch, info) == TimestampAndOffset(delta, 0)


def test_header_key_that_is_not_utf8_costs_no_record() -> None:
    batch = with_section(record(headers=b"\x02\x02\xff\x01"), 1)
    assert read_records(batch, read_batch_header(batch, 0))[0].headers == [("�", None)]


@pytest.mark.parametrize("count", [-1, 2, 2**31 - 1])
def test_wrong_count_is_malformed(count: int) -> None:
    batch = with_section(record(0), count)
    with pytest.raises(MalformedInput):
        read_records(batch, read_batch_header(batch, 0))


def test_reading_is_bounded() -> None:
    batch = build_batch([(None, bytes(100_000), [], 0)], codec=4)
    info = read_batch_header(batch, 0)
    with pytest.raises(MalformedInput, match="more than 1000 bytes"):
        read_records(batch, info, 1000)


@pytest.mark.parametrize("codec", CODECS)
def test_first_record_at_or_after_a_time(codec: int) -> None:
    """W06, also inside compressed batches and with timestamps out of order."""
    timestamps = [50, 10, 60, 60, 20, 70, 70]
    batch = build_batch([(None, b"v", [], t) for t in timestamps], base_offset=1000, codec=codec)
    info = read_batch_header(batch, 0)
    for target in range(-1, 75):
        expected = next((TimestampAndOffset(t, 1000 + i) for i, t in enumerate(timestamps) if t >= target), None)
        assert offset_of_timestamp(batch, info, target) == expected
    assert offset_of_max_timestamp(batch, info) == TimestampAndOffset(70, 1005)
    assert offset_of_timestamp(batch, info, -(2**63)) == TimestampAndOffset(50, 1000)
    assert offset_of_timestamp(batch, info, 2**63 - 1) is None


def test_time_lookup_with_log_append_time() -> None:
    batch = build_batch([(None, b"v", [], t) for t in (5, 9, 7)], base_offset=3, timestamp_type=1)
    info = read_batch_header(batch, 0)
    assert offset_of_timestamp(batch, info, 9) == TimestampAndOffset(9, 3)
    assert offset_of_timestamp(batch, info, 10) is None
    assert offset_of_max_timestamp(batch, info) == TimestampAndOffset(9, 3)


def test_time_lookup_in_garbage_is_malformed() -> None:
    batch = with_section(b"\xff\xff", 1, max_timestamp=2**62)
    info = read_batch_header(batch, 0)
    with pytest.raises(MalformedInput):
        offset_of_timestamp(batch, info, NOW_MS + 1)
    with pytest.raises(MalformedInput):
        offset_of_max_timestamp(batch, info)
    with pytest.raises(MalformedInput):
        offset_of_max_timestamp(with_header(batch, attributes=8), read_batch_header(with_header(batch, attributes=8), 0))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [ABORT, COMMIT])
def test_end_txn_marker(kind: int) -> None:
    batch = own_marker(kind == COMMIT, 12, 4, 3, NOW_MS).buffer
    info = read_batch_header(batch, 0)
    assert info.is_control
    assert info.is_transactional
    assert (info.producer_id, info.producer_epoch, info.base_sequence, info.base_offset) == (4, 3, -1, 0)
    [marker] = read_records(batch, info)
    assert control_type(marker) == kind
    assert coordinator_epoch_of(marker) == 12
    assert (marker.key, marker.value) == (bytes([0, 0, 0, kind]), bytes([0, 0, 0, 0, 0, 12]))


def test_marker_without_its_fields_is_malformed() -> None:
    bare = Record(0, 0, b"\x00", None, [])
    with pytest.raises(MalformedInput):
        control_type(bare)
    with pytest.raises(MalformedInput):
        coordinator_epoch_of(bare)
