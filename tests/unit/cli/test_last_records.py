"""From which offset the last N records are read, where offsets have no record: compaction, ends of transactions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.cli.last_records import _look_back
from ottla.records.batch import BatchInfo, read_batch_header
from ottla.records.record import records_section
from ottla.types import TopicPartition
from tests.kit.record_batches import record, with_section

COMPACTED = {0: [0], 10: [0, 1], 3_000: [0, 4, 9]}
"""Base offset of a batch -> which of its ten offsets have a record."""


class Source:
    """The batches of a partition; nothing of a `BatchSource` but reading."""

    def read(self, where: TopicPartition, start: int, end: int, fetch_bytes: int) -> Iterator[tuple[BatchInfo, bytes]]:
        for base, deltas in COMPACTED.items():
            batch = with_section(b"".join(record(delta) for delta in deltas), len(deltas), base_offset=base, last_offset_delta=9)
            info = read_batch_header(batch, 0)
            if info.next_offset > start and base < end:
                yield info, records_section(batch, info)


@pytest.mark.parametrize(("count", "offset"), [(0, 5_000), (1, 3_009), (2, 3_004), (3, 3_000), (4, 11), (5, 10), (6, 0), (7, 0)])
def test_offsets_without_a_record_are_passed_over(count: int, offset: int) -> None:
    assert _look_back(Source(), TopicPartition("t", 0), 0, 5_000, count) == offset  # type: ignore[arg-type]


def test_nothing_before_the_start_is_looked_at() -> None:
    assert _look_back(Source(), TopicPartition("t", 0), 3_002, 5_000, 5) == 3_002  # type: ignore[arg-type]
