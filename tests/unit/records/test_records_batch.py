"""Headers of batches: reading, scanning, stamping (F20)."""

from __future__ import annotations

import pytest

from ottla.errors import MalformedInput
from ottla.records.batch import RECORDS_AT, batch_crc_ok, read_batch_header, scan_batches, stamp, write_header
from ottla.records.record import build_batch
from tests.kit.record_batches import NOW_MS, SAMPLE, with_header


def test_header_says_what_was_built() -> None:
    batch = build_batch(
        SAMPLE,
        base_offset=1 << 40,
        codec=4,
        timestamp_type=1,
        producer_id=(1 << 62) + 1,
        producer_epoch=32767,
        base_sequence=5,
        leader_epoch=9,
        transactional=True,
        control=True,
    )
    info = read_batch_header(b"abc" + batch, 3)
    assert (info.position, info.size, info.end) == (3, len(batch), len(batch) + 3)
    assert (info.base_offset, info.last_offset, info.next_offset) == (1 << 40, (1 << 40) + 3, (1 << 40) + 4)
    assert (info.leader_epoch, info.magic, info.codec, info.record_count) == (9, 2, 4, 4)
    assert (info.base_timestamp, info.max_timestamp) == (NOW_MS - 5, NOW_MS + 7)
    assert (info.producer_id, info.producer_epoch, info.base_sequence, info.last_sequence) == ((1 << 62) + 1, 32767, 5, 8)
    assert info.is_log_append_time
    assert info.is_transactional
    assert info.is_control
    assert not info.has_delete_horizon
    assert batch_crc_ok(b"abc" + batch, info)


def test_known_bytes() -> None:
    """A batch written down once by hand from the format's description."""
    batch = bytes.fromhex(
        "0000000000000000"  # base offset
        "0000003a"  # length 58
        "ffffffff"  # leader epoch
        "02"  # magic
        "e99b8dd8"  # crc, computed by another implementation
        "0000"  # attributes
        "00000000"  # last offset delta
        "0000018bcfe56800"  # base timestamp
        "0000018bcfe56800"  # max timestamp
        "ffffffffffffffff"  # producer id
        "ffff"  # producer epoch
        "ffffffff"  # base sequence
        "00000001"  # record count
        "10"  # record length 8
        "00"  # attributes
        "00"  # timestamp delta
        "00"  # offset delta
        "026b"  # key "k"
        "0276"  # value "v"
        "00"  # no headers
    )
    assert build_batch([(b"k", b"v", [], 1_700_000_000_000)]) == batch


def test_last_sequence_wraps_to_zero() -> None:
    info = read_batch_header(build_batch(SAMPLE, producer_id=1, producer_epoch=0, base_sequence=0x7FFFFFFE), 0)
    assert info.last_sequence == 1
    assert read_batch_header(build_batch(SAMPLE), 0).last_sequence == -1


def test_attribute_of_the_delete_horizon() -> None:
    assert read_batch_header(with_header(build_batch(SAMPLE), attributes=0x40), 0).has_delete_horizon


@pytest.mark.parametrize("cut", range(RECORDS_AT + 1))
def test_no_batch_in_too_few_bytes(cut: int) -> None:
    with pytest.raises(MalformedInput):
        read_batch_header(build_batch(SAMPLE)[:cut], 0)


@pytest.mark.parametrize("magic", [0, 1, 3, 127, -1])
def test_other_formats_are_not_read(magic: int) -> None:
    batch = with_header(build_batch(SAMPLE), magic=magic)
    with pytest.raises(MalformedInput, match="magic"):
        read_batch_header(batch, 0)
    with pytest.raises(MalformedInput, match="magic"):
        scan_batches(batch)


@pytest.mark.parametrize("size", [60, 12, 0, -1, -(2**31) + 12])
def test_impossible_length(size: int) -> None:
    batch = with_header(build_batch(SAMPLE), size=size)
    with pytest.raises(MalformedInput):
        read_batch_header(batch, 0)
    with pytest.raises(MalformedInput):
        scan_batches(batch)


def test_length_beyond_the_buffer() -> None:
    batch = build_batch(SAMPLE)
    with pytest.raises(MalformedInput, match="only"):
        read_batch_header(with_header(batch, size=len(batch) + 1), 0)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_scan_stops_before_a_torn_tail(kind: type) -> None:
    """L01: wherever the last batch is cut, the whole ones before it are found."""
    first, second = build_batch(SAMPLE, base_offset=10), build_batch(SAMPLE[:1], base_offset=14, codec=1)
    for cut in range(len(second)):
        batches, end = scan_batches(kind(first + second[:cut]))
        assert [info.base_offset for info in batches] == [10]
        assert end == len(first)
    batches, end = scan_batches(kind(first + second))
    assert [(info.base_offset, info.position, info.size) for info in batches] == [
        (10, 0, len(first)),
        (14, len(first), len(second)),
    ]
    assert end == len(first) + len(second)


def test_scan_from_a_position() -> None:
    first, second = build_batch(SAMPLE, base_offset=10), build_batch(SAMPLE, base_offset=14)
    batches, end = scan_batches(first + second, len(first))
    assert [info.base_offset for info in batches] == [14]
    assert end == len(first + second)
    assert scan_batches(b"") == ([], 0)


@pytest.mark.parametrize("kind", [bytearray, lambda b: memoryview(bytearray(b))])
def test_stamp_changes_offset_and_epoch_only(kind: type) -> None:
    batch = build_batch(SAMPLE)
    buffer = kind(b"....." + batch)
    info = read_batch_header(buffer, 5)
    stamp(buffer, info, 1 << 50, 77)
    assert (info.base_offset, info.leader_epoch) == (1 << 50, 77)
    again = read_batch_header(buffer, 5)
    assert (again.base_offset, again.leader_epoch) == (1 << 50, 77)
    assert batch_crc_ok(buffer, again)
    assert bytes(buffer[:5]) == b"....."
    assert bytes(buffer[5 + 8 : 5 + 12]) == batch[8:12]
    assert bytes(buffer[5 + 16 :]) == batch[16:]


def test_crc_covers_everything_from_the_attributes_on() -> None:
    batch = bytearray(build_batch(SAMPLE))
    info = read_batch_header(batch, 0)
    for position in range(len(batch)):
        batch[position] ^= 0x10
        covered = position >= 21
        assert batch_crc_ok(batch, info) is not covered, position
        batch[position] ^= 0x10


def test_write_header_leaves_no_view_on_the_buffer() -> None:
    """A bytearray with a view on it cannot grow; its owner would find out much later."""
    batch = bytearray(build_batch(SAMPLE))
    info = read_batch_header(batch, 0)
    write_header(batch, info)
    assert batch_crc_ok(batch, info)
    batch += b"more"
