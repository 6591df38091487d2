"""From a frame to the handler of its API, and from the handler's answer to the parts of a reply.

Owns the routes (API and version -> decoder, handler), and what becomes of errors:
a `KafkaError` becomes the reply; `MalformedInput` and `CloseConnection` close the connection; anything else is our bug, logged
once with its traceback, answered as UNKNOWN_SERVER_ERROR where the reply has room for it, and else the connection is closed.

A handler that answers at once costs no task; one that returns a future none either. A handler may have a short cut for what is
asked most (`quick`): it gets the undecoded request, and what it leaves goes the long way.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ottla.broker.network.context import CloseConnection, RequestContext
from ottla.broker.network.handler import Handler, bind
from ottla.errors import ErrorCode, KafkaError, MalformedInput
from ottla.ports import Part
from ottla.protocol.headers import RequestHeader, ResponseEncoder, decode_request_header, encode_response
from ottla.protocol.registry import API_BY_KEY, Api
from ottla.wire.codec import decoder

if TYPE_CHECKING:
    from mypy_extensions import i64

    from ottla.broker.network.connection import Connection

logger = logging.getLogger(__name__)

_API_VERSIONS = 18

_ELEMENTS_MAX = 1 << 18
"""In all arrays of a request together. 100 MB of empty names would be 33 million: gigabytes of objects, and nobody else served
for the half minute it takes to make and answer them. The largest clients name some ten thousand partitions."""
_ORDER_ELEMENTS_MAX = 1 << 24
"""In what a controller tells: every replica of every partition of the cluster may stand in it."""
_ORDERS = frozenset({"leader_and_isr", "stop_replica", "update_metadata"})

QuickReply = bytes | list[Part] | asyncio.Future[list[Part]] | None
"""A short cut's reply, as bytes or parts, now or later; None: it was not for the short cut."""


class Route:
    """One API in one version."""

    __slots__ = ("api", "decode", "encode", "handle", "quick", "refuse", "response_class", "version")

    def __init__(
        self,
        api: Api,
        version: int,
        handle: Callable[[Any, Any], Any],
        refuse: Callable[[Any, Any], Any] | None,
        quick: Callable[[memoryview, int, int, RequestContext], QuickReply] | None = None,
    ) -> None:
        self.api = api
        self.version = version
        self.decode = decoder(api.request, version, _ORDER_ELEMENTS_MAX if api.name in _ORDERS else _ELEMENTS_MAX)
        self.encode = ResponseEncoder(api, version)
        self.handle = handle
        self.refuse = refuse
        self.quick = quick
        self.response_class = api.response


class Usual:
    """What the last request of a connection began with, and what that meant: the next one mostly differs in its correlation id
    only, which stands between API and client."""

    __slots__ = ("api", "before", "client", "context", "position", "route")

    def __init__(self, api: bytes, client: bytes, position: int, route: Route, context: RequestContext) -> None:
        self.api = api
        self.client = client
        self.position = position
        self.route = route
        self.context = context
        self.before: Usual | None = None
        """What was usual before it: a member of a group joins and syncs in turn, or beats and commits. No more than these two."""


class PendingReply:
    """A reply whose handler has to wait."""

    __slots__ = ("_correlation_id", "_dispatcher", "_request", "_route", "future")

    def __init__(
        self, dispatcher: Dispatcher, route: Route, correlation_id: int, request: object, future: asyncio.Future[Any]
    ) -> None:
        self._dispatcher = dispatcher
        self._route = route
        self._correlation_id = correlation_id
        self._request = request
        self.future = future

    def parts(self) -> list[Part] | None:
        """The reply, once the future is done (and was not cancelled). MalformedInput: close the connection."""
        error = self.future.exception()
        try:
            if error is not None:
                raise error
            response = self.future.result()
            if response is None or isinstance(response, list):
                return response  # a short cut's is whole already
            return self._route.encode(self._correlation_id, response)
        except Exception as failure:
            return self._dispatcher.failure(self._route, self._correlation_id, self._request, failure)


class Dispatcher:
    def __init__(self, handlers: Mapping[int, Handler], parts: Mapping[str, Any], loop: asyncio.AbstractEventLoop) -> None:
        self._handlers = handlers
        """The APIs that are served, by api key."""
        self._parts = parts
        """The collaborators of handlers, by parameter name. A route binds them when its API is first requested."""
        self._loop = loop
        self._routes: dict[int, Route] = {}
        self._seen_bugs: set[tuple[str, str]] = set()

    def dispatch(self, frame: memoryview, connection: Connection) -> list[Part] | PendingReply | None:
        """Answer one request. None: it gets no reply. MalformedInput: close the connection."""
        usual = connection.usual
        # Read as bytes: far cheaper than as a view.
        start = bytes(frame[: usual.position if usual is not None else 8])
        if usual is None or start[8:] != usual.client or start[:4] != usual.api:
            found = self._other(frame, connection, usual)
            if not isinstance(found, Usual):
                return found
            usual = found
        route = usual.route
        number: i64 = start[4] << 24 | start[5] << 16 | start[6] << 8 | start[7]
        correlation_id: int = number if number < 0x80000000 else number - 0x100000000
        if route.quick is not None:
            try:
                quick_reply = route.quick(frame, usual.position, correlation_id, usual.context)
            except Exception as error:
                # It may have kept something: the long way is not for trying again, only for the answer.
                request, _ = route.decode(frame, usual.position)
                return self.failure(route, correlation_id, request, error)
            if quick_reply is not None:
                if isinstance(quick_reply, bytes):
                    return [quick_reply]
                if isinstance(quick_reply, list):
                    return quick_reply
                return PendingReply(self, route, correlation_id, None, quick_reply)
        request, _ = route.decode(frame, usual.position)
        try:
            response = route.handle(request, usual.context)
            if type(response) is route.response_class:
                return route.encode(correlation_id, response)
        except Exception as error:
            return self.failure(route, correlation_id, request, error)
        if response is None:
            return None
        future = response if isinstance(response, asyncio.Future) else self._loop.create_task(response)
        return PendingReply(self, route, correlation_id, request, future)

    def _other(self, frame: memoryview, connection: Connection, last: Usual | None) -> Usual | list[Part]:
        """Of a request that is not like the last one: what it is like, from now on the usual."""
        if last is not None:
            before = last.before
            if before is not None:
                start = bytes(frame[: before.position])
                if start[8:] == before.client and start[:4] == before.api:
                    last.before, before.before = None, last
                    connection.usual = before
                    return before
        found = self._begin(frame, connection)
        if isinstance(found, Usual) and found.client:
            # Only ControlledShutdown v0 names no client: nothing would tell that a frame is too short.
            if last is not None:
                last.before = None
            found.before = last
            connection.usual = found
        return found

    def _begin(self, frame: memoryview, connection: Connection) -> Usual | list[Part]:
        header, position = decode_request_header(frame)
        route = self._routes.get(header.api_key << 16 | header.api_version)
        if route is None:
            found = self._find(header)
            if not isinstance(found, Route):
                return found
            route = found
        context = RequestContext(
            self._parts["broker"],
            header.api_version,
            header.api_key,
            header.client_id,
            connection.listener_name,
            connection.client_host,
            connection,
        )
        return Usual(bytes(frame[:4]), bytes(frame[8:position]), position, route, context)

    def failure(self, route: Route, correlation_id: int, request: object, error: BaseException) -> list[Part]:
        if isinstance(error, (MalformedInput, CloseConnection)):
            raise MalformedInput(str(error)) from error
        if not isinstance(error, KafkaError):
            self._log_bug(route, error)
            error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "a bug of the broker: its log says more")
        response = None
        if route.refuse is not None and request is not None:
            response = route.refuse(request, error)
        elif hasattr(route.response_class, "error_code"):
            response = route.response_class(error_code=error.code)
            if hasattr(response, "error_message"):
                response.error_message = error.detail
        if response is None:
            raise MalformedInput(f"a {route.api.name} request that cannot be answered: {error}") from error
        return route.encode(correlation_id, response)

    def _find(self, header: RequestHeader) -> Route | list[Part]:
        handler = self._handlers.get(header.api_key)
        version = header.api_version
        if handler is None:
            known = API_BY_KEY.get(header.api_key)
            raise MalformedInput(f"an API this broker does not serve: {header.api_key}" + (f" ({known.name})" if known else ""))
        if not handler.min_version <= version <= handler.max_version:
            if header.api_key == _API_VERSIONS:
                return encode_response(handler.api, 0, header.correlation_id, handler.module.unsupported_version())
            raise MalformedInput(
                f"version {version} of {handler.api.name}, served are {handler.min_version} to {handler.max_version}"
            )
        module = handler.module
        handle = bind(module.handle, self._parts)
        route = Route(handler.api, version, handle, getattr(module, "refuse", None), getattr(module, "quick", None))
        self._routes[header.api_key << 16 | version] = route
        return route

    def _log_bug(self, route: Route, error: BaseException) -> None:
        # The same bug met by every request of a client is one traceback and not one per request.
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
