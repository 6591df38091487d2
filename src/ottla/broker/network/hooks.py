"""Hooks of the request pipeline: what every request passes besides its handler.

A request is decoded, authenticated, authorized, held against quotas, handled, throttled, and its response encoded. Hooks are
given when a dispatcher is built. A route without hooks calls its handler directly, so hooks cost nothing while none is given.

`authenticate`, `authorize` and `quota` run before the handler. A hook refuses a request by raising a `KafkaError`, which becomes
the response as if the handler had raised it, or `CloseConnection`. `throttle` runs after the handler and returns the throttle
time, which goes into the response's `throttle_time_ms` if that version has the field.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from ottla.broker.network.context import RequestContext
from ottla.protocol.registry import Api

Check = Callable[[Api, Any, RequestContext], None]
"""(API, request, context): return, or raise to refuse the request."""
Throttle = Callable[[Api, Any, Any, RequestContext], int]
"""(API, request, response, context) -> throttle time in milliseconds. The response is None if the request gets none."""


@dataclass(frozen=True, slots=True)
class Hooks:
    authenticate: Check | None = None
    authorize: Check | None = None
    quota: Check | None = None
    throttle: Throttle | None = None

    def around(self, api: Api, handle: Callable[[Any, RequestContext], Any]) -> Callable[[Any, RequestContext], Any]:
        """The handler with its hooks; the handler itself if there are none."""
        checks = [check for check in (self.authenticate, self.authorize, self.quota) if check is not None]
        throttle = self.throttle

        def hooked(request: Any, context: RequestContext) -> Any:
            for check in checks:
                check(api, request, context)
            response = handle(request, context)
            if throttle is None:
                return response
            if asyncio.isfuture(response) or asyncio.iscoroutine(response):
                return later(request, response, context)
            return throttled(request, response, context)

        def throttled(request: Any, response: Any, context: RequestContext) -> Any:
            assert throttle is not None
            throttle_time_ms = throttle(api, request, response, context)
            if hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = throttle_time_ms
            return response

        async def later(request: Any, response: Awaitable[Any], context: RequestContext) -> Any:
            return throttled(request, await response, context)

        return hooked if checks or throttle is not None else handle


NO_HOOKS = Hooks()
