"""What requests take: their number, size, errors and time by stage, for each API (`kafka.network:type=RequestMetrics`).

Only with `metrics.listener`; else no request has a `RequestMeasure`, and nothing here runs. A measure only adds to numbers, that
the collectors of `broker.monitoring` read.

The stages of a request are Kafka's. This broker has one thread and no queues between stages:
- local: decoding, handling and encoding. A request that is answered at once has no other.
- remote: its handler waits, for replicas, for records, for a group.
- response send: writing a reply of files to the socket. Smaller replies are written at once.
- throttle: for how long the connection is muted by quotas. Not part of the total time.
A request counts once its reply is on its way. Fetch requests of followers are counted apart from those of consumers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.network.metering import Meter
from ottla.broker.network.request_observer import RequestObserver
from ottla.broker.network.response_errors import ErrorCodes, error_codes_of
from ottla.metrics.histogram import SIZE_BOUNDS_BYTES, TIME_BOUNDS_S, Histogram
from ottla.ports import FileRange, Part
from ottla.protocol.registry import API_BY_NAME, Api

if TYPE_CHECKING:
    from mypy_extensions import i64

    from ottla.broker.network.connection import Connection
    from ottla.protocol.messages.fetch import FetchResponse
    from ottla.protocol.messages.produce import ProduceResponse

_PRODUCE: Final = API_BY_NAME["produce"].key
_FETCH: Final = API_BY_NAME["fetch"].key
_API_VERSIONS: Final = API_BY_NAME["api_versions"].key
_SOFTWARE_FROM: Final = 3
SENT_AT_ONCE_BYTES: Final = 32 << 10
"""Smaller replies leave with one write (`connection.COPY_BYTES_MAX`)."""
FETCH_CONSUMER: Final = "FetchConsumer"
FETCH_FOLLOWER: Final = "FetchFollower"


class ConnectionTraffic:
    """Of one connection."""

    def __init__(self) -> None:
        self.requests: i64 = 0
        self.bytes_in: i64 = 0
        self.bytes_out: i64 = 0
        self.client_id = ""
        self.software_name = "unknown"
        self.software_version = "unknown"


class VersionCount:
    """Requests of one API in one version."""

    def __init__(self) -> None:
        self.requests: i64 = 0


class RequestStatistics:
    """Of one API."""

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

    def observer(
        self, api: Api, version: int, client_id: str | None, connection: Connection, meter: Meter | None
    ) -> RequestObserver:
        """`meter`: of the quotas that apply to the request as well."""
        traffic = traffic_of(connection)
        traffic.client_id = client_id or ""
        if api.key == _FETCH:
            return FetchMeasure(self, api, version, connection, traffic, meter)
        if api.key == _PRODUCE:
            return ProduceMeasure(self, api, version, connection, traffic, meter)
        if api.key == _API_VERSIONS and version >= _SOFTWARE_FROM:
            return ApiVersionsMeasure(self, api, version, connection, traffic, meter)
        return RequestMeasure(self, api, version, connection, traffic, meter)


def kafka_name(api: Api) -> str:
    """`list_offsets` is ListOffsets."""
    return "".join([word.capitalize() for word in api.name.split("_")])


def traffic_of(connection: Connection) -> ConnectionTraffic:
    traffic = connection.traffic
    if traffic is None:
        traffic = connection.traffic = ConnectionTraffic()
    return traffic


class RequestMeasure(RequestObserver):
    """Of one client on one connection and one API. Measures one request after the other."""

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
        self.statistics = measuring.statistics(FETCH_CONSUMER if api.key == _FETCH else kafka_name(api))
        self._error_codes = measuring.error_codes(api)
        self._by_version = self.statistics.version(version)
        self._connection = connection
        self.traffic = traffic
        self._meter = meter
        self._request_bytes = 0
        self._began = 0.0
        self._waits_since = 0.0
        """When the handler began to wait; 0: it answered at once."""
        self._ended = 0.0
        self._encoded = 0.0

    def begin(self, request_bytes: int) -> None:
        self._request_bytes = request_bytes
        self._waits_since = 0.0
        self._began = self._monotonic()
        if self._meter is not None:
            self._meter.begin(request_bytes)

    def suspend(self) -> None:
        self._waits_since = self._monotonic()
        if self._meter is not None:
            self._meter.suspend()

    def end(self, request: Any, response: Any, error_code: int = 0) -> None:
        if self._waits_since:
            self._ended = self._monotonic()
        meter = self._meter
        if meter is not None:
            meter.end(request, response, error_code)
            if meter.throttle_ms > 0:
                self.statistics.throttle_s.add(meter.throttle_ms / 1000)
        statistics = self.statistics
        statistics.good += self._good(response, statistics.failures) if response is not None else 1
        if response is None:
            self._answered(0, 0)

    def finish(self, parts: list[Part]) -> list[Part]:
        only = parts[0]
        if len(parts) == 1 and isinstance(only, bytes):
            self._answered(len(only), 0)
            return parts
        size: i64 = 0
        files: i64 = 0
        for part in parts:
            if isinstance(part, bytes):
                size += len(part)
            elif isinstance(part, FileRange):
                files += part.size
            else:
                size += len(part)
        self._answered(size, files)
        return parts

    def sent(self) -> None:
        """The reply with files has left."""
        now = self._monotonic()
        statistics = self.statistics
        statistics.send_s.add(now - self._encoded)
        self._record_stages(statistics, now, now - self._encoded)

    def _good(self, response: Any, failures: dict[int, int]) -> int:
        """How many error codes of the response are NONE; the others go to `failures`."""
        return self._error_codes.count(response, failures) if self._error_codes.any else 1

    def _answered(self, buffers_bytes: i64, files_bytes: i64) -> None:
        """Count the request, whose reply is so large."""
        now = self._monotonic()
        request_bytes: i64 = self._request_bytes
        self._by_version.requests += 1
        traffic = self.traffic
        traffic.requests += 1
        traffic.bytes_in += request_bytes + 4
        traffic.bytes_out += buffers_bytes + files_bytes
        statistics = self.statistics
        statistics.size_bytes.add(float(request_bytes))
        if files_bytes > SENT_AT_ONCE_BYTES:
            self._encoded = now
            self._connection.sending = self
        elif self._waits_since:
            self._record_stages(statistics, now, 0.0)
        else:
            statistics.at_once_s.add(now - self._began)

    def _record_stages(self, statistics: RequestStatistics, now: float, sending_s: float) -> None:
        total = now - self._began
        remote = self._ended - self._waits_since if self._waits_since else 0.0
        statistics.total_s.add(total)
        statistics.remote_s.add(remote)
        statistics.local_s.add(total - remote - sending_s)


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

    def end(self, request: Any, response: Any, error_code: int = 0) -> None:
        state = request.replica_state
        follows = request.replica_id >= 0 or (state is not None and state.replica_id >= 0)
        self.statistics = self._followers if follows else self._consumers
        self._by_version = self._followers_by_version if follows else self._consumers_by_version
        super().end(request, response, error_code)

    def _good(self, response: FetchResponse, failures: dict[int, int]) -> int:
        good: i64 = 0
        code = response.error_code
        if code == 0:
            good = 1
        else:
            failures[code] = failures.get(code, 0) + 1
        for topic in response.responses:
            for partition in topic.partitions:
                code = partition.error_code
                if code == 0:
                    good += 1
                else:
                    failures[code] = failures.get(code, 0) + 1
        return good


class ProduceMeasure(RequestMeasure):
    """Reads the error codes of the most frequent response without looking up names."""

    def _good(self, response: ProduceResponse, failures: dict[int, int]) -> int:
        good: i64 = 0
        for topic in response.responses:
            for partition in topic.partition_responses:
                code = partition.error_code
                if code == 0:
                    good += 1
                else:
                    failures[code] = failures.get(code, 0) + 1
        return good


class ApiVersionsMeasure(RequestMeasure):
    """Also notes which software the client is."""

    def end(self, request: Any, response: Any, error_code: int = 0) -> None:
        if response is not None and response.error_code == 0:
            self.traffic.software_name = request.client_software_name
            self.traffic.software_version = request.client_software_version
        super().end(request, response, error_code)
