"""What requests take: their number, size, errors and time by stage, for each API (`kafka.network:type=RequestMetrics`).

Only with `metrics.listener`; else no request has a `RequestMeasure`, and nothing here runs. A measure only adds to numbers, that
the collectors of `broker.monitoring` read.

The stages of a request are Kafka's. This broker has one thread and no queues between stages:
- local: decoding, handling and encoding. A request that is answered at once has no other.
- remote: its handler waits, for replicas, for records, for a group.
- response send: writing a reply of files to the socket. Smaller replies are written at once.
- throttle: for how long the connection is muted by quotas. Not part of the total time.
A request counts once its reply is on its way. Fetch requests of followers are counted apart from those of consumers.

What takes microseconds is timed by the system's wall clock, which compiled code reads without making an object: two reads of
Python's monotonic clock are a percent of a request. Waiting and sending are timed by the monotonic clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from librt.strings import read_i32_be
from librt.time import time as wall_s
from mypy_extensions import i64

from ottla.broker.network.metering import Meter
from ottla.broker.network.response_errors import ErrorCodes, error_codes_of
from ottla.metrics.histogram import SIZE_BOUNDS_BYTES, TIME_BOUNDS_S, Histogram
from ottla.ports import FileRange, Part
from ottla.protocol.registry import API_BY_NAME, Api

if TYPE_CHECKING:
    from ottla.broker.network.connection import Connection
    from ottla.protocol.messages.fetch import FetchRequest, FetchResponse
    from ottla.protocol.messages.produce import ProduceResponse

_PRODUCE: Final = API_BY_NAME["produce"].key
_FETCH: Final = API_BY_NAME["fetch"].key
SENT_AT_ONCE_BYTES: Final = 32 << 10
"""Smaller replies leave with one write (`connection.COPY_BYTES_MAX`)."""
FETCH_CONSUMER: Final = "FetchConsumer"
FETCH_FOLLOWER: Final = "FetchFollower"


class ConnectionTraffic:
    """The bytes and requests of one connection."""

    def __init__(self) -> None:
        self.requests: i64 = 0
        self.bytes_in: i64 = 0
        self.bytes_out: i64 = 0
        self.client_id = ""


class VersionCount:
    """Requests of one API in one version."""

    def __init__(self) -> None:
        self.requests: i64 = 0


class RequestStatistics:
    """The counts and times of one API."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.by_version: dict[int, VersionCount] = {}
        self.good: i64 = 0
        """Error codes NONE in responses."""
        self.failures: dict[int, int] = {}
        """Other error codes in responses."""
        self.size_bytes = Histogram(SIZE_BOUNDS_BYTES)
        self.at_once_s = Histogram(TIME_BOUNDS_S)
        """Total and local time of requests that neither waited nor were sent as files."""
        self.total_s = Histogram(TIME_BOUNDS_S)
        """Of the other requests, as are local and remote."""
        self.local_s = Histogram(TIME_BOUNDS_S)
        self.remote_s = Histogram(TIME_BOUNDS_S)
        self.send_s = Histogram(TIME_BOUNDS_S)
        """Of replies with files."""
        self.throttle_s = Histogram(TIME_BOUNDS_S)
        """Of requests that were throttled."""

    def version(self, number: int) -> VersionCount:
        found = self.by_version.get(number)
        if found is None:
            found = self.by_version[number] = VersionCount()
        return found

    def failed(self, code: int) -> None:
        self.failures[code] = self.failures.get(code, 0) + 1

    def histograms(self) -> list[Histogram]:
        return [self.size_bytes, self.at_once_s, self.total_s, self.local_s, self.remote_s, self.send_s, self.throttle_s]


class Measuring:
    """The statistics of all APIs."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.monotonic = monotonic
        self.by_name: dict[str, RequestStatistics] = {}
        self._error_codes: dict[int, ErrorCodes] = {}

    def statistics(self, name: str) -> RequestStatistics:
        found = self.by_name.get(name)
        if found is None:
            found = self.by_name[name] = RequestStatistics(name)
        return found

    def error_codes(self, api: Api) -> ErrorCodes:
        found = self._error_codes.get(api.key)
        if found is None:
            found = self._error_codes[api.key] = error_codes_of(api.response)
        return found

    def measure(
        self, api: Api, version: int, client_id: str | None, connection: Connection, meter: Meter | None
    ) -> RequestMeasure:
        """`meter`: of the quotas that apply to the request."""
        traffic = traffic_of(connection)
        traffic.client_id = client_id or ""
        if api.key == _FETCH:
            return FetchMeasure(self, api, version, connection, traffic, meter)
        if api.key == _PRODUCE:
            return ProduceMeasure(self, api, version, connection, traffic, meter)
        return RequestMeasure(self, api, version, connection, traffic, meter)


def kafka_name(api: Api) -> str:
    """`list_offsets` is ListOffsets."""
    return "".join([word.capitalize() for word in api.name.split("_")])


def traffic_of(connection: Connection) -> ConnectionTraffic:
    traffic = connection.traffic
    if traffic is None:
        traffic = connection.traffic = ConnectionTraffic()
    return traffic


class RequestMeasure:
    """Measures the requests of one client, one connection and one API, one after the other."""

    def __init__(
        self,
        measuring: Measuring,
        api: Api,
        version: int,
        connection: Connection,
        traffic: ConnectionTraffic,
        meter: Meter | None,
    ) -> None:
        self._monotonic = measuring.monotonic
        self._reads_wall = measuring.monotonic is time.monotonic
        """Whether the clock is that of the system, and no other one that a simulation or a test has put in its place."""
        self.statistics = measuring.statistics(FETCH_CONSUMER if api.key == _FETCH else kafka_name(api))
        self._error_codes = measuring.error_codes(api)
        self._by_version = self.statistics.version(version)
        self._connection = connection
        self.traffic = traffic
        self._meter = meter
        self._request_bytes: i64 = 0
        self._began = 0.0
        """When it began, or went on after its handler had waited."""
        self._local_s = 0.0
        """Before its handler waited."""
        self._waits_since = 0.0
        """When the handler began to wait; 0: it answered at once."""
        self._remote_s = 0.0
        self._sends_since = 0.0

    def _now_s(self) -> float:
        """For short times."""
        return wall_s() if self._reads_wall else self._monotonic()

    def begin(self, request_bytes: int) -> None:
        """A request begins."""
        self._request_bytes = request_bytes
        self._began = self._now_s()

    def suspend(self) -> None:
        """The handler begins to wait."""
        self._local_s = max(0.0, self._now_s() - self._began)
        self._waits_since = self._monotonic()

    def resume(self) -> None:
        """The handler has waited."""
        self._remote_s = self._monotonic() - self._waits_since
        self._began = self._now_s()

    def finish(self, parts: list[Part], request: Any, response: Any) -> None:
        """The response is encoded as these parts."""
        self._count_errors(response)
        first = parts[0]
        assert isinstance(first, bytes)
        size = i64(read_i32_be(first, 0))  # of the whole reply, files included
        self._answered(size + 4, size > SENT_AT_ONCE_BYTES and _file_bytes(parts) > SENT_AT_ONCE_BYTES)

    def finish_unanswered(self) -> None:
        """The request gets no response."""
        self.statistics.good += 1
        self._answered(0, False)

    def sent(self) -> None:
        """The reply with files has left."""
        sending_s = self._monotonic() - self._sends_since
        self.statistics.send_s.add(sending_s)
        self._record_stages(sending_s)

    def _count_errors(self, response: Any) -> None:
        """Count the error codes of the response."""
        statistics = self.statistics
        statistics.good += self._error_codes.count(response, statistics.failures) if self._error_codes.any else 1

    def _answered(self, response_bytes: i64, is_sent_later: bool) -> None:
        """Count the request."""
        spent_s = self._now_s() - self._began
        if spent_s < 0:
            spent_s = 0.0  # somebody has set the clock
        request_bytes = self._request_bytes
        self._by_version.requests += 1
        traffic = self.traffic
        traffic.requests += 1
        traffic.bytes_in += request_bytes + 4
        traffic.bytes_out += response_bytes
        statistics = self.statistics
        statistics.size_bytes.add(float(request_bytes))
        if self._meter is not None and self._meter.throttle_ms > 0:
            statistics.throttle_s.add(self._meter.throttle_ms / 1000)
        if not is_sent_later and not self._waits_since:
            statistics.at_once_s.add(spent_s)
            return
        self._local_s = self._local_s + spent_s if self._waits_since else spent_s
        if is_sent_later:
            self._sends_since = self._monotonic()
            self._connection.sending = self
        else:
            self._record_stages(0.0)

    def _record_stages(self, sending_s: float) -> None:
        remote_s = self._remote_s if self._waits_since else 0.0
        self._waits_since = 0.0
        statistics = self.statistics
        statistics.total_s.add(self._local_s + remote_s + sending_s)
        statistics.remote_s.add(remote_s)
        statistics.local_s.add(self._local_s)


def _file_bytes(parts: list[Part]) -> i64:
    found: i64 = 0
    for part in parts:
        if isinstance(part, FileRange):
            found += part.size
    return found


class FetchMeasure(RequestMeasure):
    """Followers apart from consumers."""

    def __init__(
        self,
        measuring: Measuring,
        api: Api,
        version: int,
        connection: Connection,
        traffic: ConnectionTraffic,
        meter: Meter | None,
    ) -> None:
        super().__init__(measuring, api, version, connection, traffic, meter)
        self._consumers = self.statistics
        self._consumers_by_version = self._by_version
        self._followers = measuring.statistics(FETCH_FOLLOWER)
        self._followers_by_version = self._followers.version(version)
        self._follows = False

    def finish(self, parts: list[Part], request: Any, response: Any) -> None:
        fetch: FetchRequest = request
        state = fetch.replica_state
        follows = fetch.replica_id >= 0 or (state is not None and state.replica_id >= 0)
        if follows != self._follows:
            self._follows = follows
            self.statistics = self._followers if follows else self._consumers
            self._by_version = self._followers_by_version if follows else self._consumers_by_version
        super().finish(parts, request, response)

    def _count_errors(self, response: Any) -> None:
        answer: FetchResponse = response
        statistics = self.statistics
        good: i64 = 0
        if answer.error_code == 0:
            good = 1
        else:
            statistics.failed(answer.error_code)
        for topic in answer.responses:
            for partition in topic.partitions:
                if partition.error_code == 0:
                    good += 1
                else:
                    statistics.failed(partition.error_code)
        statistics.good += good


class ProduceMeasure(RequestMeasure):
    """Reads the error codes of the most frequent response without looking up names."""

    def _count_errors(self, response: Any) -> None:
        answer: ProduceResponse = response
        statistics = self.statistics
        good: i64 = 0
        for topic in answer.responses:
            for partition in topic.partition_responses:
                if partition.error_code == 0:
                    good += 1
                else:
                    statistics.failed(partition.error_code)
        statistics.good += good
