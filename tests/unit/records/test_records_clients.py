"""What the encoders of real clients write is accepted, and they read what is written here (F21, W07)."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from aiokafka.record import default_records as aiokafka_records
from record_batches import NOW_MS

from ottla.records.batch import read_batch_header
from ottla.records.compression import CODEC_NAMES
from ottla.records.record import Fields, build_batch, read_records
from ottla.records.validate import LOG_APPEND_TIME, PRODUCER, Rules, check

with warnings.catch_warnings():
    # it reads its schemas through a function of importlib that Python 3.11 calls deprecated
    warnings.simplefilter("ignore")
    from kafka.record import default_records as kafka_python_records

CODECS = range(len(CODEC_NAMES))
RECORDS: list[Fields] = [
    (
        b"key%d" % i if i % 3 else None,
        b"value %d" % i * (i % 40) if i % 7 else None,
        [(f"h{i}", b"x"), ("null", None)] if i % 5 == 0 else [],
        NOW_MS - 2000 + i * (-1 if i % 11 == 0 else 1),
    )
    for i in range(2000)
]

BUILDERS = {
    "kafka-python": kafka_python_records.DefaultRecordBatchBuilder,
    "aiokafka": aiokafka_records.DefaultRecordBatchBuilder,
    "aiokafka in Python": aiokafka_records._DefaultRecordBatchBuilderPy,
}
READERS = {
    "kafka-python": kafka_python_records.DefaultRecordBatch,
    "aiokafka": aiokafka_records.DefaultRecordBatch,
    "aiokafka in Python": aiokafka_records._DefaultRecordBatchPy,
}


def built_by(builder_class: Any, codec: int) -> bytes:
    builder = builder_class(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=7,
        producer_epoch=1,
        base_sequence=3,
        batch_size=10_000_000,
    )
    for index, (key, value, headers, timestamp) in enumerate(RECORDS):
        assert builder.append(index, timestamp=timestamp, key=key, value=value, headers=list(headers)) is not None
    return bytes(builder.build())


@pytest.mark.parametrize("client", BUILDERS)
@pytest.mark.parametrize("codec", CODECS)
def test_their_batches_are_kept(client: str, codec: int) -> None:
    batch = built_by(BUILDERS[client], codec)
    checked = check(bytearray(batch), Rules(), NOW_MS)
    assert bytes(checked.buffer) == batch
    [info] = checked.batches
    assert (info.codec, info.record_count, info.producer_id, info.base_sequence) == (codec, len(RECORDS), 7, 3)
    assert [(r.key, r.value, r.headers, r.timestamp) for r in read_records(checked.buffer, info)] == RECORDS


@pytest.mark.parametrize("client", BUILDERS)
def test_their_batches_are_ours(client: str) -> None:
    """Uncompressed there is only one way to write a batch; the leader epoch is anyone's until the leader sets it."""
    theirs, ours = built_by(BUILDERS[client], 0), build_batch(RECORDS, producer_id=7, producer_epoch=1, base_sequence=3)
    assert theirs[:12] == ours[:12]
    assert theirs[16:] == ours[16:]


@pytest.mark.parametrize("client", READERS)
@pytest.mark.parametrize("codec", CODECS)
def test_they_read_ours(client: str, codec: int) -> None:
    read = READERS[client](bytearray(build_batch(RECORDS, codec=codec)))
    assert read.validate_crc()
    assert [(r.key, r.value, list(r.headers), r.timestamp) for r in read] == RECORDS


@pytest.mark.parametrize("client", READERS)
@pytest.mark.parametrize("target", CODECS)
def test_they_read_what_was_recompressed(client: str, target: int) -> None:
    """F22"""
    records = [fields for fields in RECORDS if fields[0] is not None]
    rules = Rules(compression=target, timestamp_type=LOG_APPEND_TIME, compacted=True)
    source = 1 if target == 0 else target - 1
    checked = check(build_batch(records, codec=source), rules, NOW_MS + 1)
    read = READERS[client](bytearray(checked.buffer))
    assert read.validate_crc()
    seen = [(r.key, r.value, list(r.headers), r.timestamp, r.timestamp_type) for r in read]
    assert seen == [(key, value, list(headers), NOW_MS + 1, 1) for key, value, headers, _ in records]


def test_header_reads_the_same() -> None:
    batch = build_batch(RECORDS, base_offset=12, codec=3, leader_epoch=5)
    ours, theirs = read_batch_header(batch, 0), kafka_python_records.DefaultRecordBatch(bytearray(batch))
    assert ours.base_offset == theirs.base_offset
    assert ours.last_offset_delta == theirs.last_offset_delta
    assert ours.crc == theirs.crc
    assert ours.max_timestamp == theirs.max_timestamp
    assert ours.codec == theirs.compression_type
    assert PRODUCER not in CODECS
