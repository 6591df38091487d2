"""Lead in seconds: the time until retention deletes the record that a group reads next."""

from __future__ import annotations

from ottla.exporter.lag import LogEnds
from ottla.exporter.lead import lead_s
from ottla.exporter.reading import Partition, Topic

WEEK_MS = 7 * 24 * 3600 * 1000
UNKNOWN = Partition(1, [1], [1], 0, 1000)
SIZED = Partition(1, [1], [1], 0, 1000, log_bytes=100_000)
"""Of a thousand records of 100 bytes."""


def topic(retention_ms: int = -1, retention_bytes: int = -1, policy: str = "delete") -> Topic:
    return Topic("t", False, {}, policy, retention_ms=retention_ms, retention_bytes=retention_bytes)


def test_by_time_it_is_what_is_left_of_the_records_life() -> None:
    assert lead_s(topic(WEEK_MS), UNKNOWN, 50, 950, 5.0, None) == WEEK_MS / 1000 - 5
    assert lead_s(topic(60_000), UNKNOWN, 0, 1000, 45.0, None) == 15, "however near the log start is"
    assert lead_s(topic(60_000), UNKNOWN, 50, 950, 75.0, None) == 0, "its segment is still there"


def test_by_size_it_is_the_time_until_newer_records_fill_the_topic() -> None:
    kept_2000 = 200_000
    assert lead_s(topic(retention_bytes=kept_2000), SIZED, 0, 1000, 1.0, 10.0) == 100, "before anything was ever deleted"
    assert lead_s(topic(retention_bytes=kept_2000), SIZED, 600, 400, 1.0, 10.0) == 160
    assert lead_s(topic(WEEK_MS, kept_2000), SIZED, 0, 1000, 1.0, 10.0) == 100, "the earlier of both"
    assert lead_s(topic(4_000, kept_2000), SIZED, 0, 1000, 1.0, 10.0) == 3
    assert lead_s(topic(WEEK_MS), SIZED, 0, 1000, 1.0, 10.0) == WEEK_MS / 1000 - 1, "nothing is deleted by size"
    assert lead_s(topic(retention_bytes=50_000), SIZED, 0, 1000, 1.0, 10.0) == 0, "its segment is still there"


def test_nothing_is_about_to_be_deleted() -> None:
    assert lead_s(topic(retention_bytes=1 << 20), SIZED, 50, 950, 1.0, None) is None, "nothing is produced"
    assert lead_s(topic(retention_bytes=1 << 20), UNKNOWN, 50, 950, 1.0, 10.0) is None, "the size is not known"
    assert lead_s(topic(), SIZED, 50, 950, 1.0, 10.0) is None, "no limit"
    assert lead_s(topic(WEEK_MS), SIZED, 1000, 0, 0.0, 10.0) is None, "the group has read all"
    assert lead_s(topic(WEEK_MS, policy="compact"), SIZED, 50, 950, 5.0, 10.0) is None


def test_a_group_below_the_log_start_has_lost_records() -> None:
    assert lead_s(topic(WEEK_MS), SIZED, -5, 1000, 5.0, 10.0) == 0


def test_the_rate_is_that_of_the_samples() -> None:
    ends = LogEnds()
    assert ends.records_per_s() is None
    ends.add(0, 100)
    ends.add(10, 100)
    assert ends.records_per_s() is None
    ends.add(20, 500)
    assert ends.records_per_s() == 20
