"""Properties of batches that hold for any records and any bytes (F20-F23)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from ottla.errors import MalformedInput
from ottla.records import walk
from ottla.records.batch import CRC_AT, MAGIC_AT, batch_crc_ok, read_batch_header, scan_batches, stamp
from ottla.records.compression import CODEC_NAMES, TooLarge, decompress
from ottla.records.record import (
    Fields,
    build_batch,
    offset_of_max_timestamp,
    offset_of_timestamp,
    read_records,
)
from ottla.records.validate import PRODUCER, RecordsRefused, Rules, check
from ottla.wire.varint import write_varlong
from tests.kit.record_batches import NOW_MS, with_section

few = hypothesis_settings(max_examples=60, deadline=None)

codecs = st.integers(0, len(CODEC_NAMES) - 1)
blobs = st.none() | st.binary(max_size=200) | st.binary(min_size=60, max_size=70)
headers = st.lists(st.tuples(st.text(max_size=10), st.none() | st.binary(max_size=20)), max_size=4)
timestamps = st.integers(-1, NOW_MS) | st.integers(NOW_MS - 1000, NOW_MS + 1000)
fields = st.tuples(blobs, blobs, headers, timestamps)
batches = st.lists(fields, min_size=1, max_size=30)
rules = st.builds(
    Rules,
    compacted=st.booleans(),
    timestamp_type=st.integers(0, 1),
    timestamp_before_max_ms=st.sampled_from([0, 1000, 2**63 - 1]),
    timestamp_after_max_ms=st.sampled_from([0, 1000, 2**63 - 1]),
    compression=st.integers(PRODUCER, 4),
    decompressed_bytes_max=st.sampled_from([100, 10_000, 1 << 20]),
)


@few
@given(batches, codecs, st.integers(PRODUCER, 4), st.integers(0, 2**62))
def test_build_check_stamp_read(records: list[Fields], codec: int, target: int, offset: int) -> None:
    batch = build_batch(records, codec=codec)
    checked = check(batch, Rules(compression=target), NOW_MS)
    [info] = checked.batches
    stamp(checked.buffer, info, offset, 3)
    scanned, end = scan_batches(checked.buffer)
    assert end == len(checked.buffer)
    assert [repr(i) for i in scanned] == [repr(info)]
    assert batch_crc_ok(checked.buffer, info)
    read = read_records(checked.buffer, info)
    assert [(r.key, r.value, r.headers, r.timestamp) for r in read] == [(k, v, list(h), t) for k, v, h, t in records]
    assert [r.offset for r in read] == list(range(offset, offset + len(records)))
    latest = max(t for _, _, _, t in records)
    assert checked.max_timestamp == info.max_timestamp == latest
    assert records[checked.offset_of_max_delta][3] == latest
    assert offset_of_max_timestamp(checked.buffer, info) == (latest, offset + checked.offset_of_max_delta)


@few
@given(batches, codecs, st.integers(-1, NOW_MS + 1000))
def test_time_lookup_equals_a_scan(records: list[Fields], codec: int, target: int) -> None:
    batch = build_batch(records, codec=codec)
    expected = next(((t, i) for i, (_, _, _, t) in enumerate(records) if t >= target), None)
    assert offset_of_timestamp(batch, read_batch_header(batch, 0), target) == expected


@few
@given(batches, codecs, st.data())
def test_one_changed_byte_is_noticed(records: list[Fields], codec: int, data: st.DataObject) -> None:
    """Only base offset, leader epoch and magic lie outside the CRC, and of these only the epoch is not the producer's word."""
    batch = bytearray(build_batch(records, codec=codec))
    position = data.draw(st.integers(0, len(batch) - 1))
    batch[position] ^= data.draw(st.integers(1, 255))
    epoch = 12 <= position < MAGIC_AT
    if epoch:
        checked = check(batch, Rules(), NOW_MS)
        assert [r.value for r in read_records(checked.buffer, checked.batches[0])] == [value for _, value, _, _ in records]
    else:
        with pytest.raises(RecordsRefused):
            check(batch, Rules(), NOW_MS)


@few
@given(batches, codecs, rules, st.data())
def test_one_changed_byte_with_a_right_crc(records: list[Fields], codec: int, topic: Rules, data: st.DataObject) -> None:
    """Whoever computes the CRC can write anything: it is refused, or it is a batch that can be read back."""
    batch = bytearray(build_batch(records, codec=codec))
    position = data.draw(st.integers(0, len(batch) - 1).filter(lambda p: not CRC_AT <= p < CRC_AT + 4))
    batch[position] = data.draw(st.integers(0, 255))
    resum(batch)
    assert_refused_or_sound(batch, topic)


@few
@given(st.binary(max_size=300), st.integers(-1, 40), codecs, st.booleans(), rules)
def test_any_section(section: bytes, count: int, codec: int, packed: bool, topic: Rules) -> None:
    batch = with_section(section, count, codec) if packed else with_section(section, count, attributes=codec)
    assert_refused_or_sound(batch, topic)


@few
@given(st.binary(max_size=400), rules)
def test_any_bytes(records: bytes, topic: Rules) -> None:
    assert_refused_or_sound(records, topic)
    for read in (lambda: scan_batches(records), lambda: read_batch_header(records, 0)):
        try:
            read()
        except MalformedInput:
            pass


@few
@given(st.binary(max_size=200), codecs, st.sampled_from([0, 10, 1000, 1 << 20]))
def test_any_packed_bytes(packed: bytes, codec: int, limit: int) -> None:
    try:
        assert len(decompress(codec, packed, limit)) <= limit
    except (MalformedInput, TooLarge):
        pass


@few
@given(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=3))
def test_varlongs(value: int, rest: bytes) -> None:
    out = bytearray()
    write_varlong(out, value)
    assert walk.varlong_at(bytes(out) + rest, 0) == value
    assert walk.varlong_end(bytes(out) + rest, 0) == len(out)


@few
@given(st.integers(0, 2**32 - 1), st.binary(max_size=3))
def test_varints(value: int, rest: bytes) -> None:
    out = bytearray()
    left = value
    while left > 127:
        out.append(left & 127 | 128)
        left >>= 7
    out.append(left)
    assert walk.varint_at(bytes(out) + rest, 0) == value * 8 + len(out)


def resum(batch: bytearray) -> None:
    """Make the CRC right, whatever else the header says."""
    from crc32c import crc32c

    batch[CRC_AT : CRC_AT + 4] = crc32c(batch[21:]).to_bytes(4, "big")


def assert_refused_or_sound(records: bytes | bytearray, topic: Rules) -> None:
    before = bytes(records)
    try:
        checked = check(records, topic, NOW_MS)
    except RecordsRefused:
        assert bytes(records) == before
        return
    [info] = checked.batches
    assert batch_crc_ok(checked.buffer, info)
    read = read_records(checked.buffer, info)
    assert [r.offset for r in read] == list(range(info.record_count))
    assert all(r.timestamp <= max(info.max_timestamp, -1) for r in read)
