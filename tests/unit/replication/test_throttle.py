"""The limit on replication (F56): how fast, and for whom."""

from __future__ import annotations

from ottla.replication.throttle import ReplicationQuota, is_throttled


def test_without_a_rate_nothing_is_exceeded() -> None:
    quota = ReplicationQuota()
    quota.record(1 << 40, 0)
    assert not quota.exceeded(0)


def test_over_time_the_rate_is_kept() -> None:
    quota = ReplicationQuota(1000)
    sent = 0
    for now_ms in range(0, 60_000, 10):
        if not quota.exceeded(now_ms):
            quota.record(100, now_ms)
            sent += 100
    assert 55_000 <= sent <= 66_000


def test_bytes_of_long_ago_do_not_count() -> None:
    quota = ReplicationQuota(10)
    quota.record(10_000, 0)
    assert quota.exceeded(5_000)
    assert not quota.exceeded(12_000)


def test_who_is_throttled() -> None:
    assert is_throttled(("*",), 3, 1)
    assert is_throttled(("0:1", "3:2"), 3, 2)
    assert not is_throttled(("0:1", "3:2"), 3, 1)
    assert not is_throttled((), 0, 0)
