"""Lead in seconds: the time until retention deletes the record that a group reads next."""

from __future__ import annotations

from ottla.exporter.lead import LogStarts, lead_s
from ottla.exporter.reading import Topic

WEEK_MS = 7 * 24 * 3600 * 1000


def topic(retention_ms: int = -1, retention_bytes: int = -1, policy: str = "delete") -> Topic:
    return Topic("t", False, {}, policy, retention_ms=retention_ms, retention_bytes=retention_bytes)


def starts(*points: tuple[float, int]) -> LogStarts:
    found = LogStarts()
    for time_s, start in points:
        found.add(time_s, start)
    return found


def test_by_time_it_is_what_is_left_of_the_records_life() -> None:
    assert lead_s(topic(WEEK_MS), None, 50, 100, 5.0, 0) == WEEK_MS / 1000 - 5
    assert lead_s(topic(60_000), None, 0, 100, 45.0, 0) == 15, "however near the log start is"
    assert lead_s(topic(60_000), None, 50, 100, 75.0, 0) == 0, "its segment is still there"


def test_by_size_it_is_the_way_of_the_log_start() -> None:
    moving = starts((0, 0), (10, 100), (20, 200), (30, 300))
    assert lead_s(topic(retention_bytes=1 << 20), moving, 50, 100, 1.0, 30) == 5
    assert lead_s(topic(WEEK_MS, 1 << 20), moving, 50, 100, 1.0, 30) == 5, "the earlier of both"
    assert lead_s(topic(4_000, 1 << 20), moving, 50, 100, 1.0, 30) == 3
    assert lead_s(topic(WEEK_MS), moving, 50, 100, 1.0, 30) == WEEK_MS / 1000 - 1, "nothing is deleted by size"


def test_nothing_is_about_to_be_deleted() -> None:
    still = starts((0, 0), (10, 0), (20, 0))
    assert lead_s(topic(retention_bytes=1 << 20), still, 50, 100, 1.0, 20) is None
    assert lead_s(topic(retention_bytes=1 << 20), starts((0, 0), (10, 900)), 50, 100, 1.0, 10) is None, "one segment is no rate"
    assert lead_s(topic(), starts((0, 0), (10, 100), (20, 200)), 50, 100, 1.0, 20) is None, "no limit"
    assert lead_s(topic(WEEK_MS), None, 50, 0, 0.0, 0) is None, "the group has read all"
    assert lead_s(topic(WEEK_MS, policy="compact"), None, 50, 100, 5.0, 0) is None


def test_a_group_below_the_log_start_has_lost_records() -> None:
    assert lead_s(topic(WEEK_MS), None, -5, 100, 5.0, 0) == 0


def test_a_topic_created_anew_starts_anew() -> None:
    assert starts((0, 0), (10, 100), (20, 200), (30, 0)).reaches_in_s(50, 30) is None


def test_moves_before_the_last_hour_do_not_count() -> None:
    assert starts((0, 0), (10, 100), (20, 200), (4000, 200)).reaches_in_s(50, 4000) is None
