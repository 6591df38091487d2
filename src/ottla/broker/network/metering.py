"""What a request costs its client under quotas, and for how long the client is then throttled (KIP-13, 124, 219, 599).

The rules are `security.quotas`. A request has a meter only if a quota applies to its API and client; without one nothing here
runs. The meter measures the request, tells the throttle time in the response, and mutes the connection for that long. The
response itself goes out at once.

- Produce counts the bytes of the request, Fetch those of the response. A Fetch response above the quota becomes an empty one
  and not counted.
- Every request counts its time on the event loop, except Produce with acks=0.
- What brokers send each other is exempt, unless it was denied: the requests of the controller, AlterPartition, WriteTxnMarkers,
  and Fetch from a follower.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.metrics import Counters
from ottla.ports import Clock
from ottla.protocol.registry import API_BY_NAME
from ottla.security.quotas import FETCH, MUTATION, PRODUCE, REQUEST, Charge, ClientQuotas, Quotas

if TYPE_CHECKING:
    from ottla.broker.network.connection import Connection

_PRODUCE: Final = API_BY_NAME["produce"].key
_FETCH: Final = API_BY_NAME["fetch"].key
_CREATE_TOPICS: Final = API_BY_NAME["create_topics"].key
_DELETE_TOPICS: Final = API_BY_NAME["delete_topics"].key
_CREATE_PARTITIONS: Final = API_BY_NAME["create_partitions"].key
_METADATA: Final = API_BY_NAME["metadata"].key
_MUTATIONS: Final = frozenset((_CREATE_TOPICS, _DELETE_TOPICS, _CREATE_PARTITIONS, _METADATA))
_EXEMPT: Final = frozenset(
    API_BY_NAME[name].key
    for name in (
        "leader_and_isr",
        "stop_replica",
        "update_metadata",
        "controlled_shutdown",
        "alter_partition",
        "write_txn_markers",
    )
)
_DENIED: Final = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

IDLE_MS: Final = 60_000
"""How long a bucket is kept without use: longer than its window, so that nothing is lost with it."""


class Metering:
    """The quotas of this broker's clients."""

    def __init__(self, quotas: Quotas, clock: Clock, counters: Counters) -> None:
        self.quotas = quotas
        self.clock = clock
        self.counters = counters

    def applies_to(self, api_key: int) -> bool:
        """Whether requests of this API may need a meter."""
        quotas = self.quotas
        if quotas.has(REQUEST):
            return True
        if api_key == _PRODUCE:
            return quotas.has(PRODUCE)
        if api_key == _FETCH:
            return quotas.has(FETCH)
        return api_key in _MUTATIONS and quotas.has(MUTATION)

    def meter(self, api_key: int, client_id: str | None, connection: Connection) -> Meter | None:
        """None: no quota applies to this API of this client."""
        client = self.quotas.of_client(connection.session.principal.name, client_id or "")
        if (
            client.request is None
            and (api_key != _PRODUCE or client.produce is None)
            and (api_key != _FETCH or client.fetch is None)
            and (api_key not in _MUTATIONS or client.mutation is None)
        ):
            return None
        return Meter(self, api_key, client, connection)


class Meter:
    """Meters the requests of one client, one connection and one API, one after the other."""

    def __init__(self, metering: Metering, api_key: int, client: ClientQuotas, connection: Connection) -> None:
        self._monotonic: Callable[[], float] = metering.clock.monotonic
        self._counters = metering.counters
        self._api_key = api_key
        self._exempt_api = api_key in _EXEMPT
        self._client = client
        self._timed = client.request is not None
        self._connection = connection
        self.exempt = False
        """Set by a handler that knows that the request comes from a broker."""
        self._request_bytes = 0
        self._resumed = 0.0
        """Since when the request is being handled; -1: its handler waits."""
        self._spent = 0.0
        """Seconds, up to `_resumed`."""
        self._fetch_counted = False
        self._mutation_throttles = False
        """The request is throttled until the tokens are back at zero."""
        self._throttle_ms = 0

    def begin(self, request_bytes: int) -> None:
        self.exempt = self._exempt_api
        self._request_bytes = request_bytes
        self._spent = 0.0
        self._fetch_counted = False
        self._mutation_throttles = False
        self._throttle_ms = 0
        if self._timed:
            self._resumed = self._monotonic()

    def suspend(self) -> None:
        """The handler waits."""
        if self._timed and self._resumed >= 0:
            self._spent += self._monotonic() - self._resumed
            self._resumed = -1.0

    def resume(self) -> None:
        if self._timed:
            self._resumed = self._monotonic()

    @property
    def throttle_ms(self) -> int:
        """For how long the request is throttled, once it has ended."""
        return self._throttle_ms

    def end(self, request: Any, response: Any, error_code: int = 0) -> None:
        """Count the request, set the throttle time of its response (None: it has none), mute the connection for that long."""
        if self.exempt and error_code != _DENIED and getattr(response, "error_code", 0) != _DENIED:
            return
        if not self._fetch_counted:
            self._count(response is not None)
        throttle_ms = self._throttle_ms
        if throttle_ms > 0:
            if hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = throttle_ms
            self._counters.add("requests_throttled")
            self._connection.mute(throttle_ms)

    def _count(self, has_response: bool) -> None:
        client = self._client
        now = self._monotonic()
        now_ms = now * 1000.0
        if self._api_key == _PRODUCE:
            if client.produce is not None:
                self._throttle(client.produce.record(self._request_bytes, now_ms))
            if not has_response:
                return
        if self._mutation_throttles and client.mutation is not None:
            self._throttle(client.mutation.throttle_ms(now_ms))
        if client.request is not None:
            self._count_time(now)

    def _count_time(self, now: float) -> None:
        if self._resumed >= 0:
            self._spent += now - self._resumed
            self._resumed = -1.0
        quota = self._client.request
        assert quota is not None
        self._throttle(quota.record(self._spent * 100.0, now * 1000.0))

    def _throttle(self, throttle_ms: int) -> None:
        if throttle_ms > self._throttle_ms:
            self._throttle_ms = throttle_ms

    # Fetch

    def fetch_bytes_max(self) -> int:
        """A larger response would be throttled in any case."""
        quota = self._client.fetch
        return quota.value_max() if quota is not None else 2**31 - 1

    def fetched(self, response_bytes: int) -> bool:
        """Count a Fetch response. False: it must be empty, and is not counted."""
        client = self._client
        now = self._monotonic()
        now_ms = now * 1000.0
        self._fetch_counted = True
        if client.request is not None:
            self._count_time(now)
        if client.fetch is not None:
            self._throttle(client.fetch.record(response_bytes, now_ms))
            if self._throttle_ms > 0:
                client.fetch.take_back(response_bytes, now_ms)
        return self._throttle_ms == 0

    # Changes of topics

    def charge(self, strict: bool) -> Charge | None:
        """What takes the tokens of created and deleted partitions. `strict`: it refuses more once the quota is exceeded; else the
        client is only throttled. None: there is no such quota."""
        if self._client.mutation is None:
            return None
        return self._charge_strictly if strict else self._charge_and_throttle

    def charge_later(self) -> Charge | None:
        """For topics that a request creates by the way. It is neither refused nor throttled; the next mutation may be."""
        return self._take_tokens if self._client.mutation is not None else None

    def _charge_strictly(self, partitions: int) -> None:
        bucket = self._client.mutation
        assert bucket is not None
        if bucket.throttle_ms(self._monotonic() * 1000.0) > 0:
            self._mutation_throttles = True
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "the quota controller_mutation_rate is exceeded")
        self._take_tokens(partitions)

    def _charge_and_throttle(self, partitions: int) -> None:
        self._mutation_throttles = True
        self._take_tokens(partitions)

    def _take_tokens(self, partitions: int) -> None:
        bucket = self._client.mutation
        assert bucket is not None
        bucket.take(partitions, self._monotonic() * 1000.0)
