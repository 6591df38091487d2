"""Client quotas: precedence, buckets, rates and throttle times, compared with Apache Kafka's classes (rates.json)."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.security.quotas import (
    FETCH,
    MUTATION,
    PRODUCE,
    REQUEST,
    THROTTLE_MS_MAX,
    Entity,
    Quotas,
    QuotaWindows,
    RateQuota,
    SampledRate,
    TokenBucket,
    throttle_ms,
)

GOLDEN: list[dict[str, Any]] = json.loads((Path(__file__).parents[2] / "golden" / "rates.json").read_text())

PRECEDENCE: list[tuple[Entity, tuple[str, str]]] = [
    ((("user", "u"), ("client-id", "c")), ("u", "c")),
    ((("user", "u"), ("client-id", None)), ("u", "c")),
    ((("user", "u"),), ("u", "")),
    ((("user", None), ("client-id", "c")), ("u", "c")),
    ((("user", None), ("client-id", None)), ("u", "c")),
    ((("user", None),), ("u", "")),
    ((("client-id", "c"),), ("", "c")),
    ((("client-id", None),), ("", "c")),
]
"""Every entity whose quotas apply to the user u with client id c, the first one that is set first, with its bucket."""


# Precedence and buckets


@pytest.mark.parametrize("quota", [PRODUCE, FETCH, REQUEST, MUTATION])
def test_qu01_the_first_entity_that_is_set_gives_the_limit(quota: str) -> None:
    numbered = list(enumerate(PRECEDENCE, 1))
    for count in range(1, 9):
        for chosen in combinations(numbered, count):
            quotas = Quotas()
            quotas.configure({entity: {quota: float(number)} for number, (entity, _) in chosen})
            first, (_, bucket) = chosen[0]
            assert quotas.limit_of(quota, "u", "c") == (float(first), *bucket)


def test_qu01_entities_of_others_do_not_count() -> None:
    quotas = Quotas()
    others: list[Entity] = [(("user", "v"),), (("client-id", "d"),), (("user", "v"), ("client-id", None)), (("ip", None),)]
    quotas.configure({entity: {PRODUCE: 1.0} for entity in others})
    assert quotas.limit_of(PRODUCE, "u", "c") is None
    assert quotas.limit_of(FETCH, "v", "c") is None
    client = quotas.of_client("u", "c")
    assert (client.produce, client.fetch, client.request, client.mutation) == (None, None, None, None)


def test_qu01_a_quota_that_lacks_one_kind_does_not_hide_the_next_entity() -> None:
    quotas = Quotas()
    quotas.configure({(("user", "u"),): {FETCH: 1.0}, (("client-id", "c"),): {PRODUCE: 2.0}})
    assert quotas.limit_of(PRODUCE, "u", "c") == (2.0, "", "c")
    assert quotas.limit_of(FETCH, "u", "c") == (1.0, "u", "")


def test_qu01_without_client_id_only_the_quotas_of_the_user_apply() -> None:
    quotas = Quotas()
    quotas.configure({entity: {PRODUCE: float(number)} for number, (entity, _) in enumerate(PRECEDENCE)})
    assert quotas.limit_of(PRODUCE, "u", "") == (2.0, "u", "")
    quotas.configure({(("client-id", None),): {PRODUCE: 1.0}, (("user", None), ("client-id", None)): {PRODUCE: 1.0}})
    assert quotas.limit_of(PRODUCE, "u", "") is None


@pytest.mark.parametrize(
    ("entity", "same", "other"),
    [
        ((("user", None),), [("u", "c"), ("u", "d"), ("u", "")], [("v", "c")]),
        ((("client-id", None),), [("u", "c"), ("v", "c")], [("u", "d")]),
        ((("user", None), ("client-id", None)), [("u", "c")], [("u", "d"), ("v", "c")]),
        ((("user", "u"), ("client-id", None)), [("u", "c")], [("u", "d")]),
    ],
)
def test_qu01_a_default_gives_everyone_a_bucket_of_its_own(
    entity: Entity, same: list[tuple[str, str]], other: list[tuple[str, str]]
) -> None:
    quotas = Quotas()
    quotas.configure({entity: {PRODUCE: 100.0, MUTATION: 1.0}})
    first = quotas.of_client(*same[0])
    for pair in same:
        assert quotas.of_client(*pair).produce is first.produce
        assert quotas.of_client(*pair).mutation is first.mutation
    for pair in other:
        assert quotas.of_client(*pair).produce is not first.produce
        assert quotas.of_client(*pair).mutation is not first.mutation


def test_qu01_a_bucket_outlives_a_change_of_its_limit() -> None:
    quotas = Quotas()
    assert quotas.configure({(("user", "u"),): {PRODUCE: 1000.0}})
    before = quotas.of_client("u", "c").produce
    assert before is not None
    before.record(5000, 1000)
    assert not quotas.configure({(("user", "u"),): {PRODUCE: 1000.0}})
    assert quotas.configure({(("user", None),): {PRODUCE: 10.0}})
    after = quotas.of_client("u", "c").produce
    assert after is before
    assert after.limit == 10.0
    assert after.record(0, 1000) > 0
    assert quotas.configure({})
    assert quotas.of_client("u", "c").produce is None
    assert not quotas.any


def test_idle_buckets_are_dropped() -> None:
    quotas = Quotas()
    quotas.configure({(("client-id", None),): {PRODUCE: 10.0, MUTATION: 1.0}})
    for number in range(100):
        client = quotas.of_client("u", f"c{number}")
        assert client.produce is not None
        assert client.mutation is not None
        client.produce.record(1, 1000 + number)
        client.mutation.take(1, 1000 + number)
    kept = quotas.of_client("u", "c99").produce
    assert quotas.forget_idle(61_050, 60_000)
    assert quotas.of_client("u", "c99").produce is kept
    assert not quotas.forget_idle(61_050, 60_000)
    assert quotas.forget_idle(70_000_000, 60_000)
    assert quotas.of_client("u", "c99").produce is not kept


# Rates


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: f"{case['samples']}x{case['sample_ms']}ms")
def test_qu02_rates_and_tokens_are_kafkas(case: dict[str, Any]) -> None:
    rate = SampledRate(case["samples"], case["sample_ms"])
    bucket = TokenBucket(case["limit"], case["samples"], case["sample_ms"])
    for now_ms, value, expected_rate, expected_window_ms, expected_tokens in case["values"]:
        rate.record(value, now_ms)
        assert rate.per_second(now_ms) == pytest.approx(expected_rate, rel=1e-9, abs=1e-9)
        assert rate.window_ms(now_ms) == expected_window_ms
        bucket.take(value, now_ms)
        assert bucket.tokens(now_ms) == pytest.approx(expected_tokens, rel=1e-9, abs=1e-6)


def test_qu02_the_throttle_time_brings_the_rate_down_to_the_limit() -> None:
    quota = RateQuota(1000, 11, 1000, THROTTLE_MS_MAX)
    assert quota.record(10_000, 50_000) == 0  # ten seconds' worth in an empty window
    assert quota.record(500, 50_000) == 500
    assert quota.record(500, 50_000) == 1000
    quota.limit = 500
    assert quota.record(0, 50_000) == 12_000
    assert quota.record(0, 50_000 + 12_000) == 0


def test_qu02_request_time_is_throttled_by_one_sample_at_most() -> None:
    quotas = Quotas(QuotaWindows(samples=11, sample_ms=1000))
    quotas.configure({(("user", "u"),): {REQUEST: 1.0, PRODUCE: 1.0}})
    client = quotas.of_client("u", "")
    assert client.request is not None
    assert client.produce is not None
    assert client.request.record(10_000, 1000) == 1000
    assert client.produce.record(10_000, 1000) == 9_990_000


def test_qu02_limits_of_nothing_and_huge_excess_give_finite_times() -> None:
    assert throttle_ms(5.0, 0.0, 10_000) == 10_000
    assert throttle_ms(1e18, 1e-9, 10_000) == THROTTLE_MS_MAX
    bucket = TokenBucket(0, 11, 1000)
    bucket.take(1, 0)
    assert bucket.throttle_ms(0) == 11_000


events = st.lists(st.tuples(st.integers(0, 15_000), st.floats(0, 1e6)), min_size=1, max_size=60)


@given(events=events, limit=st.floats(1.0, 1e6), samples=st.integers(1, 12), sample_ms=st.sampled_from([1000, 2000]))
def test_qu02_a_window_longer_by_the_throttle_time_is_within_the_limit(
    events: list[tuple[int, float]], limit: float, samples: int, sample_ms: int
) -> None:
    quota = RateQuota(limit, samples, sample_ms, THROTTLE_MS_MAX)
    now_ms = 0
    for pause_ms, value in events:
        now_ms += pause_ms
        delay_ms = quota.record(value, now_ms)
        rate, window_ms = quota.rate.per_second(now_ms), quota.rate.window_ms(now_ms)
        assert (delay_ms > 0) <= (rate > limit)
        assert window_ms >= max(1, (samples - 1) * sample_ms)
        assert delay_ms == throttle_ms(rate, limit, window_ms) if rate > limit else delay_ms == 0
        # Over a window longer by the delay (rounded to half a millisecond) the sum is within the limit.
        assert quota.rate.sum * 1000 <= limit * (window_ms + delay_ms + 0.5) * (1 + 1e-9)
        now_ms += delay_ms


@given(events=events)
def test_qu03_what_is_taken_back_does_not_count(events: list[tuple[int, float]]) -> None:
    kept, taken_back = SampledRate(11, 1000), RateQuota(1.0, 11, 1000, THROTTLE_MS_MAX)
    now_ms = 0
    for pause_ms, value in events:
        now_ms += pause_ms
        kept.record(0.0, now_ms)
        taken_back.record(value, now_ms)
        taken_back.take_back(value, now_ms)
        assert taken_back.rate.per_second(now_ms) == pytest.approx(kept.per_second(now_ms), abs=1e-6)


def test_qu03_the_largest_value_is_that_of_all_whole_samples() -> None:
    quota = RateQuota(1000, 11, 1000, THROTTLE_MS_MAX)
    assert quota.value_max() == 10_000
    assert quota.record(quota.value_max(), 0) == 0
    assert RateQuota(1e15, 11, 1000, THROTTLE_MS_MAX).value_max() == 2**31 - 1


# Tokens of mutations


def test_qu05_the_bucket_holds_a_whole_window_and_refills_at_the_rate() -> None:
    bucket = TokenBucket(2.0, 11, 1000)
    assert bucket.tokens(5000) == 22
    bucket.take(20, 5000)
    assert bucket.throttle_ms(5000) == 0
    bucket.take(10, 5000)  # accepted with tokens left, whatever it costs
    assert bucket.throttle_ms(5000) == 4000
    assert bucket.throttle_ms(8999) > 0
    assert bucket.throttle_ms(9000) == 0
    assert bucket.tokens(1_000_000) == 22
