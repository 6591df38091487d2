"""The guard: asks the authorizer for one request, and writes its decisions to the audit log.

The audit log is the logger `kafka.authorizer.logger`, with Kafka's lines: denied requests at INFO, allowed ones at DEBUG, what is
left out of a list at TRACE.

Compiled by mypyc: no nested functions.
"""

from __future__ import annotations

import logging
from typing import Final

from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.broker.network.context import CloseConnection, RequestContext
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.registry import API_BY_KEY
from ottla.security.acl import CLUSTER, CLUSTER_NAME, DESCRIBE, OPERATION_NAMES, RESOURCE_NAMES, TOPIC, supported_operations
from ottla.security.authorizer import Authorizer, Permissions

audit: Final = logging.getLogger("kafka.authorizer.logger")

TRACE: Final = 5
_levels: Final[dict[int, bool]] = getattr(audit, "_cache", {})
"""The answers of `isEnabledFor` so far; the logger empties it when a level changes. Every request asks, and a call of a method in
Python costs more than the rest of what a known permission costs."""
_DEBUG: Final = logging.DEBUG
_INFO: Final = logging.INFO


class Guard:
    def __init__(self, authorizer: Authorizer, metadata: LocalMetadata) -> None:
        self.authorizer = authorizer
        self._metadata = metadata

    def permissions(self, context: RequestContext) -> Permissions:
        """What the sender of a request may do, as far as it is known. CloseConnection while the ACLs may be old."""
        permissions = context.permissions
        if permissions is not None and permissions.generation == self.authorizer.generation:
            return permissions
        return self._refreshed(context)

    def _refreshed(self, context: RequestContext) -> Permissions:
        if self.authorizer.suspended:
            raise CloseConnection("the ACLs are read again after the session with the metadata store expired; connect again")
        session = context.session
        permissions = session.permissions
        if permissions is None:
            permissions = self.authorizer.permissions(str(session.principal), session.client_host)
            session.permissions = permissions
        context.permissions = permissions
        self.authorizer.refresh(permissions)
        return permissions

    def allows(
        self, context: RequestContext, operation: int, resource_type: int, name: str, count: int = 1, quietly: bool = False
    ) -> bool:
        """The decision, audited. `count`: how often the request names the resource. `quietly`: to be denied is no failure of the
        request, so it is no news."""
        operations = self.authorizer.operations(self.permissions(context), resource_type, name)
        allowed = operations >> operation & 1 == 1
        level = _DEBUG if allowed else TRACE if quietly else _INFO
        if audit.isEnabledFor(level):
            self._log(context, operation, f"{RESOURCE_NAMES[resource_type]}:LITERAL:{name}", allowed, count, level)
        return allowed

    def may(self, context: RequestContext, operation: int, name: str, count: int = 1) -> bool:
        """`allows` for a topic."""
        return self.allows(context, operation, TOPIC, name, count)

    def may_describe(self, context: RequestContext, topic: str) -> bool:
        """`may` for DESCRIBE, for lists that leave out what is denied: a denial is logged at TRACE only."""
        return self.allows(context, DESCRIBE, TOPIC, topic, 1, True)

    def allows_on_cluster(self, context: RequestContext, operation: int, quietly: bool = False) -> bool:
        return self.allows(context, operation, CLUSTER, CLUSTER_NAME, 1, quietly)

    def require_cluster(self, context: RequestContext, operation: int) -> None:
        """KafkaError CLUSTER_AUTHORIZATION_FAILED if it is denied."""
        if not self.allows(context, operation, CLUSTER, CLUSTER_NAME):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "cluster authorization failed")

    def allows_on_any(self, context: RequestContext, operation: int, resource_type: int) -> bool:
        """Whether the operation is allowed on some resource of the type (AC05)."""
        allowed = self.authorizer.allows_on_any(self.permissions(context), operation, resource_type)
        level = _DEBUG if allowed else _INFO
        if audit.isEnabledFor(level):
            self._log(context, operation, f"{RESOURCE_NAMES[resource_type]}:UNKNOWN:NONE", allowed, 0, level)
        return allowed

    def authorized_operations(self, context: RequestContext, resource_type: int, name: str) -> int:
        """The operations that are allowed on a resource, of those that its type has, as bits (AC10)."""
        operations = self.authorizer.operations(self.permissions(context), resource_type, name)
        return operations & supported_operations(resource_type)

    def audits_allowed(self) -> bool:
        """Whether allowed requests are logged."""
        known = _levels.get(_DEBUG)
        return audit.isEnabledFor(_DEBUG) if known is None else known

    def topic_name(self, topic_id: bytes) -> str | None:
        return self._metadata.image.topic_names.get(topic_id)

    def _log(self, context: RequestContext, operation: int, resource: str, allowed: bool, count: int, level: int) -> None:
        session = context.session
        audit.log(
            level,
            "Principal = %s is %s Operation = %s from host = %s on resource = %s for request = %s with resourceRefCount = %d",
            session.principal,
            "Allowed" if allowed else "Denied",
            OPERATION_NAMES[operation],
            session.client_host,
            resource,
            API_BY_KEY[context.api_key].name.title().replace("_", ""),
            count,
        )
