"""The endpoints, a module per noun. Each has its handlers and, beside them, what the OpenAPI description says."""

from __future__ import annotations

from typing import Final

from ottla.console.api import brokers, groups, overview, records, security, session, topics, transactions
from ottla.console.endpoint import Endpoint

ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    *session.ENDPOINTS,
    *overview.ENDPOINTS,
    *topics.ENDPOINTS,
    *records.ENDPOINTS,
    *brokers.ENDPOINTS,
    *groups.ENDPOINTS,
    *transactions.ENDPOINTS,
    *security.ENDPOINTS,
)
