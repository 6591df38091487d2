"""Client quotas: which one applies to a client, how its rate is measured, and for how long to throttle (KIP-13, 124, 546, 599).

Owns the measured rates. Times are monotonic milliseconds. As in Kafka:

1. The most specific quota applies: the client id of the user, then the user, then the client id; in each place a name before the
   default. A client without a client id has only the quotas of its user.
2. A quota of a user and client id has a bucket for each pair, one of a user for each user, one of a client id for each client id,
   also where the limit is a default. A bucket outlives changes of its limit.
3. A rate is measured over the samples of a window (`quota.window.num` x `quota.window.size.seconds`). Samples before the first
   value count as empty: the window is never shorter than all samples but the current one.
4. The throttle time is what brings the rate down to the limit, if nothing more is recorded: (rate - limit) / limit x window.
5. Mutations take tokens from a bucket that holds a whole window's worth. It may go below zero; then nothing more is taken until
   it is refilled to zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

PRODUCE: Final = "producer_byte_rate"
FETCH: Final = "consumer_byte_rate"
REQUEST: Final = "request_percentage"
MUTATION: Final = "controller_mutation_rate"

Entity = tuple[tuple[str, str | None], ...]
"""(type, name) pairs; the name None is the default of the type."""
Limits = Mapping[Entity, Mapping[str, float]]
Charge = Callable[[int], None]
"""Takes the tokens of so many partitions that are created or deleted. KafkaError if the quota is exceeded."""

THROTTLE_MS_MAX: Final = 2**31 - 1

_USER: Final = "user"
_CLIENT_ID: Final = "client-id"


def entities_of(user: str, client_id: str) -> list[tuple[Entity, str, str]]:
    """The entities whose quotas apply to a client, the most specific first, each with the user and client id of the bucket."""
    found: list[tuple[Entity, str, str]] = []
    for name in (user, None):
        if client_id:
            found.append((((_USER, name), (_CLIENT_ID, client_id)), user, client_id))
            found.append((((_USER, name), (_CLIENT_ID, None)), user, client_id))
        found.append((((_USER, name),), user, ""))
    if client_id:
        found.append((((_CLIENT_ID, client_id),), "", client_id))
        found.append((((_CLIENT_ID, None),), "", client_id))
    return found


@dataclass(frozen=True, slots=True)
class QuotaWindows:
    samples: int = 11
    sample_ms: int = 1000
    controller_samples: int = 11
    controller_sample_ms: int = 1000


def throttle_ms(rate: float, limit: float, window_ms: float) -> int:
    """How long to wait until `rate`, measured over the window, has come down to the limit."""
    if limit <= 0:
        return int(window_ms)  # nothing is allowed; Kafka's formula divides by zero
    delay = (rate - limit) / limit * window_ms + 0.5
    return int(delay) if delay < THROTTLE_MS_MAX else THROTTLE_MS_MAX


class SampledRate:
    """A sum per second over the last samples.

    A sample begins with the first value after the previous one is complete. One sample more than counted is kept: one that began
    before the window and has values in it. What is too old is emptied, not removed: it then begins now.
    """

    # The current sample is in attributes, the others in lists: a value is added without touching a list.

    def __init__(self, samples: int, sample_ms: int) -> None:
        self._samples = samples
        self._sample_ms = float(sample_ms)
        self._expiry_ms = float(samples * sample_ms)
        self._starts: list[float] = []
        self._last_used: list[float] = []
        self._sums: list[float] = []
        self._current = -1
        self._current_sum = 0.0
        self._current_last_used = 0.0
        self._current_end = 0.0
        self._oldest_start = 0.0
        self._expires_at = 0.0
        """No sample is too old before."""
        self.sum = 0.0

    def record(self, value: float, now_ms: float) -> None:
        if now_ms >= self._current_end:
            self._advance(now_ms)
        self._current_sum += value
        self._current_last_used = now_ms
        self.sum += value
        if now_ms >= self._expires_at:
            self._expire(now_ms)

    def window_ms(self, now_ms: float) -> float:
        if now_ms >= self._expires_at:
            self._expire(now_ms)
        elapsed = now_ms - self._oldest_start
        missing = self._samples - 1 - int(elapsed / self._sample_ms)
        if missing > 0:
            elapsed += missing * self._sample_ms
        return elapsed if elapsed > 1.0 else 1.0

    def per_second(self, now_ms: float) -> float:
        window_ms = self.window_ms(now_ms)
        return self.sum / (window_ms / 1000.0)

    def _advance(self, now_ms: float) -> None:
        self._put_current()
        position = (self._current + 1) % (self._samples + 1)
        if position == len(self._starts):
            self._starts.append(now_ms)
            self._last_used.append(now_ms)
            self._sums.append(0.0)
        else:
            self._empty(position, now_ms)
        self._current = position
        self._take_current()

    def _expire(self, now_ms: float) -> None:
        if self._current < 0:
            self._advance(now_ms)
            return
        self._put_current()
        for position in range(len(self._starts)):
            if now_ms - self._last_used[position] >= self._expiry_ms:
                self._empty(position, now_ms)
        self._take_current()

    def _empty(self, position: int, now_ms: float) -> None:
        self._starts[position] = self._last_used[position] = now_ms
        self._sums[position] = 0.0

    def _put_current(self) -> None:
        if self._current >= 0:
            self._sums[self._current] = self._current_sum
            self._last_used[self._current] = self._current_last_used

    def _take_current(self) -> None:
        """Everything that follows from the samples. The sum too: one kept for long would collect rounding errors."""
        self._current_sum = self._sums[self._current]
        self._current_last_used = self._last_used[self._current]
        self._current_end = self._starts[self._current] + self._sample_ms
        self._oldest_start = min(self._starts)
        self._expires_at = min(self._last_used) + self._expiry_ms
        self.sum = sum(self._sums)


class RateQuota:
    """A limit on a rate, and the rate of those it applies to."""

    def __init__(self, limit: float, samples: int, sample_ms: int, throttle_ms_max: int) -> None:
        self.limit = limit
        self.rate = SampledRate(samples, sample_ms)
        self.last_used_ms = 0.0
        self._throttle_ms_max = throttle_ms_max
        self._whole_samples_s = (samples - 1) * sample_ms / 1000.0

    def record(self, value: float, now_ms: float) -> int:
        """Count a value. Returns for how many milliseconds to throttle the client."""
        self.last_used_ms = now_ms
        rate = self.rate
        rate.record(value, now_ms)
        if rate.sum <= self.limit * self._whole_samples_s:
            return 0  # the window is not shorter
        window_ms = rate.window_ms(now_ms)
        per_second = rate.sum / (window_ms / 1000.0)
        if per_second <= self.limit:
            return 0
        delay_ms = throttle_ms(per_second, self.limit, window_ms)
        return delay_ms if delay_ms < self._throttle_ms_max else self._throttle_ms_max

    def throttle_ms(self, now_ms: float) -> int:
        """For how long a client would be throttled now."""
        per_second = self.rate.per_second(now_ms)
        if per_second <= self.limit:
            return 0
        return min(throttle_ms(per_second, self.limit, self.rate.window_ms(now_ms)), self._throttle_ms_max)

    def take_back(self, value: float, now_ms: float) -> None:
        self.rate.record(-value, now_ms)

    def value_max(self) -> int:
        """The largest value that is not throttled in any case."""
        most = self.limit * self._whole_samples_s
        return int(most) if most < THROTTLE_MS_MAX else THROTTLE_MS_MAX


class TokenBucket:
    """The tokens of controller mutations."""

    def __init__(self, limit: float, samples: int, sample_ms: int) -> None:
        self.limit = limit
        """Tokens per second."""
        self.last_used_ms = 0.0
        self._burst_s = samples * sample_ms / 1000.0
        self._tokens = limit * self._burst_s
        self._filled_at_ms = -1.0

    def throttle_ms(self, now_ms: float) -> int:
        """How long until the bucket is no longer below zero."""
        tokens = self.tokens(now_ms)
        if tokens >= 0:
            return 0
        if self.limit <= 0:
            return int(self._burst_s * 1000)
        delay = -tokens / self.limit * 1000 + 0.5
        return int(delay) if delay < THROTTLE_MS_MAX else THROTTLE_MS_MAX

    def take(self, tokens: float, now_ms: float) -> None:
        self.last_used_ms = now_ms
        self._tokens = min(self.limit * self._burst_s, self.tokens(now_ms) - tokens)

    def tokens(self, now_ms: float) -> float:
        burst = self.limit * self._burst_s
        if self._filled_at_ms < 0:
            self._tokens = burst
        else:
            self._tokens = min(burst, self._tokens + self.limit * ((now_ms - self._filled_at_ms) / 1000.0))
        self._filled_at_ms = now_ms
        return self._tokens


class ClientQuotas:
    """The quotas of one user with one client id; None where there is none."""

    def __init__(
        self, produce: RateQuota | None, fetch: RateQuota | None, request: RateQuota | None, mutation: TokenBucket | None
    ) -> None:
        self.produce = produce
        self.fetch = fetch
        self.request = request
        self.mutation = mutation


class Quotas:
    """The limits of this cluster, and the buckets of this broker's clients."""

    def __init__(self, windows: QuotaWindows = QuotaWindows()) -> None:
        self._windows = windows
        self._limits: dict[str, dict[Entity, float]] = {}
        """By quota; only quotas that are set somewhere."""
        self._rates: dict[tuple[str, str, str], RateQuota] = {}
        """By quota, user and client id; "" for what the bucket does not distinguish."""
        self._tokens: dict[tuple[str, str], TokenBucket] = {}
        self._clients: dict[tuple[str, str], ClientQuotas] = {}

    def configure(self, limits: Limits) -> bool:
        """Replace all limits. False: they are the same as before."""
        found: dict[str, dict[Entity, float]] = {}
        for entity, quotas in limits.items():
            for quota, limit in quotas.items():
                if quota in (PRODUCE, FETCH, REQUEST, MUTATION):
                    found.setdefault(quota, {})[entity] = limit
        if found == self._limits:
            return False
        self._limits = found
        self._clients.clear()
        return True

    def has(self, quota: str) -> bool:
        """Whether anybody has such a quota."""
        return quota in self._limits

    @property
    def any(self) -> bool:
        return bool(self._limits)

    def of_client(self, user: str, client_id: str) -> ClientQuotas:
        client = self._clients.get((user, client_id))
        if client is None:
            client = self._clients[user, client_id] = ClientQuotas(
                self._rate_quota(PRODUCE, user, client_id),
                self._rate_quota(FETCH, user, client_id),
                self._rate_quota(REQUEST, user, client_id),
                self._token_bucket(user, client_id),
            )
        return client

    def rates(self) -> list[tuple[str, str, str, RateQuota]]:
        """(quota, user, client id, bucket) of each bucket that was used; "" for what the bucket does not distinguish."""
        return [(quota, user, client_id, rate) for (quota, user, client_id), rate in self._rates.items()]

    def forget_idle(self, now_ms: float, idle_ms: int) -> bool:
        """Drop the buckets that were not used for so long. True: some were; clients must be looked up again."""
        rates = [key for key, each in self._rates.items() if now_ms - each.last_used_ms >= idle_ms]
        tokens = [user for user, bucket in self._tokens.items() if now_ms - bucket.last_used_ms >= idle_ms]
        for key in rates:
            del self._rates[key]
        for pair in tokens:
            del self._tokens[pair]
        self._clients.clear()
        return bool(rates or tokens)

    def limit_of(self, quota: str, user: str, client_id: str) -> tuple[float, str, str] | None:
        """(limit, user, client id) of the quota that applies and of its bucket; None: none applies."""
        limits = self._limits.get(quota)
        if limits is not None:
            for entity, bucket_user, bucket_client_id in entities_of(user, client_id):
                limit = limits.get(entity)
                if limit is not None:
                    return limit, bucket_user, bucket_client_id
        return None

    def _rate_quota(self, quota: str, user: str, client_id: str) -> RateQuota | None:
        found = self.limit_of(quota, user, client_id)
        if found is None:
            return None
        limit, bucket_user, bucket_client_id = found
        windows = self._windows
        rate = self._rates.get((quota, bucket_user, bucket_client_id))
        if rate is None:
            throttle_ms_max = windows.sample_ms if quota == REQUEST else THROTTLE_MS_MAX
            rate = RateQuota(limit, windows.samples, windows.sample_ms, throttle_ms_max)
            self._rates[quota, bucket_user, bucket_client_id] = rate
        rate.limit = limit
        return rate

    def _token_bucket(self, user: str, client_id: str) -> TokenBucket | None:
        found = self.limit_of(MUTATION, user, client_id)
        if found is None:
            return None
        limit, bucket_user, bucket_client_id = found
        windows = self._windows
        bucket = self._tokens.get((bucket_user, bucket_client_id))
        if bucket is None:
            bucket = TokenBucket(limit, windows.controller_samples, windows.controller_sample_ms)
            self._tokens[bucket_user, bucket_client_id] = bucket
        bucket.limit = limit
        return bucket
