"""What the overview warns of."""

from __future__ import annotations

from ottla.console.attention import points_of
from ottla.console.watch import Snapshot
from ottla.exporter.consumption import Consumption
from ottla.exporter.reading import BrokerNode, ClusterReading, Group, Partition, Topic

WEEK_MS = 7 * 24 * 3600 * 1000


def warned(
    *rounds: tuple[float, int, int],
    committed: int,
    retention_ms: int = WEEK_MS,
    retention_bytes: int = -1,
    older: dict[float, int] | None = None,
) -> list[str]:
    """What is said of a group after rounds of (time, log start, log end)."""
    consumption = Consumption()
    for time_s, start, end in rounds:
        partition = Partition(1, [1], [1], start, end, log_bytes=(end - start) * 100, older=older or {})
        topic = Topic("orders", False, {0: partition}, "delete")
        topic.retention_ms, topic.retention_bytes = retention_ms, retention_bytes
        group = Group("reports", "classic", "consumer", "Empty", 1, members=[], committed={("orders", 0): committed})
        reading = ClusterReading(time_s, "c", 1, [BrokerNode(1, "host", 1, "")], {"orders": topic}, [group])
        groups = {each.group.name: each for each in consumption.add(reading)}
    return [each.text for each in points_of(Snapshot(reading, groups, {}, True, 0.0, {}))]


def test_fresh_records_are_not_about_to_be_deleted() -> None:
    """A topic that grows fast, from which nothing is deleted, and a group near its start."""
    assert warned((0, 0, 0), (10, 0, 10_000), committed=100) == []


def test_a_record_whose_time_is_nearly_over() -> None:
    assert warned((0, 0, 0), (10, 0, 100), (60, 0, 100), committed=0, retention_ms=80_000) == [
        "retention reaches group reports within 20 s"
    ]


def test_records_older_than_the_samples() -> None:
    """Samples say nothing of what was there before them. The leader was asked below which offset records are that old."""
    ages = [WEEK_MS / 1000 - 3600, WEEK_MS / 1000 - 600]
    slow = [(0.0, 0, 1_000_000), (10.0, 0, 1_000_010)]
    assert warned(*slow, committed=5, older=dict.fromkeys(ages, 0)) == [], "written at once, before the first sample"
    still = [(0.0, 0, 1000), (10.0, 0, 1000)]
    assert warned(*still, committed=5, older={ages[0]: 6, ages[1]: 5}) == []
    assert warned(*still, committed=5, older=dict.fromkeys(ages, 6)) == ["retention reaches group reports within 600 s"]


def test_a_short_retention_is_no_warning_by_itself() -> None:
    assert warned((0, 0, 0), (10, 0, 100), committed=50, retention_ms=80_000) == []


def test_a_topic_that_fills() -> None:
    rounds = [(time_s, 0, 3_000 + time_s * 10) for time_s in range(100)]
    assert warned(*rounds, committed=0, retention_bytes=450_000) == ["retention reaches group reports within 51 s"]


def test_records_that_are_lost() -> None:
    assert warned((0, 0, 100), (10, 60, 100), committed=50) == ["group reports has lost records: retention passed its offsets"]


def test_a_pipeline_that_failed_or_is_not_heard() -> None:
    reading = ClusterReading(0, "c", 1, [BrokerNode(1, "host", 1, "")], {}, [])
    flows = [
        {"flow": "clean", "state": "running", "error": None},
        {"flow": "revenue", "state": "failed", "error": {"message": "no column amonut"}},
        {"flow": "totals", "state": "lost", "error": None},
    ]
    found = points_of(Snapshot(reading, {}, {}, True, 0.0, {}), [{"pipeline": "my shop", "flows": flows}])
    assert [(each.text, each.href) for each in found] == [
        ("pipeline my shop: flow revenue failed: no column amonut", "/pipelines/my%20shop"),
        ("pipeline my shop: the driver of flow totals is not heard", "/pipelines/my%20shop"),
    ]
