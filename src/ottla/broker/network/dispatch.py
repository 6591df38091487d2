"""The pipeline of every request: decode, authenticate, authorize, handle, throttle, encode.

Owns the routes (API and version -> decoder, handler with its collaborators and its authorization, encoder), and what becomes of
errors. A `KafkaError` becomes the response. `MalformedInput` and `CloseConnection` close the connection. Any other exception is a
bug of the broker: it is logged with its traceback once, and answered with UNKNOWN_SERVER_ERROR if the response has room for it,
else the connection is closed.

A client is authenticated before its requests come here (`sasl_login`, TLS). A request has a meter only if a quota applies to it
(`metering`), and a measure only with metrics (`measuring`). A handler that answers at once, or with a future, costs no task.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ottla.broker.network.context import CloseConnection, RequestContext
from ottla.broker.network.handler import Handler, bind
from ottla.broker.network.metering import Meter, Metering
from ottla.broker.network.timed import timed
from ottla.errors import ErrorCode, KafkaError, MalformedInput
from ottla.ports import Part
from ottla.protocol.headers import RequestHeader, ResponseEncoder, decode_request_header, encode_response
from ottla.protocol.registry import API_BY_KEY, Api
from ottla.wire.codec import REQUEST_ELEMENTS_MAX, decoder

if TYPE_CHECKING:
    from mypy_extensions import i64

    from ottla.broker.network.connection import Connection
    from ottla.broker.network.measuring import Measuring, RequestMeasure

logger = logging.getLogger(__name__)

_API_VERSIONS = 18

_CONTROL_ELEMENTS_MAX = 1 << 24
"""Limit for LeaderAndIsr, StopReplica and UpdateMetadata: they may list every replica of the cluster."""
_CONTROL_REQUESTS = frozenset({"leader_and_isr", "stop_replica", "update_metadata"})


Authorize = Callable[[Handler, Callable[[Any, Any], Any], Mapping[str, Any]], Callable[[Any, Any], Any]]
"""(row of the table of handlers, handler, collaborators) -> the handler behind its authorization."""


class Route:
    """One API in one version."""

    def __init__(
        self,
        api: Api,
        version: int,
        handle: Callable[[Any, Any], Any],
        refuse: Callable[[Any, Any], Any] | None,
        metered: bool = False,
    ) -> None:
        self.api = api
        self.version = version
        self.decode = decoder(
            api.request, version, _CONTROL_ELEMENTS_MAX if api.name in _CONTROL_REQUESTS else REQUEST_ELEMENTS_MAX
        )
        self.encoder = ResponseEncoder(api, version)
        self.handle = handle
        self.refuse = refuse
        self.response_class = api.response
        self.metered = metered
        """Whether quotas may apply."""


class HeaderCache:
    """Cache of the last request header and its route: consecutive requests differ only in the correlation id, which stands
    between the API and the client id."""

    def __init__(
        self,
        api: bytes,
        client: bytes,
        position: int,
        route: Route,
        context: RequestContext,
        measure: RequestMeasure | None,
    ) -> None:
        self.api = api
        self.client = client
        self.position = position
        self.route = route
        self.context = context
        self.meter = context.meter
        self.measure = measure
        self.previous: HeaderCache | None = None
        """The header before it: many clients send two APIs in turn, such as Heartbeat and OffsetCommit. No more than two are
        kept."""


class PendingReply:
    """A reply whose handler has to wait."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        route: Route,
        correlation_id: int,
        request: object,
        future: asyncio.Future[Any],
        meter: Meter | None = None,
        measure: RequestMeasure | None = None,
    ) -> None:
        self._dispatcher = dispatcher
        self._route = route
        self._meter = meter
        self._measure = measure
        self._correlation_id = correlation_id
        self._request = request
        self.future = future

    def parts(self) -> list[Part] | None:
        """The reply, once the future is done (and was not cancelled). MalformedInput: close the connection."""
        error = self.future.exception()
        meter, measure = self._meter, self._measure
        if measure is not None:
            measure.resume()
        try:
            if error is not None:
                raise error
            response = self.future.result()
            if meter is not None:
                meter.end(self._request, response)
            if response is None:
                if measure is not None:
                    measure.finish_unanswered()
                return None
            parts = self._route.encoder.encode(self._correlation_id, response)
            if measure is not None:
                measure.finish(parts, self._request, response)
            return parts
        except Exception as failure:
            return self._dispatcher.failure(self._route, self._correlation_id, self._request, failure, meter, measure)

    @property
    def api_name(self) -> str:
        return self._route.api.name


class Dispatcher:
    def __init__(
        self,
        handlers: Mapping[int, Handler],
        parts: Mapping[str, Any],
        loop: asyncio.AbstractEventLoop,
        metering: Metering | None = None,
        authorize: Authorize | None = None,
        measuring: Measuring | None = None,
    ) -> None:
        self._handlers = handlers
        """The APIs that are served, by api key."""
        self._parts = parts
        """The collaborators of handlers, by parameter name. A route binds them when its API is first requested."""
        self._loop = loop
        self._metering = metering
        self._authorize = authorize
        self._measuring = measuring
        """Only with metrics."""
        self._routes: dict[int, Route] = {}
        self._seen_bugs: set[tuple[str, str]] = set()

    def dispatch(self, frame: memoryview, connection: Connection) -> list[Part] | PendingReply | None:
        """Answer one request. None: it gets no reply. MalformedInput: close the connection."""
        cached = connection.header_cache
        # A copy: comparing bytes costs far less than comparing memoryviews.
        start = frame[: cached.position if cached is not None else 8].tobytes()
        if cached is None or start[8:] != cached.client or start[:4] != cached.api:
            found = self._find_header(frame, connection, cached)
            if not isinstance(found, HeaderCache):
                return found
            cached = found
        route = cached.route
        meter, measure = cached.meter, cached.measure
        if meter is not None:
            meter.begin(len(frame))
        if measure is not None:
            measure.begin(len(frame))
        number: i64 = start[4] << 24 | start[5] << 16 | start[6] << 8 | start[7]
        correlation_id: int = number if number < 0x80000000 else number - 0x100000000
        try:
            request, _ = route.decode(frame, cached.position)
        except MalformedInput as error:
            raise MalformedInput(f"{route.api.name} v{route.version}: {error}") from error
        try:
            response = route.handle(request, cached.context)
            if type(response) is route.response_class:
                if meter is not None:
                    meter.end(request, response)
                parts = route.encoder.encode(correlation_id, response)
                if measure is not None:
                    measure.finish(parts, request, response)
                return parts
        except Exception as error:
            return self.failure(route, correlation_id, request, error, meter, measure)
        if response is None:
            if meter is not None:
                meter.end(request, None)
            if measure is not None:
                measure.finish_unanswered()
            return None
        if measure is not None:
            measure.suspend()
        if meter is not None:
            meter.suspend()
            if not isinstance(response, asyncio.Future):
                response = timed(meter, response)
        future = response if isinstance(response, asyncio.Future) else self._loop.create_task(response)
        return PendingReply(self, route, correlation_id, request, future, meter, measure)

    def forget_routes(self) -> None:
        """Quotas have changed: build the routes again. Connections must drop their header caches."""
        self._routes.clear()

    def refused(self, frame: memoryview, connection: Connection, error: KafkaError) -> list[Part]:
        """The response to a request that is not handled."""
        found = self._decode_header(frame, connection)
        if not isinstance(found, HeaderCache):
            return found
        request, _ = found.route.decode(frame, found.position)
        return self.failure(found.route, int.from_bytes(frame[4:8], "big", signed=True), request, error)

    def _find_header(self, frame: memoryview, connection: Connection, last: HeaderCache | None) -> HeaderCache | list[Part]:
        """The cache entry of a request whose header is not that of the last one. A list is the reply already."""
        if last is not None:
            previous = last.previous
            if previous is not None:
                start = frame[: previous.position].tobytes()
                if start[8:] == previous.client and start[:4] == previous.api:
                    last.previous, previous.previous = None, last
                    connection.header_cache = previous
                    return previous
        found = self._decode_header(frame, connection)
        if isinstance(found, HeaderCache) and found.client:
            # ControlledShutdown v0 has no client id: its entry could not tell that a frame is too short.
            if last is not None:
                last.previous = None
            found.previous = last
            connection.header_cache = found
        return found

    def _decode_header(self, frame: memoryview, connection: Connection) -> HeaderCache | list[Part]:
        header, position = decode_request_header(frame)
        route = self._routes.get(header.api_key << 16 | header.api_version)
        if route is None:
            found = self._find(header)
            if not isinstance(found, Route):
                return found
            route = found
        context = RequestContext(
            header.api_version,
            header.api_key,
            header.client_id,
            connection.listener_name,
            connection.client_host,
            connection.number,
            connection.session,
        )
        if route.metered:
            assert self._metering is not None
            context.meter = self._metering.meter(header.api_key, header.client_id, connection)
        measure: RequestMeasure | None = None
        if self._measuring is not None:
            measure = self._measuring.measure(route.api, header.api_version, header.client_id, connection, context.meter)
        return HeaderCache(bytes(frame[:4]), bytes(frame[8:position]), position, route, context, measure)

    def failure(
        self,
        route: Route,
        correlation_id: int,
        request: object,
        error: BaseException,
        meter: Meter | None = None,
        measure: RequestMeasure | None = None,
    ) -> list[Part]:
        if isinstance(error, (MalformedInput, CloseConnection)):
            raise MalformedInput(str(error)) from error
        if not isinstance(error, KafkaError):
            self._log_bug(route, error)
            error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "unexpected error, see the log of the broker")
        response = None
        if route.refuse is not None and request is not None:
            response = route.refuse(request, error)
        elif hasattr(route.response_class, "error_code"):
            response = route.response_class(error_code=error.code)
            if hasattr(response, "error_message"):
                response.error_message = error.detail
        if response is not None:
            if meter is not None:
                meter.end(request, response, int(error.code))
            try:
                parts = route.encoder.encode(correlation_id, response)
                if measure is not None:
                    measure.finish(parts, request, response)
                return parts
            except ValueError:
                pass  # this version of the response cannot carry the error
        raise MalformedInput(f"{route.api.name} v{route.version} failed and has no error response: {error}") from error

    def _find(self, header: RequestHeader) -> Route | list[Part]:
        handler = self._handlers.get(header.api_key)
        version = header.api_version
        if handler is None:
            known = API_BY_KEY.get(header.api_key)
            raise MalformedInput(f"API key {header.api_key} is not served" + (f" ({known.name})" if known else ""))
        if not handler.min_version <= version <= handler.max_version:
            if header.api_key == _API_VERSIONS:
                return encode_response(handler.api, 0, header.correlation_id, handler.module.unsupported_version(handler))
            raise MalformedInput(
                f"{handler.api.name} v{version} is not served, versions {handler.min_version} to {handler.max_version} are"
            )
        module = handler.module
        handle = bind(module.handle, self._parts)
        if self._authorize is not None:
            handle = self._authorize(handler, handle, self._parts)
        metered = self._metering is not None and self._metering.applies_to(header.api_key)
        route = Route(handler.api, version, handle, getattr(module, "refuse", None), metered)
        self._routes[header.api_key << 16 | version] = route
        return route

    def _log_bug(self, route: Route, error: BaseException) -> None:
        # A bug that every request of a client meets is logged with one traceback.
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        where = f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place is not None else ""
        bug = (route.api.name, f"{type(error).__name__} {where}")
        if bug in self._seen_bugs:
            logger.error("%s v%d failed again: %s: %s", route.api.name, route.version, type(error).__name__, error)
        else:
            self._seen_bugs.add(bug)
            logger.error("%s v%d failed", route.api.name, route.version, exc_info=error)
