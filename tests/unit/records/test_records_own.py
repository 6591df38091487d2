"""Batches the broker writes itself are what `build_batch` builds and `check` accepts, byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.records.compression import GZIP, NONE, ZSTD
from ottla.records.control import ABORT, COMMIT, control_type, coordinator_epoch_of
from ottla.records.own import own_batch, own_marker
from ottla.records.record import build_batch, read_records
from ottla.records.validate import Rules, check

NOW_MS = 1_700_000_000_000
KEYS = st.binary(max_size=300)
RECORDS = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=300)), min_size=1, max_size=5)


def same(records: list[tuple[bytes, bytes | None]], codec: int = NONE, producer_id: int = -1, producer_epoch: int = -1) -> None:
    made = own_batch(records, NOW_MS, codec, producer_id, producer_epoch)
    built = build_batch(
        [(key, value, (), NOW_MS) for key, value in records],
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=producer_id >= 0,
    )
    assert bytes(made.buffer) == built
    checked = check(built, Rules(compacted=True), NOW_MS, from_client=False)
    assert made.batches[0].__repr__() == checked.batches[0].__repr__()
    for field in ("record_count", "bytes", "max_timestamp", "offset_of_max_delta", "log_append_time_ms"):
        assert getattr(made, field) == getattr(checked, field), field


@settings(max_examples=60, deadline=None)
@given(RECORDS)
def test_as_built_and_checked(records: list[tuple[bytes, bytes | None]]) -> None:
    same(records)


@pytest.mark.parametrize("codec", [NONE, GZIP, ZSTD])
def test_as_built_and_checked_in_a_transaction_and_compressed(codec: int) -> None:
    same([(b"key", b"value"), (b"", None)], codec, 7, 3)


def test_many_records_have_longer_offset_deltas() -> None:
    same([(b"%d" % number, b"v" * (number % 200)) for number in range(9_000)])


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker(commit: bool) -> None:
    made = own_marker(commit, 12, 4, 3, NOW_MS)
    built = build_batch(
        [(bytes([0, 0, 0, commit]), bytes([0, 0, 0, 0, 0, 12]), (), NOW_MS)],
        producer_id=4,
        producer_epoch=3,
        transactional=True,
        control=True,
    )
    assert bytes(made.buffer) == built
    [record] = read_records(built, made.batches[0])
    assert (control_type(record), coordinator_epoch_of(record)) == (COMMIT if commit else ABORT, 12)
