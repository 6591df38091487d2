"""Calls a handler with what is allowed of a request, and adds what is denied to its response."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from ottla.broker.authorization.guard import Guard
from ottla.broker.network.context import RequestContext
from ottla.errors import KafkaError
from ottla.security.acl import TOPIC

T = TypeVar("T")

Handle = Callable[[Any, RequestContext], Any]
Refuse = Callable[[Any, KafkaError], Any]
AUTHORIZATION_FAILED = "Authorization failed."


def split(
    guard: Guard,
    context: RequestContext,
    operation: int,
    items: Iterable[T],
    name_of: Callable[[T], str],
    resource_type: int = TOPIC,
    *,
    quietly: bool = False,
) -> tuple[list[T], list[T]]:
    """(allowed, denied). Each resource is decided and audited once, however often it is named."""
    items = list(items)
    counts = Counter(name_of(item) for item in items)
    allowed = {name for name, count in counts.items() if guard.allows(context, operation, resource_type, name, count, quietly)}
    return [item for item in items if name_of(item) in allowed], [item for item in items if name_of(item) not in allowed]


def answer(handle: Handle, refuse: Refuse, request: Any, context: RequestContext, merge: Callable[[Any], Any]) -> Any:
    """The handler's response, or how the API refuses the request, with what `merge` makes of it."""
    try:
        response = handle(request, context)
    except KafkaError as error:
        return merge(refuse(request, error))
    if isinstance(response, Awaitable):
        return _answer_later(response, refuse, request, merge)
    return merge(response)


async def _answer_later(response: Awaitable[Any], refuse: Refuse, request: Any, merge: Callable[[Any], Any]) -> Any:
    try:
        answered = await response
    except KafkaError as error:
        return merge(refuse(request, error))
    return merge(answered)


def filtered(handle: Handle, request: Any, context: RequestContext, keep: Callable[[Any], None]) -> Any:
    """The handler's response after `keep` has removed what the client may not see."""
    response = handle(request, context)
    if isinstance(response, Awaitable):
        return _filtered_later(response, keep)
    keep(response)
    return response


async def _filtered_later(response: Awaitable[Any], keep: Callable[[Any], None]) -> Any:
    answered = await response
    keep(answered)
    return answered
