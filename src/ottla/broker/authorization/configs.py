"""Authorizes DescribeConfigs, AlterConfigs and IncrementalAlterConfigs: by the type of each resource."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from ottla.broker.authorization.guard import Guard
from ottla.broker.authorization.merging import Handle, Refuse
from ottla.broker.authorization.rows import ByItem, denied_error, handle_allowed
from ottla.broker.network.context import RequestContext
from ottla.errors import KafkaError
from ottla.security.acl import ALTER_CONFIGS, CLUSTER, CLUSTER_NAME, DESCRIBE_CONFIGS, GROUP, TOPIC

_TYPES: Final = {2: TOPIC, 4: CLUSTER, 8: CLUSTER, 16: CLUSTER, 32: GROUP}
"""Config resources (topic, broker, broker logger, client metrics, group): the resource whose ACLs apply."""


def _by_resource(
    operation: int, answered: str, guard: Guard, handle: Handle, refuse: Refuse, request: Any, context: RequestContext
) -> Any:
    allowed: list[Any] = []
    denied: list[Any] = []
    for resource in request.resources:
        kind = _TYPES.get(resource.resource_type)
        if kind is None:
            allowed.append(resource)  # unknown, and told so
            continue
        name = CLUSTER_NAME if kind == CLUSTER else resource.resource_name
        (allowed if guard.allows(context, operation, kind, name) else denied).append(resource)
    row = ByItem(operation, "resources", answered)
    return handle_allowed(handle, refuse, request, context, row, allowed, denied, _error_of)


def _error_of(resource: Any) -> KafkaError:
    return denied_error(_TYPES[resource.resource_type])


describe_configs = partial(_by_resource, DESCRIBE_CONFIGS, "results")
alter_configs = partial(_by_resource, ALTER_CONFIGS, "responses")
