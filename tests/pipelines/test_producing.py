"""What tasks and the driver do with rows, batches and markers, without Spark (F78, F79)."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from ottla.client.blocking import BrokerAway
from ottla.client.options import plain_options
from ottla.errors import ErrorCode, KafkaError
from ottla.pipelines import exactly_once, producing, spark_errors
from ottla.pipelines.checkpoint import offsets_of
from ottla.pipelines.marker import Marker, marker_in
from ottla.records.batch import header_at
from ottla.records.partitioner import murmur2
from ottla.records.record import read_records
from ottla.types import ProducerIdAndEpoch, TopicPartition

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def writing(partitions: int = 4) -> producing.Writing:
    return producing.Writing(plain_options("127.0.0.1:1"), "t", partitions, "x", ProducerIdAndEpoch(7, 3), 3)


def rows(count: int, **more: pa.Array) -> pa.RecordBatch:
    columns = {
        "key": pa.array([f"k{n % 10}".encode() for n in range(count)], pa.binary()),
        "value": pa.array([None if n == 5 else b"v%d" % n for n in range(count)], pa.binary()),
        **more,
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def partition_of(key: bytes) -> int:
    return (murmur2(key, 0, len(key)) & 0x7FFFFFFF) % 4


def test_rows_become_batches_of_their_partition_in_order() -> None:
    made = list(writing().encode(iter([rows(100), rows(0), rows(50)])))
    seen: dict[int, list[bytes | None]] = {}
    for packed in made:
        for partition, count, batch in zip(*(column.to_pylist() for column in packed.columns), strict=True):
            info = header_at(batch, 0)
            assert (info.producer_id, info.producer_epoch, info.is_transactional, info.record_count) == (7, 3, True, count)
            for record in read_records(batch, info):
                assert record.key is not None
                assert partition_of(record.key) == partition
                seen.setdefault(partition, []).append(record.value)
    expected: dict[int, list[bytes | None]] = {}
    for number in [*range(100), *range(50)]:
        where = partition_of(b"k%d" % (number % 10))
        expected.setdefault(where, []).append(None if number == 5 else b"v%d" % number)
    assert seen == expected


def test_headers_timestamps_and_partitions_of_the_rows_are_kept() -> None:
    given = rows(
        3,
        headers=pa.array([[{"key": "h", "value": b"1"}], None, []], HEADERS),
        timestamp=pa.array([1000, None, 3000], pa.int64()),
        partition=pa.array([2, 0, 2], pa.int32()),
    )
    found = {}
    for packed in writing().encode(iter([given])):
        for partition, _, batch in zip(*(column.to_pylist() for column in packed.columns), strict=True):
            found[partition] = read_records(batch, header_at(batch, 0))
    assert [(record.timestamp, record.headers) for record in found[2]] == [(1000, [("h", b"1")]), (3000, [])]
    assert found[0][0].timestamp > 1_700_000_000_000
    with pytest.raises(producing.RowRefused, match="has 2 partitions, a row names partition 2"):
        list(writing(2).encode(iter([given])))


def test_records_without_a_key_go_round_from_another_partition_in_each_batch() -> None:
    """A batch of one record would otherwise always go to the first."""
    given = pa.RecordBatch.from_arrays([pa.nulls(1, pa.binary()), pa.array([b"v"], pa.binary())], names=["key", "value"])
    found = set()
    for epoch in range(4):
        each = replace(writing(), producer=ProducerIdAndEpoch(7, epoch))
        for packed in each.encode(iter([given])):
            found.update(packed.column("partition").to_pylist())
    assert found == {0, 1, 2, 3}


def test_a_marker_is_read_as_it_was_written_and_nothing_else_is_one() -> None:
    written = Marker("bb51c7d3-e101-45cd-b1c2-106cd4d679cb", 17, "00c0ffee")
    assert marker_in(str(written)) == written
    assert marker_in("") is None
    assert marker_in("somebody's own words") is None


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (KafkaError(ErrorCode.PRODUCER_FENCED), "PRODUCER_FENCED"),
        (KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED), None),
        (KafkaError(ErrorCode.MESSAGE_TOO_LARGE), None),
        (BrokerAway("nobody"), "nobody"),
        (RuntimeError(f"java… {spark_errors.retry_batch('a task was lost')}\n\tat java"), "a task was lost"),
        (RuntimeError("Python worker exited unexpectedly (crashed)"), "a worker was lost (exited unexpectedly)"),
        (RuntimeError("ZeroDivisionError: division by zero"), None),
    ],
)
def test_which_failures_of_a_batch_are_worth_another_attempt(error: Exception, reason: str | None) -> None:
    assert exactly_once.retry_reason(error) == reason


def test_offsets_are_read_as_our_source_and_sparks_write_them() -> None:
    assert offsets_of('{"a": {"0": 5}, "#a": "some-id"}') == {TopicPartition("a", 0): 5}
    assert offsets_of("17") == {}
    assert offsets_of('{"logOffset":0}') == {}
    assert offsets_of("-") == {}
