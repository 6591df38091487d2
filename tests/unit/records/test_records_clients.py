"""What the encoders of real clients write is accepted, and they read what is written here (F21, W07)."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from aiokafka.record import default_records as aiokafka_records

from ottla.records.batch import read_batch_header
from ottla.records.compression import CODEC_NAMES
from ottla.records.record import Fields, build_batch, read_records
from ottla.records.validate import LOG_APPEND_TIME, PRODUCER, Rules, check
from tests.kit.record_batches import NOW_MS

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


# Written by kafka-clients 3.9.2; 4.3.0 writes the very same bytes.
JAVA = {
    0: (
        "00000000000000000000008dffffffff0234f8ed7f000000000002000001a3185c5000000001a3185c5000000000000000004d00030000"
        "000b0000000332000000010e76616c7565203004046830047830086e756c6c0134002502086b6579312076616c75652032363534343335"
        "373631004c004b04086b6579322076616c7565203533303838373135323204046832047832086e756c6c01"
    ),
    1: (
        "000000000000000000000091ffffffff02fd914d87000100000002000001a3185c5000000001a3185c5000000000000000004d00030000"
        "000b000000031f8b08000000000000ff3362606060e42b4bcc294d55306061c93060a930e0c82bcdc96134615065e2c84ead345480c81a"
        "99999a98189b9a9b1932f83078b380a48ca052a6c6061616e686a6464640138c582a8c2026000094e19f985c000000"
    ),
    2: (
        "00000000000000000000009cffffffff02688b93c7000200000002000001a3185c5000000001a3185c5000000000000000004d00030000"
        "000b0000000382534e41505059000000000100000001000000575c9032000000010e76616c7565203004046830047830086e756c6c0134"
        "002502086b6579312076051e3832363534343335373631004c004b04011b00320d1b583533303838373135323204046832047832086e75"
        "6c6c01"
    ),
    3: (
        "000000000000000000000098ffffffff02840672d7000300000002000001a3185c5000000001a3185c5000000000000000004d00030000"
        "000b0000000304224d1860408258000000f21532000000010e76616c7565203004046830047830086e756c6c0134002502086b65793120"
        "1e00f00032363534343335373631004c004b041b0013321b00f0083533303838373135323204046832047832086e756c6c0100000000"
    ),
    4: (
        "00000000000000000000008dffffffff0252da25f2000400000002000001a3185c5000000001a3185c5000000000000000004d00030000"
        "000b0000000328b52ffd0058840200f244111690a50e04b9f3666807673eb15966013ce9742c527ecbe3ffb96da8cd54bbbd24a5d878c7"
        "d556892cb2a0e4e61c474d4a5c6d8321cff87f6e192a335526eb3d20208cccec02007c66c630a827010000"
    ),
}
JAVA_RECORDS: list[Fields] = [
    (None, b"value 0", [("h0", b"x0"), ("null", None)], NOW_MS),
    (b"key1", b"value 2654435761", [], NOW_MS - 19),
    (b"key2", b"value 5308871522", [("h2", b"x2"), ("null", None)], NOW_MS - 38),
]


@pytest.mark.parametrize("codec", CODECS)
def test_batches_of_the_java_client(codec: int) -> None:
    batch = bytes.fromhex(JAVA[codec])
    checked = check(batch, Rules(), NOW_MS)
    assert bytes(checked.buffer) == batch
    [info] = checked.batches
    assert (info.codec, info.producer_id, info.producer_epoch, info.base_sequence) == (codec, 77, 3, 11)
    assert [(r.key, r.value, r.headers, r.timestamp) for r in read_records(checked.buffer, info)] == JAVA_RECORDS


@pytest.mark.parametrize("codec", [0, 2])
def test_java_writes_the_same_bytes(codec: int) -> None:
    ours = build_batch(JAVA_RECORDS, codec=codec, producer_id=77, producer_epoch=3, base_sequence=11)
    assert ours.hex() == JAVA[codec]
