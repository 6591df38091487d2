"""The kinds of rows of the table of authorization: what most APIs need, as data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ottla.broker.authorization.guard import Guard
from ottla.broker.authorization.merging import Handle, Refuse, answer, split
from ottla.broker.authorization.partly import of_group
from ottla.broker.network.context import RequestContext
from ottla.errors import ErrorCode, KafkaError
from ottla.security.acl import CLUSTER, GROUP, TOPIC, TRANSACTIONAL_ID

ERRORS = {
    TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


def denied_error(resource_type: int) -> KafkaError:
    return KafkaError(ERRORS[resource_type])


@dataclass(frozen=True, slots=True)
class Nothing:
    """Everyone may send it. What it tells is no secret, or its handler knows whom to tell."""

    def bind(self, guard: Guard, handle: Handle, refuse: Refuse) -> Handle:
        return handle


@dataclass(frozen=True, slots=True)
class OnCluster:
    """One operation on the cluster. Denied: CLUSTER_AUTHORIZATION_FAILED in the request's own shape."""

    operation: int

    def bind(self, guard: Guard, handle: Handle, refuse: Refuse) -> Handle:
        def authorized(request: Any, context: RequestContext) -> Any:
            guard.require_cluster(context, self.operation)
            return handle(request, context)

        return authorized


@dataclass(frozen=True, slots=True)
class OfGroup:
    """READ on the group."""

    def bind(self, guard: Guard, handle: Handle, refuse: Refuse) -> Handle:
        def authorized(request: Any, context: RequestContext) -> Any:
            return of_group(guard, handle, request, context)

        return authorized


@dataclass(frozen=True, slots=True)
class ByItem:
    """One operation on each resource that a list names. Denied ones are refused one by one, the handler gets the others."""

    operation: int
    asked: str
    """The list in the request."""
    answered: str
    """The list in the response."""
    name: str = ""
    """The field with the name of the resource; empty: the list has names."""
    resource_type: int = TOPIC

    def bind(self, guard: Guard, handle: Handle, refuse: Refuse) -> Handle:
        def name_of(item: Any) -> str:
            found: str = getattr(item, self.name) if self.name else item
            return found

        def authorized(request: Any, context: RequestContext) -> Any:
            allowed, denied = split(guard, context, self.operation, getattr(request, self.asked), name_of, self.resource_type)
            return handle_allowed(handle, refuse, request, context, self, allowed, denied)

        return authorized


def handle_allowed(
    handle: Handle,
    refuse: Refuse,
    request: Any,
    context: RequestContext,
    row: ByItem,
    allowed: list[Any],
    denied: list[Any],
    error_of: Callable[[Any], KafkaError] | None = None,
) -> Any:
    """Refuse the denied items, give the others to the handler, and merge. `error_of`: by item, if they differ."""
    if not denied:
        return handle(request, context)
    groups: dict[ErrorCode, list[Any]] = {}
    for item in denied:
        error = error_of(item) if error_of is not None else denied_error(row.resource_type)
        groups.setdefault(error.code, []).append(item)
    refused: list[Any] = []
    response: Any = None
    for code, items in groups.items():
        setattr(request, row.asked, items)
        response = refuse(request, KafkaError(code))
        refused += getattr(response, row.answered)
    setattr(request, row.asked, allowed)
    if not allowed:
        setattr(response, row.answered, refused)
        return response

    def merge(merged: Any) -> Any:
        setattr(merged, row.answered, [*getattr(merged, row.answered), *refused])
        return merged

    return answer(handle, refuse, request, context, merge)
